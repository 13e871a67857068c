"""The rules of a ledger: each takes what the ledger holds and a request, and says what to store.

Nothing is read or written here, so the rules are tested without a server. A store asks within the
transaction in which it has read the state, and writes all of the records or none.

**Fencing.** One generation may commit. A decision under another one is refused; what an older owner
has written by then never counts.

**Splits and stream.** Once the stream is handed off, the tables that it owns take no more splits: a
late reader could put back rows of its own, older H, and the stream would not repeat what came
after. A hand-off is taken only if it was made from the reports that are in the ledger.

**Stream progress.** Positions only grow, but for `set_position`, which is for a source that has
another history. A table that is isolated has a position of its own; it comes back at the position
of the stream, or beyond.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from airflow_cdc_provider.core.errors import NOTHING_CHANGED, FencedError, LedgerSetBackError
from airflow_cdc_provider.core.hand_off_check import require_may_hand_off
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.idle_log import IdleRange
from airflow_cdc_provider.core.known_log import TablesApart
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.schema_changes import SchemaChange
from airflow_cdc_provider.core.splits import SnapshotSplit, SplitReport
from airflow_cdc_provider.core.stopped_tables import rejoined, stopped_in
from airflow_cdc_provider.core.stored_error import StoredError
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.engine.ledger.records import (
    ApartKept,
    ChangeBegun,
    ChangeEnded,
    ChangesCounted,
    GenerationMoved,
    PlanBegun,
    PositionSet,
    Record,
    Records,
    SlotMoved,
    SlotsRewritten,
    SplitPublished,
    StoppedForgotten,
    StoppedMoved,
    StoppedSaid,
    StreamStored,
    TablesOwned,
    TableStopped,
)
from airflow_cdc_provider.engine.ledger.state import LedgerState, Place, known

# --- ownership ----------------------------------------------------------------------------------


def require_owner(state: LedgerState, by: int) -> None:
    """Refuse a generation that may not commit."""
    if state.generation != by:
        raise fenced(state.place, state.generation, by)


def fenced(place: Place, generation: int, by: int) -> FencedError | LedgerSetBackError:
    """Return the error of an owner that is not the ledger's: it is overtaken, or not known there.

    Each owner commits its generation before all else. A ledger that is below it is not the one it
    was: a folder that is not mounted, an empty server, a copy of before.
    """
    if generation < by:
        what = f"the ledger of {place.pipeline} is at generation {generation}, below {by}"
        if not generation:
            what = f"the sink has nothing of {place.pipeline}, which has copied rows to it"
        return LedgerSetBackError(
            f"{what}: it is gone, or set back",
            where=place.where,
            risk=f"none: {place.undone}",
            remedy="bring back what was there, such as a folder that is not mounted, and the job "
            "goes on by itself; if it is lost, stop the job and run again, which reads what is "
            "missing",
        )
    return FencedError(
        f"generation {generation} owns {place.pipeline}, this is {by}",
        where=place.where,
        risk=f"none: {place.undone}",
        remedy=f"stop this job; the newer owner goes on from the {place.book}",
    )


def take_over(state: LedgerState, by: int) -> Records:
    """Make a generation the only one that may commit; a newer one that is there stays."""
    if state.generation > by:
        raise FencedError(
            f"generation {state.generation} owns {state.place.pipeline}, not {by}",
            where=state.place.where,
            risk=NOTHING_CHANGED,
            remedy="a newer run is the owner; look at the pipeline's status",
        )
    return (GenerationMoved(by),)


# --- plan and splits ----------------------------------------------------------------------------


def start_plan(state: LedgerState, by: int, plan_id: str) -> Records:
    """Begin a plan, unless it is the current one."""
    require_owner(state, by)
    return () if state.plan_id == plan_id else (PlanBegun(plan_id),)


def publish(
    state: LedgerState, by: int, split: SnapshotSplit, report: SplitReport
) -> tuple[SplitPublished, ...]:
    """Take a split, unless the very same report is there; refuse one of a table of the stream."""
    require_owner(state, by)
    if state.owns(split.table):
        raise handed_off(split, state.place)
    if (split, report) in known(state.reports):
        return ()
    return (SplitPublished(split, report),)


def handed_off(split: SnapshotSplit, place: Place) -> FencedError:
    """Return the error of a split that comes after its table was handed off."""
    return FencedError(
        f"{split.table} was handed off to the stream, no split of it is published any more",
        where=f"split {split.split_id}, {place.where}",
        risk=f"none: {place.undone}",
        remedy="nothing: a late reader has ended",
    )


# --- stream -------------------------------------------------------------------------------------


def hand_off(
    state: LedgerState, by: int, stream: StreamSplit, begun: Sequence[SchemaChange] = ()
) -> Records:
    """Store the stream, made from the reports that are there; refuse one that is further behind.

    `begun` are schema changes that are to be made from there on.
    """
    require_owner(state, by)
    stored = state.stream
    if stored == stream:
        return ()
    require_may_hand_off(stored, stream, known(state.reports))
    # a table without a row is one of which nobody knows when it was changed last
    nothing = dict.fromkeys((progress.table for progress in stream.tables), 0)
    return (
        StreamStored(stream),
        _owned(state, stream),
        ChangesCounted(nothing, stream.start),
        *_begun(state, begun),
    )


def change_tables(
    state: LedgerState,
    by: int,
    *,
    added: Mapping[TableId, LogPosition],
    removed: Collection[TableId],
    read: Collection[TableId],
) -> Records:
    """Add tables to the stream, each from a position on, remove others, and say which are read."""

    def changed(stream: StreamSplit) -> StreamSplit:
        return stream.with_tables(added, removed).read(read)

    require_owner(state, by)
    return _regrouped(state, changed, gone=removed)


def set_position(
    state: LedgerState, by: int, position: LogPosition, begun: Collection[TableId]
) -> Records:
    """Set the stream to a position, even an earlier one, from which some tables begin anew."""

    def changed(stream: StreamSplit) -> StreamSplit:
        return stream.gone_on_from(position, begun)

    require_owner(state, by)
    return _regrouped(state, changed, gone=begun, position=position)


def keep_stop(state: LedgerState, by: int, stop: LogPosition | None, stop_by: str) -> Records:
    """Keep where the stream ends, and the file's words for it; None: it does not end."""
    require_owner(state, by)
    return (_rewritten(state, lambda stream: stream.ending_at(stop, stop_by)),)


