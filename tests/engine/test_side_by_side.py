"""Which requests run at the same time, and with how many readers."""

from __future__ import annotations

import random

from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.requests import Request, RequestKind, Scope
from airflow_cdc_provider.core.splits import Condition
from airflow_cdc_provider.engine.requests.side_by_side import READERS, ReaderRoom, may_begin


def request(number: int, *tables: str, where: str = "") -> Request:
    chosen = Condition(where) if where else None
    scope = Scope(tuple(TableId("shop", table) for table in tables), chosen=chosen)
    return Request(PipelineName("shop"), f"r{number}", RequestKind.RESYNC, scope, "ann", number)


A, B, AB, A2, C = (
    request(number, *tables)
    for number, tables in enumerate((("a",), ("b",), ("a", "b"), ("a",), ("c",)))
)


def test_requests_of_different_tables_run_side_by_side() -> None:
    assert list(may_begin([A, B, C], [])) == [A, B, C]
    assert list(may_begin([A, B, C], [A])) == [B, C]


def test_requests_with_a_table_in_common_follow_each_other_as_they_were_asked() -> None:
    assert list(may_begin([A, AB, B, C], [])) == [A, C]
    assert list(may_begin([AB, B, A2, C], [A])) == [C]
    assert list(may_begin([AB, A2], [])) == [AB]
    assert list(may_begin([A2, A], [])) == [A2]


def test_what_runs_already_is_not_begun_again() -> None:
    assert list(may_begin([A, B], [A, B])) == []


def test_all_together_keep_within_the_connections_and_no_two_have_one_reader() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    for _ in range(200):
        most, ids, each = rng.randrange(1, 20), rng.randrange(0, 9), rng.choice((1, 2))
        room, taken = ReaderRoom(most, ids, each), dict[Request, tuple[int, ...]]()
        for number in range(30):
            if taken and rng.random() < 0.4:
                gone = rng.choice(list(taken))
                room.give_back(gone)
                del taken[gone]
            asked = request(number, "a", where=rng.choice(("", "id = 1")))
            numbers = room.take(asked)
            assert numbers or taken, "where nothing runs there is room for one"
            if numbers:
                taken[asked] = numbers
            busy = [number for numbers in taken.values() for number in numbers]
            assert len(set(busy)) == len(busy)
            assert all(0 <= number < max(1, ids) for number in busy)
            used = sum(
                1 + (each_of.scope.chosen is not None) + each * len(numbers)
                for each_of, numbers in taken.items()
            )
            assert used <= most or [len(numbers) for numbers in taken.values()] == [1]


def test_the_usual_eight_connections_let_two_tables_be_read_at_once() -> None:
    room = ReaderRoom(8, 99, 2)
    assert room.take(A) == tuple(range(READERS))
    assert room.take(B) == (READERS,)
    assert room.take(C) == ()
    room.give_back(A)
    assert room.take(C) == (0, 1)
