"""JSON forms of what a ledger decides, as manifests hold it where no older form says it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from airflow_cdc_provider.core.codec import (
    apart_from_json,
    apart_to_json,
    known_from_json,
    known_to_json,
    position_from_json,
    position_to_json,
    stream_from_text,
    stream_to_text,
)
from airflow_cdc_provider.core.errors import IntegrityError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.schema_codec import change_from_json, change_to_json
from airflow_cdc_provider.core.stored_error import StoredError
from airflow_cdc_provider.engine.ledger.records import (
    ApartKept,
    ChangeBegun,
    ChangeEnded,
    ChangesCounted,
    GenerationMoved,
    PlanBegun,
    PositionSet,
    Record,
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

Form = dict[str, Any]
"""One record, as JSON has it: `is` says which, the others are its fields."""


def record_to_json(record: Record) -> Form:
    """Return the JSON form of a record."""
    match record:
        case StreamStored() | SlotsRewritten() | PositionSet() | SlotMoved() | ApartKept():
            return _slots_to_json(record)
        case TableStopped() | StoppedMoved() | StoppedSaid() | StoppedForgotten():
            return _stopped_to_json(record)
        case TablesOwned(tables, unread):
            names = [str(table) for table in sorted(tables)]
            return {"is": "tables owned", "tables": names, "unread": [str(each) for each in unread]}
        case ChangesCounted(tables, position):
            counts = {str(table): count for table, count in sorted(tables.items())}
            return {"is": "changes counted", "tables": counts, "at": position_to_json(position)}
        case ChangeBegun(change):
            return {"is": "change begun", "change": change_to_json(change)}
        case ChangeEnded(table):
            return {"is": "change ended", "table": str(table)}
        case GenerationMoved() | PlanBegun() | SplitPublished():
            raise ValueError(f"{record} has a manifest of its own")


def _slots_to_json(
    record: StreamStored | SlotsRewritten | PositionSet | SlotMoved | ApartKept,
) -> Form:
    """Return the JSON form of what changes the stream's writer slots."""
    match record:
        case StreamStored(stream):
            return {"is": "stream stored", "stream": stream_to_text(stream)}
        case SlotsRewritten(stored):
            return {"is": "slots rewritten", "streams": [stream_to_text(each) for each in stored]}
        case PositionSet(position):
            return {"is": "position set", "at": position_to_json(position)}
        case SlotMoved(slot, position, knew):
            known = None if knew is None else known_to_json(knew)
            return {
                "is": "slot moved",
                "slot": slot,
                "at": position_to_json(position),
                "knew": known,
            }
        case ApartKept(apart):
            return {"is": "apart kept", "apart": apart_to_json(apart)}


def _stopped_to_json(
    record: TableStopped | StoppedMoved | StoppedSaid | StoppedForgotten,
) -> Form:
    """Return the JSON form of what changes the isolated tables."""
    match record:
        case TableStopped(stream, error):
            text = stream_to_text(stream)
            return {"is": "table stopped", "stream": text, "error": error.text}
        case StoppedMoved(stream):
            return {"is": "stopped moved", "stream": stream_to_text(stream)}
        case StoppedSaid(table, error):
            return {"is": "stopped said", "table": str(table), "error": error.text}
        case StoppedForgotten(table):
            return {"is": "stopped forgotten", "table": str(table)}


def record_from_json(form: Form) -> Record:
    """Read a record from its JSON form; one that is not known is refused."""
    read = _READERS.get(form["is"])
    if read is None:
        raise IntegrityError(
            f"a manifest holds {form['is']!r}, which this release does not know",
            where="change log",
            risk="what is committed is unknown; nothing was changed",
            remedy="use the release that wrote it",
        )
    return read(form)


def _slot_moved(form: Form) -> SlotMoved:
    """Read a slot's move."""
    known = None if form["knew"] is None else known_from_json(form["knew"])
    return SlotMoved(form["slot"], position_from_json(form["at"]), known)


def _tables_owned(form: Form) -> TablesOwned:
    """Read which tables the stream owns."""
    tables = frozenset(TableId.parse(name) for name in form["tables"])
    return TablesOwned(tables, tuple(TableId.parse(name) for name in form["unread"]))


def _changes_counted(form: Form) -> ChangesCounted:
    """Read counts of changes."""
    counts = {TableId.parse(name): count for name, count in form["tables"].items()}
    return ChangesCounted(counts, position_from_json(form["at"]))


_READERS: dict[str, Callable[[Form], Record]] = {
    "stream stored": lambda form: StreamStored(stream_from_text(form["stream"])),
    "slots rewritten": lambda form: SlotsRewritten(tuple(map(stream_from_text, form["streams"]))),
    "position set": lambda form: PositionSet(position_from_json(form["at"])),
    "slot moved": _slot_moved,
    "apart kept": lambda form: ApartKept(apart_from_json(form["apart"])),
    "tables owned": _tables_owned,
    "changes counted": _changes_counted,
    "change begun": lambda form: ChangeBegun(change_from_json(form["change"])),
    "change ended": lambda form: ChangeEnded(TableId.parse(form["table"])),
    "table stopped": lambda form: TableStopped(
        stream_from_text(form["stream"]), StoredError(form["error"])
    ),
    "stopped moved": lambda form: StoppedMoved(stream_from_text(form["stream"])),
    "stopped said": lambda form: StoppedSaid(
        TableId.parse(form["table"]), StoredError(form["error"])
    ),
    "stopped forgotten": lambda form: StoppedForgotten(TableId.parse(form["table"])),
}
