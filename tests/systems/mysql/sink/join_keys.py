"""Keys of every kind join, also those that only the servers compare."""

from __future__ import annotations

from typing import Any

import pytest

from tests.systems.mysql.sink.joins import REQUEST, JoinWorld

TEXT_ROWS = (
    "('apple', '1'), ('avocado', '1a'), ('banana', '2'), ('Cherry', '3'), ('date', '4')",
    "('éclair', '5'), ('fig', '6'), ('Grape', '7'), ('ham ', '8')",
)
TEXT_CHANGES = (
    "UPDATE t SET k = 'CHERRY', name = 'spelt anew' WHERE k = 'cherry'",
    "DELETE FROM t WHERE k = 'fig'",
    "INSERT INTO t VALUES ('FIG', 'back as another spelling'), ('ice', 'new')",
    "UPDATE t SET k = 'zebra' WHERE k = 'grape'",
    "UPDATE t SET k = 'kiwi', name = 'moved in' WHERE k = 'apple'",
    "INSERT INTO t VALUES ('apple', 'again')",
    "UPDATE t SET k = 'HAM' WHERE k = 'ham'",
)


class KeyBehaviours:
    """Whatever the family."""

    def test_keys_that_only_the_server_compares_join(self, world: JoinWorld) -> None:
        world.make("k VARCHAR(20) PRIMARY KEY, name VARCHAR(60)", *TEXT_ROWS)
        world.start()
        world.at_sink(
            "UPDATE t SET name = 'wrong' WHERE k IN ('cherry', 'avocado')",
            "DELETE FROM t WHERE k = 'date'",
            "INSERT INTO t VALUES ('Ĉ not there', 'x'), ('zz outside', 'left alone')",
        )
        read = world.read(("B",), ("Z",))
        world.at_source(*TEXT_CHANGES)
        world.advance()
        assert read.join() is not None
        inside = "k >= 'b' AND k < 'z'"
        assert world.held(inside) == world.held_at_source(inside)
        assert ("avocado", "wrong") in world.held()
        assert ("zz outside", "left alone") in world.held()
        world.at_source("UPDATE t SET name = 'on'")
        world.advance()
        assert world.held(inside) == world.held_at_source(inside)

    def test_a_row_changed_while_its_text_key_is_read_joins_as_it_is_now(
        self, world: JoinWorld
    ) -> None:
        world.make("k VARCHAR(20) PRIMARY KEY, name VARCHAR(60)", *TEXT_ROWS)
        world.start()
        read = world.read()
        world.at_source(*TEXT_CHANGES)
        world.advance()
        world.at_source("UPDATE t SET name = 'not yet there' WHERE k = 'cherry'")
        before = world.held()
        assert read.join() is not None
        assert world.held() == before
        world.advance()
        assert world.held() == world.held_at_source()

    def test_what_has_joined_of_a_table_is_forgotten_when_the_stream_gives_it_up(
        self, world: JoinWorld
    ) -> None:
        world.make("k VARCHAR(20) PRIMARY KEY, name VARCHAR(60)", *TEXT_ROWS)
        world.start()
        read = world.read()
        world.advance()
        assert read.join() is not None
        assert len(world.joins().joined(REQUEST)) == 1
        world.ledger.change_tables(removed=[world.plan.schema.table])
        assert world.joins().joined(REQUEST) == ()

    def test_drifted_rows_whose_text_key_the_log_has_touched_are_right_again(
        self, world: JoinWorld
    ) -> None:
        """Where L is told roughly, most of a log may lie between it and the read."""
        world.make("k VARCHAR(20) PRIMARY KEY, name VARCHAR(60)", *TEXT_ROWS)
        world.start()
        read = world.read()
        world.at_source(*TEXT_CHANGES)
        world.advance()
        world.at_sink("UPDATE t SET name = 'wrong'")
        assert read.join() is not None
        assert world.held() == world.held_at_source()

    @pytest.mark.parametrize(
        ("columns", "rows", "start", "end", "changes"),
        [
            (
                "a INT, b VARBINARY(8), n INT, PRIMARY KEY (a, b)",
                "(1, x'00', 1), (1, x'ff', 2), (2, x'', 3), (2, x'0001', 4), (3, x'aa', 5)",
                (1, b"\x10"),
                (3,),
                ("UPDATE t SET b = x'0100' WHERE b = x'ff'", "DELETE FROM t WHERE n = 4"),
            ),
            (
                "k BINARY(4) PRIMARY KEY, n INT",
                "(x'00000001', 1), (x'7f', 2), (x'80', 3), (x'ff', 4)",
                (b"\x00\x00\x00\x01",),
                (b"\xf0\x00\x00\x00",),
                ("UPDATE t SET n = 20 WHERE n = 2", "UPDATE t SET k = x'f0' WHERE n = 3"),
            ),
            (
                "d DATETIME(6), n INT, u BIGINT UNSIGNED, PRIMARY KEY (d, u)",
                "('2024-01-01 00:00:00', 1, 18446744073709551615), ('2024-01-01 00:00:00.5', 2, 0),"
                " ('1969-12-31 23:59:59.999999', 3, 7), ('2030-01-01', 4, 1)",
                ("2024-01-01 00:00:00.000000", 5),
                ("2030-01-01 00:00:00.000000",),
                ("UPDATE t SET n = 20 WHERE n = 2", "DELETE FROM t WHERE n = 1"),
            ),
            (
                "a INT, k VARCHAR(10) COLLATE utf8mb4_general_ci, n INT, PRIMARY KEY (a, k)",
                "(1, 'a', 1), (1, 'B', 2), (2, 'ä', 3), (2, 'c  d', 4), (3, 'z', 5)",
                (1, "b"),
                (3,),
                ("UPDATE t SET k = 'b' WHERE n = 2", "UPDATE t SET k = 'Ä' WHERE n = 3"),
            ),
            (
                "f DOUBLE PRIMARY KEY, n INT",
                "(0.1, 1), (-0.0, 2), (1e300, 3)",
                None,
                None,
                ("UPDATE t SET n = 20 WHERE n = 2", "UPDATE t SET f = 0.2 WHERE n = 1"),
            ),
        ],
        ids=["composite", "binary", "temporal", "composite text", "double"],
    )
    def test_keys_of_every_kind_join(
        self, world: JoinWorld, columns: str, rows: str, start: Any, end: Any, changes: Any
    ) -> None:
        world.make(columns, rows)
        world.start()
        world.at_sink("UPDATE t SET n = -n")
        wrong = world.held()
        read = world.read(start, end)
        world.at_source(changes[0])
        rest = world.read(start, end, number=1)
        world.at_source(changes[1])
        world.advance()
        assert read.join() is not None
        right = world.held_at_source()
        outside = [row for row in world.held() if row in wrong]
        assert [row for row in world.held() if row not in wrong] == [
            row for row in right if row in world.held()
        ]
        assert len(outside) + len([row for row in right if row in world.held()]) == len(right)
        assert (start is None) == (not outside)
        once = world.held()
        assert rest.join() is not None
        assert world.held() == once
