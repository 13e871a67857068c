"""A cut of waiting changes takes exactly those of one side, however tables take turns."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.systems.mysql.binlog.transactions.pending import (
    AnyPiece,
    PendingChanges,
    Piece,
    without_few,
)


def piece(table: str, places: list[int]) -> Piece:
    ordinal = np.array(places, np.int64)
    rows = pa.record_batch([pa.array(places, pa.int64())], names=["place"])
    return Piece(TableId("d", table), ordinal, ordinal, ordinal.astype(np.int8), rows, rows)


def places_of(taken: Iterable[AnyPiece]) -> list[int]:
    pieces = list(without_few(taken))
    for each in pieces:
        assert each.after.column("place").to_pylist() == each.ordinal.tolist()
    return sorted(place for each in pieces for place in each.ordinal.tolist())


@given(
    runs=st.lists(st.lists(st.sampled_from("abc"), max_size=8), max_size=8),
    cuts=st.lists(st.tuples(st.booleans(), st.integers(-1, 70)), max_size=8),
)
def test_a_cut_takes_one_side_and_keeps_the_other(
    runs: list[list[str]], cuts: list[tuple[bool, int]]
) -> None:
    pending, waiting = PendingChanges(), list[int]()
    for tables in runs:  # as read together: a piece of each table, their places mixed
        first = len(waiting)
        for table in "abc":
            pending.add(piece(table, [first + n for n, name in enumerate(tables) if name == table]))
        waiting += range(first, first + len(tables))
    for is_before, place in cuts:
        taken = pending.before(place) if is_before else pending.since(place)
        expected = [each for each in waiting if (each < place) == is_before]
        waiting = [each for each in waiting if (each < place) != is_before]
        assert places_of(taken) == expected
    assert places_of(pending.since(-1)) == waiting
