"""The ledger in a MySQL-protocol sink: what is committed, written with the rows it speaks of.

**Fencing.** One row a pipeline holds the generation that may commit. Every transaction that
writes rows ends with `claim_commit`: it reads that row FOR SHARE, in its own transaction, as its
last statement before COMMIT. A new owner moves the generation on by an exclusive update. So the
update waits for commits that have passed their check, and a writer that checks later finds the
new generation and rolls back. It does not matter how long ago a writer began: a zombie may have
written rows, but they are never committed. Checking at the end, not at the beginning, keeps the
new owner from waiting for a long transaction; `take_over` also ends the sessions of older
generations (see `writers`), whose row locks would otherwise stand in the way.

**Splits and stream.** A report is written with its split's rows. Once the stream is handed off,
the tables it owns take no more splits: a late reader could put back rows of its own, older H,
and the stream would not repeat what came after. `store_stream` makes sure that the hand-off was
made from the reports that are in the ledger at that moment.

**Stream progress.** A row a slot holds the position, and names the stream split, which can be
large: see `stored_splits`. A split is stored at hand-off and again only when half of its tables, or
the last ones, have become consistent; what lies between follows from it and the position
(`StreamSplit.passed`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet

from airflow_cdc_provider.columns.sink_port import (
    NO_TABLES,
    Owner,
    StreamCounts,
    TableChangeCount,
)
from airflow_cdc_provider.core.codec import (
    dumps,
    report_from_json,
    report_to_json,
    split_from_json,
    split_to_json,
)
from airflow_cdc_provider.core.errors import (
    NOTHING_CHANGED,
    CdcError,
    FencedError,
    SnapshotRequiredError,
)
from airflow_cdc_provider.core.hand_off_check import Report, require_may_hand_off
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.idle_log import IdleRange
from airflow_cdc_provider.core.many_records import gc_paused
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.schema_changes import SchemaChange
from airflow_cdc_provider.core.splits import SnapshotSplit, SplitReport, split_id
from airflow_cdc_provider.core.stopped_tables import StoppedTable, rejoined, stopped_in
from airflow_cdc_provider.core.stored_error import NO_ERROR, StoredError
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.systems.mysql.dialect.sql import literal, text_literal
from airflow_cdc_provider.systems.mysql.sink import (
    change_counts,
    schema_change_rows,
    stopped_rows,
    writers,
)
from airflow_cdc_provider.systems.mysql.sink.ledger_schema import (
    LEDGER,
    NOW_US,
    create_ledger,
    pipeline_is,
)
from airflow_cdc_provider.systems.mysql.sink.sink_session import SinkSession
from airflow_cdc_provider.systems.mysql.sink.slot_rows import (
    insert_slot,
    moved_to,
    position_literal,
    read_stream,
    slot_rows,
    stream_of_slots,
)
from airflow_cdc_provider.systems.mysql.sink.stored_splits import store_split, tidy_splits

_ROWS_A_STATEMENT = 1000
_OF_A_PLAN = (
    "finished_split",
    "joined_split",
    "stream",
    "stream_split",
    "stream_table",
    "schema_change",
    "stopped_table",
    "changed_table",
)


def generation_query(owner: Owner, lock: str) -> str:
    """Return the query for the pipeline's generation and plan id in the ledger."""
    return (
        f"SELECT generation, plan_id FROM {LEDGER}.pipeline "
        f"WHERE {pipeline_is(owner.pipeline)} {lock}"
    )


def check_generation(session: SinkSession, owner: Owner, *, lock: str = "") -> str:
    """Refuse unless the owner's generation may commit; return the plan id.

    `lock`, a locking clause such as FOR UPDATE, holds until the commit.
    """
    found = session.rows(generation_query(owner, lock))
    generation, plan_id = (int(found[0][0]), str(found[0][1])) if found else (0, "")
    if generation != owner.generation:
        raise FencedError(
            f"generation {generation} owns {owner.pipeline}, this is {owner.generation}",
            where=f"ledger on {session.where}",
            risk="none: its transaction is rolled back",
            remedy="stop this job; the newer owner goes on from the ledger",
        )
    return plan_id


