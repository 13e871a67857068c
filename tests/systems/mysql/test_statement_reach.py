"""Row changes logged as text: what they reach, by real servers' catalogues and logs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from airflow_cdc_provider.columns.changes import ChangeBatch
from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.errors import RowsNotLoggedError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.systems.mysql.source.log_reader import LogReader
from tests.servers.given import SqlServer
from tests.systems.mysql.read_logs import SERVER_ID, position_of, rows_of


@pytest.fixture(params=["mysql", "mariadb"])
def server(request: pytest.FixtureRequest) -> SqlServer:
    found: SqlServer = request.getfixturevalue(f"{request.param}_server")
    return found


class World:
    """A database that is copied, another one with a table of checksums, and an account."""

    def __init__(self, server: SqlServer, shop: str, tools: str) -> None:
        self.server, self.shop, self.tools = server, shop, tools
        self.orders = TableId(shop, "orders")
        self.items = TableId(shop, "items")
        self.run(
            f"CREATE TABLE {shop}.orders (id INT PRIMARY KEY, v VARCHAR(20))",
            f"CREATE TABLE {shop}.items (id INT PRIMARY KEY, o BIGINT UNSIGNED)",
            f"CREATE TABLE {tools}.checksums (tbl VARCHAR(20) PRIMARY KEY, n CHAR(20))",
        )
        self.endpoint = Endpoint.parse(server.dsn())
        self.start = position_of(server)

    def run(self, *statements: str) -> None:
        for statement in statements:
            self.server.execute(statement)

    def as_text(self, *statements: str) -> None:
        """Run statements in a session that logs them as text."""
        with closing(self.server.connect(self.shop)) as connection, connection.cursor() as cursor:
            for statement in ("SET SESSION binlog_format = 'STATEMENT'", *statements):
                cursor.execute(statement)
            connection.commit()

    def checksum(self) -> None:
        self.as_text(
            f"REPLACE INTO `{self.tools}`.`checksums` (tbl, n) SELECT 'orders', "
            "COALESCE(LOWER(CONV(BIT_XOR(CAST(CRC32(CONCAT_WS('#', id, v)) AS UNSIGNED)), 10, 16))"
            f", 0) AS crc FROM `{self.shop}`.`orders` FORCE INDEX(`PRIMARY`) WHERE ((`id` >= '1'))"
        )

    def batches(self, *captured: TableId) -> list[ChangeBatch]:
        end = position_of(self.server)
        tables = frozenset(captured or (self.orders, self.items))
        reader = LogReader(self.endpoint, server_id=SERVER_ID, start=self.start, captured=tables)
        with closing(reader):
            found = list(reader.read_to(end.binlog))
            assert reader.position == end
        return found

    def refused(self, *captured: TableId) -> RowsNotLoggedError:
        (refused,) = [b.barrier for b in self.batches(*captured) if b.barrier is not None]
        assert isinstance(refused.refusal, RowsNotLoggedError)
        self.reached = None if refused.effect.reaches_all else set(refused.effect.tables)
        return refused.refusal


@pytest.fixture
def world(server: SqlServer, fresh_database: Callable[[SqlServer], str]) -> World:
    return World(server, fresh_database(server), fresh_database(server))


@pytest.fixture
def limited(world: World) -> Iterator[Callable[[str], None]]:
    """Read with an account that has what the documentation asks for, and what a test grants."""
    account = f"'reach_{world.shop}'@'%'"
    rights = "REPLICATION SLAVE, REPLICATION CLIENT"
    if "maria" in world.server.version.lower():
        rights = "REPLICATION SLAVE, BINLOG MONITOR, SLAVE MONITOR"
    world.run(
        f"CREATE USER {account} IDENTIFIED BY 'p'",
        f"GRANT {rights} ON *.* TO {account}",
        f"GRANT SELECT ON `{world.shop}`.* TO {account}",
    )
    full = world.endpoint
    dsn = f"mysql://reach_{world.shop}:p@{full.host}:{full.port}/"
    world.endpoint = Endpoint.parse(dsn)
    yield lambda grant: world.run(f"GRANT {grant} TO {account}")
    world.run(f"DROP USER {account}")


def test_a_checksum_of_a_table_nobody_copies_is_passed(world: World) -> None:
    world.run(f"INSERT INTO {world.shop}.orders VALUES (1, 'a')")
    world.checksum()
    world.as_text(
        f"UPDATE {world.tools}.checksums SET n = 3 WHERE tbl = 'orders'",
        f"DELETE FROM {world.tools}.checksums WHERE tbl = 'orders'",
    )
    world.run(f"INSERT INTO {world.shop}.orders VALUES (2, 'b')")
    batches = world.batches()
    assert rows_of(batches) == [("INSERT", 1), ("INSERT", 2)]
    assert not any(batch.barrier for batch in batches)


def test_a_statement_about_a_captured_table_stops_that_table_alone(world: World) -> None:
    world.as_text("INSERT INTO orders VALUES (1, 'a')")
    refused = world.refused()
    assert world.reached == {world.orders}
    assert str(world.orders) in refused.where
    assert "binlog_format" in refused.remedy
    assert world.batches(world.items)[-1].barrier is None


def test_what_came_before_the_statement_is_handed_on_and_what_comes_behind_it_too(
    world: World,
) -> None:
    world.run(f"INSERT INTO {world.shop}.items VALUES (1, 1)")
    with closing(world.server.connect(world.shop)) as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION binlog_format = 'MIXED'")
        cursor.execute("BEGIN")
        cursor.execute("INSERT INTO items VALUES (2, UUID_SHORT())")  # as rows: it is not safe
        cursor.execute("INSERT INTO orders VALUES (1, 'a')")  # as text
        cursor.execute("INSERT INTO items VALUES (3, UUID_SHORT())")
        cursor.execute("COMMIT")
    batches = world.batches()
    places = [number for number, batch in enumerate(batches) if batch.barrier is not None]
    assert rows_of(batches[: places[0] + 1]) == [("INSERT", 1)]
    assert rows_of(batches[places[0] + 1 :]) == [("INSERT", 2), ("INSERT", 3)]
    barrier = batches[places[0]].barrier
    before, behind = batches[places[0]].end, batches[-1].end
    assert barrier is not None
    assert before is not None
    assert behind is not None
    assert not before.contains(barrier.point)
    assert behind.contains(barrier.point)


TOO_FAR = {
    "a trigger": (
        [
            "CREATE TRIGGER {tools}.r AFTER INSERT ON {tools}.checksums FOR EACH ROW "
            "INSERT INTO {shop}.items VALUES (NEW.n, 1)"
        ],
        "INSERT INTO {tools}.checksums VALUES ('a', 5)",
        "triggers",
    ),
    "a view of a captured table": (
        ["CREATE VIEW {tools}.v AS SELECT * FROM {shop}.items"],
        "INSERT INTO {tools}.v VALUES (5, 1)",
        "VIEW",
    ),
    "a stored function": (
        [
            "CREATE FUNCTION {tools}.f() RETURNS INT BEGIN INSERT INTO {shop}.items VALUES (5, 1); "
            "RETURN 1; END"
        ],
        "INSERT INTO {tools}.checksums VALUES ('a', {tools}.f())",
        "stored functions",
    ),
    "a function that a view calls": (
        [
            "CREATE FUNCTION {tools}.f() RETURNS INT BEGIN INSERT INTO {shop}.items VALUES (5, 1); "
            "RETURN 1; END",
            "CREATE VIEW {tools}.v AS SELECT {tools}.f() AS n",
        ],
        "INSERT INTO {tools}.checksums SELECT 'a', n FROM {tools}.v",
        "view",
    ),
    "a function that is called by itself": (
        [
            "CREATE FUNCTION {tools}.f() RETURNS INT BEGIN INSERT INTO {shop}.items VALUES (5, 1); "
            "RETURN 1; END"
        ],
        "SELECT {tools}.f()",
        "which one table",
    ),
    "several written tables": (
        ["INSERT INTO {shop}.items VALUES (5, 1)", "INSERT INTO {tools}.checksums VALUES ('a', 5)"],
        "UPDATE {tools}.checksums c JOIN {shop}.items i ON i.id = c.n SET c.n = 1, i.o = 2",
        "which one table",
    ),
    "an engine that writes to other tables": (
        [
            "CREATE TABLE {tools}.under (id INT PRIMARY KEY) ENGINE=MyISAM",
            "CREATE TABLE {tools}.over (id INT PRIMARY KEY) ENGINE=MERGE UNION=({tools}.under) "
            "INSERT_METHOD=LAST",
        ],
        "INSERT INTO {tools}.over VALUES (5)",
        "engine",
    ),
}


@pytest.mark.parametrize("case", TOO_FAR)
def test_what_may_have_reached_any_table_is_refused(world: World, case: str) -> None:
    prepare, statement, word = TOO_FAR[case]
    world.run("SET GLOBAL log_bin_trust_function_creators = 1")
    world.run(*(each.format(shop=world.shop, tools=world.tools) for each in prepare))
    world.start = position_of(world.server)
    world.as_text(statement.format(shop=world.shop, tools=world.tools))
    refused = world.refused()
    assert world.reached is None
    assert word in refused.what


def test_a_cascade_stops_the_tables_that_keys_lead_to(world: World) -> None:
    shop, tools = world.shop, world.tools
    world.run(
        f"CREATE TABLE {tools}.parent (id INT PRIMARY KEY)",
        f"CREATE TABLE {tools}.middle (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) "
        f"REFERENCES {tools}.parent (id) ON DELETE CASCADE)",
        f"CREATE TABLE {shop}.leaf (id INT PRIMARY KEY, m INT, FOREIGN KEY (m) "
        f"REFERENCES {tools}.middle (id) ON DELETE SET NULL)",
        f"INSERT INTO {tools}.parent VALUES (1)",
        f"INSERT INTO {tools}.middle VALUES (2, 1)",
    )
    leaf = TableId(shop, "leaf")
    world.start = position_of(world.server)
    world.as_text(f"DELETE FROM {tools}.parent WHERE id = 1")
    world.refused(world.orders, leaf)
    assert world.reached == {leaf, TableId(tools, "parent")}
    assert not any(batch.barrier for batch in world.batches(world.orders))
    world.run(f"DROP TABLE {shop}.leaf")


def test_a_table_made_anew_since_is_not_what_the_catalogue_says(world: World) -> None:
    world.checksum()
    world.run(
        f"DROP TABLE {world.tools}.checksums",
        f"CREATE TABLE {world.tools}.checksums (tbl VARCHAR(20) PRIMARY KEY, n CHAR(20))",
    )
    assert "catalogue" in world.refused().what
    assert world.reached is None


@pytest.mark.parametrize(
    "later",
    [
        "DROP TRIGGER {tools}.r",
        "CREATE TRIGGER {tools}.q BEFORE INSERT ON {tools}.checksums FOR EACH ROW SET NEW.n = 2",
        "RENAME TABLE {tools}.checksums TO {tools}.old, {tools}.other TO {tools}.checksums",
    ],
)
def test_a_trigger_that_came_or_went_since_is_not_overlooked(world: World, later: str) -> None:
    world.run(
        f"CREATE TABLE {world.tools}.other LIKE {world.tools}.checksums",
        f"CREATE TRIGGER {world.tools}.r AFTER INSERT ON {world.tools}.other FOR EACH ROW "
        f"INSERT INTO {world.shop}.items VALUES (1, 1)",
    )
    world.start = position_of(world.server)
    world.checksum()
    world.run(later.format(shop=world.shop, tools=world.tools))
    world.refused()
    assert world.reached is None


def test_a_trigger_made_while_a_reader_follows_is_heeded(world: World) -> None:
    reader = LogReader(
        world.endpoint,
        server_id=SERVER_ID,
        start=world.start,
        captured=frozenset({world.orders, world.items}),
    )
    with closing(reader):
        world.checksum()
        before = list(reader.read_to(position_of(world.server).binlog))
        assert not any(batch.barrier for batch in before)
        world.run(
            f"CREATE TRIGGER {world.tools}.r AFTER INSERT ON {world.tools}.checksums "
            f"FOR EACH ROW INSERT INTO {world.shop}.items VALUES (1, 1)"
        )
        world.as_text(f"INSERT INTO {world.tools}.checksums VALUES ('b', 5)")
        behind = list(reader.read_to(position_of(world.server).binlog))
    (barrier,) = [batch.barrier for batch in behind if batch.barrier is not None]
    assert barrier.effect.reaches_all


def test_what_the_account_may_not_see_is_not_taken_for_absent(
    world: World, limited: Callable[[str], None]
) -> None:
    world.checksum()
    refused = world.refused()
    assert world.reached is None
    assert "GRANT TRIGGER ON" in refused.remedy
    limited(f"TRIGGER ON `{world.tools}`.*")
    assert not any(batch.barrier for batch in world.batches())


def test_a_read_table_that_is_not_seen_may_be_a_view_until_functions_are_seen(
    world: World, limited: Callable[[str], None]
) -> None:
    if world.server.execute(
        "SELECT COUNT(*) FROM information_schema.ROUTINES WHERE ROUTINE_TYPE "
        "= 'FUNCTION' AND ROUTINE_SCHEMA <> 'sys'"
    ) != [(0,)]:
        pytest.fail("another test has left a stored function on this server")
    limited(f"TRIGGER ON `{world.tools}`.checksums")
    world.run(f"CREATE TABLE {world.tools}.hidden (id INT PRIMARY KEY)")
    world.start = position_of(world.server)
    world.as_text(
        f"INSERT INTO {world.tools}.checksums SELECT 'a', COUNT(*) FROM {world.tools}.hidden"
    )
    refused = world.refused()
    assert world.reached is None
    grant = refused.remedy.partition("GRANT ")[2].partition(" TO ")[0]
    limited(grant)
    assert not any(batch.barrier for batch in world.batches())
