"""Several tables of the source in one table of the sink, each with its own rows and columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import get_args

import pytest

from airflow_cdc_provider.core.errors import (
    PipelineFileError,
    RefusedError,
    SinkTableChangedError,
    TablesStoppedError,
)
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.engine.stream import schema_changes
from airflow_cdc_provider.pipeline.file.loader import parse_pipeline
from airflow_cdc_provider.pipeline.file.shard_section import ShardSection, ShardValue
from airflow_cdc_provider.pipeline.file.table_sections import TableSection
from airflow_cdc_provider.pipeline.steps.checking import check
from airflow_cdc_provider.pipeline.steps.planning import plan, preview
from airflow_cdc_provider.pipeline.steps.reset_drop import reset
from airflow_cdc_provider.pipeline.steps.table_membership import (
    remove_tables,
    reset_tables,
    shards_beside_others,
    targets_of,
)
from airflow_cdc_provider.pipeline.steps.verifying import verify
from airflow_cdc_provider.views.reports import plan_form, plan_lines
from tests.pipeline.altered_tables import catch_up
from tests.pipeline.conftest import Shop
from tests.servers.given import SqlServer

FILE = """\
pipeline: p_{source}
source:
  dsn_env: SHOP_DSN
  tables: ["{source}.orders_*", "{source}.others"]
sink:
  dsn_env: DR_DSN
  route: {{"{source}.orders_*": "{sink}.orders", "{source}.others": "{sink}.others"}}
schema_changes: {{drop_column: apply, drop_table: apply}}
tables:
  "{source}.orders_*":
    shard: {{column: shop, value: table}}
"""
FIRST = """CREATE TABLE orders_1 (
  id INT AUTO_INCREMENT PRIMARY KEY, note VARCHAR(20) CHARACTER SET utf8mb4 NOT NULL DEFAULT 'new',
  n INT, d DECIMAL(8,2) DEFAULT 1.5, t TEXT, UNIQUE KEY of_note (note), KEY by_n (n))"""
SECOND = """CREATE TABLE orders_2 (
  id INT PRIMARY KEY, n BIGINT DEFAULT 7, note VARCHAR(40) CHARACTER SET utf8mb4, born DATE,
  d DECIMAL(10,2) DEFAULT 12345678.9, t LONGTEXT, state ENUM('a', 'b', 'c') DEFAULT 'c',
  twice BIGINT AS (n * 2) STORED)"""
THIRD = "CREATE TABLE orders_3 (id INT PRIMARY KEY, state ENUM('a', 'b'), T TEXT, CHECK (id > 0))"
ROWS = (
    "INSERT INTO orders_1 (id, note, n) VALUES (1, 'one', 10), (2, 'two', 20), (3, 'three', NULL)",
    "INSERT INTO orders_2 (id, n, note, born) VALUES (1, 5000000000, REPEAT('x', 40), NULL), "
    "(2, NULL, 'two', '2001-02-03'), (4, 1, 'two', NULL)",
    "INSERT INTO orders_3 VALUES (1, 'a', 'x'), (2, 'b', NULL), (9, NULL, 'y')",
)


@pytest.fixture(params=["mysql", "mariadb"])
def shards(
    request: pytest.FixtureRequest, fresh_database: Callable[[SqlServer], str], tmp_path: Path
) -> Iterator[Shop]:
    """Three tables that go to one, of either family, and one beside them."""
    server: SqlServer = request.getfixturevalue(f"{request.param}_server")
    is_mysql = request.param == "mysql"
    at_sink: SqlServer = request.getfixturevalue("mysql_sink") if is_mysql else server
    with shards_between(server, at_sink, fresh_database, tmp_path) as made:
        yield made


@pytest.fixture
def mysql_shards(
    mysql_server: SqlServer,
    mysql_sink: SqlServer,
    fresh_database: Callable[[SqlServer], str],
    tmp_path: Path,
) -> Iterator[Shop]:
    """The same, of MySQL alone."""
    with shards_between(mysql_server, mysql_sink, fresh_database, tmp_path) as made:
        yield made


@contextmanager
def shards_between(
    server: SqlServer, at_sink: SqlServer, fresh: Callable[[SqlServer], str], folder: Path
) -> Iterator[Shop]:
    source, sink = fresh(server), fresh(at_sink)
    environment = {"SHOP_DSN": server.dsn(), "DR_DSN": at_sink.dsn()}
    with ExitStack() as stack:
        made = Shop(server, at_sink, source, sink, folder / "shop.yaml", environment, stack)
        made.path.write_text(FILE.format(source=source, sink=sink))
        for statement in (FIRST, SECOND, THIRD, "CREATE TABLE others (id INT PRIMARY KEY)", *ROWS):
            made.at_source(statement)
        yield made


def write(shop: Shop) -> None:
    """Change rows of each shard, with keys that others have, too."""
    for table in tables_of(shop):
        columns = source_columns(shop, table)
        of_note = "note" if "note" in columns else "id"
        for statement in (
            f"DELETE FROM {table} WHERE id = 2",
            f"UPDATE {table} SET {of_note} = {of_note}, id = id + 100 WHERE id = 1",
            f"INSERT INTO {table} (id) VALUES (7)"
            if of_note == "id"
            else f"INSERT INTO {table} (id, note) VALUES (7, 'seven')",
        ):
            shop.at_source(statement)


def alter(shop: Shop, *statements: str) -> None:
    for statement in statements:
        shop.at_source(statement)


def tables_of(shop: Shop) -> list[str]:
    found = shop.source.execute("SHOW TABLES LIKE 'orders%'", database=shop.database)
    return sorted(str(row[0]) for row in found)


def source_columns(shop: Shop, table: str) -> dict[str, str]:
    """Return the source's columns of a table that are copied, by their names in lower case."""
    rows = shop.source.execute(f"SHOW COLUMNS FROM {table}", database=shop.database)
    names = [str(row[0]) for row in rows if "GENERATED" not in str(row[5]).upper()]
    return {name.lower(): name for name in names}


