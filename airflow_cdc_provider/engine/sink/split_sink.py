"""Publishing splits: whole or not at all (law 4).

One transaction deletes all the sink holds in the split's range, writes the rows, stores the
report, makes sure that this writer is still the owner, and commits. Publishing a split again,
read at a later time, leaves what that read saw: rows deleted at the source in between go with
the range. The very same report again is recognised and left alone, so a commit whose reply was
lost costs nothing.

**A range that holds nothing is not deleted.** A DELETE also locks the first row behind its range,
and would wait until the neighbour that is being published there has committed: one reader behind
the other, where all of them could write. So the range is looked at first, without a lock, for rows
that are committed and for those that are not yet: a DELETE would find both. Only if neither shows
a row it is left out. Whatever fails then is tried once more, behind a DELETE. Another attempt at
the same split would not be stopped by that, so there is one at a time.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from airflow_cdc_provider.columns.rows import SplitRows
from airflow_cdc_provider.core.errors import IntegrityError, RowRefusedError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.row_metadata import RowStamp
from airflow_cdc_provider.core.splits import SnapshotSplit, SplitReport
from airflow_cdc_provider.engine.ledger.decisions import publish
from airflow_cdc_provider.engine.ledger.records import SplitPublished
from airflow_cdc_provider.engine.ledger.state import LedgerState
from airflow_cdc_provider.engine.sink.port import Owner
from airflow_cdc_provider.engine.sink.session import Session


class SplitStore(Protocol):
    """Rows of splits, and the ledger's rows about them, in transactions of one session."""

    @property
    def session(self) -> Session:
        """Return the session that all of it is done over."""

    def alone(self, split: SnapshotSplit) -> AbstractContextManager[None]:
        """Keep the owner's other sessions from publishing the same split meanwhile."""

    def holds_nothing(self, split: SnapshotSplit) -> bool:
        """Tell whether the split's range holds no row, committed or not; nothing is locked."""

    def state_of(self, split: SnapshotSplit, *, hold: bool = False) -> LedgerState:
        """Return what the ledger says of the owner, of the split, and of who owns its table.

        `hold`: the generation stays the same until the commit.
        """

    def require_as_planned(self, table: TableId) -> None:
        """Refuse to write to a table whose definition has drifted; it stays so until the commit."""

    def marked(self) -> AbstractContextManager[None]:
        """Mark the transaction, before its first row, as its topology wants it.

        At the end of the block all rows are written.
        """

    def clear_range(self, split: SnapshotSplit, rows: SplitRows, stamp: RowStamp) -> None:
        """Delete all rows in the split's range, or mark them where the table keeps deleted rows.

        Marked rows give way to those of `rows` with their keys. `stamp` is the read's.
        """

    def write(self, split: SnapshotSplit, rows: SplitRows, *, again: bool) -> int:
        """Write rows into a range that holds none; return their number.

        `again`: they were refused before. Now write them so that a refusal names the row.
        """

    def store(self, state: LedgerState, record: SplitPublished) -> None:
        """Store the report that was decided from `state`."""

    def close(self) -> None:
        """Close the session; an open transaction is rolled back."""


class RangeSplitSink:
    """Publishes splits, each in one transaction."""

    def __init__(self, store: SplitStore, owner: Owner) -> None:
        self._store = store
        self._owner = owner

    def close(self) -> None:
        """Close the session; an open transaction is rolled back."""
        self._store.close()

    def publish(self, split: SnapshotSplit, rows: SplitRows, report: SplitReport) -> None:
        """Replace the sink's rows in the split's range by `rows` and store the report."""
        report.require_rows(rows.rows, where=self._store.session.where)
        with self._store.alone(split):
            self._publish_alone(split, rows, report)

    def _publish_alone(self, split: SnapshotSplit, rows: SplitRows, report: SplitReport) -> None:
        """Publish a split in a transaction, and once more if a row is refused."""
        is_empty = [self._store.holds_nothing(split)]  # of the first try

        def try_first() -> None:
            delete = not (is_empty and is_empty.pop())
            self._publish(split, rows, report, again=False, delete=delete)

        try:
            self._store.session.transaction(try_first)
        except RowRefusedError:
            # so that the row is named, and on a range that was deleted in any case
            self._store.session.transaction(
                lambda: self._publish(split, rows, report, again=True, delete=True)
            )

    def _publish(
        self,
        split: SnapshotSplit,
        rows: SplitRows,
        report: SplitReport,
        *,
        again: bool,
        delete: bool,
    ) -> None:
        """Publish a split within a transaction, unless the ledger has the very same report."""
        by = self._owner.generation
        if not publish(self._store.state_of(split), by, split, report):
            return
        self._store.require_as_planned(split.table)
        with self._store.marked():
            if delete:
                stamp = RowStamp.of_read(report.high, report.high)
                self._store.clear_range(split, rows, stamp)
            stored = self._store.write(split, rows, again=again)
        require_all(split, rows, stored, where=self._store.session.where)
        state = self._store.state_of(split, hold=True)
        for record in publish(state, by, split, report):
            self._store.store(state, record)


def require_all(split: SnapshotSplit, rows: SplitRows, stored: int, *, where: str) -> None:
    """Refuse a split of which not all rows were written."""
    if stored != rows.rows:
        raise IntegrityError(
            f"{stored} of {rows.rows} rows of split {split.split_id} were written",
            where=where,
            risk="none: the transaction is rolled back",
            remedy="read the split again; if it stays, report this",
        )
