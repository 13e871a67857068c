"""Whether a hand-off may be stored in a ledger, by what the ledger holds at that moment."""

from __future__ import annotations

from collections.abc import Iterable

from airflow_cdc_provider.core.errors import NOTHING_CHANGED, StateMovedError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.splits import FinishedSplit, SnapshotSplit, SplitReport
from airflow_cdc_provider.core.stream_split import StreamSplit, TableProgress

Report = tuple[SnapshotSplit, SplitReport]


def require_may_hand_off(
    stored: StreamSplit | None, stream: StreamSplit, reports: Iterable[Report]
) -> None:
    """Refuse a hand-off that starts before the stored stream or uses outdated reports."""
    if stored is not None:
        _require_not_behind(stored, stream)
    known = {progress.table for progress in stored.tables} if stored else set()
    joining = [
        progress
        for progress in stream.tables
        if progress.table not in known and not progress.is_unread
    ]
    _require_current_reports(stream, joining, reports)


def _require_not_behind(stored: StreamSplit, stream: StreamSplit) -> None:
    """Refuse a start before the stored stream's, unless every table skips what it has."""
    if stream.start.covers(stored.start):
        return
    for progress in stream.tables:
        before = stored.progress_of(progress.table)
        if before is not None and not progress.applied_through.covers(stored.start):
            raise StateMovedError(
                f"the ledger streams at {stored.start} already, beyond {stream.start}",
                where=f"hand-off of table {progress.table}",
                risk=NOTHING_CHANGED,
                remedy="go on from the ledger's stream; the hand-off was done before",
            )


def _require_current_reports(
    stream: StreamSplit, joining: Iterable[TableProgress], reports: Iterable[Report]
) -> None:
    """Refuse a hand-off made from reports that were replaced since they were read."""
    by_table: dict[TableId, list[Report]] = {}
    for split, report in reports:
        by_table.setdefault(split.table, []).append((split, report))
    for progress in joining:
        handed = {finished.split: finished for finished in progress.finished}
        for split, report in by_table.get(progress.table, []):
            if not _agrees(progress, handed.get(split), report):
                raise StateMovedError(
                    f"split {split.split_id} was published again since its report was read",
                    where=f"hand-off at {stream.start}",
                    risk=NOTHING_CHANGED,
                    remedy="hand off again",
                )


def _agrees(progress: TableProgress, handed: FinishedSplit | None, report: SplitReport) -> bool:
    """Tell whether a table's hand-off was made from this report."""
    if not progress.finished:  # replayed without filtering
        behind = report.low.covers(progress.applied_through)
        return behind and report.high in progress.consistent_at
    if handed is None:
        return False
    return handed.consistent_at == report.high and handed.watermark in (report.high, report.low)