def require_union(shop: Shop, but: Sequence[str] = ()) -> list[str]:
    """Require that the sink has what a UNION ALL of the shards gives; return its columns."""
    at_sink = [str(row[0]) for row in shop.sink_rows("SHOW COLUMNS FROM orders")]
    parts = []
    for table in tables_of(shop):
        if table in but:
            continue
        have = source_columns(shop, table)
        listed = ", ".join(
            f"'{table}'" if name == "shop" else have.get(name.lower(), "NULL") for name in at_sink
        )
        parts.append(f"SELECT {listed} FROM {table}")
    wanted = shop.source.execute(" UNION ALL ".join(parts), database=shop.database)
    left_out = "".join(f" AND shop <> '{table}'" for table in but)
    found = shop.sink_rows(f"SELECT {', '.join(at_sink)} FROM orders WHERE TRUE{left_out}")
    assert sorted(map(repr, found)) == sorted(map(repr, wanted))
    return at_sink


def shop_values(shop: Shop) -> list[object]:
    """Return what the sink's table has in the column that tells shards apart."""
    return [row[0] for row in shop.sink_rows("SELECT DISTINCT shop FROM orders ORDER BY shop")]


def require_equal(shop: Shop) -> None:
    """Require that our own comparison finds each shard as it is."""
    for verdict in verify(shop.run(), settle_s=5).tables:
        assert verdict.equal, verdict


def test_three_tables_are_one_and_each_change_of_one_leaves_the_others_rows(shards: Shop) -> None:
    assert not check(shards.run()).blocks
    form = plan_form(preview(shards.run()), shards.run().model)
    for table in tables_of(shards):
        assert sum(f"shard: shop = {table}" in line for line in plan_lines(form)) == 1
    catch_up(shards)
    assert {*require_union(shards)} == {"shop", "id", "note", "n", "born", "state", "d", "t"}
    key = [row[4] for row in shards.sink_rows("SHOW INDEX FROM orders") if row[2] == "PRIMARY"]
    assert key == ["shop", "id"]
    write(shards)
    catch_up(shards)
    require_union(shards)
    require_equal(shards)
    # one after the other, with a default in rows that are there, and wider than before
    for tables in (["orders_1"], ["orders_2", "orders_3"]):
        for table in tables:
            added, marked = "ADD COLUMN mark INT", "(id, mark) VALUES (50, 5)"
            alter(shards, f"ALTER TABLE {table} {added}", f"INSERT INTO {table} {marked}")
        run = catch_up(shards)
        require_union(shards)
        assert not any("read again" in event.text for event in run.store.events(run.name, 100))
    alter(shards, "ALTER TABLE orders_1 ADD COLUMN rank_ INT NOT NULL DEFAULT 3")
    alter(shards, "ALTER TABLE orders_2 MODIFY mark BIGINT DEFAULT 1")
    alter(
        shards,
        "ALTER TABLE orders_3 MODIFY state ENUM('a', 'b', 'c')",
        "INSERT INTO orders_3 (id, state) VALUES (60, 'c')",
    )
    catch_up(shards)
    require_union(shards)
    alter(shards, "ALTER TABLE orders_2 CHANGE note remark VARCHAR(40)")
    alter(shards, "ALTER TABLE orders_1 DROP COLUMN mark")
    catch_up(shards)
    assert {"note", "remark", "mark", "rank_"} <= {*require_union(shards)}
    alter(shards, "TRUNCATE TABLE orders_2", "INSERT INTO orders_2 (id) VALUES (3)")
    catch_up(shards)
    require_union(shards)
    alter(shards, "DELETE FROM orders_1 WHERE id = 7", "UPDATE orders_3 SET state = 'b'")
    alter(
        shards,
        "CREATE TABLE copy_of_3 (id INT PRIMARY KEY, state ENUM('a'), other INT)",
        "INSERT INTO copy_of_3 VALUES (1, 'a', 5), (77, NULL, 6)",
        "RENAME TABLE orders_3 TO old_3, copy_of_3 TO orders_3",
    )
    catch_up(shards)
    require_union(shards)
    require_equal(shards)


