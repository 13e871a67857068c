"""What a task tells a lineage service of a pipeline's tables, as plain values.

A table is two datasets: what is read at the source and what it becomes at the sink, by the names
that others know them by. Everything comes from the plan and the stream's progress, as the state
store holds them; no server is asked, and nothing of a row or of who gets in is told.

What is told is bounded, as services and brokers refuse long messages: Kafka takes 1 MiB unless it
is told otherwise. First every table is told by its names. What is left of `MOST_BYTES` goes to
columns and all the rest, first of tables that the task did something with. Then come the others,
in order.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from airflow_cdc_provider.core.endpoint import SinkPlace
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.lifecycle import LEFT_ALONE, TablePhase
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.records import StreamState, TableState
from airflow_cdc_provider.core.table_schema import Column
from airflow_cdc_provider.core.verify_report import TableVerdict
from airflow_cdc_provider.systems.kinds import Naming

MOST_BYTES = 900_000
"""Of the JSON of an event's datasets; what Airflow adds to it comes on top."""
_LONGEST_TYPE = 64
"""Members of an ENUM can be many."""
_LONGEST_VERSION = 400
_NOT_AT_A_POSITION = LEFT_ALONE | {TablePhase.CHANGED}
# About what OpenLineage's JSON adds to the texts; a test holds real events against it.
_BYTES_OF_DATASET = 80
_BYTES_OF_FACET = 260
_FACETS = 8
_BYTES_OF_FIELD = 60
_BYTES_OF_ORIGIN = 180


@dataclass(frozen=True, slots=True)
class LineageSide:
    """The source or sink of a pipeline, and how its tables are named for lineage."""

    place: SinkPlace
    naming: Naming


@dataclass(frozen=True, slots=True)
class LineageEntry:
    """What a task did with one table: rows, bytes, position, result of a comparison."""

    rows: int | None = None
    """Rows that it wrote, or changes of rows."""
    bytes: int | None = None
    is_overwritten: bool = False
    """All rows that the table had are replaced."""
    position: LogPosition | None = None
    """Where the sink's table equals the source's; the stream's own if None."""
    verdict: TableVerdict | None = None
    """What a comparison of both sides has found."""


@dataclass(frozen=True, slots=True)
class LineageWork:
    """The tables that a task works on, and what it did with each."""

    tables: Collection[TableId] | None = None
    """Only these of the plan; None are all."""
    deeds: Mapping[TableId, LineageEntry] = field(default_factory=dict)
    others: LineageEntry = LineageEntry()
    """What it did with each table that is not in `deeds`."""
    is_snapshot: bool = False
    """It read the tables whole: rows and bytes are those of their splits."""
    writes: bool = True
    """False: it reads both sides."""

    def deed(self, state: TableState) -> LineageEntry:
        """Return what the task did with a table."""
        if not self.is_snapshot:
            return self.deeds.get(state.table, self.others)
        return LineageEntry(state.rows, state.bytes, is_overwritten=state.splits_finished > 0)


@dataclass(frozen=True, slots=True)
class Field:
    """A column's name and type, as a lineage service gets it."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class Dataset:
    """A table's names and columns, as a lineage service gets them."""

    namespace: str
    name: str
    fields: tuple[Field, ...] = ()


@dataclass(frozen=True, slots=True)
class CopiedColumn:
    """A column of the sink, by both its names."""

    source: str
    sink: str
    is_masked: bool = False


@dataclass(frozen=True, slots=True)
class TableLineage:
    """One table's lineage: its dataset at the source, and that at the sink."""

    source: Dataset
    sink: Dataset
    copied: tuple[CopiedColumn, ...] = ()
    """The columns that are copied; constants of the sink are none."""
    version: str = ""
    """Where in the source's log both are equal; empty where they are not."""
    deed: LineageEntry = LineageEntry()
    is_whole: bool = False
    """False: only names are told."""


@dataclass(frozen=True, slots=True)
class Lineage:
    """The lineage that a task reports: its tables, and how many were cut."""

    tables: tuple[TableLineage, ...] = ()
    """By name; those at the end may be told by their names only."""
    left_out: int = 0
    """Tables that are not told at all."""
    writes: bool = True

    @property
    def named_only(self) -> int:
        """Return how many tables have only their names in the event."""
        return sum(not each.is_whole for each in self.tables)

    @property
    def cut(self) -> str:
        """Describe what was cut from the event for its size; empty if nothing was."""
        named, count = self.named_only, len(self.tables) + self.left_out
        if not named and not self.left_out:
            return ""
        gone = f", and {self.left_out} not at all" if self.left_out else ""
        return (
            f"{named} of {count} tables are told by their names only{gone}: an event has room for "
            f"{MOST_BYTES} bytes of tables"
        )


