"""What a person decides against a refusal: each decision is recorded, and loses no row.

`skip` goes past one place of the log that the stream refuses to pass. The tables that it may have
changed are read again beside the stream, from behind that place on; the others go on by the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

from airflow_cdc_provider.columns.sink_port import SinkLedger
from airflow_cdc_provider.columns.source_port import LogReading
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
from airflow_cdc_provider.engine.reconcile import reconcile
from airflow_cdc_provider.engine.requests.unread import ask_for_unread
from airflow_cdc_provider.engine.stream.refused_place import RefusedPlace, refused_place
from airflow_cdc_provider.pipeline.run import Run, take_over
from airflow_cdc_provider.pipeline.steps.jobs import stream_spec
from airflow_cdc_provider.pipeline.steps.requests import this_person
from airflow_cdc_provider.pipeline.steps.sink import open_ledger, sink_of, source_of
from airflow_cdc_provider.state.wishes import set_aside

_MOST = 100


@dataclass(frozen=True, slots=True)
class Override:
    """What a person has decided."""

    what: str
    """What was refused."""
    where: str
    tables: tuple[TableId, ...]
    """The tables that are read again for it."""


def skip_place(run: Run, at: str, *, reason: str, by: str = "") -> Override:
    """Go past a place that the stream refuses, and have what it may have changed read again.

    `at` is the place as the refusal names it: it must be the next one that the stream would stop
    at. The next run reads the tables, beside its stream.
    """
    _require(run, reason, "skip")
    with closing(open_ledger(run)) as ledger:
        generation = take_over(run, ledger).generation
        stream = _streamed(run, ledger, generation)
        place = _place(run, stream, generation)
        if place is None or not place.statement.point.is_called(at):
            raise _not_there(run, stream, at, place)
        found = Override(place.refusal.what, place.statement.point.where, place.tables)
        _record(run, "skip", found, reason, by)
        _read_again(run, ledger, generation, place.tables, place.end)
    return found


def place_to_skip(run: Run) -> RefusedPlace | None:
    """Return the place that the stream refuses to pass; nothing is changed."""
    with closing(open_ledger(run)) as ledger:
        stream, generation = ledger.stream(), ledger.generation()
    return None if stream is None else _place(run, stream, generation)


def _place(run: Run, stream: StreamSplit, generation: int) -> RefusedPlace | None:
    spec = stream_spec(run.model, generation)
    plans = [state.plan for state in run.store.tables(run.name)]
    followed = {progress.table for progress in stream.tables}
    schemas = {p.schema.table: p.schema for p in plans if p.schema.table in followed}
    reading = LogReading(schemas, spec.server_id_first, zero_dates=spec.zero_dates)
    return refused_place(source_of(run), stream.passed(stream.start), reading, plans)


def _read_again(
    run: Run,
    ledger: SinkLedger,
    generation: int,
    tables: Sequence[TableId],
    position: LogPosition,
) -> None:
    """Have tables begin again at a position, in one step of the ledger, and ask for their rows."""
    stream = ledger.change_tables(removed=tables, added=dict.fromkeys(tables, position))
    run.store.store_hand_off(run.name, generation, stream)
    set_aside(run.store, run.name)
    ask_for_unread(run.store, run.name, generation, stream, by=run.owner)


def _streamed(run: Run, ledger: SinkLedger, generation: int) -> StreamSplit:
    is_handed_off = reconcile(run.store, ledger, run.name, generation).handed_off
    stream = ledger.stream() if is_handed_off else None
    if stream is None:
        raise SnapshotRequiredError(
            f"the snapshot of {run.name} is not handed off to a stream",
            where=f"ledger of {run.name}",
            risk=NOTHING_CHANGED,
            remedy="`run` it: its snapshot reads what the log does not hold",
        )
    return stream


def _require(run: Run, reason: str, command: str) -> None:
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
    """Keep who decided what, and why, with the pipeline's notes and its events."""
    who, names = by or this_person(), ", ".join(map(str, done.tables))
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
    text = f"{command} by {who}: {done.what}; {done.where}; reason: {reason}; read again: {names}"
    run.store.tell(run.name, text, level="warning")


def _not_there(run: Run, stream: StreamSplit, at: str, place: RefusedPlace | None) -> CdcError:
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