def test_a_shard_comes_later_and_goes_without_the_others(
    shards: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema_changes, "COMES_BACK_S", 0.0)
    catch_up(shards)
    shards.at_source(
        "CREATE TABLE orders_4 (id INT PRIMARY KEY, extra INT, n BIGINT, state ENUM('a', 'b'))"
    )
    shards.at_source("INSERT INTO orders_4 VALUES (1, 11, 1, 'a'), (2, 22, 2, 'b')")
    shards.at_source("CREATE TABLE orders_5 (id INT PRIMARY KEY, n VARCHAR(9))")
    run = catch_up(shards)
    told = [event.text for event in run.store.events(run.name, 100)]
    assert sum("orders_5 came later and is not added" in text for text in told) == 1
    shards.at_source("DROP TABLE orders_5")
    catch_up(shards)
    assert "extra" in require_union(shards)
    write(shards)
    catch_up(shards)
    require_union(shards)
    shards.at_source("DROP TABLE orders_3")
    alter(shards, "INSERT INTO orders_1 (id, note) VALUES (70, 'seventy')")
    catch_up(shards)
    require_union(shards)
    shards.at_source("RENAME TABLE orders_4 TO gone")
    catch_up(shards)
    require_union(shards)
    shards.sink.execute("UPDATE orders SET n = 99", database=shards.target)
    run = shards.run()
    reset_tables(run, [TableId(shards.database, "orders_1")])
    catch_up(shards)
    assert shards.sink_rows("SELECT DISTINCT n FROM orders WHERE shop = 'orders_2'") == [(99,)]
    require_union(shards, but=["orders_2"])
    reset(shards.run())
    catch_up(shards)
    require_union(shards)
    shards.path.write_text(
        shards.path.read_text().replace(
            "sink:", f"  exclude: [{shards.database}.orders_1]\nsink:", 1
        )
    )
    table = TableId(shards.database, "orders_1")
    run = shards.run()
    assert not targets_of(run, [table])
    assert [plan.schema.table for plan in shards_beside_others(run, [table])] == [table]
    remove_tables(run, [table], drop_targets=True)
    catch_up(shards)
    assert shards.sink_rows("SELECT DISTINCT shop FROM orders") == [("orders_2",)]
    shards.at_source("DROP TABLE orders_2")
    catch_up(shards)
    assert shards.sink_rows("SHOW TABLES LIKE 'orders'") == []