def lineage(
    states: Iterable[TableState],
    stream: StreamState | None,
    *,
    source: LineageSide,
    sink: LineageSide,
    work: LineageWork,
) -> Lineage:
    """Return a task's lineage of the plan's tables, cut to the size of an event."""
    mine = [each for each in states if work.tables is None or each.table in work.tables]
    first = sorted(mine, key=lambda each: (each.table not in work.deeds, each.table))
    named, room = _named(first, source, sink)
    for number, state in enumerate(first[: len(named)]):
        names, deed = named[number], work.deed(state)
        table = _whole(names, state, stream, source=source, sink=sink, deed=deed)
        room -= _bytes_beside_names(table)
        if room < 0:
            break
        named[number] = table
    return Lineage(tuple(named), len(first) - len(named), work.writes)


def _named(
    states: Iterable[TableState], source: LineageSide, sink: LineageSide
) -> tuple[list[TableLineage], int]:
    """Return as many tables as fit by their names only, and the room that is left.

    Where there is no room for the names of all, none has more than its names.
    """
    room = MOST_BYTES
    named: list[TableLineage] = []
    for state in states:
        datasets = _dataset(source, state.table), _dataset(sink, state.plan.sink_table)
        room -= sum(_length(each.namespace) + _length(each.name) for each in datasets)
        room -= 2 * _BYTES_OF_DATASET
        if room < 0:
            return named, 0
        named.append(TableLineage(*datasets))
    return named, room


def _whole(
    names: TableLineage,
    state: TableState,
    stream: StreamState | None,
    *,
    source: LineageSide,
    sink: LineageSide,
    deed: LineageEntry,
) -> TableLineage:
    """Return one table's lineage with columns and versions."""
    schema, target = state.plan.schema, state.plan.target
    # a file has no column that a server would compute
    has_types = sink.naming.type_text(schema.columns[0].type)
    at_sink = target.as_copied.columns if has_types else target.copied_columns
    return TableLineage(
        replace(names.source, fields=_fields(source, schema.columns)),
        replace(names.sink, fields=_fields(sink, at_sink)),
        tuple(
            CopiedColumn(each.source, each.name, each.mask is not None)
            for each in state.plan.shape.columns_of(schema)
            if each.source
        ),
        _version(state, stream, deed),
        deed,
        is_whole=True,
    )


def _dataset(side: LineageSide, table: TableId) -> Dataset:
    """Return a table's dataset by its names."""
    return Dataset(side.naming.namespace(side.place), side.naming.dataset(side.place, table))


def _fields(side: LineageSide, columns: Iterable[Column]) -> tuple[Field, ...]:
    """Return columns as fields of a dataset."""
    return tuple(Field(each.name, _cut(side.naming.type_text(each.type))) for each in columns)


def _cut(text: str) -> str:
    """Cut a type's name that is too long."""
    return text if len(text) <= _LONGEST_TYPE else f"{text[: _LONGEST_TYPE - 3]}..."


def _version(state: TableState, stream: StreamState | None, deed: LineageEntry) -> str:
    """Return the position that a table is at, as its version; empty if it is at none."""
    if deed.position is not None:
        return _text(deed.position)
    if stream is None or state.phase in _NOT_AT_A_POSITION or state.table in stream.inconsistent:
        return ""
    return _text(stream.position)


def _text(position: LogPosition) -> str:
    """Return a position as text; a long one is cut, with a hash that tells two apart."""
    text = str(position)
    if len(text) <= _LONGEST_VERSION:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return f"{text[:_LONGEST_VERSION]}... sha256:{digest}"


def _bytes_beside_names(table: TableLineage) -> int:
    """Return the bytes that a table's lineage takes besides its names."""
    fields = (*table.source.fields, *table.sink.fields)
    origin = _length(table.source.namespace) + _length(table.source.name) + _BYTES_OF_ORIGIN
    return (
        _FACETS * _BYTES_OF_FACET
        + 2 * (_length(table.source.namespace) + _length(table.sink.namespace))
        + 2 * _length(table.version)
        + sum(_length(each.name) + _length(each.type) + _BYTES_OF_FIELD for each in fields)
        + sum(_length(each.source) + _length(each.sink) + origin for each in table.copied)
    )


def _length(text: str) -> int:
    """Return the length of a text in JSON."""
    return len(text) if text.isascii() else len(json.dumps(text))
