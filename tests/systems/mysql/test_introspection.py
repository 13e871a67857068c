"""Definitions are read from the catalogue as the server means them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.errors import AccessDeniedError, RefusedError, SchemaMovedError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.keys import KeyKind
from airflow_cdc_provider.core.named_keys import NamedKeys
from airflow_cdc_provider.core.table_facts import TableKind
from airflow_cdc_provider.core.table_patterns import TablePattern
from airflow_cdc_provider.core.table_schema import TableSchema
from airflow_cdc_provider.systems.mysql.dialect.create_statement import parse_create_statement
from airflow_cdc_provider.systems.mysql.preflight.foreign_keys import foreign_keys
from airflow_cdc_provider.systems.mysql.server import introspection
from airflow_cdc_provider.systems.mysql.server.capabilities import read_capabilities
from airflow_cdc_provider.systems.mysql.server.catalogue import (
    picked_tables,
    table_facts,
    triggers,
)
from airflow_cdc_provider.systems.mysql.server.connection import Role, connect, query
from airflow_cdc_provider.systems.mysql.server.introspection import (
    EXPRESSION,
    create_statement,
    read_schema,
    read_schemas,
)
from tests.servers.given import SqlServer
from tests.systems.mysql.sessions import BOTH_FAMILIES, source

if TYPE_CHECKING:
    from airflow_cdc_provider.systems.mysql.server.connection import ServerConnection


@pytest.fixture(params=BOTH_FAMILIES)
def server(request: pytest.FixtureRequest) -> SqlServer:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, SqlServer)
    return found


@pytest.fixture
def database(server: SqlServer, fresh_database: Callable[[SqlServer], str]) -> str:
    return fresh_database(server)


def schema_of(server: SqlServer, database: str, definition: str) -> TableSchema:
    server.execute(f"CREATE TABLE {database}.t ({definition})")
    with source(server) as connection:
        return read_schema(connection, TableId(database, "t"))


def test_the_primary_key_is_in_index_order(server: SqlServer, database: str) -> None:
    found = schema_of(server, database, "a INT, b VARCHAR(9), c DATE, PRIMARY KEY (c, a, b)")
    assert found.primary_key == ("c", "a", "b")
    assert found.key_kinds == (KeyKind.TEMPORAL, KeyKind.INTEGER, KeyKind.TEXT)


def test_a_prefix_bounds_no_split_and_the_key_columns_before_it_do(
    server: SqlServer, database: str
) -> None:
    found = schema_of(server, database, "a INT, b TEXT, PRIMARY KEY (a, b(7))")
    assert found.key_prefixes == (0, 7)
    assert found.key_kinds == (KeyKind.INTEGER, KeyKind.OTHER)


@pytest.mark.parametrize(
    ("definition", "key_name", "key"),
    [
        ("a INT NOT NULL UNIQUE", "a", ("a",)),
        ("a INT NOT NULL, b INT NOT NULL, UNIQUE z (b, a), UNIQUE y (b)", "z", ("b", "a")),
        ("a INT, b INT NOT NULL, UNIQUE z (a), UNIQUE y (b)", "y", ("b",)),
        ("a VARCHAR(9) NOT NULL, b INT NOT NULL, UNIQUE z (a(5)), UNIQUE y (b)", "y", ("b",)),
        ("a VARCHAR(9) NOT NULL, UNIQUE z (a(9))", "z", ("a",)),
        ("a INT NOT NULL, b INT NOT NULL, UNIQUE z (a DESC, b)", "z", ("a", "b")),
        ("a INT NOT NULL DEFAULT 1 INVISIBLE, b INT, UNIQUE z (a)", "z", ("a",)),
        ("a INT NOT NULL, UNIQUE `z``.x` (a)", "z`.x", ("a",)),
        ("a INT NOT NULL, b INT NOT NULL, UNIQUE z (b, a), UNIQUE y (b, a)", "y", ("b", "a")),
        ("a INT PRIMARY KEY, b INT NOT NULL, UNIQUE z (b)", "", ("a",)),
    ],
)
def test_the_unique_key_that_the_server_stores_rows_by_is_the_key(
    server: SqlServer, database: str, definition: str, key_name: str, key: tuple[str, ...]
) -> None:
    found = schema_of(server, database, definition)
    assert (found.key_name, found.primary_key, found.key_prefixes) == (key_name, key, ())
    assert key_name not in {each.name for each in found.unique_keys}


@pytest.mark.parametrize(
    "definition",
    [
        "a INT UNIQUE",
        "a INT NOT NULL, b INT, UNIQUE (a, b)",
        "a VARCHAR(9) NOT NULL, UNIQUE (a(5))",
        "a INT NOT NULL, v INT AS (a + 1) VIRTUAL, UNIQUE (v)",
        "a INT NOT NULL, v INT AS (a + 1) STORED, UNIQUE (v)",
        "a INT NOT NULL, b INT NOT NULL, UNIQUE z (a, b), UNIQUE y (b, a)",
    ],
)
def test_a_unique_key_that_does_not_tell_rows_apart_is_none(
    server: SqlServer, database: str, definition: str
) -> None:
    found = schema_of(server, database, definition)
    assert (found.key_name, found.primary_key) == ("", ())


NAMED = [
    ("a INT NOT NULL, b INT NOT NULL, UNIQUE z (a), UNIQUE y (b)", ("b",), ()),
    ("a INT NOT NULL, y INT NOT NULL, UNIQUE z (a), UNIQUE Y (y, a)", ("y", "a"), ("z",)),
    ("a INT NOT NULL, b INT NOT NULL, UNIQUE z (a, b), UNIQUE y (b, a)", ("b", "a"), ("z",)),
    ("a INT NOT NULL, b INT NOT NULL, UNIQUE y (b, a), UNIQUE x (b, a)", ("b", "a"), ("x",)),
    ("a INT NOT NULL, b CHAR(9) NOT NULL, UNIQUE z (a), UNIQUE y (b DESC)", ("b",), ("z",)),
    ("a INT, b INT NOT NULL, UNIQUE z (a), UNIQUE y (b)", ("b",), ("z",)),
]
UNSERVED = [
    ("a INT NOT NULL, UNIQUE z (a), KEY y (a)", "it has no unique key y (z could be named)"),
    ("a INT, KEY y (a)", "it has no unique key y (it has no unique key at all)"),
    ("a INT, UNIQUE z (a)", "it has no unique key y"),
    (
        "a INT NOT NULL, b INT, UNIQUE z (a), UNIQUE y (a, b)",
        "its unique key y has column b, which may be NULL (z could be named)",
    ),
    ("a VARCHAR(9) NOT NULL, UNIQUE y (a(5))", "its unique key y has only a prefix of column a"),
    (
        "a INT NOT NULL, v INT AS (a + 1) STORED, UNIQUE y (a, v)",
        "its unique key y has column v, which is computed",
    ),
]
OF_MYSQL = [
    ("a INT NOT NULL, UNIQUE y (a, (a + 1))", "its unique key y has an expression"),
    ("a INT NOT NULL, UNIQUE z (a), UNIQUE y (a) INVISIBLE", "its unique key y is INVISIBLE"),
]
OF_MARIADB = [
    ("a TEXT NOT NULL, UNIQUE y (a)", "its unique key y is one by hash"),
    ("a INT NOT NULL, UNIQUE y (a) USING HASH", "its unique key y is one by hash"),
    ("a INT NOT NULL, UNIQUE z (a), UNIQUE y (a) IGNORED", "its unique key y is IGNORED"),
    (
        "a INT NOT NULL, s DATE NOT NULL, e DATE NOT NULL, PERIOD FOR p (s, e), "
        "UNIQUE y (a, p WITHOUT OVERLAPS)",
        "its unique key y is WITHOUT OVERLAPS",
    ),
]


def named(server: SqlServer, database: str, definition: str, key: str = "y") -> TableSchema:
    """Return a table's definition by the key that a file names for it."""
    server.execute(f"CREATE TABLE {database}.t ({definition})")
    table = TableId(database, "t")
    keys = NamedKeys(((f"{database}.*", "other"), (str(table), key)))
    with source(server) as connection:
        found = read_schema(connection, table, with_statement=True, keys=keys)
        again = read_schema(connection, table, keys=NamedKeys.as_read(found))
    assert again.fingerprint == found.fingerprint or found.key_problem
    return found


