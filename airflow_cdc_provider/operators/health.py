"""A task that is red when a pipeline is not as it should be: for alerts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow.sdk import Context

from airflow_cdc_provider.operators.base import CdcOperator
from airflow_cdc_provider.operators.log_errors import failure
from airflow_cdc_provider.views.health import problems
from airflow_cdc_provider.views.progress import progress_line
from airflow_cdc_provider.views.summaries import stream_summary


class CdcHealthOperator(CdcOperator):
    """
    Fail if a pipeline has failed, has an isolated table, waits for a person, or is late.

    Asks the state store alone; one that is paused on purpose is well. A copy older than the
    pipeline file's `freshness` is late, whatever the limits here.

    :param pipeline: path of the pipeline's YAML file (templated).
    :param refused: why the task may do nothing; it then fails with these words.
    :param max_lag_s: seconds that the sink may be behind; not judged if None, and between the runs
        of a bounded pipeline (templated).
    :param max_silence_s: seconds since a stream was last heard of; not judged if None, as between
        the runs of a bounded pipeline (templated).
    """

    template_fields: Sequence[str] = ("pipeline", "max_lag_s", "max_silence_s")

    def __init__(
        self,
        *,
        max_lag_s: float | str | None = None,
        max_silence_s: float | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.max_lag_s = max_lag_s
        self.max_silence_s = max_silence_s

    def execute(self, context: Context) -> dict[str, Any]:  # noqa: ARG002
        """Check the pipeline's status and fail with its problems."""
        with self.opened() as steps:
            status = steps.status()
            is_bounded = not steps.run.model.stream.is_continuous
        self.log.info("%s", progress_line(status))
        limits = {"max_lag_s": self.max_lag_s, "max_silence_s": self.max_silence_s}
        found = problems(
            status,
            is_bounded=is_bounded,
            **{name: None if s is None else float(s) for name, s in limits.items()},
        )
        if found:
            raise failure(f"pipeline {status.state.name}: {'; '.join(found)}", told=found)
        return stream_summary(status)
