"""What `<pipeline>__backfill` is made of: a window of time, and the rows of tables that lie in it.

Each run reads the rows of its window again, as they are at the source by now: no log is replayed,
so a window may be as old as its rows. The same window twice, or several at once, end the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowSkipException

from airflow_cdc_provider.core.errors import NOTHING_CHANGED, RefusedError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.requests import Scope
from airflow_cdc_provider.core.windows import Window
from airflow_cdc_provider.hooks.lifecycle_hook import tables_of
from airflow_cdc_provider.hooks.request_hook import CdcRequests
from airflow_cdc_provider.operators.base import CdcOperator
from airflow_cdc_provider.operators.params import require_known_params
from airflow_cdc_provider.operators.requests import CdcRequestOperator


class CdcWindowOperator(CdcOperator):
    """
    Return the window of time of a run: from its form, else its data interval.

    Skips the run before the pipeline's snapshot is done, which reads every row anyway.

    :param pipeline: path of the pipeline's YAML file (templated).
    :param refused: why the task may do nothing; it then fails with these words.
    """

    def execute(self, context: Context) -> Any:
        """Return the run's window; skip the run before the snapshot is done."""
        with self.opened() as steps:
            require_known_params(context)
            window = _window_of_run(context)
            if not steps.run.store.is_handed_off(steps.run.name):
                raise AirflowSkipException(
                    f"the snapshot of {steps.run.name} is not done, and reads these rows anyway"
                )
            tables = sorted(steps.run.model.backfill)
        self.log.info("window: %s", window)
        return self.told(window, tables)

    def told(self, window: Window, tables: Sequence[str]) -> Any:  # noqa: ARG002 - see below
        """Return the run's window, for the tasks of the tables."""
        return {"start": window.start.isoformat(), "end": window.end.isoformat()}


class CdcTableWindowsOperator(CdcWindowOperator):
    """
    Return the run's window once for each table of the file's `backfill`.

    For a task that is mapped over them, where the tables are known with the run only.

    :param pipeline: path of the pipeline's YAML file (templated).
    :param refused: why the task may do nothing; it then fails with these words.
    """

    def told(self, window: Window, tables: Sequence[str]) -> Any:
        """Return the arguments of each mapped task: table and window."""
        start, end = window.start.isoformat(), window.end.isoformat()
        return [{"table": table, "start": start, "end": end} for table in tables]


class CdcBackfillOperator(CdcRequestOperator):
    """
    Read one table's rows of a window of time again, and wait for that.

    :param pipeline: path of the pipeline's YAML file (templated).
    :param refused: why the task may do nothing; it then fails with these words.
    :param table: the table, as `database.table` at the source (templated).
    :param column: the column whose values lie in the window; without it the file's `backfill` says
        which, and in what time zone (templated).
    :param start: the first instant of the window, with its offset (templated); the run's data
        interval if nothing is said.
    :param end: the first instant behind it (templated).
    :param timezone: of a DATETIME or DATE column: the zone in which its values are written
        (templated).
    :param epoch: of a whole number: `seconds`, `milliseconds` or `microseconds` since 1970.
    :param only_estimate: only say how many rows both sides have; off by a word for no (templated).
    :param approve_above_rows: a request about more rows waits to be approved; the file's own limit
        holds beside it.
    :param approved_by: who approved it already; then it needs no approval (templated).
    :param idle_s: for how many seconds no process may run the pipeline before this task
        carries the request out itself; None is 0 of bounded pipelines and 120 of continuous ones.
    :param poll_s: seconds between looks at the request while the task is deferred.
    :param progress_every_s: seconds between lines of progress in the log, while it does the work.
    """

    template_fields = (
        *CdcRequestOperator.template_fields,
        "table",
        "column",
        "start",
        "end",
        "timezone",
    )
    kind = "backfill"

    def __init__(
        self,
        *,
        table: str,
        column: str | None = None,
        start: str = "{{ data_interval_start | default('', true) }}",
        end: str = "{{ data_interval_end | default('', true) }}",
        timezone: str | None = None,
        epoch: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.column = column
        self.start = start
        self.end = end
        self.timezone = timezone
        self.epoch = epoch

    def scope(self, requests: CdcRequests) -> Scope:
        """Return the scope of the table's rows in the window."""
        window = _window(self.start, self.end)
        if self.column is None:
            return requests.window_scope(self.table, window)
        return requests.window_scope(
            self.table, window, column=self.column, timezone=self.timezone, epoch=self.epoch
        )

    def asked_tables(self) -> tuple[TableId, ...]:
        """Return the table of the backfill."""
        return tables_of([self.table])


def _window_of_run(context: Context) -> Window:
    """Return the window from the run's parameters, else its data interval."""
    params: Mapping[str, Any] = context.get("params") or {}
    start, end = params.get("from"), params.get("to")
    if start or end:
        if _is_of_a_backfill(context):
            raise RefusedError(
                "every run of the backfill was given the same window",
                where="`from` and `to` of what the run was given",
                risk=NOTHING_CHANGED,
                remedy="run the backfill without them: each run has its own interval",
            )
        return _window(start, end)
    return _window(context.get("data_interval_start"), context.get("data_interval_end"))


def _is_of_a_backfill(context: Context) -> bool:
    """Tell whether the run is one of Airflow's own backfill."""
    kind = getattr(context.get("dag_run"), "run_type", "")
    return getattr(kind, "value", kind) == "backfill"


def _window(start: object, end: object) -> Window:
    """Parse a window; refuse one that is missing or empty, as of a schedule without intervals."""
    if not start or not end:
        raise _refused(
            "the run has no window of time" if not (start or end) else "one end of it is missing"
        )
    try:
        return Window(_instant(start), _instant(end))
    except ValueError as error:
        raise _refused(str(error)) from None


def _instant(value: object) -> datetime:
    """Parse a time with its offset, and return it in UTC."""
    found = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    if found.tzinfo is None:
        raise ValueError(f"{str(value)[:40]!r} has no offset, such as 2026-11-01T00:00:00+00:00")
    return found.astimezone(UTC)


def _refused(what: str) -> RefusedError:
    """Return the error for a run without a valid window."""
    return RefusedError(
        what,
        where="window of the run",
        risk=NOTHING_CHANGED,
        remedy="trigger the DAG with from and to, each with its offset, as "
        "2026-07-01T00:00:00+02:00; or schedule it on a CronDataIntervalTimetable",
    )
