"""Which tables others are to be told of: consistent for the first time, or changed since then.

How much of a table was changed stands in the sink's ledger, with the rows. What was last told
stands in the state store. A table is news where the two differ, in whichever direction: after a
table was read anew its count begins anew. A table that is news to the one who told of it last is
told of again: that one was tried again, and may not have been heard. So others may hear of a
change twice, and miss none.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass

from airflow_cdc_provider.core.errors import IncomparablePositionsError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.records import AnnouncedTable
from airflow_cdc_provider.core.stream_counts import TableChangeCount
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps.sink import open_ledger


@dataclass(frozen=True, slots=True)
class TableAnnouncement:
    """The changes of one table to be announced to others."""

    table: TableId
    sink_table: TableId
    position: LogPosition
    """The sink's table equals the source's here."""
    total: int
    """How much was changed since the plan began."""
    since: int | None
    """How much that was when others were last told; None if they never were, or it began anew."""

    @property
    def changes(self) -> int | None:
        """Return the number of changes since the last announcement, None if not known."""
        return None if self.since is None else self.total - self.since


def table_news(run: Run, told_by: str) -> tuple[TableAnnouncement, ...]:
    """Return the stream's consistent tables with changes to announce."""
    with closing(open_ledger(run)) as ledger:
        counts = ledger.table_changes()  # before the stream: it may only be further than these
        stream = ledger.stream()
    if stream is None:
        return ()
    stream = stream.passed(stream.start)
    told, sinks = run.store.told(run.name), _sink_tables(run)
    news = []
    for table in (each.table for each in stream.tables):
        count = counts.get(table)
        if table in stream.inconsistent or table not in sinks or _is_ahead(count, stream.start):
            continue
        since, total = _since(told.get(table), told_by), 0 if count is None else count.changes
        if since != total:
            known = since if since is not None and since <= total else None
            news.append(TableAnnouncement(table, sinks[table], stream.start, total, known))
    return tuple(news)


def store_announced(run: Run, news: Iterable[TableAnnouncement], told_by: str) -> None:
    """Store what was announced, and by whom."""
    told = [
        AnnouncedTable(each.table, each.total, each.since, each.position, told_by) for each in news
    ]
    run.store.store_announced(run.name, told)


def _sink_tables(run: Run) -> dict[TableId, TableId]:
    """Return the sink table of each planned table."""
    return {each.table: each.plan.sink_table for each in run.store.tables(run.name)}


def _since(told: AnnouncedTable | None, told_by: str) -> int | None:
    """Return the count of changes that was announced last, by others than `told_by`."""
    if told is None:
        return None
    return told.since if told.told_by == told_by else told.changes


def _is_ahead(count: TableChangeCount | None, stream: LogPosition) -> bool:
    """Tell whether a table's count is ahead of the stream's position."""
    try:
        return count is not None and not stream.covers(count.position)
    except IncomparablePositionsError:
        return False  # another server's by now, and the stream has gone on from there
