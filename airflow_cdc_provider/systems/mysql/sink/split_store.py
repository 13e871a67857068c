"""Rows of splits in MySQL-protocol sinks, and what the ledger says of them, over one session.

How a split is published is `engine.sink.split_sink`'s to decide.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from airflow_cdc_provider.columns.rows import SplitRows
from airflow_cdc_provider.core.identifiers import TableId, quote_table
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.row_metadata import RowStamp
from airflow_cdc_provider.core.splits import SnapshotSplit
from airflow_cdc_provider.core.topology import Topology
from airflow_cdc_provider.engine.ledger.records import SplitPublished
from airflow_cdc_provider.engine.ledger.state import LedgerState
from airflow_cdc_provider.engine.sink.port import Owner
from airflow_cdc_provider.systems.mysql.dialect.sql import of_shard, range_predicate
from airflow_cdc_provider.systems.mysql.dialect.value_model import ZeroDates
from airflow_cdc_provider.systems.mysql.sink import ledger, writers
from airflow_cdc_provider.systems.mysql.sink.ledger_records import RecordWriter
from airflow_cdc_provider.systems.mysql.sink.marker_rows import MarkerRows, create_marker
from airflow_cdc_provider.systems.mysql.sink.sink_session import SinkSession
from airflow_cdc_provider.systems.mysql.sink.split_row_writer import SplitRowWriter


class MySqlSplitStore:
    """Writes splits' rows to a MySQL sink's tables, and their reports to the ledger."""

    def __init__(
        self,
        session: SinkSession,
        owner: Owner,
        plans: Sequence[TablePlan],
        *,
        zero_dates: ZeroDates = ZeroDates.FAIL,
        edge: Topology | None = None,
    ) -> None:
        self.session = session
        self._marker = MarkerRows(edge)
        create_marker(session, edge)
        self._owner = owner
        self._rows = SplitRowWriter(session, owner, plans, zero_dates)

    def close(self) -> None:
        """Close the connection; an open transaction is rolled back."""
        self._rows.close()

    def alone(self, split: SnapshotSplit) -> AbstractContextManager[None]:
        """Keep the owner's other sessions from publishing the same split meanwhile."""
        return writers.split_lock(self.session, self._owner, split)

    def holds_nothing(self, split: SnapshotSplit) -> bool:
        """Tell whether the split's range holds no row, committed or not; nothing is locked."""
        plan = self._rows.plan_of(split)
        at_sink = plan.split_at_sink(split)
        condition = of_shard(plan.shard, range_predicate(at_sink.key_columns, at_sink.keys))
        look = f"SELECT 1 FROM {quote_table(plan.sink_table)} WHERE {condition} LIMIT 1"
        if self.session.rows(look):
            return False
        self.session.execute("SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED")  # of the next one
        return not self.session.rows(look)

    def state_of(self, split: SnapshotSplit, *, hold: bool = False) -> LedgerState:
        """Return what the ledger says of the owner, of the split, and of who owns its table."""
        lock = self.session.capabilities.share_lock if hold else ""
        return ledger.state_of_split(self.session, self._owner, split, lock=lock)

    def require_as_planned(self, table: TableId) -> None:
        """Refuse to write to a table whose definition has drifted; it stays so until the commit."""
        self._rows.require_as_planned(table)

    @contextmanager
    def marked(self) -> Iterator[None]:
        """Mark the transaction by a row of its own: other splits are written at the same time."""
        token = self._marker.begin_own(self.session)
        yield
        self._marker.end_own(self.session, token)

    def clear_range(self, split: SnapshotSplit, rows: SplitRows, stamp: RowStamp) -> None:
        """Take away all rows in the split's range, and those in whose place `rows` come."""
        self._rows.clear_range(split, rows, stamp)

    def write(self, split: SnapshotSplit, rows: SplitRows, *, again: bool) -> int:
        """Write rows into a range that holds none, `again` by INSERT; return their number."""
        return self._rows.write(split, rows, again=again)

    def store(self, state: LedgerState, record: SplitPublished) -> None:
        """Store the report that was decided from `state`."""
        RecordWriter(self.session, self._owner, state).write(record)
