"""The proof: source and sink compared, both ways."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowSkipException

from airflow_cdc_provider.core.errors import PipelineFileError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.hooks.steps import CdcSteps
from airflow_cdc_provider.operators.jobs import CdcJobOperator
from airflow_cdc_provider.operators.without_stack import failure
from airflow_cdc_provider.pipeline.steps.left_out import left_out_text
from airflow_cdc_provider.views.summaries import verify_summary

_NO = frozenset({"", "0", "false", "no", "none"})


class CdcVerifyOperator(CdcJobOperator):
    """
    Compare source and sink, both ways; fail if they differ.

    Rows that differ are looked at again once the stream has brought what the source had. Where
    none is at work, as between the runs of a bounded pipeline, a job catches up for that.

    :param pipeline: path of the pipeline's YAML file (templated).
    :param refused: why the task may do nothing; it then fails with these words.
    :param tables: only these tables, as `database.table`; all of them if None (templated).
    :param settle_s: seconds that a stream at work gets, each time, to bring differing rows.
    :param enabled: skip the task if this is false or renders to a word for it (templated).
    """

    template_fields: Sequence[str] = ("pipeline", "tables", "enabled")

    def __init__(
        self,
        *,
        tables: Sequence[str] | None = None,
        settle_s: float = 30.0,
        enabled: str | bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.tables = tables
        self.settle_s = settle_s
        self.enabled = enabled

    def execute(self, context: Context) -> dict[str, Any]:
        if str(self.enabled).strip().lower() in _NO:
            raise AirflowSkipException("this run was asked not to verify")
        with self.opened() as steps:
            steps.require_not_ended()
            report = steps.verify(
                tables_of(self.task_id, self.tables),
                settle_s=self.settle_s,
                catch_up=None if steps.is_paused else lambda: self._catch_up(context, steps),
            )
            summary = verify_summary(steps.run.name, report)
        for table in summary["not_copied"]:
            self.log.warning("%s", left_out_text(table))
        if not report.equal:
            for told in (each for each in report.tables if not each.equal):
                self.log.error("%s: %s", told.table, told)
            raise failure(
                f"source and sink differ; `{steps.run.name}__verify` with repair, or `verify "
                "--repair`, has the rows that differ read again"
            )
        return summary

    def _catch_up(self, context: Context, steps: CdcSteps) -> None:
        self.log.info("rows differ and no stream is at work: catching up before they count")
        self.catch_up(context, steps)


def tables_of(task_id: str, names: Sequence[str] | None) -> tuple[TableId, ...] | None:
    """Read the names of tables; None are all there are."""
    try:
        return None if names is None else tuple(map(TableId.parse, names))
    except ValueError as error:
        raise PipelineFileError(
            str(error), where=f"tables of {task_id}", remedy="write database.table"
        ) from None