def claim_commit(session: SinkSession, owner: Owner) -> str:
    """Lock the generation, as the last statement before COMMIT, and refuse an older owner.

    Returns the plan id.
    """
    return check_generation(session, owner, lock=session.capabilities.share_lock)


class MySqlLedger:
    """One pipeline's ledger in the sink, over a session of its own."""

    def __init__(self, session: SinkSession, owner: Owner) -> None:
        self._session = session
        self._owner = owner
        self._mine = pipeline_is(owner.pipeline)
        create_ledger(session)

    def close(self) -> None:
        """Close the connection."""
        self._session.close()

    # --- ownership ----------------------------------------------------------------------------

    def take_over(self, generation: int) -> None:
        """Make `generation` the only one that may commit; `FencedError` if a newer one is there."""

        def move() -> None:
            self._session.execute(
                f"INSERT IGNORE INTO {LEDGER}.pipeline (pipeline) "
                f"VALUES ({literal(str(self._owner.pipeline))})"
            )
            found = self._locked_generation()
            if found > generation:
                raise FencedError(
                    f"generation {found} owns {self._owner.pipeline}, not {generation}",
                    where=f"ledger on {self._session.where}",
                    risk=NOTHING_CHANGED,
                    remedy="a newer run is the owner; look at the pipeline's status",
                )
            self._session.execute(
                f"UPDATE {LEDGER}.pipeline SET generation = {generation}, updated_us = {NOW_US} "
                f"WHERE {self._mine}"
            )

        self._session.transaction(move)
        self._owner = Owner(self._owner.pipeline, generation)
        writers.end_older(self._session, self._owner)

    def _locked_generation(self) -> int:
        """Lock the pipeline's row until the commit; return its generation, 0 for none."""
        found = self._session.rows(
            f"SELECT generation FROM {LEDGER}.pipeline WHERE {self._mine} FOR UPDATE"
        )
        return int(found[0][0]) if found else 0

    def generation(self) -> int:
        """Return the generation that may commit, 0 for a pipeline that the ledger does not know."""
        found = self._session.rows(f"SELECT generation FROM {LEDGER}.pipeline WHERE {self._mine}")
        return int(found[0][0]) if found else 0

    # --- plan and splits ----------------------------------------------------------------------

    def plan_id(self) -> str:
        """Return the id of the plan whose splits are in the ledger, empty for none."""
        found = self._session.rows(f"SELECT plan_id FROM {LEDGER}.pipeline WHERE {self._mine}")
        return str(found[0][0]) if found else ""

    def start_plan(self, plan_id: str) -> None:
        """Delete the splits and the stream of older plans, unless this plan is current."""

        def start() -> None:
            # FOR UPDATE: a reader that publishes for the old plan commits before, or not at all
            if check_generation(self._session, self._owner, lock="FOR UPDATE") == plan_id:
                return
            for table in _OF_A_PLAN:
                self._session.execute(f"DELETE FROM {LEDGER}.{table} WHERE {self._mine}")
            self._session.execute(
                f"UPDATE {LEDGER}.pipeline SET plan_id = {literal(plan_id)}, "
                f"updated_us = {NOW_US} WHERE {self._mine}"
            )

        self._session.transaction(start)

    def finished_ids(self) -> AbstractSet[str]:
        """Return the ids of the current plan's finished splits."""
        rows = self._session.rows(
            f"SELECT table_name, number FROM {LEDGER}.finished_split WHERE {self._mine}"
        )
        return {split_id(*row) for row in rows}

    def reports(self, *, but: AbstractSet[str] = frozenset()) -> Sequence[Report]:
        """Return the current plan's finished splits and reports, except the ids in `but`."""
        rows = self._session.rows(
            f"SELECT split, report, table_name, number FROM {LEDGER}.finished_split "
            f"WHERE {self._mine} ORDER BY table_name, number"
        )
        with gc_paused():
            return [_report_of(row) for row in rows if split_id(*row[2:]) not in but]

    # --- stream -------------------------------------------------------------------------------

    def stream(self) -> StreamSplit | None:
        """Return the stream split as last committed, None before the hand-off.

        With several writer slots its start is the smallest slot's position.
        """
        return read_stream(self._session, self._owner)

    def counts(self) -> StreamCounts:
        """Return what the stream applied since its snapshot was handed off to it, and the lag.

        Each writer slot counts every change of a batch, so the largest is the number.
        """
        found = self._session.rows(
            "SELECT MAX(batch), MAX(changes), MAX(transactions), MAX(source_committed_us), "
            f"MAX(committed_us) FROM {LEDGER}.stream WHERE {self._mine}"
        )
        batches, changes, transactions, source_us, sink_us = (int(str(n or 0)) for n in found[0])
        lag_us = max(0, sink_us - source_us) if source_us else None
        return StreamCounts(batches, changes, transactions, lag_us)

    def table_changes(self) -> Mapping[TableId, TableChangeCount]:
        """Return the counts of changes of each source table."""
        return change_counts.read_changes(self._session, self._owner)

    def last_changes(self) -> Mapping[TableId, LogPosition]:
        """Return the position of each table's last change, or of its hand-off."""
        return change_counts.read_last_changes(self._session, self._owner)

    def pass_over(self, quiet: IdleRange) -> None:
        """Move every writer slot to the end of an idle range of the log, never back.

        The time of the last commit stays: the lag of the last change is worked out from it.
        """

        def move() -> None:
            check_generation(self._session, self._owner)
            rows = slot_rows(self._session, self._owner, lock="FOR UPDATE")
            for slot, row in enumerate(rows):
                if quiet.moves(row.position):
                    moved = moved_to(self._session, quiet.end, row.stored, self._owner)
                    self._session.execute(
                        f"UPDATE {LEDGER}.stream SET {moved} WHERE {self._mine} AND slot = {slot}"
                    )
            claim_commit(self._session, self._owner)

        self._session.transaction(move)

    def store_stream(self, stream: StreamSplit, begun: Sequence[SchemaChange] = ()) -> None:
        """Store the stream split at hand-off; refused if the ledger's stream is further already."""
        self._session.transaction(lambda: self._store_stream(stream, begun))

    def change_tables(
        self,
        *,
        added: Mapping[TableId, LogPosition] = NO_TABLES,
        removed: Collection[TableId] = (),
        read: Collection[TableId] = (),
    ) -> StreamSplit:
        """Add tables to the stream, each from a position on, and remove others, at once."""

        def change() -> StreamSplit:
            check_generation(self._session, self._owner, lock="FOR UPDATE")
            changed = self._rewrite(lambda stored: stored.with_tables(added, removed).read(read))
            for table in removed:  # what was begun of them is not to be gone on with
                schema_change_rows.end(self._session, self._owner, table)
            stopped_rows.forget(self._session, self._owner, removed)
            self._own_tables(changed)
            claim_commit(self._session, self._owner)
            return changed

        return self._session.transaction(change)

    def go_on_from(self, position: LogPosition, begun: Collection[TableId]) -> StreamSplit:
        """Set the stream to a position, even an earlier one, from which some tables begin anew."""

        def go_on() -> StreamSplit:
            check_generation(self._session, self._owner, lock="FOR UPDATE")
            changed = self._rewrite(lambda stored: stored.gone_on_from(position, begun))
            for table in begun:  # what was begun of their definitions is looked at anew
                schema_change_rows.end(self._session, self._owner, table)
            stopped_rows.forget(self._session, self._owner, begun)
            self._session.execute(
                f"UPDATE {LEDGER}.stream SET position = {position_literal(position)}, "
                f"generation = {self._owner.generation} WHERE {self._mine}"
            )
            self._own_tables(changed)
            claim_commit(self._session, self._owner)
            return changed

        return self._session.transaction(go_on)

    def open_changes(self) -> tuple[SchemaChange, ...]:
        """Return the schema changes that were begun and not ended, oldest first."""
        return schema_change_rows.open_changes(self._session, self._owner.pipeline)

    def begin_changes(self, changes: Sequence[SchemaChange]) -> None:
        """Store schema changes as begun, before anything is done about them; all or none."""

        def begin() -> None:
            check_generation(self._session, self._owner, lock="FOR UPDATE")
            for change in changes:
                schema_change_rows.begin(self._session, self._owner, change)

        self._session.transaction(begin)

    def end_change(self, change: SchemaChange) -> StreamSplit:
        """End a schema change: let the stream pass it, and store that it is done."""

        def end() -> StreamSplit:
            check_generation(self._session, self._owner, lock="FOR UPDATE")
            stopped = next((each for each in self.stopped() if each.table == change.table), None)
            if stopped is not None and not change.rereads:
                stopped_rows.pass_change(self._session, self._owner, stopped.stream, change)
                stream = self._rewrite(lambda stored: stored)
            else:
                stream = self._rewrite(
                    lambda stored: stored.changed(
                        change.table, change.through, unread=change.rereads
                    )
                )
                stopped_rows.forget(self._session, self._owner, [change.table])
            schema_change_rows.end(self._session, self._owner, change.table)
            counted = {change.table: 1}
            change_counts.count_changes(self._session, self._owner, counted, change.through)
            claim_commit(self._session, self._owner)
            return stream

        return self._session.transaction(end)

    def stopped(self) -> tuple[StoppedTable, ...]:
        """Return the tables that were taken out of the stream, each with its own position."""
        return stopped_rows.stopped_tables(self._session, self._owner)

    def stop_tables(
        self, tables: Collection[TableId], error: StoredError = NO_ERROR
    ) -> StreamSplit:
        """Take tables out of the stream at their positions, for an `error` or a person."""

        def stop() -> StreamSplit:
            check_generation(self._session, self._owner, lock="FOR UPDATE")
            slots = slot_rows(self._session, self._owner, lock="FOR UPDATE")
            for table in tables:  # what was begun of their definitions is looked at anew
                schema_change_rows.end(self._session, self._owner, table)
            stream = stream_of_slots(slots)
            for each in () if stream is None else stopped_in(stream, tables):
                stopped_rows.stop(self._session, self._owner, each, error)
            stream = self._rewrite(lambda stored: stored.with_tables({}, tables))
            claim_commit(self._session, self._owner)
            return stream

        return self._session.transaction(stop)

    def say_of_stopped(self, table: TableId, error: StoredError) -> None:
        """Store the error that keeps a stopped table stopped; empty: a person stopped it."""

        def say() -> None:
            stopped_rows.say(self._session, self._owner, table, error)
            claim_commit(self._session, self._owner)

        self._session.transaction(say)

    def rejoin(self, table: TableId) -> StreamSplit:
        """Put a stopped table back into the stream, whose position it has reached."""

        def join() -> StreamSplit:
            check_generation(self._session, self._owner, lock="FOR UPDATE")
            found = next((each for each in self.stopped() if each.table == table), None)
            if found is None:
                return self._rewrite(lambda stored: stored)
            stopped = found.stream
            stream = self._rewrite(lambda stored: rejoined(stored, stopped))
            stopped_rows.forget(self._session, self._owner, [table])
            claim_commit(self._session, self._owner)
            return stream

        return self._session.transaction(join)

    def _rewrite(self, change: Callable[[StreamSplit], StreamSplit]) -> StreamSplit:
        """Change the stored stream split of every slot; return the changed stream of all."""
        slots = slot_rows(self._session, self._owner, lock="FOR UPDATE")
        stream = stream_of_slots(slots)
        if stream is None:
            raise no_stream(self._owner, self._session.where)
        for number, slot in enumerate(slots):
            changed = change(slot.stored.passed(slot.position))
            self._session.execute(
                f"UPDATE {LEDGER}.stream SET "
                f"split = {store_split(self._session, self._owner, changed)} "
                f"WHERE {self._mine} AND slot = {number}"
            )
        tidy_splits(self._session, self._owner)
        return change(stream)

    def _own_tables(self, stream: StreamSplit) -> None:
        """Store which tables the stream owns, and delete the splits read of all other tables.

        The stream leaves their changes out from here on, so none of it stays right. Nor does what
        the snapshot has read of tables that are unread. Those that it leaves alone are its own.
        """
        self._session.execute(f"DELETE FROM {LEDGER}.stream_table WHERE {self._mine}")
        name = literal(str(self._owner.pipeline))
        mine = {progress.table for progress in stream.tables}
        mine |= {each.table for each in self.stopped()}
        rows = [f"({name}, {literal(str(table))})" for table in sorted(mine)]
        for first in range(0, len(rows), _ROWS_A_STATEMENT):
            some = ", ".join(rows[first : first + _ROWS_A_STATEMENT])
            self._session.execute(f"INSERT INTO {LEDGER}.stream_table VALUES {some}")
        for table in ("finished_split", "joined_split"):
            self._session.execute(
                f"DELETE FROM {LEDGER}.{table} WHERE {self._mine} AND table_name NOT IN "
                f"(SELECT table_name FROM {LEDGER}.stream_table WHERE {self._mine})"
            )
        for unread in stream.unread:
            self._session.execute(
                f"DELETE FROM {LEDGER}.finished_split WHERE {self._mine} "
                f"AND table_name = {literal(str(unread))}"
            )

    def _store_stream(self, stream: StreamSplit, begun: Sequence[SchemaChange]) -> None:
        """Store the stream split at hand-off, and schema changes begun by then."""
        check_generation(self._session, self._owner, lock="FOR UPDATE")
        stored = self.stream()
        if stored == stream:
            return
        require_may_hand_off(stored, stream, self.reports())
        self._session.execute(f"DELETE FROM {LEDGER}.stream WHERE {self._mine}")
        insert_slot(self._session, self._owner, stream)
        self._own_tables(stream)
        # a table without a row is one of which nobody knows when it was changed last
        nothing = dict.fromkeys((progress.table for progress in stream.tables), 0)
        change_counts.count_changes(self._session, self._owner, nothing, stream.start)
        for change in begun:
            schema_change_rows.begin(self._session, self._owner, change)