@pytest.mark.parametrize(("definition", "key", "others"), NAMED)
def test_a_named_unique_key_is_the_key(
    server: SqlServer, database: str, definition: str, key: tuple[str, ...], others: tuple[str, ...]
) -> None:
    found = named(server, database, definition)
    assert (found.primary_key, found.key_problem, found.named_key) == (key, "", "y")
    assert found.key_name.lower() == "y"
    assert not others or tuple(each.name for each in found.unique_keys) == others


def test_the_name_of_a_key_may_have_any_case_and_a_primary_key_goes_before_it(
    server: SqlServer, database: str
) -> None:
    found = named(server, database, "a INT NOT NULL, b INT NOT NULL, UNIQUE yY (b)", "Yy")
    assert (found.key_name, found.primary_key, found.named_key) == ("yY", ("b",), "Yy")
    server.execute(f"ALTER TABLE {database}.t ADD PRIMARY KEY (a)")
    with source(server) as connection:
        now = read_schema(connection, found.table, keys=NamedKeys.as_read(found))
    assert (now.key_name, now.primary_key, now.key_problem) == ("", ("a",), "")


@pytest.mark.parametrize(("definition", "why"), UNSERVED)
def test_a_named_key_that_does_not_tell_rows_apart_is_none_and_says_why(
    server: SqlServer, database: str, definition: str, why: str
) -> None:
    found = named(server, database, definition)
    assert (found.key_name, found.primary_key) == ("", ())
    assert found.key_problem.startswith(why)


