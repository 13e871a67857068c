"""What a person decides against a refusal: each decision is recorded, and loses no row.

`skip` goes past one place of the log that the stream refuses to pass. The tables that it may have
changed are read again beside the stream, from behind that place on; the others go on by the log.

`accept` takes the history of a server that lacks a part of ours, as after a failover that lost
commits. The stream goes on from what both have in common, and the tables that the lost transactions
may have changed are read again. Where it cannot be told what is common, or which tables these are,
all of them are, from where the server is now.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

from airflow_cdc_provider.columns.source_port import SharesHistory, Source, offered
from airflow_cdc_provider.core.errors import (
    NOTHING_CHANGED,
    CdcError,
    RefusedError,
    SnapshotRequiredError,
)
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.records import NoteKind
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.engine.ledger.ledger import Ledger
from airflow_cdc_provider.engine.readings import log_reading
from airflow_cdc_provider.engine.reconcile import reconcile
from airflow_cdc_provider.engine.requests.unread import ask_for_unread
from airflow_cdc_provider.engine.stream.refused_place import RefusedPlace, refused_place
from airflow_cdc_provider.pipeline.run import Run, take_over
from airflow_cdc_provider.pipeline.steps.edges import require_one_way
from airflow_cdc_provider.pipeline.steps.jobs import stream_spec
from airflow_cdc_provider.pipeline.steps.range_requests import this_person
from airflow_cdc_provider.pipeline.steps.sink import (
    open_ledger,
    require_log_goes_on,
    sink_of,
    source_of,
)
from airflow_cdc_provider.state.desired_state import set_aside

_MOST = 100


@dataclass(frozen=True, slots=True)
class Override:
    """A person's decision against a refusal: what was refused, where, and tables to read again."""

    what: str
    """What was refused."""
    where: str
    tables: tuple[TableId, ...]
    """The tables that are read again for it."""

    @classmethod
    def of(cls, place: RefusedPlace) -> Override:
        """Return the decision to skip a refused statement."""
        return cls(place.refusal.what, place.statement.point.where, place.tables)

    @property
    def names(self) -> str:
        """Return the tables to be read again, as text."""
        return ", ".join(map(str, self.tables)) or "no table"


def skip_place(run: Run, at: str, *, reason: str, by: str = "") -> Override:
    """Skip a statement that the stream refuses, and have its tables read again.

    `at` is the place as the refusal names it: it must be the next one that the stream would stop
    at. The next run reads the tables, beside its stream.
    """
    require_one_way(run, "skips no statement")
    _require(run, reason, "skip")
    with closing(open_ledger(run)) as ledger:
        generation = take_over(run, ledger).generation
        stream = _streamed(run, ledger, generation)
        place = _place(run, stream, generation)
        if place is None or not place.statement.point.is_called(at):
            raise _not_there(run, stream, at, place)
        found = Override.of(place)
        _record(run, "skip", found, reason, by)
        _read_again(run, ledger, generation, place.tables, place.end)
    return found


def place_to_skip(run: Run) -> RefusedPlace | None:
    """Return the statement that the stream refuses to pass, None if there is none."""
    with closing(open_ledger(run)) as ledger:
        stream, generation = ledger.stream(), ledger.generation()
    return None if stream is None else _place(run, stream, generation)


def accept_source(run: Run, *, reason: str, by: str = "") -> Override:
    """Accept the history of the source that answers now; read tables again that may lack rows."""
    require_one_way(run, "accepts no other history of its source")
    _require(run, reason, "accept")
    with closing(open_ledger(run)) as ledger:
        generation = take_over(run, ledger).generation
        stream = _streamed(run, ledger, generation)
        found, position = _parted(run, ledger, stream)
        _record(run, "accept", found, reason, by)
        changed = ledger.go_on_from(position, found.tables)
        _begun(run, generation, changed)
    return found


def source_to_accept(run: Run) -> Override:
    """Return what `accept_source` would do; changes nothing."""
    with closing(open_ledger(run)) as ledger:
        stream = ledger.stream()
        if stream is None:
            raise _not_handed_off(run)
        return _parted(run, ledger, stream)[0]


def _parted(run: Run, ledger: Ledger, stream: StreamSplit) -> tuple[Override, LogPosition]:
    """Return why the source's history is another, what is read again, and where to go on."""
    source, stream = source_of(run), stream.passed(stream.start)
    tables = frozenset(progress.table for progress in stream.tables)
    try:
        require_log_goes_on(run, stream)
    except SnapshotRequiredError as error:
        refused = error
    else:
        raise RefusedError(
            "the source has all that was read, and its log is the one that was read",
            where=f"source of {run.name}",
            risk=NOTHING_CHANGED,
            remedy="`run` the pipeline: there is nothing to accept",
        )
    stopped = {each.table: each.stream for each in ledger.stopped()}
    position, kept = _shared(run, ledger, stream, stopped)
    if position is None or not _goes_on(source, position, kept):
        kept = frozenset()
        with closing(source.log_end(purpose="position")) as log_end:
            position = log_end.seen()
    begun = tuple(sorted((tables | stopped.keys()) - kept))
    return Override(refused.what, refused.where, begun), position