# --- what the sinks write inside their own transactions ---------------------------------------


def finished_report(session: SinkSession, owner: Owner, split: SnapshotSplit) -> Report | None:
    """Return a split as finished in the ledger, with its report; None if it is not."""
    rows = session.rows(
        f"SELECT split, report FROM {LEDGER}.finished_split WHERE {pipeline_is(owner.pipeline)} "
        f"AND table_name = {literal(str(split.table))} AND number = {split.number}"
    )
    return _report_of(rows[0]) if rows else None


def stream_owns(session: SinkSession, owner: Owner, table: TableId) -> bool:
    """Tell whether the table was handed off to the stream."""
    return bool(
        session.rows(
            f"SELECT 1 FROM {LEDGER}.stream_table WHERE {pipeline_is(owner.pipeline)} "
            f"AND table_name = {literal(str(table))}"
        )
    )


def holds_rows(session: SinkSession, owner: Owner, table: TableId) -> bool:
    """Tell whether any rows of the table were committed: a split, or the hand-off of the table."""
    return stream_owns(session, owner, table) or bool(
        session.rows(
            f"SELECT 1 FROM {LEDGER}.finished_split WHERE {pipeline_is(owner.pipeline)} "
            f"AND table_name = {literal(str(table))} LIMIT 1"
        )
    )


def store_report(
    session: SinkSession, owner: Owner, plan_id: str, split: SnapshotSplit, report: SplitReport
) -> None:
    """Store a split's report in the transaction of its rows."""
    values = (
        literal(str(owner.pipeline)),
        literal(str(split.table)),
        str(split.number),
        literal(plan_id),
        str(owner.generation),
        text_literal(dumps(split_to_json(split))),
        text_literal(dumps(report_to_json(report))),
        str(report.rows),
        NOW_US,
    )
    session.execute(
        f"REPLACE INTO {LEDGER}.finished_split (pipeline, table_name, number, plan_id, generation,"
        f" split, report, rows_written, committed_us) VALUES ({', '.join(values)})"
    )


def no_stream(owner: Owner, where: str) -> CdcError:
    """Return the error of a stream that was never handed off."""
    return SnapshotRequiredError(
        f"the ledger holds no stream of {owner.pipeline}",
        where=f"ledger on {where}",
        risk="where to go on in the log is not known",
        remedy="take the snapshot and hand off first",
    )


def _report_of(row: Sequence[str]) -> Report:
    """Decode a finished split and its report from a row of the ledger."""
    split = split_from_json(json.loads(row[0]))
    return split, report_from_json(json.loads(row[1]))
