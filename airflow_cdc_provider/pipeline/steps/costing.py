"""What a request would cost, by what the snapshot of its tables was like; nothing is asked.

Bytes and time are told by the pace at which one reader read these tables before. They are a guess
for a person who decides, and nothing is computed with them.
"""

from __future__ import annotations

from dataclasses import dataclass

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps.estimating import Estimate, TableEstimate

LOAD = (
    "one or two readers and one more reader of the log at the source; ranges of about 10,000 rows, "
    "and the stream waits while one is written"
)
"""What it is for the servers, whatever its size."""


@dataclass(frozen=True, slots=True)
class TableCost:
    """The estimated cost of reading one table again; None is not known."""

    table: TableId
    source_rows: int | None
    sink_rows: int | None
    deletes: int | None
    """Rows that the sink has more than the source: at least so many are deleted, or the stream has
    not brought them yet."""
    bytes: int | None
    seconds: float | None


def costs(run: Run, found: Estimate) -> tuple[TableCost, ...]:
    """Estimate for each table what reading it again would cost, without asking a server."""
    return tuple(_cost(run, each) for each in found.tables)


def _cost(run: Run, found: TableEstimate) -> TableCost:
    """Estimate one table's cost from the reports of its snapshot."""
    rows, sink_rows = found.source_rows, found.sink_rows
    deletes = None if rows is None or sink_rows is None else max(0, sink_rows - rows)
    reports = run.store.split_reports(run.name, found.table)
    read = sum(report.rows for report in reports)
    if rows is None or not read:
        return TableCost(found.table, rows, sink_rows, deletes, None, None)
    took_s = sum(report.read_s + report.publish_s for report in reports)
    size = sum(report.bytes for report in reports)
    return TableCost(
        found.table, rows, sink_rows, deletes, rows * size // read, rows * took_s / read
    )
