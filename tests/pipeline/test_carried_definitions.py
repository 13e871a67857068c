"""A pair with a node that is named as that where definitions are changed: the other follows."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from airflow_cdc_provider.core.errors import TablesStoppedError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.pipeline.steps.pause_tables import resume_tables
from airflow_cdc_provider.pipeline.steps.verifying import verify
from tests.beside import beside
from tests.pipeline.pairs import MakePair, Node, Pair
from tests.servers.given import SqlServer

FROM_ONE = "schema_changes: {from_node: one}\n"
FOLLOWED = (
    "ADD COLUMN more INT",
    "ADD COLUMN often INT NOT NULL DEFAULT 7 AFTER id",
    "MODIFY note VARCHAR(80)",
    "ADD COLUMN at DATETIME(6) DEFAULT '2026-01-01', ADD COLUMN word VARCHAR(9) DEFAULT 'x' FIRST",
    "MODIFY amount DECIMAL(20,2), MODIFY code BIGINT",
    "ADD COLUMN twice INT AS (often * 2) STORED",
)


class Carried:
    @pytest.fixture
    def pair(self, mysql_server: SqlServer, mysql_sink: SqlServer, make_pair: MakePair) -> Pair:
        made = make_pair(mysql_server, mysql_sink)
        for edge in (made.there, made.back):
            edge.path.write_text(edge.path.read_text() + FROM_ONE)
        made.one.execute(
            "CREATE TABLE orders (id INT PRIMARY KEY, note VARCHAR(40), amount DECIMAL(12,2), "
            "code INT)"
        )
        rows = ", ".join(f"({n}, 'first', {n}.5, {n})" for n in range(1, 101))
        made.one.execute(f"INSERT INTO orders VALUES {rows}")
        made.one.execute("CREATE TABLE people (id INT PRIMARY KEY, name VARCHAR(20))")
        made.begin()
        return made

    def test_the_other_node_follows_while_both_are_written_to(self, pair: Pair) -> None:
        for number, change in enumerate(FOLLOWED):
            pair.two.execute(f"UPDATE orders SET code = code + 1 WHERE id = {50 + number}")
            pair.one.execute(f"ALTER TABLE orders {change}")
            pair.one.execute(f"UPDATE orders SET note = 'one' WHERE id = {number + 1}")
            pair.two.execute(f"INSERT INTO orders (id, note) VALUES ({1000 + number}, 'two')")
            pair.catch_up()
            assert is_alike(pair)
        pair.two.execute("UPDATE orders SET more = 8, often = 9, word = 'both' WHERE id = 60")
        pair.catch_up()
        assert is_alike(pair)
        assert pair.one.execute("SELECT twice FROM orders WHERE id = 60") == [(18,)]

    def test_what_lags_behind_several_changes_passes_them_one_by_one(self, pair: Pair) -> None:
        for number, change in enumerate(FOLLOWED):
            pair.one.execute(f"ALTER TABLE orders {change}")
            pair.one.execute(f"UPDATE orders SET code = -{number + 1} WHERE id = {number + 1}")
            pair.two.execute(f"UPDATE orders SET note = 'two' WHERE id = {50 + number}")
            pair.two.execute(f"INSERT INTO orders (id, note) VALUES ({1000 + number}, 'two')")
        pair.back.catch_up()
        pair.catch_up()
        assert is_alike(pair)

    def test_no_order_of_edges_and_writes_stops_a_table_or_parts_the_nodes(
        self, pair: Pair
    ) -> None:
        seed = random.randrange(10**9)
        print(f"seed {seed}")
        rng = random.Random(seed)

        def write() -> None:
            node, first = rng.choice([(pair.one, 1), (pair.two, 51)])
            key = first + rng.randrange(50)
            node.execute(
                rng.choice(
                    (
                        f"UPDATE orders SET code = code + 1, note = '{node.name}' WHERE id = {key}",
                        f"DELETE FROM orders WHERE id = {key}",
                        f"REPLACE INTO orders (id, note, code) VALUES ({key}, 'new', {key})",
                    )
                )
            )

        with beside(write):
            for change in FOLLOWED:
                pair.one.execute(f"ALTER TABLE orders {change}")
                for edge in rng.choices([pair.there, pair.back], k=rng.randrange(3)):
                    edge.catch_up()
            pair.catch_up()
        pair.catch_up()
        assert is_alike(pair)
        with pair.there.opened() as run:
            assert verify(run, settle_s=5).equal

    def test_a_column_that_both_nodes_add_with_other_defaults_stops_the_table(
        self, pair: Pair
    ) -> None:
        for node, value in ((pair.one, 8), (pair.two, 9)):
            node.execute(f"ALTER TABLE orders ADD COLUMN often INT NOT NULL DEFAULT {value}")
        with pytest.raises(TablesStoppedError, match="often has another default at the other"):
            pair.there.catch_up()

    @pytest.mark.parametrize("rows", [False, True], ids=["no rows", "rows between"])
    def test_a_text_becomes_a_larger_one_behind_another_change(
        self, pair: Pair, rows: bool
    ) -> None:
        for change in ("ADD COLUMN more INT", "MODIFY note TEXT", "MODIFY amount DECIMAL(30,2)"):
            pair.one.execute(f"ALTER TABLE orders {change}")
            if rows:
                pair.one.execute("UPDATE orders SET code = code + 1 WHERE id = 1")
                pair.two.execute("UPDATE orders SET code = code + 1 WHERE id = 2")
        pair.catch_up()
        assert is_alike(pair)

    def test_a_change_that_is_made_at_both_nodes_is_passed_all_the_same(self, pair: Pair) -> None:
        for node in (pair.one, pair.two):
            node.execute("ALTER TABLE orders ADD COLUMN more INT NOT NULL DEFAULT 7")
            node.execute(f"UPDATE orders SET more = 8 WHERE id = {1 + 50 * (node is pair.two)}")
        pair.catch_up()
        assert is_alike(pair)
        assert pair.two.execute("SELECT id FROM orders WHERE more = 8") == [(1,), (51,)]

    @pytest.mark.parametrize(
        "change",
        [
            "ADD COLUMN more INT NOT NULL",
            "ADD COLUMN at DATETIME(6) DEFAULT CURRENT_TIMESTAMP(6)",
            "DROP COLUMN note",
            "RENAME COLUMN note TO remark",
            "MODIFY note VARCHAR(20)",
            "MODIFY amount DECIMAL(20,4)",
            "ADD UNIQUE KEY (code)",
        ],
    )
    def test_what_a_writer_of_before_would_not_survive_waits_for_a_person(
        self, pair: Pair, change: str
    ) -> None:
        pair.one.execute(f"ALTER TABLE orders {change}")
        pair.one.execute("UPDATE orders SET amount = 1 WHERE id = 1")
        with pytest.raises(TablesStoppedError):
            pair.there.catch_up()
        assert pair.two.execute("SELECT amount, note FROM orders WHERE id = 1")
        assert len(columns(pair.two)) == 4

    def test_a_change_at_the_other_node_waits_until_the_first_has_it(self, pair: Pair) -> None:
        change = "ALTER TABLE orders ADD COLUMN more INT"
        pair.two.execute(change)
        pair.two.execute("UPDATE orders SET more = 1 WHERE id = 1")
        with pytest.raises(TablesStoppedError, match="has other columns"):
            pair.back.catch_up()
        pair.one.execute(change)
        with pair.back.opened() as run:
            resume_tables(run, [TableId(pair.two.database, "orders")])
        pair.catch_up()
        assert is_alike(pair)
        assert pair.one.execute("SELECT more FROM orders WHERE id = 1") == [(1,)]


def columns(node: Node) -> Sequence[object]:
    """Return the columns of `orders`, with their types."""
    return node.execute(
        "SELECT column_name, data_type, is_nullable FROM information_schema.columns "
        f"WHERE table_schema = '{node.database}' AND table_name = 'orders' ORDER BY 1"
    )


def is_alike(pair: Pair) -> bool:
    """Compare both nodes by dumps, and their definitions."""
    names = ", ".join(f"`{row[0]}`" for row in columns(pair.one))  # type: ignore[index]
    dumps = [
        node.execute(f"SELECT {names} FROM orders ORDER BY id") for node in (pair.one, pair.two)
    ]
    assert columns(pair.one) == columns(pair.two)
    return dumps[0] == dumps[1]


class TestMySql(Carried):
    pass


class TestFromMariaDb(Carried):
    @pytest.fixture
    def mysql_server(self, mariadb_server: SqlServer) -> SqlServer:
        return mariadb_server


class TestToMariaDb(Carried):
    @pytest.fixture
    def mysql_sink(self, mariadb_server: SqlServer) -> SqlServer:
        return mariadb_server
