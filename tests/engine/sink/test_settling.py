"""Whose change of a row stays by a column: both edges of a pair come to the same answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_cdc_provider.columns.changes import Op, TableChanges
from airflow_cdc_provider.core.errors import IntegrityError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.keys import KeyKind
from airflow_cdc_provider.core.table_schema import Column, ColumnType, TableSchema, TypeKind
from airflow_cdc_provider.engine.sink.row_identity import KeyedRows, RowIdentity
from airflow_cdc_provider.engine.sink.settling import compare

ITEMS = TableId("shop", "items")
SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64()), ("by", pa.string())])
Row = tuple[int, int | None, str] | None


class NoTexts:
    def of(self, kind: ColumnType, texts: Sequence[str]) -> Sequence[bytes]:
        raise NotImplementedError


_ID = Column("id", ColumnType("bigint", TypeKind.INTEGER, KeyKind.INTEGER), nullable=False)
IDENTITY = RowIdentity(TableSchema(ITEMS, (_ID,), ("id",)), NoTexts())
ROWS = KeyedRows(pa.record_batch({"id": [1, 2, 3]}), IDENTITY)


@dataclass(frozen=True)
class Point:
    """A transaction of a log that is a list."""

    where: str
    committed_us: int = 0
    name: str = ""
    sort_text: str = ""

    def is_called(self, text: str) -> bool:
        return text == self.where


def changes(*pairs: tuple[Row, Row]) -> TableChanges:
    """Return changes, each a transaction, from their rows before and behind."""
    ops = [
        Op.INSERT if before is None else Op.DELETE if after is None else Op.UPDATE
        for before, after in pairs
    ]
    sides = [
        pa.record_batch(
            [
                pa.array([None if row is None else row[at] for row in rows], field.type)
                for at, field in enumerate(SCHEMA)
            ],
            SCHEMA,
        )
        for rows in zip(*pairs, strict=True)
    ]
    numbers = range(len(pairs))
    return TableChanges(
        ITEMS, pa.array(numbers, pa.int32()), pa.array(numbers, pa.int64()), pa.array(ops), *sides
    )


def compared(
    ours: Sequence[tuple[Row, Row]], theirs: Sequence[tuple[Row, Row]], beaten: str = ""
) -> list[int]:
    """Compare changes of the keys 1, 2 and 3; `beaten` is the place of a change of key 1."""
    points = [Point(str(at)) for at in range(len(theirs))]
    places = {0: beaten} if beaten else {}
    found = compare("v", ROWS, [changes(*ours)], [(changes(*theirs), points)], places)
    return [int(each) for each in found]


def row(key: int, v: int | None) -> Row:
    return key, v, ""


@pytest.mark.parametrize(
    ("ours", "theirs", "greater"),
    [
        ((row(1, 1), row(1, 3)), (row(1, 1), row(1, 2)), 1),
        ((row(1, 1), row(1, 2)), (row(1, 1), row(1, 3)), -1),
        ((row(1, 1), row(1, 2)), (row(1, 1), row(1, 2)), 0),
        ((row(1, 1), None), (row(1, 1), row(1, 2)), -1),
        ((row(1, 1), None), (row(1, 1), row(1, 1)), 1),
        ((row(1, 1), None), (row(1, 1), None), 0),
        ((row(1, 1), row(1, None)), (row(1, 1), row(1, -5)), -1),
        ((row(1, 1), row(1, None)), (row(1, 1), row(1, None)), 0),
        ((None, row(1, 2)), (None, row(1, 1)), 1),
        ((row(1, 5), row(2, 9)), (row(1, 5), row(1, 6)), -1),
        ((row(1, 5), row(2, 9)), (row(1, 5), row(3, 6)), 0),
        ((row(2, 5), row(1, 9)), (None, row(1, 8)), 1),
    ],
)
def test_the_greater_value_wins_and_a_delete_counts_just_above_its_row(
    ours: tuple[Row, Row], theirs: tuple[Row, Row], greater: int
) -> None:
    assert compared([ours], [theirs])[0] == greater
    assert compared([theirs], [ours])[0] == -greater


def test_a_nodes_changes_count_with_the_greatest_value_among_them() -> None:
    falls = [(row(1, 1), row(1, 9)), (row(1, 9), row(1, 2))]
    assert compared(falls, [(row(1, 1), row(1, 5))])[0] == 1
    assert compared([(row(1, 1), row(1, 5))], falls)[0] == -1


def test_changes_up_to_one_that_was_beaten_count_no_more() -> None:
    theirs = [(row(1, 1), row(1, 9)), (row(2, 1), row(2, 9)), (row(1, 9), row(1, 2))]
    ours = [(row(1, 1), row(1, 5)), (row(2, 1), row(2, 5))]
    assert compared(ours, theirs)[:2] == [-1, -1]
    assert compared(ours, theirs, beaten="0")[:2] == [1, -1]
    assert compared([(row(1, 1), row(1, 1))], theirs, beaten="2")[0] == 1


def test_a_table_that_lost_the_column_is_named() -> None:
    with pytest.raises(IntegrityError, match=r"shop\.items has no column at"):
        compare("at", ROWS, [changes((None, row(1, 1)))], [], {})


# --- a model of nodes in a chain: any schedule of writes, deliveries and crashes ---------------


@dataclass
class Entry:
    """A change in a node's log."""

    before: Row
    after: Row
    came_from: int
    """The neighbour whose edge wrote it, or the node itself."""
    knew: dict[int, int]
    """How much of each neighbour's log the node had applied by then."""