def test_a_shard_that_does_not_fit_the_others_any_more_stops_alone(mysql_shards: Shop) -> None:
    shards = mysql_shards
    catch_up(shards)
    table = TableId(shards.database, "orders_2")
    alter(shards, "ALTER TABLE orders_2 DROP COLUMN twice, MODIFY n VARCHAR(30)")
    alter(shards, "UPDATE orders_2 SET n = 'many'")
    write(shards)
    with pytest.raises(
        TablesStoppedError,
        match=r"in t\S+orders_1 column n is int, in t\S+orders_2 it is varchar\(30\)",
    ):
        catch_up(shards)
    require_union(shards, but=["orders_2"])
    with pytest.raises(RefusedError, match=r"sink\.column_type"):
        reset_tables(shards.run(), [table])
    alter(shards, "ALTER TABLE orders_2 RENAME COLUMN n TO number")
    reset_tables(shards.run(), [table])
    catch_up(shards)
    assert "number" in require_union(shards)
    # what is done to the sink's table by hand is never mended in silence
    alter(shards, "UPDATE orders_1 SET d = 1.5", "UPDATE orders_2 SET d = 25000000.5")
    catch_up(shards)
    shards.sink.execute("ALTER TABLE orders DROP COLUMN d", database=shards.target)
    with pytest.raises(TablesStoppedError, match="column d is missing"):
        catch_up(shards)
    with pytest.raises(SinkTableChangedError, match=r"`reset` with .* --table \S+orders_1"):
        reset_tables(shards.run(), [table])
    reset_tables(shards.run(), [table, TableId(shards.database, "orders_1")])
    catch_up(shards)
    assert "d" in require_union(shards)
    shards.sink.execute("DROP TABLE orders", database=shards.target)
    with pytest.raises(TablesStoppedError, match="it is gone"):
        catch_up(shards)
    with pytest.raises(SinkTableChangedError, match=r"it is gone.*orders_1 .*orders_2 .*orders_3 "):
        reset_tables(shards.run(), [TableId(shards.database, "orders_1")])
    reset_tables(shards.run(), [TableId(shards.database, f"orders_{n}") for n in (1, 2, 3)])
    catch_up(shards)
    require_union(shards)


def test_deleted_rows_of_a_shard_stay_and_are_marked_alone(mysql_shards: Shop) -> None:
    shards = mysql_shards
    shards.path.write_text(shards.path.read_text() + "    deletes: soft\n")
    catch_up(shards)
    alter(shards, "TRUNCATE TABLE orders_2", "DELETE FROM orders_3 WHERE id = 1")
    catch_up(shards)
    rows = shards.sink_rows("SELECT shop, id FROM orders WHERE _deleted = 1 ORDER BY shop, id")
    assert rows == [("orders_2", 1), ("orders_2", 2), ("orders_2", 4), ("orders_3", 1)]
    alter(shards, "ALTER TABLE orders_1 ADD COLUMN mark INT NOT NULL DEFAULT 3")
    alter(shards, "INSERT INTO orders_2 (id) VALUES (1)")
    catch_up(shards)
    require_equal(shards)
    rows = shards.sink_rows("SELECT shop, id FROM orders WHERE _deleted = 1 ORDER BY shop, id")
    assert rows == [("orders_2", 2), ("orders_2", 4), ("orders_3", 1)]
    assert shards.sink_rows("SELECT DISTINCT shop, mark FROM orders WHERE mark = 3") == [
        ("orders_1", 3)
    ]


def test_a_shard_is_altered_while_it_is_first_read(mysql_shards: Shop) -> None:
    shards = mysql_shards
    plan(shards.run())
    alter(
        shards,
        "ALTER TABLE orders_2 MODIFY id BIGINT, ADD COLUMN more INT NOT NULL DEFAULT 5",
        "INSERT INTO orders_2 (id) VALUES (6000000000)",
    )
    catch_up(shards)
    require_union(shards)
    # it gets a column of the name that tells it from others
    alter(shards, "ALTER TABLE orders_3 ADD COLUMN shop INT", "DELETE FROM orders_1 WHERE id = 1")
    for _ in range(2):
        with pytest.raises(TablesStoppedError, match="orders_3 would have two columns shop"):
            catch_up(shards)
        require_union(shards, but=["orders_3"])
    alter(shards, "ALTER TABLE orders_3 DROP COLUMN shop", "INSERT INTO orders_1 (id) VALUES (80)")
    reset_tables(shards.run(), [TableId(shards.database, "orders_3")])
    catch_up(shards)
    require_union(shards)
    # the shard's value is another now, of one and then of all: no row is there under both
    own = f'  "{shards.database}.orders_1": {{shard: {{column: shop}}}}\n'
    shards.path.write_text(shards.path.read_text() + own)
    reset_tables(shards.run(), [TableId(shards.database, "orders_1")])
    catch_up(shards)
    assert shop_values(shards) == ["orders_2", "orders_3", f"{shards.database}.orders_1"]
    shards.path.write_text(shards.path.read_text().replace("value: table", "value: name"))
    reset(shards.run())
    catch_up(shards)
    assert shop_values(shards) == [f"{shards.database}.orders_{n}" for n in (1, 2, 3)]
    require_equal(shards)


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ("shard: {column: shop}", "", "nothing tells the rows of a.two from others"),
        ("shard: {column: shop}", "shard: {column: s}", "their shard columns are shop and s"),
        ("shard: {column: shop, value: database}",) * 2 + ("the rows of both have 'a' in shop",),
        ("shard: {column: shop}", "shard: {column: shop}, deletes: soft", "other deletes there"),
        ("", "", "both go to b.all"),
    ],
)
def test_tables_that_cannot_share_one_are_refused_with_the_line(
    first: str, second: str, words: str
) -> None:
    text = (
        "pipeline: p\nsource:\n  dsn_env: A\n  tables:\n    - a.one\n    - a.two\n"
        'sink: {dsn_env: B, route: {"a.*": b.all}}\ntables:\n'
        f"  a.one: {{{first}}}\n  a.two: {{{second}}}\n"
    )
    with pytest.raises(PipelineFileError) as caught:
        parse_pipeline(text, Path("p.yaml"))
    assert words in caught.value.what
    assert "line 6" in caught.value.what


