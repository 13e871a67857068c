"""Publishing splits into MySQL-protocol sinks: whole or not at all (law 4).

One transaction deletes all the sink holds in the split's range, writes the rows, stores the
report, makes sure that this writer is still the owner, and commits. Publishing a split again,
read at a later time, leaves what that read saw: rows deleted at the source in between go with
the range. The very same report again is recognised and left alone, so a commit whose reply was
lost costs nothing.

**A range that holds nothing is not deleted.** A DELETE also locks the first row behind its range,
and would wait until the neighbour that is being published there has committed: one reader behind
the other, where all of them could write. So the range is looked at first, without a lock: once
as it is committed and once with what is not committed yet, for a DELETE would find both. Only if
neither shows a row it is left out. Whatever fails then is tried once more, behind a DELETE.
Another attempt at the same split would not be stopped by that, so there is one at a time.
"""

from __future__ import annotations

from collections.abc import Sequence

from airflow_cdc_provider.columns.rows import SplitRows
from airflow_cdc_provider.columns.sink_port import Owner
from airflow_cdc_provider.core.errors import RowRefusedError
from airflow_cdc_provider.core.identifiers import quote_table
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.splits import SnapshotSplit, SplitReport
from airflow_cdc_provider.engine.ledger.decisions import handed_off
from airflow_cdc_provider.systems.mysql.dialect.sql import range_predicate
from airflow_cdc_provider.systems.mysql.dialect.value_model import ZeroDates
from airflow_cdc_provider.systems.mysql.sink import ledger, writers
from airflow_cdc_provider.systems.mysql.sink.row_writer import LoadDoubtedError
from airflow_cdc_provider.systems.mysql.sink.sink_session import SinkSession
from airflow_cdc_provider.systems.mysql.sink.split_row_writer import LoadMethod, SplitRowWriter


class MySqlSplitSink:
    """Publishes splits, each in one transaction, over one session."""

    def __init__(
        self,
        session: SinkSession,
        owner: Owner,
        plans: Sequence[TablePlan],
        *,
        zero_dates: ZeroDates = ZeroDates.FAIL,
    ) -> None:
        self._session = session
        self._owner = owner
        self._rows = SplitRowWriter(session, owner, plans, zero_dates)

    def close(self) -> None:
        """Close the connection; an open transaction is rolled back."""
        self._rows.close()

    def publish(self, split: SnapshotSplit, rows: SplitRows, report: SplitReport) -> None:
        """Replace the sink's rows in the split's range by `rows` and store the report."""
        report.require_rows(rows.rows, where=self._session.where)
        with writers.split_lock(self._session, self._owner, split):
            self._publish_alone(split, rows, report)

    def _publish_alone(self, split: SnapshotSplit, rows: SplitRows, report: SplitReport) -> None:
        """Publish a split in a transaction, and once more by INSERT if a row is refused."""
        is_empty = [self._holds_nothing(split)]  # of the first try

        def publish(way: LoadMethod) -> None:
            delete = not (is_empty and is_empty.pop())
            self._publish(split, rows, report, way, delete=delete)

        try:
            self._session.transaction(lambda: publish(self._rows.first_method))
        except (LoadDoubtedError, RowRefusedError):
            # by INSERT, which names the row, and on a range that was deleted in any case
            self._session.transaction(lambda: publish(LoadMethod.AGAIN))

    def _holds_nothing(self, split: SnapshotSplit) -> bool:
        """Tell whether the split's range holds no row, committed or not: no DELETE is needed."""
        plan = self._rows.plan_of(split)
        table, split = quote_table(plan.sink_table), plan.split_at_sink(split)
        predicate = range_predicate(split.key_columns, split.keys)
        look = f"SELECT 1 FROM {table} WHERE {predicate} LIMIT 1"
        if self._session.rows(look):
            return False
        self._session.execute("SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED")  # of the next one
        return not self._session.rows(look)

    def _publish(
        self,
        split: SnapshotSplit,
        rows: SplitRows,
        report: SplitReport,
        way: LoadMethod,
        *,
        delete: bool,
    ) -> None:
        """Publish a split within a transaction, unless the ledger has the very same report."""
        ledger.check_generation(self._session, self._owner)
        if ledger.finished_report(self._session, self._owner, split) == (split, report):
            return
        plan = self._rows.plan_of(split)
        self._rows.require_as_planned(split.table)
        if delete:
            at_sink = plan.split_at_sink(split)
            predicate = range_predicate(at_sink.key_columns, at_sink.keys)
            self._session.execute(f"DELETE FROM {quote_table(plan.sink_table)} WHERE {predicate}")
        self._rows.write(split, rows, way)
        plan_id = ledger.claim_commit(self._session, self._owner)
        if ledger.stream_owns(self._session, self._owner, split.table):
            raise handed_off(split, ledger.place_of(self._session, self._owner))
        ledger.store_report(self._session, self._owner, plan_id, split, report)
