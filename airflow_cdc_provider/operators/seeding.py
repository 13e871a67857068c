"""The task that begins the way back of a pair of nodes with the rows that the way there copied."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow.sdk import BaseSensorOperator, Context, PokeReturnValue
from airflow.sdk.exceptions import AirflowSkipException

from airflow_cdc_provider.core.errors import NOTHING_STARTED, PausedError, StateMovedError
from airflow_cdc_provider.operators.base import CdcOperator

_WEEK_S = 7 * 86400.0


class CdcSeedOperator(CdcOperator, BaseSensorOperator):
    """
    Begin an edge of a topology with the rows that the opposite edge has copied, reading none.

    It does what `run --seeded-from` does before it streams: once the opposite edge is consistent,
    the stream of this one is to begin at that place of the log. It creates and changes nothing at
    the sink. While the opposite edge is not consistent it waits, without a worker between two
    looks. A pipeline that streams already is left as it is.

    :param pipeline: path of the pipeline's YAML file (templated).
    :param refused: why the task may do nothing; it then fails with these words.
    :param seeded_from: path of the opposite edge's file; without one it is looked for in the folder
        of `pipeline` (templated).
    :param waits: wait for the opposite edge; without it the task fails, and may be retried, while
        that one is not consistent.
    :param poke_interval: seconds between two looks at the opposite edge.
    :param timeout: seconds after which the task fails if the opposite edge is not consistent.
    """

    notifies = True
    fails_run = True

    template_fields: Sequence[str] = ("pipeline", "seeded_from")

    def __init__(
        self,
        *,
        seeded_from: str = "",
        waits: bool = True,
        poke_interval: float = 15.0,
        timeout: float = _WEEK_S,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            poke_interval=poke_interval, timeout=timeout, **{"mode": "reschedule", **kwargs}
        )
        self.seeded_from = seeded_from
        self.waits = waits

    def poke(self, context: Context) -> PokeReturnValue:  # noqa: ARG002
        """Begin the pipeline if the opposite edge is consistent; tell whether it has begun."""
        with self.opened() as steps:
            try:
                is_begun, text = steps.seed(self.seeded_from)
            except PausedError as error:
                raise AirflowSkipException(str(error)) from None
            if not (is_begun or self.waits):
                raise StateMovedError(
                    text,
                    where=f"seed of {steps.run.name}",
                    risk=NOTHING_STARTED,
                    remedy="let the opposite edge go on, then run this task again",
                )
            self.log.info("%s", text)
            steps.give_back()  # to the DAG that streams, whose name is another
            return PokeReturnValue(is_begun, {"pipeline": str(steps.run.name), "done": text})