def pass_over(state: LedgerState, by: int, quiet: IdleRange) -> Records:
    """Move each writer slot to the end of an idle range of the log, never back."""
    require_owner(state, by)
    return tuple(
        SlotMoved(number, quiet.end, quiet.knew)
        for number, slot in enumerate(known(state.slots))
        if quiet.moves(slot.position)
    )


# --- changes of definitions ---------------------------------------------------------------------


def begin_changes(state: LedgerState, by: int, changes: Sequence[SchemaChange]) -> Records:
    """Store schema changes as begun, except those that are begun already."""
    require_owner(state, by)
    return _begun(state, changes)


def end_change(state: LedgerState, by: int, change: SchemaChange) -> Records:
    """End a schema change, and let the stream pass it, or its table alone if that is isolated.

    A table that is read again for its change is the stream's again.
    """
    require_owner(state, by)
    table, through = change.table, change.through
    stopped = state.stopped_table(table)
    moved: Records
    if stopped is not None and not change.rereads:
        state.required_slots()
        passed = stopped.stream.changed(table, through, unread=False)
        apart = _apart(state).moved(table, through)
        moved = (StoppedMoved(replace(passed, start=through)), *_kept_apart(state, apart))
    else:
        rewritten = _rewritten(
            state, lambda stream: stream.changed(table, through, unread=change.rereads)
        )
        moved = (rewritten, StoppedForgotten(table), *_back(state, table))
    return (*moved, ChangeEnded(table), ChangesCounted({table: 1}, through))


