"""Rows that are chosen by their values join: the source decides of each key, wherever it lies."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from airflow_cdc_provider.core.errors import RowRefusedError
from airflow_cdc_provider.core.keys import KeyPart, KeyRange
from airflow_cdc_provider.core.splits import Chosen, Condition, Interval
from airflow_cdc_provider.engine.requests.chosen_reads import missing_from
from tests.beside import beside
from tests.systems.mysql.sink.join_race import CHANGES, ROWS, watching
from tests.systems.mysql.sink.joins import REQUEST, JoinWorld, Read

ORDERS = "id INT PRIMARY KEY, day DATE, name VARCHAR(60), KEY (day)"
JULY = Interval("day", "2026-07-01", "2026-08-01")
IN_JULY = Condition("day >= '2026-07-01' AND MONTH(day) = 7")
either = pytest.mark.parametrize("july", [JULY, IN_JULY], ids=["interval", "condition"])


def orders(first: int, end: int, day: str) -> str:
    return ", ".join(f"({number}, '{day}', 'v{number}')" for number in range(first, end))


def reads(
    world: JoinWorld,
    chosen: Chosen,
    sink: Any,
    reader: Any,
    *,
    number: int = 0,
    keys: KeyRange | None = None,
) -> list[Read]:
    """Read a piece as a backfill does, behind what the sink alone has of it."""
    split = replace(world.split(number=number), chosen=chosen, keys=keys or KeyRange())
    held = sink.held_keys(split)
    rows, report = reader.read(split)
    found = [Read(world, reader, split, rows, report)]
    for listed in missing_from(held, rows, world.plan.schema.primary_key).to_batches():
        named = replace(split, number=number + 1, listed=True)
        looker = world.reader()
        rows, report = looker.read(named, listed)
        found.insert(0, Read(world, looker, named, rows, report, listed=listed))
    return found


def join(sink: Any, read: Read) -> Any:
    epoch = sink.begin(REQUEST, [read.split.table])
    return sink.join(REQUEST, read.split, read.report, read.rows_at, epoch=epoch, within=())


class IntervalBehaviours:
    """Whatever the family."""

    @either
    def test_a_key_that_is_spelt_anew_while_its_row_is_read_stays(
        self, world: JoinWorld, july: Chosen
    ) -> None:
        """The server takes both spellings for one key; the log has touched both."""
        rows = (
            "('apple', '2026-07-05', '1'), ('fig', '2026-07-06', '2'), ('ham', '2026-06-01', '3')"
        )
        world.make("k VARCHAR(20) PRIMARY KEY, day DATE, name VARCHAR(60), KEY (day)", rows)
        world.start()
        sink = world.joins()
        found = reads(world, july, sink, world.reader())
        world.at_source(
            "UPDATE t SET k = 'APPLE' WHERE k = 'apple'",
            "UPDATE t SET k = 'FIG', day = '2026-06-06' WHERE k = 'fig'",
            "UPDATE t SET k = 'HAM', day = '2026-07-07' WHERE k = 'ham'",
        )
        world.advance()
        for read in found:
            assert join(sink, read) is not None
        assert world.held() == world.held_at_source()

    @either
    def test_what_had_drifted_into_and_out_of_an_interval_is_the_sources_again(
        self, world: JoinWorld, july: Chosen
    ) -> None:
        world.make(ORDERS, orders(1, 20, "2026-07-05"), orders(20, 40, "2026-06-05"))
        world.start()
        world.at_sink(
            "DELETE FROM t WHERE id IN (2, 3)",
            "UPDATE t SET name = 'wrong' WHERE id IN (4, 5)",
            "UPDATE t SET day = '2026-06-30' WHERE id IN (6, 7)",
            "UPDATE t SET day = '2026-07-31', name = 'wrong' WHERE id IN (21, 22)",
            "INSERT INTO t VALUES (90, '2026-07-01', 'extra'), (91, '2026-07-31', 'extra')",
            "UPDATE t SET name = 'outside, left alone' WHERE id = 30",
        )
        sink = world.joins()
        listed, piece = reads(world, july, sink, world.reader())
        world.advance()
        assert join(sink, listed) is not None
        assert join(sink, piece) is not None
        assert (30, "outside, left alone") in [(row[0], row[2]) for row in world.held()]
        assert world.held("id <> 30") == world.held_at_source("id <> 30")

    @either
    def test_rows_that_move_while_they_are_read_join_as_the_stream_left_them(
        self, world: JoinWorld, july: Chosen
    ) -> None:
        world.make(ORDERS, orders(1, 20, "2026-07-05"), orders(20, 40, "2026-06-05"))
        world.start()
        world.at_sink(
            "DELETE FROM t WHERE id IN (2, 3)",
            "UPDATE t SET day = '2026-07-09' WHERE id IN (21, 22, 23)",
            "INSERT INTO t VALUES (90, '2026-07-01', 'extra'), (91, '2026-07-01', 'extra')",
        )
        sink = world.joins()
        listed, piece = reads(world, july, sink, world.reader())
        place = world.end()
        world.at_source(
            "UPDATE t SET day = '2026-08-01' WHERE id IN (2, 4)",
            "UPDATE t SET day = '2026-07-01' WHERE id IN (22, 35)",
            "UPDATE t SET id = 60 WHERE id = 5",
            "UPDATE t SET id = 5, day = '2026-07-02' WHERE id = 36",
            "DELETE FROM t WHERE id IN (6, 23)",
            "INSERT INTO t VALUES (6, '2026-07-03', 'again'), (70, '2026-07-03', 'new')",
            "INSERT INTO t VALUES (90, '2026-05-01', 'now at the source')",
        )
        world.advance(place)
        assert join(sink, piece) is not None  # the stream has not come to the changes
        world.advance()
        assert join(sink, listed) is not None
        assert world.held() == world.held_at_source()
        world.at_source("UPDATE t SET name = 'on'")
        world.advance()
        assert world.held() == world.held_at_source()

    @either
    def test_changes_that_the_stream_has_written_since_are_not_taken_back(
        self, world: JoinWorld, july: Chosen
    ) -> None:
        world.make(ORDERS, orders(1, 20, "2026-07-05"))
        world.start()
        sink = world.joins()
        world.at_source("UPDATE t SET name = 'newer' WHERE id = 9")
        (piece,) = reads(world, july, sink, world.reader())
        assert join(sink, piece) is None  # not past H
        world.at_source(
            "UPDATE t SET name = 'newest' WHERE id = 9",
            "UPDATE t SET day = '2026-06-01', name = 'out' WHERE id = 10",
            "DELETE FROM t WHERE id = 11",
        )
        world.advance()
        before = world.held()
        assert before == world.held_at_source()
        assert join(sink, piece) is not None
        assert world.held() == before

    @either
    def test_the_same_interval_twice_ends_the_same(self, world: JoinWorld, july: Chosen) -> None:
        world.make(ORDERS, orders(1, 20, "2026-07-05"))
        world.start()
        world.at_sink("DELETE FROM t WHERE id < 9")
        sink = world.joins()
        (one,) = reads(world, july, sink, world.reader())
        (other,) = reads(world, july, sink, world.reader(), number=5)
        world.at_source("UPDATE t SET name = 'on' WHERE id < 5", "DELETE FROM t WHERE id = 15")
        world.advance()
        for read in (one, other):
            assert join(sink, read) is not None
            assert world.held() == world.held_at_source()

    @pytest.mark.parametrize(
        ("kind", "values"),
        [
            ("TIMESTAMP(3) NULL", ("2026-01-01 00:00:00.5", "2026-01-01 00:00:01")),
            ("DATETIME", ("2026-01-01 00:00:00", "2026-01-02 00:00:00")),
            ("DECIMAL(9, 2)", ("-1.50", "7.25")),
            ("BIGINT UNSIGNED", ("5", "18446744073709551615")),
        ],
    )
    def test_columns_of_every_kind_of_value_and_keys_of_texts(
        self, world: JoinWorld, kind: str, values: tuple[str, str]
    ) -> None:
        inside, outside = (f"'{value}'" for value in values)
        world.make(
            f"k VARCHAR(20) PRIMARY KEY, c {kind}",
            f"('a', {inside}), ('B', {inside}), ('c', {outside}), ('d', NULL), ('é', {inside})",
        )
        world.start()
        world.at_sink(
            "DELETE FROM t WHERE k = 'b'",
            f"UPDATE t SET k = 'É', c = {outside} WHERE k = 'é'",
            f"UPDATE t SET c = {inside} WHERE k IN ('c', 'd')",
            f"INSERT INTO t VALUES ('f', {inside})",
        )
        schema = world.plan.schema
        start, end = (world.source.value_of(schema, "c", value) for value in values)
        sink = world.joins()
        found = reads(world, Interval("c", start, end), sink, world.reader())
        world.advance()
        for read in found:
            assert join(sink, read) is not None
        assert world.held() == world.held_at_source()

    def test_where_the_sink_judges_otherwise_nothing_wrong_is_written(
        self, world: JoinWorld
    ) -> None:
        world.make(
            "id INT PRIMARY KEY, word VARCHAR(20) COLLATE utf8mb4_bin",
            "(1, 'open'), (2, 'OPEN'), (3, 'shut'), (4, 'open')",
        )
        world.start()
        world.at_sink(
            "ALTER TABLE t MODIFY word VARCHAR(20) COLLATE utf8mb4_general_ci",
            "UPDATE t SET word = 'wrong' WHERE id = 1",
            "INSERT INTO t VALUES (8, 'Open'), (9, 'shut')",
        )
        sink = world.joins()
        found = reads(world, Condition("word = 'open'"), sink, world.reader())
        world.advance()
        for read in found:
            assert join(sink, read) is not None
        # 8 meets it at the sink alone, and is none of the source's rows
        assert world.held() == [*world.held_at_source(), (9, "shut")]

    def test_a_unique_value_that_a_row_elsewhere_holds_is_refused_with_its_key(
        self, world: JoinWorld
    ) -> None:
        world.make(
            "id INT PRIMARY KEY, day DATE, code INT, UNIQUE (code)",
            "(1, '2026-07-05', 10), (2, '2026-06-05', 20)",
        )
        world.start()
        world.at_sink(
            "CREATE UNIQUE INDEX one_code ON t (code)",
            "UPDATE t SET code = 30 WHERE id = 1",
            "UPDATE t SET code = 10 WHERE id = 2",
        )
        sink, before = world.joins(), world.held()
        (piece,) = reads(world, JULY, sink, world.reader())
        world.advance()
        with pytest.raises(RowRefusedError, match="with the key 2"):
            join(sink, piece)
        assert world.held() == before

    def test_no_row_goes_back_while_intervals_are_read_again_beside_the_stream(
        self, world: JoinWorld
    ) -> None:
        seed = random.randrange(1 << 30)
        print(f"seed {seed}")
        rng = random.Random(seed)
        rows = ", ".join(f"({n}, 0, {rng.randrange(9)})" for n in range(ROWS))
        world.make("k INT PRIMARY KEY, version INT NOT NULL, c INT NOT NULL, KEY (c)", rows)
        world.start()
        world.at_sink("DELETE FROM t WHERE k % 5 = 0", "UPDATE t SET c = 7 - c WHERE k % 5 = 1")
        sink, readers, number = world.joins(), (world.reader(), world.reader()), 0
        with beside(world.advance), watching(world), ThreadPoolExecutor(1) as pool:
            changing = pool.submit(change, world, rng)
            while not changing.done() or number < 60:
                for part in range(-9, 18, 9):
                    cuts: list[KeyPart] = [part, part + 4, part + 9]
                    for start, end in pairwise(cuts):
                        interval = Interval("c", start, end)
                        reader = readers[number % 2]
                        for read in reads(world, interval, sink, reader, number=number):
                            while join(sink, read) is None:
                                pass
                        number += 2
            changing.result()
        world.advance()
        assert world.held() == world.held_at_source()


def change(world: JoinWorld, rng: random.Random) -> None:
    with world.source_server.connect(world.database) as connection, connection.cursor() as cursor:
        for version in range(1, CHANGES + 1):
            number, other = (rng.randrange(ROWS) for _ in range(2))
            put = f"version = {version}, c = {rng.randrange(9)}"
            statements = (
                f"DELETE FROM t WHERE k = {number}",
                f"INSERT INTO t VALUES ({number}, {version}, {rng.randrange(9)}) "
                f"ON DUPLICATE KEY UPDATE {put}",
                f"UPDATE IGNORE t SET k = {other}, {put} WHERE k = {number}",
                f"UPDATE t SET {put} WHERE k >= {number} ORDER BY k LIMIT 5",
            )
            cursor.execute(rng.choice(statements))
            connection.commit()