def _shared(
    run: Run, ledger: Ledger, stream: StreamSplit, stopped: Mapping[TableId, StreamSplit]
) -> tuple[LogPosition | None, frozenset[TableId]]:
    """Return the position that both histories share, and the tables without a lost change."""
    asked: list[tuple[TableId, LogPosition]] = list(ledger.last_changes().items())
    known = {table for table, _ in asked}
    asked += [(split.table, report.high) for split, report in ledger.reports()]
    asked += [(table, each.start) for table, each in stopped.items()]
    distinct = {position.exact: position for _, position in asked}
    shared = offered(source_of(run), SharesHistory).shared_history(
        stream.start, list(distinct.values())
    )
    has = dict(zip(distinct, shared.has, strict=False))
    lost = {table for table, position in asked if not has.get(position.exact, False)}
    still = {progress.table for progress in stream.tables} | stopped.keys()
    return shared.position, frozenset((still & known) - lost - set(stream.inconsistent))


def _goes_on(source: Source, position: LogPosition, kept: Collection[TableId]) -> bool:
    """Tell whether the log continues from a position for all tables that are kept."""
    if not kept:
        return False
    try:
        source.require_same_log(position, (), kept)
    except SnapshotRequiredError:
        return False
    return True


def _place(run: Run, stream: StreamSplit, generation: int) -> RefusedPlace | None:
    """Return the statement that the stream refuses behind its position, None if there is none."""
    spec = stream_spec(run.model, generation)
    plans = [state.plan for state in run.store.tables(run.name)]
    followed = {progress.table for progress in stream.tables}
    schemas = {p.schema.table: p.schema for p in plans if p.schema.table in followed}
    reading = log_reading(spec, schemas)
    return refused_place(source_of(run), stream.passed(stream.start), reading, plans)


def _read_again(
    run: Run,
    ledger: Ledger,
    generation: int,
    tables: Sequence[TableId],
    position: LogPosition,
) -> None:
    """Reset tables at a position, in one step of the ledger, and request their rows."""
    _begun(
        run,
        generation,
        ledger.change_tables(removed=tables, added=dict.fromkeys(tables, position)),
    )


def _begun(run: Run, generation: int, stream: StreamSplit) -> None:
    """Store the moved stream in the state store, and ask for the rows of unread tables."""
    run.store.store_hand_off(run.name, generation, stream)
    set_aside(run.store, run.name)
    ask_for_unread(run.store, run.name, generation, stream, by=run.owner)


def _streamed(run: Run, ledger: Ledger, generation: int) -> StreamSplit:
    """Return the ledger's stream, after the state store is reconciled; raise before hand-off."""
    is_handed_off = reconcile(run.store, ledger, run.name, generation).handed_off
    stream = ledger.stream() if is_handed_off else None
    if stream is None:
        raise _not_handed_off(run)
    return stream


def _not_handed_off(run: Run) -> SnapshotRequiredError:
    """Return the error for a pipeline that is not handed off to a stream."""
    return SnapshotRequiredError(
        f"the snapshot of {run.name} is not handed off to a stream",
        where=f"ledger of {run.name}",
        risk=NOTHING_CHANGED,
        remedy="`run` it, or `reset` it where its snapshot cannot go on",
    )


def _require(run: Run, reason: str, command: str) -> None:
    """Refuse a decision without a reason, or for a sink that cannot take rows again."""
    if not reason.strip():
        raise RefusedError(
            "no reason is given",
            where=f"`{command}` of {run.name}",
            risk=NOTHING_CHANGED,
            remedy="write --reason: it is kept with the pipeline's events",
        )
    if not sink_of(run).abilities.joins:
        raise RefusedError(
            "this kind of sink takes no rows beside its stream, so nothing can be read again",
            where=f"sink of {run.name}",
            risk=NOTHING_CHANGED,
            remedy="`reset` the pipeline: the next run reads all tables again",
        )


def _record(run: Run, command: str, done: Override, reason: str, by: str) -> None:
    """Record a decision in the pipeline's notes and events: by whom, what and why."""
    who = by or this_person()
    made = {
        "command": command,
        "at_us": run.store.now_us(),
        "by": who,
        "reason": reason,
        "what": done.what,
        "where": done.where,
        "tables": [str(table) for table in done.tables],
    }
    note = run.store.note(run.name, NoteKind.OVERRIDES)
    before = note.form["made"] if note is not None else []
    run.store.keep_note(run.name, NoteKind.OVERRIDES, {"made": [*before, made][-_MOST:]})
    text = (
        f"{command} by {who}: {done.what}; {done.where}; reason: {reason}; read again: {done.names}"
    )
    run.store.tell(run.name, text, level="warning")


def _not_there(run: Run, stream: StreamSplit, at: str, place: RefusedPlace | None) -> CdcError:
    """Return the error for a place that is not the one that the stream refuses."""
    if place is None:
        return RefusedError(
            f"nothing is refused behind the stream's position {stream.start}",
            where=f"log of the source of {run.name}",
            risk=NOTHING_CHANGED,
            remedy="`run` the pipeline; a table that stopped alone comes back by `resume`",
        )
    name = place.statement.point.name
    return RefusedError(
        f"{at} is not the place that the stream refuses to pass; that is {name}",
        where=place.statement.point.where,
        risk=NOTHING_CHANGED,
        remedy=f"read what is refused there: {place.refusal.what}; `skip` with --at {name} goes "
        "past it",
    )
