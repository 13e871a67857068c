"""Rows whose keys are listed are read in pieces of the list, and none of it is left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from airflow_cdc_provider.core.codec import split_from_json, split_to_json
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.keys import Key
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.requests import Scope
from airflow_cdc_provider.core.splits import KeyList, SnapshotSplit
from airflow_cdc_provider.core.table_schema import Column, TableSchema
from airflow_cdc_provider.engine.requests.chosen_reads import pieces_of
from airflow_cdc_provider.engine.requests.reads import halves_of
from airflow_cdc_provider.systems.mysql.dialect.column_types import mysql_type
from airflow_cdc_provider.systems.mysql.dialect.key_text import key_list

NAMES = TableId("shop", "names")
KEYS: tuple[Key, ...] = (("b",), ("a",), ("é\0",), ("",), ("zz",))


def table(*types: str) -> TableSchema:
    columns = [Column(f"k{n}", mysql_type(kind), nullable=False) for n, kind in enumerate(types)]
    return TableSchema(NAMES, (*columns,), tuple(c.name for c in columns), (0,) * len(types))


SCHEMA = table("varchar")
PLAN = TablePlan.alike(SCHEMA, NAMES, 0)
NOBODY: Any = None


def pieces(done: Sequence[SnapshotSplit]) -> list[SnapshotSplit]:
    scope = Scope((NAMES,), chosen=KeyList(("k0",), KEYS))
    return list(pieces_of(SCHEMA, scope, done, (NOBODY, NOBODY)))


def keys_of(split: SnapshotSplit) -> tuple[Key, ...]:
    assert isinstance(split.chosen, KeyList)
    return split.chosen.keys


def test_a_list_is_one_piece_and_nothing_is_left_behind_it() -> None:
    (piece,) = pieces([])
    assert keys_of(piece) == KEYS
    assert pieces([piece]) == []


def test_what_joined_as_a_part_of_the_list_is_not_read_again() -> None:
    (piece,) = pieces([])
    one, other = halves_of(NOBODY, PLAN, piece)
    assert keys_of(one) + keys_of(other) == KEYS
    (left,) = pieces([one])
    assert keys_of(left) == keys_of(other)
    assert pieces([one, *halves_of(NOBODY, PLAN, other)]) == []


def test_a_piece_is_read_back_as_it_was_stored() -> None:
    for piece in (*pieces([]), *halves_of(NOBODY, PLAN, pieces([])[0])):
        assert split_from_json(split_to_json(piece)) == piece


@pytest.mark.parametrize(
    ("types", "is_listed"),
    [
        (("varchar",), True),
        (("int", "char"), True),
        (("uuid",), True),
        (("uuid", "inet6"), True),
        (("uuid", "int"), False),  # beside one that has no order, all are read as texts
        (("double",), False),
        (("enum",), False),
        (("time",), False),
    ],
)
def test_keys_are_listed_where_the_server_takes_them_for_what_they_are(
    types: tuple[str, ...], is_listed: bool
) -> None:
    key = ("1",) * len(types)
    assert (key_list(table(*types), [key]) is not None) is is_listed
    assert key_list(table(*types), []) is None