# --- isolated tables ----------------------------------------------------------------------------


def stop(state: LedgerState, by: int, tables: Collection[TableId], error: StoredError) -> Records:
    """Isolate tables at the stream's position, for an `error` or a person.

    What was begun of their definitions is ended: it is looked at anew when they come back.
    """
    require_owner(state, by)
    stream = state.required_stream()
    alone_now = stopped_in(stream, tables)
    apart = _apart(state).stopped([each.tables[0].table for each in alone_now], stream.start)
    return (
        *(ChangeEnded(table) for table in tables),
        *(TableStopped(alone, error) for alone in alone_now),
        *_kept_apart(state, apart),
        _rewritten(state, lambda stored: stored.with_tables({}, tables)),
    )


def say_of_stopped(state: LedgerState, by: int, table: TableId, error: StoredError) -> Records:
    """Store the error that keeps a table isolated; empty: a person stopped it."""
    require_owner(state, by)
    return (StoppedSaid(table, error),)


def rejoin(state: LedgerState, by: int, table: TableId) -> Records:
    """Put an isolated table back into the stream, whose position it must have reached."""
    require_owner(state, by)
    state.required_slots()
    stopped = state.stopped_table(table)
    if stopped is None:
        return ()
    back = _rewritten(state, lambda stream: rejoined(stream, stopped.stream))
    return back, StoppedForgotten(table), *_back(state, table)


# --- what several rules need --------------------------------------------------------------------


def _rewritten(state: LedgerState, changed: Callable[[StreamSplit], StreamSplit]) -> SlotsRewritten:
    """Return the record that changes the stream split of every writer slot."""
    return SlotsRewritten(tuple(changed(slot.stream) for slot in state.required_slots()))


def _regrouped(
    state: LedgerState,
    changed: Callable[[StreamSplit], StreamSplit],
    *,
    gone: Collection[TableId],
    position: LogPosition | None = None,
) -> Records:
    """Return the records of a stream with other tables, at its position or at another one.

    What was begun of the definitions of those that are `gone` is not to be gone on with.
    """
    first: list[Record] = [_rewritten(state, changed)]
    first += [ChangeEnded(table) for table in gone]
    first += [StoppedForgotten(table) for table in gone]
    first += _kept_apart(state, _apart(state).without(gone))
    if position is not None:
        first.append(PositionSet(position))
    behind = state.with_records(first)
    return (*first, _owned(behind, behind.required_stream()))


def _apart(state: LedgerState) -> TablesApart:
    """Return the tables that are not where the stream is."""
    return state.required_slots()[0].apart


def _kept_apart(state: LedgerState, apart: TablesApart) -> tuple[ApartKept, ...]:
    """Return the record of the tables that are not where the stream is, if they are others."""
    return () if apart == _apart(state) else (ApartKept(apart),)


def _back(state: LedgerState, table: TableId) -> tuple[ApartKept, ...]:
    """Return the record of a table that is the stream's again."""
    return _kept_apart(state, _apart(state).back(table, state.required_stream().start))


def _owned(state: LedgerState, stream: StreamSplit) -> TablesOwned:
    """Return the record of all tables a stream owns, isolated ones too; it drops other splits."""
    tables = {progress.table for progress in stream.tables}
    tables |= {each.table for each in known(state.stopped)}
    return TablesOwned(frozenset(tables), stream.unread)


def _begun(state: LedgerState, changes: Sequence[SchemaChange]) -> tuple[ChangeBegun, ...]:
    """Return the records of changes that are not begun yet, each once."""
    new: list[SchemaChange] = []
    for change in changes:
        if change not in known(state.changes) and change not in new:
            new.append(change)
    return tuple(map(ChangeBegun, new))
