"""Few rows that both nodes changed are settled as Python objects as they are in columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_cdc_provider.columns.changes import ChangeBatch, Op, TableChanges
from airflow_cdc_provider.columns.few_changes import (
    FewChange,
    FewMerged,
    FewTable,
    FewTables,
    merge_few,
    rows_of,
)
from airflow_cdc_provider.columns.merge import merge
from airflow_cdc_provider.columns.plain_changes import PlainChanges
from airflow_cdc_provider.core.conflict_rules import ConflictRule
from airflow_cdc_provider.core.conflicts import Values
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.keys import KeyKind
from airflow_cdc_provider.core.known_log import KnownLog
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.table_schema import Column, ColumnType, TableSchema, TypeKind
from airflow_cdc_provider.core.topology import Topology
from airflow_cdc_provider.engine.sink.beaten import BeatenChanges
from airflow_cdc_provider.engine.sink.guard import Guard
from airflow_cdc_provider.engine.sink.selection import FewTableWork, TableWork
from airflow_cdc_provider.engine.sink.settled import SettledTable, settled_columns
from airflow_cdc_provider.engine.sink.settled_few import OurRows, settled_few
from airflow_cdc_provider.engine.sink.touched_rows import NotPlainError
from tests.behaviours.source_log import at, point

SHOP = TableId("shop", "items")
SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        ("n", pa.int32()),
        ("v", pa.decimal128(20, 2)),
        ("at", pa.timestamp("us", "UTC")),
    ]
)
_TEXT = ColumnType("varchar", TypeKind.TEXT, KeyKind.TEXT)
_INT = ColumnType("int", TypeKind.INTEGER, KeyKind.INTEGER)
_DECIMAL = ColumnType("decimal", TypeKind.DECIMAL, KeyKind.OTHER)
_TIME = ColumnType("timestamp", TypeKind.TEMPORAL, KeyKind.TEMPORAL)
TABLE = TableSchema(
    SHOP,
    (
        Column("k", _TEXT, nullable=False),
        Column("n", _INT, nullable=False),
        Column("v", _DECIMAL, nullable=True),
        Column("at", _TIME, nullable=True),
    ),
    ("k", "n"),
)
PLAN = TablePlan.alike(TABLE, SHOP, 0)
Row = tuple[bytes, int, int | None, int | None]


class AnyCase:
    """Takes texts for equal whatever their case."""

    def of(self, kind: ColumnType, texts: Sequence[str]) -> list[bytes]:
        return [text.lower().encode() for text in texts]


class Stored:
    """A store that has noted what was beaten before."""

    def __init__(self, found: Sequence[tuple[Values, str]]) -> None:
        self.found = found

    def beaten(self, table: TableId, node: str) -> Sequence[tuple[Values, str]]:
        return self.found if node == "one" else ()


rows = st.tuples(
    st.sampled_from([b"a", b"A", b"b"]),
    st.integers(1, 2),
    st.none() | st.integers(-2, 2),
    st.none() | st.integers(0, 2),
)
pairs = st.tuples(st.none() | rows, st.none() | rows).filter(any)
parts = st.lists(st.lists(pairs, min_size=1, max_size=5), min_size=1, max_size=4)


def few_changes(found: Sequence[tuple[Row | None, Row | None]]) -> list[FewChange]:
    """Return changes from their rows before and behind."""
    return [
        FewChange(
            int(Op.INSERT if before is None else Op.DELETE if after is None else Op.UPDATE),
            before,
            after,
        )
        for before, after in found
    ]


def in_columns(changes: Sequence[FewChange]) -> TableChanges:
    """Return few changes as columns, each a transaction."""
    numbers = range(len(changes))
    return TableChanges(
        SHOP,
        pa.array(numbers, pa.int32()),
        pa.array(numbers, pa.int64()),
        pa.array([change.op for change in changes], pa.int8()),
        rows_of([change.before for change in changes], SCHEMA),
        rows_of([change.after for change in changes], SCHEMA),
    )


def batch_of(first: int, changes: Sequence[FewChange], *, few: bool) -> ChangeBatch:
    """Return a batch of a log whose places are offsets: ten for each change."""
    columns = in_columns(changes)
    table = FewTable(SHOP, SCHEMA, changes, range(len(changes)))
    places = [first + 10 * number for number in range(len(changes))]
    return ChangeBatch(
        at(first),
        at(first + 10 * len(changes)),
        tuple(point(place, place + 10) for place in places),
        FewTables((table,), lambda: (columns,)) if few else (columns,),
    )


def edge_by(rule: ConflictRule) -> Topology:
    """Return an edge from one to two whose conflicts are settled by a rule."""
    marker = TableId("airflow_cdc", "t")
    return Topology("t", "one", "two", marker, winner=rule.winner, column=rule.column)


def guard_of(
    theirs: Sequence[Sequence[FewChange]], edge: Topology, *, few: Sequence[bool]
) -> Guard:
    """Return a guard that has read the parts of the sink's log."""
    guard = Guard(cast("Any", None), edge, [PLAN], {}, None)
    guard._schemas = {SHOP: TABLE}
    first = 100
    for changes, is_few in zip(theirs, few, strict=True):
        guard._take(batch_of(first, changes, few=is_few))
        first += 10 * len(changes)
    return guard