@pytest.mark.parametrize(
    ("sink", "section", "words"),
    [
        ("type: changelog, path: /tmp/x", "shard: {column: s}", "a sink of type changelog holds"),
        ("dsn_env: B", "shard: {column: S}, columns: {constants: {s: 1}}", "is the shard column"),
        ("dsn_env: B", "shard: {column: op}, metadata: {operation: OP}", "is the shard column"),
        ("dsn_env: B", "shard: {column: s, value: host}", "'database', 'table' or 'name'"),
        ("dsn_env: B", "shard: {value: name}", "column"),
    ],
)
def test_a_section_of_a_shard_is_refused_with_its_line(sink: str, section: str, words: str) -> None:
    text = (
        f"pipeline: p\nsource: {{dsn_env: A, tables: [a.one]}}\nsink: {{{sink}}}\n"
        f"tables:\n  a.one: {{{section}}}\n"
    )
    with pytest.raises(PipelineFileError) as caught:
        parse_pipeline(text, Path("p.yaml"))
    assert words in caught.value.what
    assert "line 5" in caught.value.what


def test_each_value_tells_two_tables_apart() -> None:
    tables = [TableId("shop_1", "orders"), TableId("shop_2", "orders")]
    values = {
        value: [
            str(TableSection(shard=ShardSection(column="s", value=value)).shape_of(t).columns)
            for t in tables
        ]
        for value in get_args(ShardValue)
    }
    assert len({*values["table"]}) == 1
    assert len({*values["database"]}) == len({*values["name"]}) == 2
    assert "constant='shop_1.orders'" in values["name"][0]


def test_a_shard_that_begins_again_keeps_nothing_in_columns_that_it_lacks(shards: Shop) -> None:
    catch_up(shards)
    alter(shards, "ALTER TABLE orders_1 DROP COLUMN d")
    reset_tables(shards.run(), [TableId(shards.database, "orders_1")])
    catch_up(shards)
    require_union(shards)


def test_shards_are_read_again_where_nobody_knows_what_they_were(mysql_shards: Shop) -> None:
    shards = mysql_shards
    catch_up(shards)
    alter(shards, "ALTER TABLE orders_1 RENAME COLUMN d TO born, MODIFY COLUMN n BIGINT")
    alter(
        shards, "ALTER TABLE orders_1 DROP COLUMN born, ADD COLUMN born DATE DEFAULT '2001-01-01'"
    )
    shards.forget_state()
    catch_up(shards)
    require_union(shards)


def test_a_value_that_the_sinks_table_has_of_itself_gets_into_no_row(shards: Shop) -> None:
    """Of the column `born` only the second shard has values."""
    catch_up(shards)
    own = "DATE DEFAULT '2011-01-01'"
    change_at_sink = "ALTER TABLE orders MODIFY COLUMN born {}"
    shards.sink.execute(change_at_sink.format(own), database=shards.target)
    write(shards)
    assert "sink.shared_table" in {each.code for each in check(shards.run()).findings}
    with pytest.raises(TablesStoppedError, match="column born, which only others have"):
        catch_up(shards)
    assert shards.sink_rows("SELECT id FROM orders WHERE born > '2001-02-03'") == []
    shards.sink.execute(change_at_sink.format("DATE NULL"), database=shards.target)
    catch_up(shards)
    require_union(shards)
