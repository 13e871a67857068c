"""What all operators of a pipeline share: the file, the owner's name, and errors by remedy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from airflow_cdc_provider.core.errors import (
    CdcError,
    FencedError,
    RetryableError,
    StateMovedError,
)
from airflow_cdc_provider.hooks.steps import CdcSteps
from airflow_cdc_provider.links.progress import CdcProgressLink

# Another owner took over, or moved things on, in the middle: the next try starts from what is.
WORTH_A_RETRY = (RetryableError, FencedError, StateMovedError)


class CdcOperator(BaseOperator):
    """
    One step of a pipeline.

    :param pipeline: path of the pipeline's YAML file (templated).
    :param refused: why the task may do nothing, such as a clash of two pipeline files; it then
        fails with these words.
    """

    template_fields: Sequence[str] = ("pipeline",)
    operator_extra_links = (CdcProgressLink(),)
    ui_color = "#e8f1f5"

    def __init__(self, *, pipeline: str, refused: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline
        self.refused = refused

    @contextmanager
    def opened(self) -> Iterator[CdcSteps]:
        """Open the pipeline; its errors leave as Airflow's."""
        if self.refused:
            raise AirflowFailException(self.refused)
        with airflow_errors(), CdcSteps(self.pipeline, owner=owner_of(self.dag_id)) as steps:
            yield steps


def owner_of(dag_id: str) -> str:
    """Return the name under which a DAG owns its pipeline.

    All runs and tries of a DAG are one owner, so that a retried task, a cleared one and the next
    run take over at once from what was killed, and need not wait for a lease to end.
    """
    return f"airflow dag {dag_id}"


@contextmanager
def airflow_errors() -> Iterator[None]:
    """Let an error retry its task if trying again may mend it, and else fail it at once."""
    try:
        yield
    except CdcError as error:
        if isinstance(error, WORTH_A_RETRY):
            raise AirflowException(str(error)) from error
        raise AirflowFailException(str(error)) from error


def skip_if_paused(steps: CdcSteps) -> None:
    """Skip the task, and with it the rest of the run, while the pipeline is to stop."""
    if steps.is_paused:
        raise AirflowSkipException(
            f"pipeline {steps.run.name} is paused; resume it, and the next run goes on from there"
        )