@pytest.mark.parametrize(("definition", "why"), OF_MYSQL)
def test_a_named_key_that_mysql_alone_has_is_none_and_says_why(
    mysql_server: SqlServer, mysql_database: str, definition: str, why: str
) -> None:
    found = named(mysql_server, mysql_database, definition)
    assert (found.key_name, found.primary_key) == ("", ())
    assert found.key_problem.startswith(why)
    assert "y" in {each.name for each in found.unique_keys}


@pytest.mark.parametrize(("definition", "why"), OF_MARIADB)
def test_a_named_key_that_mariadb_alone_has_is_none_and_says_why(
    mariadb_server: SqlServer, mariadb_database: str, definition: str, why: str
) -> None:
    found = named(mariadb_server, mariadb_database, definition)
    assert (found.key_name, found.primary_key) == ("", ())
    assert found.key_problem.startswith(why)
    assert "y" in {each.name for each in found.unique_keys}


def test_members_keep_quotes_commas_and_backslashes(server: SqlServer, database: str) -> None:
    members = ("a,b", "it's", "b\\c", 'x"y', "ü)", "UNSIGNED")
    listed = ", ".join("'" + m.replace("\\", "\\\\").replace("'", "''") + "'" for m in members)
    found = schema_of(server, database, f"id INT PRIMARY KEY, e ENUM({listed})")
    assert found.column("e").type.members == members
    assert not found.column("e").type.unsigned


def test_numbers_know_sign_and_digits(server: SqlServer, database: str) -> None:
    found = schema_of(
        server,
        database,
        "id BIGINT UNSIGNED PRIMARY KEY, z INT ZEROFILL, d DECIMAL(12,3), b BIT(9), t TIME(4)",
    )
    types = {column.name: column.type for column in found.columns}
    assert types["id"].unsigned
    assert types["z"].unsigned
    assert (types["d"].precision, types["d"].scale) == (12, 3)
    assert (types["b"].length, types["t"].fraction) == (9, 4)


def test_generated_and_invisible_columns_are_told_apart(server: SqlServer, database: str) -> None:
    found = schema_of(
        server,
        database,
        "id INT PRIMARY KEY, v INT AS (id + 1) VIRTUAL, s INT AS (id + 2) STORED, "
        "x INT DEFAULT (1 + 1), h INT DEFAULT 3 INVISIBLE",
    )
    assert [column.name for column in found.columns if column.generated] == ["v", "s"]
    assert [column.name for column in found.columns if column.invisible] == ["h"]
    assert [column.name for column in found.copied_columns] == ["id", "x", "h"]


