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

**Stream progress.** A row a slot holds the position. The stream split, which can be large, is
written at hand-off and again only when a table has become consistent; what lies between follows
from it and the position (`StreamSplit.passed`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from airflow_cdc_provider.columns.sink_port import NO_TABLES, Owner, StreamCounts
from airflow_cdc_provider.core.codec import (
    dumps,
    position_from_json,
    position_to_json,
    report_from_json,
    report_to_json,
    split_from_json,
    split_to_json,
    stream_from_text,
    stream_to_text,
)
from airflow_cdc_provider.core.errors import (
    NOTHING_CHANGED,
    CdcError,
    FencedError,
    SnapshotRequiredError,
)
from airflow_cdc_provider.core.hand_off_check import Report, require_may_hand_off
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.quiet_log import QuietLog
from airflow_cdc_provider.core.schema_changes import SchemaChange
from airflow_cdc_provider.core.splits import SnapshotSplit, SplitReport
from airflow_cdc_provider.core.stream_split import StreamSplit, smallest
from airflow_cdc_provider.systems.mysql.dialect.sql import literal
from airflow_cdc_provider.systems.mysql.sink import schema_change_rows, writers
from airflow_cdc_provider.systems.mysql.sink.ledger_schema import (
    LEDGER,
    NOW_US,
    create_ledger,
    pipeline_is,
)
from airflow_cdc_provider.systems.mysql.sink.sink_session import SinkSession

_OF_A_PLAN = ("finished_split", "joined_split", "stream", "stream_table", "schema_change")


def check_generation(session: SinkSession, owner: Owner, *, lock: str = "") -> str:
    """Refuse unless `owner` may commit; return the plan id. `lock` holds until the commit."""
    found = session.rows(
        f"SELECT generation, plan_id FROM {LEDGER}.pipeline "
        f"WHERE {pipeline_is(owner.pipeline)} {lock}"
    )
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
    """Make sure, as the last statement before COMMIT, that `owner` may commit; return the plan."""
    return check_generation(session, owner, lock=session.capabilities.share_lock)


class MySqlLedger:
    """A pipeline's ledger over a session of its own."""

    def __init__(self, session: SinkSession, owner: Owner) -> None:
        self._session = session
        self._owner = owner
        self._mine = pipeline_is(owner.pipeline)
        create_ledger(session)

    def close(self) -> None:
        """Let go of the connection."""
        self._session.close()

    # --- ownership ----------------------------------------------------------------------------

    def take_over(self, generation: int) -> None:
        """Make `generation` the only one that may commit; a smaller one is `FencedError`."""

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
        found = self._session.rows(
            f"SELECT generation FROM {LEDGER}.pipeline WHERE {self._mine} FOR UPDATE"
        )
        return int(found[0][0]) if found else 0

    def generation(self) -> int:
        """Return the generation that may commit, 0 for a pipeline never seen."""
        found = self._session.rows(f"SELECT generation FROM {LEDGER}.pipeline WHERE {self._mine}")
        return int(found[0][0]) if found else 0

    # --- plan and splits ----------------------------------------------------------------------

    def plan_id(self) -> str:
        """Return the plan whose splits are in the ledger, empty for none."""
        found = self._session.rows(f"SELECT plan_id FROM {LEDGER}.pipeline WHERE {self._mine}")
        return str(found[0][0]) if found else ""

    def start_plan(self, plan_id: str) -> None:
        """Forget the finished splits and the stream of older plans, once, for this plan."""

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

    def reports(self) -> Sequence[Report]:
        """Return every finished split of the current plan with its report."""
        rows = self._session.rows(
            f"SELECT split, report FROM {LEDGER}.finished_split WHERE {self._mine} "
            "ORDER BY table_name, number"
        )
        return [_report_of(row) for row in rows]

    # --- stream -------------------------------------------------------------------------------

    def stream(self) -> StreamSplit | None:
        """Return the stream split as last committed, None before the hand-off.

        With several writer slots its start is the smallest slot's position.
        """
        return read_stream(self._session, self._owner)

    def counts(self) -> StreamCounts:
        """Return what the stream has committed since the hand-off.

        Each writer slot counts every change of a batch, so the largest is the number.
        """
        found = self._session.rows(
            "SELECT MAX(batch), MAX(changes), MAX(transactions), MAX(source_committed_us), "
            f"MAX(committed_us) FROM {LEDGER}.stream WHERE {self._mine}"
        )
        batches, changes, transactions, source_us, sink_us = (int(str(n or 0)) for n in found[0])
        lag_us = max(0, sink_us - source_us) if source_us else None
        return StreamCounts(batches, changes, transactions, lag_us)

    def pass_over(self, quiet: QuietLog) -> None:
        """Move every writer slot over log that holds nothing for the sink; never back.

        The time of the last commit stays: with it the lag of the last change is told.
        """

        def move() -> None:
            check_generation(self._session, self._owner)
            rows = slot_rows(self._session, self._owner, lock="FOR UPDATE")
            for slot, row in enumerate(rows):
                if quiet.moves(row.position):
                    moved = moved_to(quiet.end, row.stored, self._owner)
                    self._session.execute(
                        f"UPDATE {LEDGER}.stream SET {moved} WHERE {self._mine} AND slot = {slot}"
                    )
            claim_commit(self._session, self._owner)

        self._session.transaction(move)

    def store_stream(self, stream: StreamSplit) -> None:
        """Store the stream split at hand-off; refused if the ledger already streams further."""
        self._session.transaction(lambda: self._store_stream(stream))

    def change_tables(
        self,
        *,
        added: Mapping[TableId, LogPosition] = NO_TABLES,
        removed: Collection[TableId] = (),
        read: Collection[TableId] = (),
    ) -> StreamSplit:
        """Let the stream own more tables, each from a position on, or fewer, in one transaction."""

        def change() -> StreamSplit:
            check_generation(self._session, self._owner, lock="FOR UPDATE")
            changed = self._rewrite(lambda stored: stored.with_tables(added, removed).read(read))
            for table in removed:  # what was begun of them is not to be gone on with
                schema_change_rows.end(self._session, self._owner, table)
            self._own_tables(changed)
            claim_commit(self._session, self._owner)
            return changed

        return self._session.transaction(change)

    def open_changes(self) -> tuple[SchemaChange, ...]:
        """Return the changes of definitions that were begun and not ended, oldest first."""
        return schema_change_rows.open_changes(self._session, self._owner.pipeline)

    def begin_changes(self, changes: Sequence[SchemaChange]) -> None:
        """Remember changes before anything is done about them; all or none."""

        def begin() -> None:
            check_generation(self._session, self._owner, lock="FOR UPDATE")
            for change in changes:
                schema_change_rows.begin(self._session, self._owner, change)

        self._session.transaction(begin)

    def end_change(self, change: SchemaChange) -> StreamSplit:
        """Let the stream go on behind a change that was made, and note that it is done."""

        def end() -> StreamSplit:
            check_generation(self._session, self._owner, lock="FOR UPDATE")
            stream = self._rewrite(
                lambda stored: stored.changed(change.table, change.through, unread=change.rereads)
            )
            schema_change_rows.end(self._session, self._owner, change.table)
            claim_commit(self._session, self._owner)
            return stream

        return self._session.transaction(end)

    def _rewrite(self, change: Callable[[StreamSplit], StreamSplit]) -> StreamSplit:
        """Change the stream split of each slot; returns what they stand for together."""
        slots = slot_rows(self._session, self._owner, lock="FOR UPDATE")
        stream = stream_of_slots(slots)
        if stream is None:
            raise no_stream(self._owner, self._session.where)
        for number, slot in enumerate(slots):
            self._session.execute(
                f"UPDATE {LEDGER}.stream SET split = {stream_literal(change(slot.stored))} "
                f"WHERE {self._mine} AND slot = {number}"
            )
        return change(stream)

    def _own_tables(self, stream: StreamSplit) -> None:
        """Store which tables are the stream's; what was read of others is forgotten.

        The stream leaves their changes out from here on, so none of it stays right.
        """
        self._session.execute(f"DELETE FROM {LEDGER}.stream_table WHERE {self._mine}")
        name = literal(str(self._owner.pipeline))
        for progress in stream.tables:
            table_name = literal(str(progress.table))
            self._session.execute(
                f"INSERT INTO {LEDGER}.stream_table VALUES ({name}, {table_name})"
            )
        for table in ("finished_split", "joined_split"):
            self._session.execute(
                f"DELETE FROM {LEDGER}.{table} WHERE {self._mine} AND table_name NOT IN "
                f"(SELECT table_name FROM {LEDGER}.stream_table WHERE {self._mine})"
            )

    def _store_stream(self, stream: StreamSplit) -> None:
        check_generation(self._session, self._owner, lock="FOR UPDATE")
        stored = self.stream()
        if stored == stream:
            return
        require_may_hand_off(stored, stream, self.reports())
        self._session.execute(f"DELETE FROM {LEDGER}.stream WHERE {self._mine}")
        insert_slot(self._session, self._owner, stream)
        self._own_tables(stream)


# --- what the sinks write inside their own transactions ---------------------------------------


def finished_report(session: SinkSession, owner: Owner, split: SnapshotSplit) -> Report | None:
    """Return what the ledger holds of a split."""
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
    """Tell whether rows of the table were committed: a split of it, or its hand-off."""
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


@dataclass(frozen=True, slots=True)
class SlotRow:
    """One writer slot as committed."""

    position: LogPosition
    stored: StreamSplit


def slot_rows(session: SinkSession, owner: Owner, *, lock: str = "") -> list[SlotRow]:
    """Return the slots in order: they count from 0."""
    rows = session.rows(
        f"SELECT position, split FROM {LEDGER}.stream WHERE {pipeline_is(owner.pipeline)} "
        f"ORDER BY slot {lock}"
    )
    return [
        SlotRow(position_from_json(json.loads(row[0])), stream_from_text(row[1])) for row in rows
    ]


def read_stream(session: SinkSession, owner: Owner) -> StreamSplit | None:
    """Return the stream split as last committed, None before the hand-off."""
    return stream_of_slots(slot_rows(session, owner))


def stream_of_slots(slots: Sequence[SlotRow]) -> StreamSplit | None:
    """Return the stream split that the slots' positions stand for."""
    if not slots:
        return None
    position = smallest(slot.position for slot in slots)
    # any slot's stored split will do: what it has passed, the smallest position decides anew
    stored = max((slot.stored for slot in slots), key=lambda split: len(split.inconsistent))
    if position == stored.start:
        return replace(stored, start=position)  # what was read of the log since may be known better
    return stored.passed(position)


def moved_to(end: LogPosition, stored: StreamSplit, owner: Owner) -> str:
    """Write what a slot's row becomes when its position moves."""
    passed = stored.passed(end)
    split = ""
    if len(passed.inconsistent) < len(stored.inconsistent):
        split = f"split = {stream_literal(passed)}, "
    return (
        f"{split}position = {position_literal(end)}, generation = {owner.generation}, "
        "batch = batch + 1"
    )


def insert_slot(
    session: SinkSession, owner: Owner, stream: StreamSplit, *, slot: int = 0, slots: int = 1
) -> None:
    """Begin a slot at the stream's start."""
    session.execute(
        f"INSERT INTO {LEDGER}.stream (pipeline, slot, slots, generation, position, split, "
        f"committed_us) VALUES ({literal(str(owner.pipeline))}, {slot}, {slots}, "
        f"{owner.generation}, {position_literal(stream.start)}, {stream_literal(stream)}, "
        f"{NOW_US})"
    )


def text_literal(text: str) -> str:
    """Write JSON as an SQL literal: bare where nothing in it could be taken for something else."""
    is_plain = text.isascii() and text.isprintable() and not {"'", "\\"} & set(text)
    return f"'{text}'" if is_plain else literal(text)


def position_literal(position: LogPosition) -> str:
    """Write a position as an SQL literal."""
    return text_literal(dumps(position_to_json(position)))


def stream_literal(stream: StreamSplit) -> str:
    """Write a stream split as an SQL literal."""
    return text_literal(stream_to_text(stream))


def no_stream(owner: Owner, where: str) -> CdcError:
    """Return the error of a stream that was never handed off."""
    return SnapshotRequiredError(
        f"the ledger holds no stream of {owner.pipeline}",
        where=f"ledger on {where}",
        risk="where to go on in the log is not known",
        remedy="take the snapshot and hand off first",
    )


def _report_of(row: Sequence[str]) -> Report:
    split = split_from_json(json.loads(row[0]))
    return split, report_from_json(json.loads(row[1]))
