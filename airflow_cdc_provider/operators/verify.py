"""The proof: source and sink compared, both ways."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowSkipException

from airflow_cdc_provider.core.errors import PipelineFileError, RefusedError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.hooks.steps import CdcSteps
from airflow_cdc_provider.operators.jobs import CdcJobOperator
from airflow_cdc_provider.operators.log_errors import failure
from airflow_cdc_provider.pipeline.steps.left_out import left_out_text
from airflow_cdc_provider.views.lineage import LineageEntry, LineageWork
from airflow_cdc_provider.views.reports import equal_tables_line
from airflow_cdc_provider.views.summaries import verify_summary

if TYPE_CHECKING:
    from airflow_cdc_provider.core.verify_report import VerifyReport

BY_FILE = "by_file"
_MEANS = {
    BY_FILE: BY_FILE,
    "after_snapshot": "after_snapshot",
    **dict.fromkeys(("always", "true", "1", "yes"), "always"),
    **dict.fromkeys(("never", "", "0", "false", "no", "none"), "never"),
}
_UNWANTED = "this run was asked not to verify"


class CdcVerifyOperator(CdcJobOperator):
    """
    Compare source and sink, both ways; fail if they differ.

    Rows that differ are looked at again once the stream has brought what the source had. Where
    none is at work, as between the runs of a bounded pipeline, a job catches up for that.

    :param pipeline: path of the pipeline's YAML file (templated).
    :param refused: why the task may do nothing; it then fails with these words.
    :param tables: only these tables, as `database.table`; all of them if None (templated).
    :param settle_s: seconds that a running stream gets, each time, to bring differing rows.
    :param enabled: true, false, or a word of the file's key `verify`; `by_file` is what the file
        says. Of `after_snapshot` the task is skipped where no table is to be compared (templated).
    """

    fails_run = True

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
        """Compare tables and return the result; fail if rows differ."""
        if self._is_unwanted:
            raise AirflowSkipException(_UNWANTED)
        with self.opened() as steps:
            steps.require_not_ended()
            report = steps.verify(
                self._wanted(steps),
                settle_s=self.settle_s,
                catch_up=None if steps.is_paused else lambda: self._catch_up(context, steps),
            )
            self._report = report
            summary = verify_summary(steps.run.name, report)
        for table in summary["not_copied"]:
            self.log.warning("%s", left_out_text(table))
        self.log.info("%s", equal_tables_line(report))
        if not report.equal:
            for told in (each for each in report.tables if not each.equal):
                self.log.error("%s: %s", told.table, told)
            edge = steps.run.model.edge
            if not (edge is None or edge.reads_rows_again):
                raise failure("the nodes differ; correct by hand, at one of them, those rows")
            raise failure(
                f"source and sink differ; `{steps.run.name}__verify` with repair, or `verify "
                "--repair`, has the rows that differ read again"
            )
        return summary

    def lineage_work(self) -> LineageWork | None:
        """Return the task's lineage: the compared tables and results."""
        if self._is_unwanted:
            return None
        return compared_work(tables_of(self.task_id, self.tables), self._report)

    @property
    def _is_unwanted(self) -> bool:
        """Tell whether the parameter `enabled` turns the comparison off."""
        return _MEANS.get(_word(self.enabled)) == "never"

    def _wanted(self, steps: CdcSteps) -> tuple[TableId, ...] | None:
        """Return the tables to compare, None for all; skip the task if there are none."""
        named = tables_of(self.task_id, self.tables)
        why_not = why_not_verify(steps, self.task_id, self.enabled, tables=named)
        if why_not:
            raise AirflowSkipException(why_not)
        if _when_of(steps, self.task_id, self.enabled) == "always":
            return named
        return _unproven(steps, named)

    def _catch_up(self, context: Context, steps: CdcSteps) -> None:
        """Catch up with the log before differing rows count."""
        self.log.info("rows differ and no stream is at work: catching up before they count")
        self.catch_up(context, steps)


def why_not_verify(
    steps: CdcSteps,
    task_id: str,
    enabled: str | bool,  # noqa: FBT001 - what a template rendered
    *,
    tables: Collection[TableId] | None = None,
) -> str:
    """Explain why nothing is to be compared; empty if something is."""
    when = _when_of(steps, task_id, enabled)
    if when == "never":
        is_of_run = _MEANS[_word(enabled)] == "never"
        return _UNWANTED if is_of_run else "the pipeline file says `verify: never`"
    if why := steps.why_not_comparable(tables):
        return why
    if when == "always" or _unproven(steps, tables):
        return ""
    return (
        "all tables were found equal since they were last read as a whole; the file's "
        "`verify: always`, or the run's parameter, compares them again"
    )


def _unproven(steps: CdcSteps, tables: Collection[TableId] | None) -> tuple[TableId, ...]:
    """Return those of the tables that were not found equal since they were read as a whole."""
    return tuple(each for each in steps.to_verify() if tables is None or each in tables)


def _when_of(steps: CdcSteps, task_id: str, enabled: str | bool) -> str:  # noqa: FBT001 - see above
    """Return when to verify, by the parameter or else by the pipeline file."""
    when = _when(task_id, enabled)
    return steps.run.model.verify if when == BY_FILE else when


def compared_work(tables: Collection[TableId] | None, report: VerifyReport | None) -> LineageWork:
    """Return the lineage of a comparison: its tables, and the results if it has ended."""
    if report is None:
        return LineageWork(tables, writes=False)
    deeds = {each.table: LineageEntry(verdict=each) for each in report.tables}
    return LineageWork(deeds.keys(), deeds, writes=False)


def _word(enabled: str | bool) -> str:  # noqa: FBT001 - what a template rendered
    """Return the parameter as a word in lower case."""
    return str(enabled).strip().lower()


def _when(task_id: str, enabled: str | bool) -> str:  # noqa: FBT001 - see above
    """Return when to verify, by the parameter; refuse an unknown word."""
    word = _word(enabled)
    if word not in _MEANS:
        raise RefusedError(
            f"{str(enabled)[:80]!r} does not say when to verify",
            where=f"task {task_id}",
            risk="none: nothing was compared",
            remedy="write by_file, after_snapshot, always or never",
        )
    return _MEANS[word]


def tables_of(task_id: str, names: Sequence[str] | None) -> tuple[TableId, ...] | None:
    """Parse names of tables; None stands for all tables."""
    try:
        return None if names is None else tuple(map(TableId.parse, names))
    except ValueError as error:
        raise PipelineFileError(
            str(error), where=f"tables of {task_id}", remedy="write database.table"
        ) from None
