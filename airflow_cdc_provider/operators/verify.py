"""The proof: source and sink compared, both ways."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowSkipException

from airflow_cdc_provider.core.errors import PipelineFileError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.hooks.steps import CdcSteps
from airflow_cdc_provider.operators.jobs import CdcJobOperator
from airflow_cdc_provider.operators.without_stack import failure
from airflow_cdc_provider.pipeline.steps.left_out import left_out_text
from airflow_cdc_provider.views.lineage import Deed, Work
from airflow_cdc_provider.views.summaries import verify_summary

if TYPE_CHECKING:
    from airflow_cdc_provider.core.verify_report import VerifyReport

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
        self._report: VerifyReport | None = None

    def execute(self, context: Context) -> dict[str, Any]:
        if _is_no(self.enabled):
            raise AirflowSkipException("this run was asked not to verify")
        with self.opened() as steps:
            steps.require_not_ended()
            report = steps.verify(
                tables_of(self.task_id, self.tables),
                settle_s=self.settle_s,
                catch_up=None if steps.is_paused else lambda: self._catch_up(context, steps),
            )
            self._report = report
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

    def lineage_work(self) -> Work | None:
        """Tell of the tables that are compared, and what was found."""
        if _is_no(self.enabled):
            return None
        return compared_work(tables_of(self.task_id, self.tables), self._report)

    def _catch_up(self, context: Context, steps: CdcSteps) -> None:
        self.log.info("rows differ and no stream is at work: catching up before they count")
        self.catch_up(context, steps)


def compared_work(tables: Collection[TableId] | None, report: VerifyReport | None) -> Work:
    """Say what a comparison is about, and what it has found if it has ended."""
    if report is None:
        return Work(tables, writes=False)
    deeds = {each.table: Deed(verdict=each) for each in report.tables}
    return Work(deeds.keys(), deeds, writes=False)


def _is_no(enabled: str | bool) -> bool:  # noqa: FBT001 - what a template rendered
    return str(enabled).strip().lower() in _NO


def tables_of(task_id: str, names: Sequence[str] | None) -> tuple[TableId, ...] | None:
    """Read the names of tables; None are all there are."""
    try:
        return None if names is None else tuple(map(TableId.parse, names))
    except ValueError as error:
        raise PipelineFileError(
            str(error), where=f"tables of {task_id}", remedy="write database.table"
        ) from None