def shown(found: SettledTable | None) -> Any:
    """Return all that is settled."""
    if found is None:
        return None
    work = found.without_lost()
    if isinstance(work, FewTableWork):
        merged = work.merged
        keys = SCHEMA.empty_table().select(["k", "n"]).schema
        deletes, upserts = rows_of(merged.deletes, keys), rows_of(merged.upserts, SCHEMA)
    else:
        deletes, upserts = work.merged.deletes, work.merged.upserts
    left = sorted(deletes.to_pylist(), key=str), sorted(upserts.to_pylist(), key=str)
    return found.lost, found.conflicts(), left


@settings(max_examples=400, deadline=None)
@given(
    ours=st.lists(pairs, min_size=1, max_size=6),
    theirs=parts,
    data=st.data(),
    rule=st.builds(ConflictRule, st.sampled_from(["one", "two"]), st.sampled_from(["", "v", "at"])),
)
def test_few_rows_are_settled_as_columns_are(
    ours: list[Any], theirs: list[list[Any]], data: st.DataObject, rule: ConflictRule
) -> None:
    edge = edge_by(rule)
    changes = few_changes(ours)
    total = sum(map(len, theirs))
    known = at(100 + 10 * data.draw(st.integers(0, total), "known"))
    few = data.draw(st.lists(st.booleans(), min_size=len(theirs), max_size=len(theirs)), "few")
    guard = guard_of(list(map(few_changes, theirs)), edge, few=few)
    beaten_at = data.draw(st.integers(0, total), "beaten at")
    key = data.draw(rows, "beaten")
    places = [
        ({"k": key[0].decode(), "n": key[1]}, point(100 + 10 * beaten_at, 0).where),
    ]
    columns = in_columns(changes)
    points = batch_of(1000, changes, few=True).transactions
    work = TableWork(PLAN, merge([columns], ("k", "n")))
    clash = guard.clash(work, KnownLog(known), AnyCase)
    expected = None
    if clash is not None:
        beaten = BeatenChanges(cast("Any", Stored(places)), "one")
        expected = shown(settled_columns(clash, [(columns, points)], edge, beaten))

    touched, identity = guard.touched(SHOP), guard.identity(SHOP, AnyCase)
    merged = merge_few(changes, (0, 1))
    assert touched is not None
    assert merged is not None
    given_as: list[tuple[TableWork | FewTableWork, PlainChanges]] = [
        (work, PlainChanges(columns)),
        (
            FewTableWork(PLAN, SCHEMA, merged),
            PlainChanges(FewTable(SHOP, SCHEMA, changes, range(len(changes)))),
        ),
    ]
    for each, plain in given_as:
        beaten = BeatenChanges(cast("Any", Stored(places)), "one")
        found = OurRows(each, [plain], points, rule.column)
        assert shown(settled_few(found, touched, known, identity, edge, beaten)) == expected