def test_a_table_that_goes_while_it_is_read_is_none_without_a_key(
    server: SqlServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = [TableId(database, name) for name in ("heap", "kept", "t")]
    server.execute(f"CREATE TABLE {database}.heap (a INT)")
    for name in ("kept", "t"):
        server.execute(f"CREATE TABLE {database}.{name} (id INT PRIMARY KEY)")

    def goes_before_its_keys_are_read(
        connection: ServerConnection, sql: str, **role: Role
    ) -> list[tuple[Any, ...]]:
        if "information_schema.STATISTICS" in sql:
            server.execute(f"DROP TABLE IF EXISTS {database}.t")
        return query(connection, sql, **role)

    monkeypatch.setattr(introspection, "query", goes_before_its_keys_are_read)
    with source(server) as connection:
        found = read_schemas(connection, tables)
    keys = {table.table: schema.primary_key for table, schema in found.items()}
    assert keys == {"heap": (), "kept": ("id",)}


def test_the_fingerprint_is_the_definition_without_counters(
    server: SqlServer, database: str
) -> None:
    first = schema_of(server, database, "id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(9)")
    table = TableId(database, "t")
    server.execute(f"INSERT INTO {database}.t (v) VALUES ('x')")
    with source(server) as connection:
        assert read_schema(connection, table, with_statement=True).fingerprint == first.fingerprint
        server.execute(f"ALTER TABLE {database}.t MODIFY v VARCHAR(9) COLLATE utf8mb4_bin")
        assert read_schema(connection, table).fingerprint != first.fingerprint


def test_names_that_differ_by_case_are_two_tables(server: SqlServer, database: str) -> None:
    server.execute(f"CREATE TABLE {database}.Shop (id INT PRIMARY KEY)")
    server.execute(f"CREATE TABLE {database}.shop (a INT, b INT, PRIMARY KEY (b))")
    with source(server) as connection:
        found = read_schemas(connection, [TableId(database, "shop")])
    assert list(found) == [TableId(database, "shop")]
    assert [column.name for column in found[TableId(database, "shop")].columns] == ["a", "b"]


def test_a_definition_seen_in_part_is_refused_with_the_statement_that_helps(
    server: SqlServer, database: str
) -> None:
    server.execute("CREATE TABLE t (id INT PRIMARY KEY, secret INT)", database=database)
    server.execute("CREATE USER partly@'%%' IDENTIFIED BY %s", ("pa rt",))
    try:
        server.execute(f"GRANT SELECT (id) ON `{database}`.t TO partly@'%'")
        endpoint = replace(Endpoint.parse(server.dsn()), user="partly", password="pa rt")
        with closing(connect(endpoint, purpose="test")) as connection:
            with pytest.raises(AccessDeniedError) as caught:
                create_statement(connection, TableId(database, "t"))
            server.execute(caught.value.remedy.partition(";")[0])
            assert "secret" in create_statement(connection, TableId(database, "t"))
    finally:
        server.execute("DROP USER partly@'%'")


def test_a_table_that_is_not_there_is_named(server: SqlServer) -> None:
    with source(server) as connection, pytest.raises(RefusedError, match=r"no\.such"):
        read_schema(connection, TableId("no", "such"))


def test_foreign_keys_and_triggers_are_found(server: SqlServer, database: str) -> None:
    server.execute(f"CREATE TABLE {database}.p (a INT, b INT, PRIMARY KEY (a, b))")
    server.execute(
        f"CREATE TABLE {database}.c (id INT PRIMARY KEY, y INT, x INT, CONSTRAINT fk "
        f"FOREIGN KEY (x, y) REFERENCES p (a, b) ON DELETE CASCADE)",
        database=database,
    )
    server.execute(
        f"CREATE TRIGGER {database}.tr BEFORE INSERT ON {database}.c FOR EACH ROW SET NEW.x = 1"
    )
    child = TableId(database, "c")
    with source(server) as connection:
        (key,) = foreign_keys(connection, [child])
        assert triggers(connection, [child]) == {child: ("tr",)}
    assert (key.columns, key.referenced_columns) == (("x", "y"), ("a", "b"))
    assert key.referenced == TableId(database, "p")
    assert key.cascades


def test_patterns_pick_tables_of_every_kind(server: SqlServer, database: str) -> None:
    server.execute(f"CREATE TABLE {database}.t (id INT PRIMARY KEY)")
    server.execute(f"CREATE TABLE {database}.tmp (id INT PRIMARY KEY)")
    server.execute(f"CREATE VIEW {database}.v AS SELECT 1")
    with source(server) as connection:
        every, temporary = map(TablePattern.parse, (f"{database}.*", "*.tmp"))
        found = picked_tables(connection, read_capabilities(connection), [every], [temporary])
    assert [(fact.table.table, fact.kind) for fact in found] == [
        ("t", TableKind.BASE),
        ("v", TableKind.VIEW),
    ]


def test_a_functional_key_part_is_marked(mysql_server: SqlServer, mysql_database: str) -> None:
    found = schema_of(
        mysql_server, mysql_database, "id INT PRIMARY KEY, v INT, UNIQUE f (v, (v + 1))"
    )
    assert found.unique_keys[0].columns == ("v", EXPRESSION)


@pytest.mark.parametrize(
    "definition",
    [
        "a INT NOT NULL, UNIQUE ((a + 1))",
        "a INT NOT NULL, UNIQUE (a, (a + 1))",
        "a INT NOT NULL, v INT AS (a + 1) VIRTUAL NOT NULL, UNIQUE (v)",
        "a INT NOT NULL, j JSON NOT NULL, UNIQUE (a, (CAST(j->'$' AS UNSIGNED ARRAY)))",
    ],
)
def test_a_computed_unique_key_tells_no_rows_apart(
    mysql_server: SqlServer, mysql_database: str, definition: str
) -> None:
    found = schema_of(mysql_server, mysql_database, definition)
    assert (found.key_name, found.primary_key) == ("", ())


@pytest.mark.parametrize("key", ["UNIQUE (a)", "UNIQUE (b) USING HASH"])
def test_a_unique_key_by_hash_tells_no_rows_apart(
    mariadb_server: SqlServer, mariadb_database: str, key: str
) -> None:
    definition = f"a TEXT NOT NULL, b INT NOT NULL, {key}"
    found = schema_of(mariadb_server, mariadb_database, definition)
    assert (found.key_name, found.primary_key) == ("", ())


def test_an_ignored_unique_key_is_no_key(mariadb_server: SqlServer, mariadb_database: str) -> None:
    definition = "a INT NOT NULL, b INT NOT NULL, UNIQUE v (b), UNIQUE u (a) IGNORED"
    assert schema_of(mariadb_server, mariadb_database, definition).primary_key == ("b",)


def test_the_server_makes_no_key_where_a_unique_one_serves(
    mysql_server: SqlServer, mysql_database: str
) -> None:
    with source(mysql_server) as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_generate_invisible_primary_key = 1")
        cursor.execute(f"CREATE TABLE {mysql_database}.t (v INT NOT NULL UNIQUE)")
        found = read_schema(connection, TableId(mysql_database, "t"))
    assert (found.key_name, found.primary_key) == ("v", ("v",))


@pytest.mark.parametrize(
    ("statement", "key_name", "key"),
    [
        ("ADD UNIQUE a1 (c)", "z", ("a",)),
        ("RENAME INDEX z TO a1", "a1", ("a",)),
        ("MODIFY a INT", "y", ("b",)),
        ("DROP INDEX z", "y", ("b",)),
        ("MODIFY a INT, MODIFY b INT", "", ()),
        ("DROP INDEX z, DROP INDEX y", "", ()),
        ("ADD PRIMARY KEY (c)", "", ("c",)),
    ],
)
def test_a_statement_may_give_a_table_another_key(
    server: SqlServer, database: str, statement: str, key_name: str, key: tuple[str, ...]
) -> None:
    definition = "a INT NOT NULL, b INT NOT NULL, c INT NOT NULL, UNIQUE z (a), UNIQUE y (b)"
    schema_of(server, database, definition)
    server.execute(f"ALTER TABLE {database}.t {statement}")
    with source(server) as connection:
        found = read_schema(connection, TableId(database, "t"))
    assert (found.key_name, found.primary_key) == (key_name, key)


def test_an_invisible_primary_key_is_a_key(mysql_server: SqlServer, mysql_database: str) -> None:
    with source(mysql_server) as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_generate_invisible_primary_key = 1")
        cursor.execute(f"CREATE TABLE {mysql_database}.t (v VECTOR(3))")
        found = read_schema(connection, TableId(mysql_database, "t"))
    assert found.primary_key == ("my_row_id",)
    assert found.column("my_row_id").invisible
    assert found.column("v").type.length == 3


def test_a_table_that_is_away_for_a_moment_is_looked_at_again(
    server: SqlServer, database: str
) -> None:
    """It was in the catalogue just before: RENAME away and back, or DROP and CREATE."""
    back = f"RENAME TABLE {database}.away TO {database}.t"
    server.execute(f"CREATE TABLE {database}.away (id INT PRIMARY KEY)")
    comes = threading.Timer(0.5, server.execute, [back])
    with source(server) as connection:
        comes.start()
        try:
            assert "`id`" in create_statement(connection, TableId(database, "t"))
        finally:
            comes.join()


def test_a_table_that_is_gone_for_good_is_refused_by_name(server: SqlServer, database: str) -> None:
    with source(server) as connection, pytest.raises(RefusedError, match=f"{database}.gone"):
        create_statement(connection, TableId(database, "gone"))


def test_mariadb_json_and_history_are_known(
    mariadb_server: SqlServer, mariadb_database: str
) -> None:
    found = schema_of(
        mariadb_server,
        mariadb_database,
        "id INT PRIMARY KEY, j JSON, l LONGTEXT, u UUID, i INET6",
    )
    assert found.column("j").type.is_json_text
    assert not found.column("l").type.is_json_text
    assert found.column("u").type.name == "uuid"
    mariadb_server.execute(
        f"CREATE TABLE {mariadb_database}.h (id INT PRIMARY KEY) WITH SYSTEM VERSIONING"
    )
    mariadb_server.execute(f"CREATE SEQUENCE {mariadb_database}.s")
    tables = [TableId(mariadb_database, name) for name in ("h", "s")]
    with source(mariadb_server) as connection:
        kinds = [table_facts(connection, tables)[table].kind for table in tables]
    assert kinds == [TableKind.VERSIONED, TableKind.SEQUENCE]


def test_a_table_that_is_dropped_between_two_answers_of_the_catalogue_is_left_out(
    server: SqlServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("stays", "goes"):
        server.execute(f"CREATE TABLE {database}.{name} (id INT PRIMARY KEY)")
    read = introspection._read

    def read_and_drop(*arguments: Any) -> dict[TableId, TableSchema]:
        found = read(*arguments)
        server.execute(f"DROP TABLE IF EXISTS {database}.goes")
        return found

    monkeypatch.setattr(introspection, "_read", read_and_drop)
    stays, goes = (TableId(database, name) for name in ("stays", "goes"))
    with source(server) as connection:
        assert list(read_schemas(connection, [stays, goes], with_statement=True)) == [stays]
        assert introspection.create_statements(connection, [goes]) == {}


def test_a_table_that_is_missed_and_there_again_is_looked_at_once_more(
    server: SqlServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = TableId(database, "t")
    facts = table_facts

    def made_by_then(*arguments: Any, **options: Any) -> dict[TableId, Any]:
        server.execute(f"CREATE TABLE {database}.t (id INT PRIMARY KEY)")
        return facts(*arguments, **options)

    monkeypatch.setattr(introspection, "table_facts", made_by_then)
    with source(server) as connection:
        assert list(introspection.create_statements(connection, [table])) == [table]


def test_a_table_that_comes_and_goes_all_the_time_is_no_answer(
    server: SqlServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = TableId(database, "t")
    facts = table_facts

    def there_while_asked(*arguments: Any, **options: Any) -> dict[TableId, Any]:
        server.execute(f"CREATE TABLE {database}.t (id INT PRIMARY KEY)")
        found = facts(*arguments, **options)
        server.execute(f"DROP TABLE {database}.t")
        return found

    monkeypatch.setattr(introspection, "table_facts", there_while_asked)
    monkeypatch.setattr(introspection, "_AWAY_S", 0.1)
    with (
        source(server) as connection,
        pytest.raises(SchemaMovedError, match="dropped and made again all the time"),
    ):
        introspection.create_statements(connection, [table])


def test_columns_and_statement_of_a_table_that_is_altered_meanwhile_belong_together(
    server: SqlServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("still", "t"):
        server.execute(f"CREATE TABLE {database}.{name} (id INT PRIMARY KEY, a INT)")
    read, alters = introspection._read, iter(["DROP COLUMN a", "ADD COLUMN b INT"])

    def read_and_alter(*arguments: Any) -> dict[TableId, TableSchema]:
        found = read(*arguments)
        if change := next(alters, None):
            server.execute(f"ALTER TABLE {database}.t {change}")
        return found

    monkeypatch.setattr(introspection, "_read", read_and_alter)
    still, altered = (TableId(database, name) for name in ("still", "t"))
    with source(server) as connection:
        found = read_schemas(connection, [still, altered])
    assert [column.name for column in found[still].columns] == ["id", "a"]
    assert [column.name for column in found[altered].columns] == ["id", "b"]
    stated = parse_create_statement(found[altered].create_statement)
    assert [column.name for column in stated.columns] == ["id", "b"]


def test_a_table_that_is_altered_all_the_time_is_no_answer(
    server: SqlServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.execute(f"CREATE TABLE {database}.t (id INT PRIMARY KEY)")
    read, numbers = introspection._read, count()

    def read_and_alter(*arguments: Any) -> dict[TableId, TableSchema]:
        found = read(*arguments)
        server.execute(f"ALTER TABLE {database}.t ADD COLUMN c{next(numbers)} INT")
        return found

    monkeypatch.setattr(introspection, "_read", read_and_alter)
    with (
        source(server) as connection,
        pytest.raises(SchemaMovedError, match=f"{database}.t is altered again and again"),
    ):
        read_schemas(connection, [TableId(database, "t")])
