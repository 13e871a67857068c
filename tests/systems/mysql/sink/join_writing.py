"""Rows that join take the place of what the sink holds, and of nothing else."""

from __future__ import annotations

import pytest

from airflow_cdc_provider.core.errors import RowRefusedError, SinkTableChangedError
from airflow_cdc_provider.core.keys import KeyRange
from tests.servers.given import SqlServer
from tests.systems.mysql.sink.joins import REQUEST, TEXTS, JoinWorld, Row, numbered


class WritingBehaviours:
    """Rows that take the place of others, whichever way they are written."""

    def test_a_drifted_range_is_right_and_rows_outside_are_left_alone(
        self, world: JoinWorld
    ) -> None:
        world.make(TEXTS, numbered(1, 60, "vä"))
        world.start()
        read = world.read((10,), (40,))
        world.at_sink(
            "DELETE FROM t WHERE id IN (5, 15)",
            "INSERT INTO t VALUES (500, 'not at the source'), (-3, 'nor this')",
            "UPDATE t SET name = 'wrong' WHERE id IN (9, 10, 39, 40)",
            "UPDATE t SET id = 1015 WHERE id = 20",
        )
        outside = world.held("id < 10 OR id >= 40")
        world.at_source("UPDATE t SET name = 'newer' WHERE id = 30")
        world.advance()
        assert read.join() is not None
        inside = "id >= 10 AND id < 40"
        assert world.held(inside) == world.held_at_source(inside)
        assert world.held("id < 10 OR id >= 40") == outside

    @pytest.mark.parametrize("quantity", [30, 3000])
    def test_rows_in_quantity_join_with_and_without_changes_to_them(
        self, world: JoinWorld, quantity: int
    ) -> None:
        world.make(TEXTS, numbered(1, quantity))
        world.start()
        world.at_sink("UPDATE t SET name = 'wrong'")
        read = world.read(None, (20,))
        rest = world.read((20,), None, 1)
        world.at_source("INSERT INTO t VALUES (-1, 'new'), (-2, 'new')")
        world.advance()
        assert read.join() is not None
        assert rest.join() is not None
        assert world.held() == world.held_at_source()
        joined = world.joins().joined(REQUEST)
        assert [(each.split.number, each.rows) for each in joined] == [
            (0, 21),
            (1, quantity - 20),
        ]

    def test_the_stream_goes_on_with_the_rows_that_joined(self, world: JoinWorld) -> None:
        world.make(TEXTS, numbered(1, 30))
        world.start()
        world.at_sink("DELETE FROM t")
        read = world.read()
        world.advance()
        assert read.join() is not None
        world.at_source("UPDATE t SET name = 'on' WHERE id = 3", "DELETE FROM t WHERE id = 4")
        world.advance()
        assert world.held() == world.held_at_source()

    def test_rows_that_are_right_are_not_written(self, world: JoinWorld) -> None:
        world.make(TEXTS, numbered(1, 60))
        world.start()
        sink = world.joins()
        first = world.read(end=(1,))
        world.advance()
        assert first.join(sink) is not None  # it has looked at the table before the triggers come
        world.at_sink(
            "UPDATE t SET name = 'wrong' WHERE id = 7",
            "DELETE FROM t WHERE id = 9",
            "INSERT INTO t VALUES (70, 'not at the source')",
            "CREATE TABLE written (id INT)",
            "CREATE TRIGGER deleting BEFORE DELETE ON t FOR EACH ROW "
            "INSERT INTO written VALUES (-OLD.id)",
            "CREATE TRIGGER inserting BEFORE INSERT ON t FOR EACH ROW "
            "INSERT INTO written VALUES (NEW.id)",
        )
        read = world.read(number=1)
        world.at_source("UPDATE t SET name = 'on' WHERE id = 20")
        world.at_sink("UPDATE t SET name = 'on' WHERE id = 20")
        world.advance()
        world.at_sink("DELETE FROM written")
        assert read.join(sink) is not None
        written = world.sink_server.execute(f"SELECT id FROM `{world.sink_database}`.written")
        assert sorted(row[0] for row in written) == [-70, -7, 7, 9]
        world.at_sink("DROP TRIGGER deleting", "DROP TRIGGER inserting")
        assert world.held() == world.held_at_source()

    def test_a_table_that_was_changed_at_the_sink_takes_no_rows(self, world: JoinWorld) -> None:
        world.make(TEXTS, numbered(1, 60))
        world.start()
        world.at_sink("ALTER TABLE t MODIFY name VARCHAR(59)", "UPDATE t SET name = 'drifted'")
        read = world.read()
        world.advance()
        with pytest.raises(SinkTableChangedError, match=r"name is varchar\(59\)"):
            read.join()
        assert {name for _, name in world.held()} == {"drifted"}

    def test_a_row_that_differs_in_any_bit_is_written(self, world: JoinWorld) -> None:
        columns = ", ".join(f"v{i} {column}" for i, (column, _, _) in enumerate(APART))
        right = ", ".join(value for _, value, _ in APART)
        count = len(APART)
        rows = ", ".join(f"({number}, {right})" for number in range(4 * count))
        world.make(f"id INT PRIMARY KEY, {columns}", rows)
        world.start()
        for i, (_, _, wrong) in enumerate(APART):
            world.at_sink(f"UPDATE t SET v{i} = {wrong} WHERE id = {i}")
        looks = ", ".join(
            f"HEX(CONCAT(v{i})), CONCAT(v{i} + 0e0), v{i} IS NULL" for i in range(count)
        )

        def looked(server: SqlServer, database: str) -> list[Row]:
            return server.execute(f"SELECT id, {looks} FROM `{database}`.t ORDER BY id")

        right_rows = looked(world.source_server, world.database)
        apart = looked(world.sink_server, world.sink_database)
        differing = [one[0] for one, other in zip(apart, right_rows, strict=True) if one != other]
        assert differing == list(range(count)), differing
        read = world.read()
        world.advance()
        assert read.join() is not None
        assert looked(world.sink_server, world.sink_database) == right_rows

    # --- unique values ----------------------------------------------------------------------------

    SEATS = "id INT PRIMARY KEY, seat INT, row_name VARCHAR(9), UNIQUE KEY place (row_name, seat)"

    def test_a_unique_value_held_within_what_is_read_again_is_freed(self, world: JoinWorld) -> None:
        world.make(self.SEATS, "(1, 10, 'A'), (2, 20, 'A'), (3, 30, 'A'), (4, NULL, 'A')")
        world.start()
        world.at_sink("DELETE FROM t", "INSERT INTO t VALUES (3, 10, 'a'), (9, 20, 'A')")
        first, second = world.read(None, (3,)), world.read((3,), None, 1)
        world.advance()
        assert first.join() is not None
        assert world.held() == [(1, 10, "A"), (2, 20, "A")]
        assert second.join() is not None
        assert world.held() == world.held_at_source()

    def test_a_unique_value_held_outside_what_is_read_again_is_refused(
        self, world: JoinWorld
    ) -> None:
        world.make(self.SEATS, "(1, 10, 'A'), (2, 20, 'A'), (3, 30, 'A'), (4, NULL, 'A')")
        world.start()
        world.at_sink("DELETE FROM t WHERE id < 3", "UPDATE t SET seat = 20 WHERE id = 3")
        read = world.read(None, (3,))
        world.advance()
        held = world.held()
        with pytest.raises(RowRefusedError, match=r"place.*key 3\b.*nothing was written"):
            read.join(within=KeyRange(None, (3,)))
        assert world.held() == held
        assert world.joins().joined(REQUEST) == ()
        assert read.join(within=KeyRange(None, (4,))) is not None
        assert world.held("id < 3") == world.held_at_source("id < 3")

    def test_a_row_that_has_joined_is_never_deleted_for_its_unique_value(
        self, world: JoinWorld
    ) -> None:
        world.make(self.SEATS, "(1, 10, 'A'), (2, 20, 'A'), (3, 30, 'A')")
        world.start()
        first, second = world.read(None, (3,)), world.read((3,), None, 1)
        world.advance()
        assert first.join() is not None
        world.at_sink("UPDATE t SET seat = 99 WHERE id = 3", "UPDATE t SET seat = 30 WHERE id = 1")
        with pytest.raises(RowRefusedError, match=r"place.*key 1\b"):
            second.join()
        assert (1, 30, "A") in world.held()

    def test_unique_values_that_the_source_swaps_join(self, world: JoinWorld) -> None:
        world.make(self.SEATS, "(1, 10, 'A'), (2, 20, 'A'), (3, 30, 'A')")
        world.start()
        read = world.read(None, (3,))
        world.at_source(
            "UPDATE t SET seat = 99 WHERE id = 3",
            "UPDATE t SET seat = 30 WHERE id = 1",
            "UPDATE t SET seat = 10 WHERE id = 3",
        )
        world.advance()
        assert read.join(within=KeyRange(None, (3,))) is not None
        assert world.held() == world.held_at_source()

    # --- what a table may have --------------------------------------------------------------------

    def test_generated_columns_and_values_that_are_no_member_join(self, world: JoinWorld) -> None:
        world.make("id INT PRIMARY KEY, e ENUM('a', 'b'), twice INT AS (id * 2) STORED")
        world.at_source(
            "INSERT INTO t (id, e) VALUES (1, 'a'), (2, 'b'), (3, NULL)",
            "INSERT IGNORE INTO t (id, e) VALUES (4, 'no member')",
        )
        world.start()
        world.at_sink("DELETE FROM t WHERE id > 2")
        read = world.read()
        world.at_source("UPDATE t SET e = 'b' WHERE id = 1")
        world.advance()
        assert read.join() is not None
        assert world.held() == world.held_at_source()
        assert world.held("e + 0 = 0") == [(4, "", 8)]

    def test_rows_that_others_refer_to_join_and_the_others_stay(self, world: JoinWorld) -> None:
        world.make(TEXTS, numbered(1, 10))
        world.start()
        world.at_sink(
            "CREATE TABLE child (id INT PRIMARY KEY, t_id INT, "
            "FOREIGN KEY (t_id) REFERENCES t (id) ON DELETE CASCADE)",
            "INSERT INTO child VALUES (1, 3), (2, 4)",
        )
        read = world.read()
        world.advance()
        assert read.join() is not None
        assert world.sink_server.execute(f"SELECT COUNT(*) FROM `{world.sink_database}`.child") == [
            (2,)
        ]


APART = (
    ("FLOAT", "1.0000001", "1"),
    ("DOUBLE", "0.1", "0.10000000000000002"),
    ("VARCHAR(9) COLLATE utf8mb4_general_ci", "'a'", "'A'"),
    ("VARCHAR(9) COLLATE utf8mb4_general_ci", "'a'", "'a '"),
    ("CHAR(9) CHARACTER SET latin1", "'é'", "'e'"),
    ("VARBINARY(9)", "x'00'", "x''"),
    ("INT", "NULL", "0"),
    ("VARCHAR(9)", "NULL", "''"),
    ("DATETIME(6)", "'2024-01-01 00:00:00.000001'", "'2024-01-01'"),
    ("TIMESTAMP NULL", "NULL", "'2024-01-01'"),
    ("ENUM('', 'a')", "1", "2"),
    ("DECIMAL(20, 10)", "1.0000000001", "1"),
    ("BIT(3)", "b'101'", "b'100'"),
    ("BIGINT UNSIGNED", "18446744073709551615", "18446744073709551614"),
    ("JSON", "JSON_OBJECT('a', 1)", "JSON_OBJECT('a', 2)"),
)
"""Columns, a value of each, and another that is nearly the same."""
