"""Windows of time: which values of a column they are, and whether a column tells time at all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from airflow_cdc_provider.columns.source_port import ReadsText, offered
from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.core.findings import Finding, Level, PipelineCode
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.requests import Scope
from airflow_cdc_provider.core.table_patterns import TablePattern
from airflow_cdc_provider.core.table_schema import Column, TableSchema
from airflow_cdc_provider.core.windows import (
    Clock,
    Epoch,
    Window,
    counted,
    rounded_up,
    wall_readings,
    whole_days,
)
from airflow_cdc_provider.pipeline.file.model import BackfillTable
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps.backfilling import backfill_scope, interval_column
from airflow_cdc_provider.pipeline.steps.range_requests import (
    planned_table,
    refused,
    require_parts,
    resync_scope,
)
from airflow_cdc_provider.pipeline.steps.sink import source_of


@dataclass(frozen=True, slots=True)
class TimeColumn:
    """A column that has times, with its time zone or epoch."""

    name: str
    timezone: str | None = None
    epoch: Epoch | None = None

    @classmethod
    def of(cls, table: BackfillTable) -> TimeColumn:
        """Make a time column from the file's `backfill` section."""
        return cls(
            table.column, table.timezone, None if table.epoch is None else Epoch(table.epoch)
        )


def time_column(name: str, timezone: str | None, epoch: str | None) -> TimeColumn:
    """Make a time column from a person's options; refuse a wrong epoch."""
    try:
        return TimeColumn(name, timezone or None, Epoch(epoch) if epoch else None)
    except ValueError:
        raise refused(f"nothing counts {epoch!r}", f"write {', '.join(Epoch)}") from None


def file_column(run: Run, table: str) -> TimeColumn:
    """Return the time column that the file's `backfill` names for a table."""
    found = run.model.backfill.get(_as_in_file(table))
    if found is None:
        raise refused(
            f"no column is named, and the file's backfill does not have {table}",
            "name the column, or write the table into the file's backfill",
        )
    return TimeColumn.of(found)


def _as_in_file(table: str) -> str:
    """Return a table's name as the file has it; the text itself if it is no name."""
    try:
        return str(TablePattern.of(TableId.parse(table)))
    except ValueError:
        return table


def window_scope(run: Run, table: str, by: TimeColumn, window: Window) -> Scope:
    """Return the scope of a backfill of the rows whose time column is in a window."""
    (named,) = resync_scope(run, [table]).tables
    schema = planned_table(run, named).schema
    column = interval_column(schema, by.name)
    start, end = _ends(window, column, _clock(run, schema, column, by), by)
    return backfill_scope(run, table, column.name, start=start, end=end)


def backfill_findings(run: Run, plans: Iterable[TablePlan]) -> Iterator[Finding]:
    """Yield a finding for each table of the file's `backfill` that cannot have windows."""
    known = {str(TablePattern.of(plan.schema.table)): plan for plan in plans}
    is_new = not run.store.is_handed_off(run.name)
    for name, table in run.model.backfill.items():
        what = _speaks_against(run, known.get(name), TimeColumn.of(table))
        if what:
            yield Finding(
                PipelineCode.BACKFILL_COLUMN,
                Level.BLOCK if is_new else Level.WARN,
                name,
                what[0],
                "a column that tells time",
                "no window of time could be read again by it",
                what[1],
            )


def _speaks_against(run: Run, plan: TablePlan | None, by: TimeColumn) -> tuple[str, str] | None:
    """Return problem and fix if a table's column cannot have windows, else None."""
    if plan is None:
        return "backfill names it, and the pipeline does not copy it", "correct the file's backfill"
    try:
        require_parts(plan)
        _clock(run, plan.schema, interval_column(plan.schema, by.name), by)
    except CdcError as error:
        return error.what, error.remedy
    return None


def _clock(run: Run, schema: TableSchema, column: Column, by: TimeColumn) -> Clock:
    """Return how a column keeps time; refuse one that keeps none, or whose settings are wrong."""
    clock = offered(source_of(run), ReadsText).clock_of(schema, column.name)
    if clock is None:
        raise refused(
            f"{column.name} of {schema.table} is a {column.type.name}, which tells no time",
            "name a date, a date with a time, or a whole number that counts since 1970",
        )
    said = by.timezone is not None, by.epoch is not None
    wanted = clock in {Clock.WALL, Clock.DAY}, clock is Clock.COUNT
    if said == wanted:
        return clock
    is_a = f"{column.name} of {schema.table} is a {column.type.name}"
    if clock is Clock.INSTANT:
        raise refused(
            f"{is_a}, whose values are moments, in no zone and no count",
            "leave timezone and epoch out",
        )
    if clock is Clock.COUNT:
        raise refused(
            f"{is_a}, and what it counts since 1970 is not said",
            "write epoch: seconds, milliseconds or microseconds, and no timezone",
        )
    raise refused(
        f"{is_a}, and in which zone its values are written is not said",
        "write timezone, as Europe/Berlin or UTC: the zone of who writes them; and no epoch",
    )


def _ends(window: Window, column: Column, clock: Clock, by: TimeColumn) -> tuple[str, str]:
    """Return a window's ends as texts of the column's values."""
    if by.epoch is not None:
        first, behind = counted(window, by.epoch)
        return str(first), str(behind)
    start, end = wall_readings(window, _zone(by.timezone or "UTC"))
    if clock is Clock.DAY:
        start, end = whole_days(start, end)
        return start.date().isoformat(), end.date().isoformat()
    return _written(start, column), _written(end, column)


def _written(reading: datetime, column: Column) -> str:
    """Return a time as text, with as many digits as the column has."""
    digits = column.type.fraction
    return rounded_up(reading, digits).isoformat(sep=" ", timespec="microseconds")


def _zone(name: str) -> ZoneInfo:
    """Return a time zone; refuse an unknown name."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise refused(
            f"{name!r} is no time zone that is known here", "write its IANA name, as Europe/Berlin"
        ) from None