@dataclass
class Node:
    number: int
    row: Row = None
    log: list[Entry] = field(default_factory=list)
    applied: dict[int, int] = field(default_factory=dict)
    beaten: dict[int, str] = field(default_factory=dict)
    """By neighbour: the place in this log of the last change that one of its changes has beaten."""

    def change(self, after: Row, came_from: int) -> None:
        if after == self.row:
            return  # servers do not log it
        self.log.append(Entry(self.row, after, came_from, dict(self.applied)))
        self.row = after


def deliver(src: Node, dst: Node, most: int, *, is_winner: bool) -> None:
    """Bring one batch of an edge; it is cut where what the source knew moves, as ours are."""
    start = dst.applied.get(src.number, 0)
    batch = src.log[start : start + most]
    knew = batch[0].knew.get(dst.number, 0)
    cut = next(
        (at for at, each in enumerate(batch) if each.knew.get(dst.number, 0) != knew), len(batch)
    )
    batch = batch[:cut]
    dst.applied[src.number] = start + len(batch)
    ours = [(each.before, each.after) for each in batch if each.came_from != dst.number]
    if not ours:
        return
    theirs = [
        (at, each) for at, each in enumerate(dst.log) if at >= knew and each.came_from != src.number
    ]
    if theirs:
        beaten = dst.beaten.get(src.number)
        greater = compare(
            "v",
            KeyedRows(ROWS.keys.slice(0, 1), IDENTITY),
            [changes(*ours)],
            [
                (
                    changes(*((each.before, each.after) for _, each in theirs)),
                    [Point(str(at)) for at, _ in theirs],
                )
            ],
            {} if beaten is None else {0: beaten},
        )[0]
        if greater < 0 or (greater == 0 and not is_winner):
            return
        dst.beaten[src.number] = str(theirs[-1][0])
    dst.change(ours[-1][1], src.number)


def is_behind(src: Node, dst: Node) -> bool:
    return dst.applied.get(src.number, 0) < len(src.log)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.integers(0, 2), st.one_of(st.none(), st.integers(1, 4))),
        st.tuples(st.sampled_from([(0, 1), (1, 0), (1, 2), (2, 1)]), st.integers(1, 3)),
    ),
    max_size=25,
)


@settings(max_examples=600, deadline=None)
@given(steps=STEPS, winners=st.tuples(st.booleans(), st.booleans()))
def test_nodes_in_a_chain_end_equal_whatever_the_values(
    steps: list[tuple[object, int | None]], winners: tuple[bool, bool]
) -> None:
    """Also where the column falls; the row of the last change is at all nodes in full."""
    nodes = [Node(0), Node(1), Node(2)]
    wins = {(0, 1): winners[0], (1, 0): not winners[0], (1, 2): winners[1], (2, 1): not winners[1]}

    def bring(src: int, dst: int, most: int) -> None:
        if is_behind(nodes[src], nodes[dst]):
            deliver(nodes[src], nodes[dst], most, is_winner=wins[src, dst])

    for number, (what, value) in enumerate(steps):
        if isinstance(what, tuple):
            bring(what[0], what[1], value or 1)
        elif isinstance(what, int) and (value is not None or nodes[what].row is not None):
            after = None if value is None else (1, value, f"{what}.{number}")
            nodes[what].change(after, what)
    while any(is_behind(nodes[src], nodes[dst]) for src, dst in wins):
        for edge in wins:
            bring(edge[0], edge[1], 3)
    assert nodes[0].row == nodes[1].row == nodes[2].row
