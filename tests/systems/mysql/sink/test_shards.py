"""Tables that share one of the sink: what is written for one leaves the rows of others alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from airflow_cdc_provider.columns.shaping import shaped_rows
from airflow_cdc_provider.core.errors import RowRefusedError, SinkTableChangedError
from airflow_cdc_provider.core.keys import KeyRange
from airflow_cdc_provider.core.row_metadata import RowMetadata
from airflow_cdc_provider.systems.mysql.sink.sink_session import SinkSession
from airflow_cdc_provider.systems.mysql.sink.unique_conflicts import free_unique_values
from tests.servers.given import SqlServer
from tests.systems.mysql.sink.shards import MADE, NORTH, SHOPS, SOUTH, TARGET, ShardWorld
from tests.systems.mysql.splits import split_of

if TYPE_CHECKING:
    import pyarrow as pa

Fresh = Callable[[SqlServer], str]
STRANGE = ("elsewhere", 2, "of another shop", None, None)
NARROW = {
    "whole": "SMALLINT",
    "amount": "DECIMAL(8,2)",
    "kind": "ENUM('a', 'b') CHARACTER SET utf8mb4",
    "tags": "SET('x', 'y') CHARACTER SET utf8mb4",
    "words": "TEXT CHARACTER SET utf8mb4",
    "latin": "VARCHAR(20) CHARACTER SET latin1",
    "bits": "BLOB",
    "at": "DATETIME(3)",
    "day_time": "TIME",
    "stamp": "TIMESTAMP NULL",
    "code": "CHAR(4) CHARACTER SET latin1",
    "raw": "VARBINARY(4)",
    "ratio": "DOUBLE(7,3)",
}
WIDE = NARROW | {
    "whole": "BIGINT",
    "amount": "DECIMAL(10,2)",
    "kind": "ENUM('a', 'b', 'c') CHARACTER SET utf8mb4",
    "tags": "SET('x', 'y', 'z') CHARACTER SET utf8mb4",
    "words": "LONGTEXT CHARACTER SET utf8mb4",
    "latin": "VARCHAR(40) CHARACTER SET utf8mb4",
    "bits": "LONGBLOB",
    "at": "DATETIME(6)",
    "day_time": "TIME(6)",
    "stamp": "TIMESTAMP(6) NULL",
    "code": "CHAR(9) CHARACTER SET utf8mb4",
    "raw": "VARBINARY(9)",
    "ratio": "DOUBLE",
}
FILLED = (
    "whole = id - 2, amount = id / 4, kind = 'b', tags = 'x,y', words = 'w\u00f6rter', "
    "latin = '\u00e9t\u00e9', bits = x'00ff', at = '2024-02-29 01:02:03.004', "
    "day_time = '-11:12:13', stamp = '2024-02-29 01:02:03', code = '\u00e9', raw = x'0100', "
    "ratio = id / 3"
)
PLANT = "INSERT INTO orders (shop, id, name) VALUES ('elsewhere', 2, 'of another shop')"


class ShardBehaviours:
    """Whatever the family."""

    def test_a_split_replaces_the_rows_of_its_shard_alone(self, world: ShardWorld) -> None:
        world.make()
        world.begin()
        for shop in SHOPS:
            world.copy(shop)
        assert world.held() == world.wanted()
        world.at_sink(
            PLANT,
            "INSERT INTO orders (shop, id) VALUES ('north', 9), ('south', 9)",
            "UPDATE orders SET name = 'drifted' WHERE id = 1",
        )
        world.at_source(NORTH, "DELETE FROM orders WHERE id = 3")
        world.copy(NORTH)
        assert world.held("shop = 'north'") == world.wanted()[:2]
        assert world.held("shop = 'elsewhere'") == [STRANGE]
        names = ["drifted", "south 2", "south 3", None]
        assert world.held("shop = 'south'", columns="name") == [(name,) for name in names]

    def test_changes_of_two_shards_in_one_commit_go_to_the_rows_of_each(
        self, world: ShardWorld
    ) -> None:
        world.make()
        world.start()
        world.at_sink(PLANT)
        world.in_one_transaction(
            "UPDATE {north} SET name = 'changed' WHERE id = 1",
            "DELETE FROM {south} WHERE id = 1",
            "DELETE FROM {north} WHERE id = 2",
            "UPDATE {south} SET extra = 5, name = 'kept' WHERE id = 2",
            "UPDATE {north} SET id = 30 WHERE id = 3",
            "INSERT INTO {south} VALUES (30, 'new', 7)",
        )
        world.advance()
        assert world.held("shop <> 'elsewhere'") == world.wanted()
        assert world.held("shop = 'elsewhere'") == [STRANGE]
        many = ", ".join(f"({number}, 'many', NULL)" for number in range(100, 1500))
        world.in_one_transaction(*(f"INSERT INTO {{{shop}}} VALUES {many}" for shop in SHOPS))
        world.advance()
        world.in_one_transaction(
            "DELETE FROM {north} WHERE id >= 100", "UPDATE {south} SET extra = id"
        )
        world.advance()
        assert world.held("shop <> 'elsewhere'") == world.wanted()
        assert world.held("shop = 'elsewhere'") == [STRANGE]

    def test_rows_read_again_join_within_their_shard(self, world: ShardWorld) -> None:
        world.make()
        world.start()
        world.at_sink("UPDATE orders SET name = 'drifted' WHERE id = 2", PLANT)
        world.at_sink("INSERT INTO orders (shop, id) VALUES ('north', 9), ('south', 9)")
        world.join(SOUTH, (2,), (3,))
        world.join(NORTH)
        world.at_source(SOUTH, "UPDATE orders SET name = 'on'")
        world.advance()
        assert world.held("shop = 'elsewhere'") == [STRANGE]
        assert world.held("shop = 'south' AND id = 9") == [(SOUTH, 9, None, None, None)]
        assert world.held("shop <> 'elsewhere' AND id <> 9") == world.wanted()
        assert world.held("shop = 'north' AND id = 9") == []
        joins = world.opened(world.sink().open_joins())
        held = joins.held_keys(split_of(world.plans[NORTH].schema))
        assert held.to_pydict() == {"shop": [NORTH] * 3, "id": [1, 2, 3]}
        # so many differ that the range is written whole
        world.at_sink("UPDATE orders SET extra = 99")
        world.join(SOUTH)
        assert world.held("shop = 'south'") == world.wanted()[3:]
        assert world.held("shop = 'elsewhere'", columns="extra") == [(99,)]

    def test_what_fits_one_shard_is_looked_at_for_another(self, world: ShardWorld) -> None:
        world.make()
        world.begin()
        with closing(world.sink().open_splits()) as splits:
            world.copy(NORTH, splits=splits)
            world.at_sink("ALTER TABLE orders MODIFY extra SMALLINT")
            with pytest.raises(SinkTableChangedError, match="column extra is smallint"):
                world.copy(SOUTH, splits=splits)
        assert world.held() == world.wanted()[:3]

    def test_rows_of_two_shards_have_one_unique_value(self, world: ShardWorld) -> None:
        world.make(made={NORTH: MADE[NORTH], SOUTH: MADE[NORTH]})
        for shop in SHOPS:
            world.at_source(shop, "UPDATE orders SET mail = CONCAT('m', id)")
        world.start()
        assert world.held(columns="mail") == [("m1",), ("m2",), ("m3",)] * 2
        world.in_one_transaction(
            "UPDATE {north} SET mail = 'x' WHERE id = 1",
            "DELETE FROM {south} WHERE id = 1",
            "UPDATE {north} SET mail = 'm1' WHERE id = 2",
            "UPDATE {north} SET mail = 'm2' WHERE id = 1",
        )
        world.advance()
        mails = [("m2",), ("m1",), ("m3",), ("m2",), ("m3",)]
        assert world.held(columns="mail") == mails
        world.join(NORTH)
        world.join(SOUTH, (2,), (3,))
        assert world.held(columns="mail") == mails

    def test_a_row_of_another_shard_never_goes_for_a_unique_value(self, world: ShardWorld) -> None:
        world.make(target=f"{TARGET}, UNIQUE KEY over_all (mail)")
        world.at_source(NORTH, "UPDATE orders SET mail = CONCAT('m', id)")
        world.at_sink(
            "INSERT INTO orders (shop, id, mail) VALUES ('north', 9, 'm1'), ('south', 2, 'm2')"
        )
        plan, reader = world.plans[NORTH], world.opened(world.source.split_reader(world.reading))
        rows, _ = reader.read(split_of(plan.schema))
        shaped = shaped_rows(rows, plan, None)
        with closing(SinkSession.open(world.sink().endpoint, purpose="test")) as session:

            def free(*within: KeyRange) -> list[pa.Table]:
                return free_unique_values(session, plan, shaped, within=within, kept=[])

            with pytest.raises(RowRefusedError, match=r"over_all .* with the key south/2"):
                free(KeyRange())
            world.at_sink("UPDATE orders SET mail = NULL WHERE shop = 'south'")
            with pytest.raises(RowRefusedError, match=r"over_all .* with the key north/9"):
                free(KeyRange(None, (9,)))
            (freed,) = free(KeyRange((9,), None))
        assert freed.to_pydict() == {"shop": [NORTH], "id": [9]}
        assert world.held(columns="shop, id") == [(SOUTH, 2)]

    def test_a_table_is_compared_with_its_own_rows_and_repaired_within_them(
        self, world: ShardWorld
    ) -> None:
        world.make()
        world.start()
        world.at_sink(PLANT)
        assert world.verify().equal
        world.at_sink(
            "UPDATE orders SET name = 'drifted' WHERE shop = 'south' AND id = 2",
            "DELETE FROM orders WHERE shop = 'north' AND id = 3",
            "INSERT INTO orders (shop, id) VALUES ('north', 9), ('south', 10)",
        )
        north, south = world.verify(chunk_rows=2, values=True).tables
        assert (north.rows_source, north.rows_sink, south.rows_sink) == (3, 3, 4)
        assert (north.missing, north.extra, north.different) == (1, 1, 0)
        assert (south.missing, south.extra, south.different) == (0, 1, 1)
        assert {each.key for each in south.samples} == {"2", "10"}
        counted = [world.count(shop, KeyRange((2,), None)) for shop in SHOPS]
        assert counted == [2, 3]
        for shop, found in ((NORTH, north), (SOUTH, south)):
            for keys in found.differing:
                world.join(shop, keys.start, keys.end)
        assert world.verify().equal
        assert world.held("shop <> 'elsewhere'") == world.wanted()
        assert world.held("shop = 'elsewhere'") == [STRANGE]

    def test_tables_whose_keys_bound_no_range_are_compared_with_their_own_rows(
        self, world: ShardWorld
    ) -> None:
        kind = "id ENUM('one', 'two', 'three')"
        made = {shop: MADE[shop].replace("id INT", kind) for shop in SHOPS}
        world.make(made=made, target=TARGET.replace("id INT", kind))
        world.start()
        world.at_sink(PLANT)
        assert world.verify().equal
        world.at_sink("DELETE FROM orders WHERE id = 1 AND shop = 'north'")
        north, south = world.verify().tables
        assert (north.missing, north.differing_keys, south.equal) == (1, (("0one",),), True)

    def test_a_table_with_narrower_types_than_the_shared_one_is_copied_joined_and_compared(
        self, world: ShardWorld
    ) -> None:
        world.make()
        for shop, types in ((NORTH, NARROW), (SOUTH, WIDE)):
            added = ", ".join(f"ADD COLUMN {name} {kind}" for name, kind in types.items())
            world.at_source(shop, f"ALTER TABLE orders {added}")
            kind = "INT" if shop == NORTH else "BIGINT"
            world.at_source(shop, f"ALTER TABLE orders MODIFY id {kind}")
            world.at_source(shop, f"UPDATE orders SET {FILLED}")
        added = ", ".join(f"ADD COLUMN {name} {kind}" for name, kind in WIDE.items())
        world.at_sink(f"ALTER TABLE orders {added}, MODIFY id BIGINT")
        world.plan()
        world.start()
        columns = ", ".join(WIDE)

        def same() -> None:
            for shop in SHOPS:
                sql = f"SELECT id, {columns} FROM `{world.databases[shop]}`.orders ORDER BY id"
                wanted = [tuple(row) for row in world.source_server.execute(sql)]
                assert world.held(f"shop = '{shop}'", columns=f"id, {columns}") == wanted

        same()
        report = world.verify()
        assert report.equal, report.tables
        world.in_one_transaction(
            "UPDATE {north} SET whole = 7, amount = 1.25, kind = 'b', words = 'on' WHERE id = 2",
            "UPDATE {south} SET kind = 'c', amount = 98765432.10 WHERE id = 2",
        )
        world.advance()
        same()
        world.at_sink("UPDATE orders SET whole = 5, words = 'drifted' WHERE id = 3")
        north, south = world.verify().tables
        assert (north.different, south.different) == (1, 1)
        for shop, found in ((NORTH, north), (SOUTH, south)):
            for keys in found.differing:
                world.join(shop, keys.start, keys.end)
        same()
        assert world.verify().equal

    def test_deleted_rows_are_marked_within_their_shard(self, world: ShardWorld) -> None:
        marks = (
            "gone TINYINT NOT NULL DEFAULT 0, op CHAR(1) CHARACTER SET ascii COLLATE ascii_bin NOT "
            "NULL DEFAULT 'r', origin VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT "
            "NULL DEFAULT ''"
        )
        metadata = RowMetadata(operation="op", table="origin")
        world.make(target=f"{TARGET}, {marks}", deleted_flag="gone", metadata=metadata)
        world.start()
        world.at_sink(PLANT)
        tables = {shop: str(world.plans[shop].schema.table) for shop in SHOPS}
        world.in_one_transaction(
            "DELETE FROM {north} WHERE id = 2", "UPDATE {south} SET name = 'on' WHERE id = 2"
        )
        world.advance()
        marked = [(NORTH, 2, 1, "d", tables[NORTH]), (SOUTH, 2, 0, "u", tables[SOUTH])]
        looked = "shop, id, gone, op, origin"
        assert world.held("shop <> 'elsewhere' AND id = 2", columns=looked) == marked
        assert world.held("shop = 'elsewhere'", columns="gone, op") == [(0, "r")]
        # a row that is not at the source is marked by a join, and only in its shard
        world.at_sink("INSERT INTO orders (shop, id) VALUES ('north', 9), ('south', 9)")
        world.join(NORTH)
        assert world.held("id = 9", columns=looked) == [
            (NORTH, 9, 1, "d", tables[NORTH]),
            (SOUTH, 9, 0, "r", ""),
        ]
        world.at_sink("UPDATE orders SET name = CONCAT(name, '!')")
        world.join(SOUTH)
        assert world.held("shop = 'south'", columns="id, name, gone") == [
            (1, "south 1", 0),
            (2, "on", 0),
            (3, "south 3", 0),
            (9, None, 1),
        ]
        assert world.held("shop = 'elsewhere'", columns="name, gone") == [("of another shop!", 0)]


class TestShardsOnMySql(ShardBehaviours):
    @pytest.fixture
    def world(
        self, mysql_server: SqlServer, mysql_sink: SqlServer, fresh_database: Fresh
    ) -> Iterator[ShardWorld]:
        databases = {shop: fresh_database(mysql_server) for shop in SHOPS}
        made = ShardWorld(mysql_server, mysql_sink, databases, fresh_database(mysql_sink))
        with made.stack:
            yield made


class TestShardsOfSeveralWriters:
    @pytest.fixture
    def world(
        self, mysql_server: SqlServer, mysql_sink: SqlServer, fresh_database: Fresh
    ) -> Iterator[ShardWorld]:
        databases = {shop: fresh_database(mysql_server) for shop in SHOPS}
        made = ShardWorld(
            mysql_server, mysql_sink, databases, fresh_database(mysql_sink), writers=2
        )
        with made.stack:
            yield made

    test_changes_of_two_shards = (
        ShardBehaviours.test_changes_of_two_shards_in_one_commit_go_to_the_rows_of_each
    )


class TestShardsOnMariaDb(ShardBehaviours):
    @pytest.fixture
    def world(self, mariadb_server: SqlServer, fresh_database: Fresh) -> Iterator[ShardWorld]:
        databases = {shop: fresh_database(mariadb_server) for shop in SHOPS}
        made = ShardWorld(
            mariadb_server,
            mariadb_server,
            databases,
            fresh_database(mariadb_server),
            local_files=False,
        )
        with made.stack:
            yield made