@settings(max_examples=200, deadline=None)
@given(theirs=parts, data=st.data())
def test_what_is_passed_is_forgotten_and_the_rest_is_found(
    theirs: list[list[Any]], data: st.DataObject
) -> None:
    edge = edge_by(ConflictRule("one"))
    every = [change for part in theirs for change in few_changes(part)]
    guard = guard_of(list(map(few_changes, theirs)), edge, few=[True] * len(theirs))
    guard._read = lambda known: None  # type: ignore[method-assign]
    kinds = {name: SCHEMA.field(name).type for name in ("k", "n")}
    identity = guard.identity(SHOP, AnyCase)
    for passed in sorted(data.draw(st.lists(st.integers(0, len(every)), max_size=4), "passed")):
        known = at(100 + 10 * passed)
        others_write = guard.catch_up(KnownLog(known))
        touched = guard.touched(SHOP)
        assert others_write is (touched is not None)
        if touched is None:
            assert passed == len(every)
            return
        touched.take_in(("k", "n"), kinds, identity)
        for key in ((b"a", 1), (b"a", 2), (b"b", 1), (b"b", 2)):
            wanted = [
                number
                for number, change in enumerate(every)
                if number >= passed and key in touched_by(change)
            ]
            found = [step.place for step in touched.behind(key, known)]
            assert [*dict.fromkeys(found)] == [
                point(100 + 10 * number, 0).where for number in wanted
            ]


def touched_by(change: FewChange) -> set[tuple[bytes, int]]:
    """Return the keys that a change touches."""
    there = [cast("Row", row) for row in (change.before, change.after) if row]
    return {(row[0].lower(), row[1]) for row in there}


@pytest.mark.parametrize(
    ("kind", "stored"),
    [
        (pa.string(), "ä€".encode()),
        (pa.binary(), b"\0\xff"),
        (pa.uint64(), 2**64 - 1),
        (pa.float64(), -0.0),
        (pa.decimal128(38, 6), -(10**38) + 1),
        (pa.decimal256(65, 30), 10**65 - 1),
        (pa.decimal256(65, 30), 0),
        (pa.date32(), -1),
        (pa.timestamp("us"), -1),
        (pa.timestamp("us", "UTC"), 1),
        (pa.duration("us"), -(10**12)),
    ],
)
def test_a_plain_value_becomes_the_object_that_a_column_makes_of_it(
    kind: pa.DataType, stored: Any
) -> None:
    schema = pa.schema([("x", kind)])
    change = FewChange(int(Op.UPDATE), (stored,), (None,))
    few = PlainChanges(FewTable(SHOP, schema, [change], [0]))
    both = PlainChanges(
        TableChanges(
            SHOP,
            pa.array([0], pa.int32()),
            pa.array([0], pa.int64()),
            pa.array([2], pa.int8()),
            rows_of([(stored,)], schema),
            rows_of([(None,)], schema),
        )
    )
    for before in (True, False):
        (found,), (column,) = (each.column("x", before=before) for each in (few, both))
        assert (found, str(found), type(found)) == (column, str(column), type(column))
        assert few.row(0, before=before) == both.row(0, before=before)


def test_rows_of_other_types_are_left_to_columns() -> None:
    edge = edge_by(ConflictRule("one"))
    changes = few_changes([(None, (b"a", 1, 1, 1))])
    guard = guard_of([changes], edge, few=[True])
    other = SCHEMA.set(1, pa.field("n", pa.int64()))
    few = FewTable(SHOP, other, changes, [0])
    work = FewTableWork(PLAN, other, FewMerged([], [(b"a", 1, 1, 1)]))
    ours = OurRows(work, [PlainChanges(few)], (), "")
    touched = guard.touched(SHOP)
    assert touched is not None
    with pytest.raises(NotPlainError):
        settled_few(ours, touched, at(0), guard.identity(SHOP, AnyCase), edge, cast("Any", None))
