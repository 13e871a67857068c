"""What a table was between two statements is what a real server says, or is not told at all.

Random statements change a table on a server of each family, and its definition is read behind each
of them. From the first definition, the last one and what the statements' text tells, the one behind
the first statement is to follow as the server had it. `CDC_COURSES=2000` tries so many.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import closing

import pymysql
import pytest

from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.statement_effect import StatementEffect
from airflow_cdc_provider.core.table_schema import TableSchema
from airflow_cdc_provider.systems.mysql.dialect.create_statement import (
    AttributeKind,
    KeyForm,
    ParsedColumn,
    parse_create_statement,
)
from airflow_cdc_provider.systems.mysql.dialect.ddl_effects import effect_of
from airflow_cdc_provider.systems.mysql.dialect.definition_steps import definition_after_first
from airflow_cdc_provider.systems.mysql.server.connection import connect
from airflow_cdc_provider.systems.mysql.server.introspection import read_schemas
from tests.servers.families import FAMILIES
from tests.servers.given import SqlServer

COURSES = int(os.environ.get("CDC_COURSES", "40"))
TABLE = """
CREATE TABLE t (
    id INT PRIMARY KEY,
    a INT NOT NULL DEFAULT 5,
    b VARCHAR(20) CHARACTER SET latin1 DEFAULT 'x',
    c DECIMAL(9, 2),
    d JSON,
    e BIGINT AS (id * 2) STORED,
    UNIQUE KEY ua (a),
    KEY kb (b),
    CONSTRAINT positive CHECK (c > 0)
)
"""
WITHOUT_PRIMARY = TABLE.replace("id INT PRIMARY KEY", "id INT NOT NULL, UNIQUE KEY uid (id)")
NAMES = ["a", "b", "c", "d", "e", "f", "g", "`H`", "first", "`a``b`"]
TYPES = [
    *("INT", "INT UNSIGNED NOT NULL", "BIGINT DEFAULT 7", "VARCHAR(30)", "TEXT", "DECIMAL(12, 3)"),
    *("VARCHAR(9) CHARACTER SET latin1 NOT NULL DEFAULT 'it''s, (x)'", "DATETIME(3)", "JSON"),
    *("TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP", "ENUM('a', 'b') COMMENT 'AFTER b'"),
    *("INT AS (id + 1) VIRTUAL", "INT UNIQUE", "VARBINARY(5)", "INT DEFAULT (1 + 1)"),
]


def random_clause(rng: random.Random) -> str:
    """Return a clause of an ALTER TABLE; the server may refuse it."""
    name, other, of_type = rng.choice(NAMES), rng.choice(NAMES), rng.choice(TYPES)
    place = rng.choice(["", "", "", " FIRST", f" AFTER {rng.choice(NAMES)}", " AFTER id"])
    column = rng.choice(["", "COLUMN "])
    return rng.choice(
        [
            f"ADD {column}{name} {of_type}{place}",
            f"ADD {column}{name} {of_type}{place}",
            f"ADD {column}({name} {of_type}, {other} INT, INDEX (id, {name}))",
            f"DROP {column}{name}",
            f"DROP {column}{name}",
            f"MODIFY {column}{name} {of_type}{place}",
            f"MODIFY {column}{name} {of_type}{place}",
            f"CHANGE {column}{name} {other} {of_type}{place}",
            f"RENAME COLUMN {name} TO {other}",
            f"RENAME COLUMN {name} TO {other}",
            f"ALTER {column}{name} SET DEFAULT {rng.choice(['1', 'NULL'])}",
            f"ALTER {name} DROP DEFAULT",
            f"ADD INDEX {rng.choice(['i1', 'i2'])} ({name})",
            f"ADD UNIQUE INDEX {rng.choice(['u1', 'ua'])} ({name}, id)",
            f"DROP INDEX {rng.choice(['ua', 'kb', 'i1', 'u1'])}",
            f"RENAME INDEX {rng.choice(['ua', 'kb'])} TO {rng.choice(['u2', 'i2'])}",
            f"MODIFY {rng.choice(['id', 'a'])} INT {rng.choice(['NULL', 'NOT NULL'])}",
            rng.choice(["ADD PRIMARY KEY (id)", "DROP PRIMARY KEY", "DROP INDEX uid"]),
            "CONVERT TO CHARACTER SET utf8mb4",
            "DEFAULT CHARACTER SET latin1",
            "COMMENT = 'ADD z INT AFTER b', ROW_FORMAT = DYNAMIC",
            f"ADD CONSTRAINT more CHECK ({name} <> 77)",
            "DROP CONSTRAINT positive",
            f"ADD COLUMN IF NOT EXISTS {name} INT",
            "ENGINE = InnoDB",
        ]
    )


def random_statement(rng: random.Random) -> str:
    if rng.random() < 0.1:
        name = rng.choice(NAMES)
        return rng.choice(
            [f"CREATE UNIQUE INDEX u1 ON t ({name})", f"CREATE INDEX i1 ON t ({name})"]
        )
    clauses = [random_clause(rng) for _ in range(rng.choice([1, 1, 1, 2, 2, 3]))]
    return f"ALTER TABLE t {', '.join(clauses)}"


@pytest.fixture
def read(
    request: pytest.FixtureRequest, family: str, fresh_database: Callable[[SqlServer], str]
) -> Iterator[tuple[Callable[[str], bool], Callable[[], TableSchema]]]:
    """What runs a statement and tells whether the server took it; what reads the definition."""
    server: SqlServer = request.getfixturevalue(f"{family}_server")
    database = fresh_database(server)
    table = TableId(database, "t")

    def does(sql: str) -> bool:
        try:
            server.execute(sql, database=database)
        except pymysql.MySQLError:
            return False
        return True

    with closing(connect(Endpoint.parse(server.dsn()), purpose="test")) as connection:
        yield does, lambda: read_schemas(connection, [table])[table]


@FAMILIES
@pytest.mark.parametrize("table", [TABLE, WITHOUT_PRIMARY], ids=["primary", "unique"])
def test_what_is_told_of_a_table_in_between_is_what_the_server_had(
    read: tuple[Callable[[str], bool], Callable[[], TableSchema]], table: str
) -> None:
    does, definition = read
    seed = random.SystemRandom().randrange(1 << 31)
    print(f"seed {seed}")
    rng = random.Random(seed)
    told = courses = 0
    while courses < COURSES:
        does("DROP TABLE IF EXISTS t")
        assert does(table)
        old, statements = definition(), list[tuple[str, StatementEffect]]()
        between: TableSchema | None = None
        wanted = rng.choice([2, 2, 3, 4])
        while len(statements) < wanted:
            statement = random_statement(rng)
            if does(statement):
                effect = effect_of(statement, default_database=old.table.database)
                statements.append((statement, effect))
                between = between or definition()
        found = definition_after_first(old, definition(), [effect for _, effect in statements])
        courses += 1
        if found is not None and between is not None:
            told += 1
            facts, real = _facts(found), _facts(between)
            wrong = {what: (facts[what], real[what]) for what in real if facts[what] != real[what]}
            assert wrong == {}, [text for text, _ in statements]
    print(f"{told} of {courses} were told")
    assert told > courses // (10 if table == TABLE else 100)


@FAMILIES
def test_a_key_that_goes_with_its_only_column_is_not_told_as_never_made(
    read: tuple[Callable[[str], bool], Callable[[], TableSchema]],
) -> None:
    does, definition = read
    assert does("CREATE TABLE t (id INT PRIMARY KEY, a INT, e INT)")
    old = definition()
    statements = ("CREATE UNIQUE INDEX u1 ON t (e)", "ALTER TABLE t DROP COLUMN e")
    assert all(does(statement) for statement in statements)
    effects = [effect_of(text, default_database=old.table.database) for text in statements]
    assert definition_after_first(old, definition(), effects) is None


@FAMILIES
@pytest.mark.parametrize(
    "statements",
    [
        ("ALTER TABLE t MODIFY x INT NOT NULL", "ALTER TABLE t MODIFY y INT"),
        ("ALTER TABLE t DROP INDEX uid", "ALTER TABLE t ADD UNIQUE uid (id)"),
        ("ALTER TABLE t RENAME INDEX uid TO other", "ALTER TABLE t RENAME INDEX other TO uid"),
        ("ALTER TABLE t ADD v INT", "ALTER TABLE t ADD PRIMARY KEY (id)"),
    ],
    ids=["another in between", "none in between", "another name in between", "a primary one later"],
)
def test_the_key_in_between_is_not_told_where_none_is_primary(
    read: tuple[Callable[[str], bool], Callable[[], TableSchema]], statements: tuple[str, ...]
) -> None:
    does, definition = read
    assert does("CREATE TABLE t (id INT NOT NULL, x INT, y INT NOT NULL, UNIQUE xy (x, y))")
    assert does("ALTER TABLE t ADD UNIQUE uid (id)")
    old = definition()
    assert old.key_name == "uid"
    assert all(does(statement) for statement in statements)
    effects = [effect_of(text, default_database=old.table.database) for text in statements]
    assert definition_after_first(old, definition(), effects) is None


def _facts(schema: TableSchema) -> dict[str, object]:
    """Return what is to be the same of two definitions."""
    parsed = parse_create_statement(schema.create_statement)
    keys = [key for key in parsed.keys if key.form in {KeyForm.UNIQUE, KeyForm.PRIMARY}]
    unique = {key.text.removesuffix(" USING HASH") for key in keys}
    return {
        "columns": schema.columns,
        "keys": (
            *(schema.primary_key, schema.key_prefixes, schema.key_name),
            {*schema.unique_keys},
        ),
        "columns' text": {column.name: _stated(column) for column in parsed.columns},
        "keys' text": unique,
    }


def _stated(column: ParsedColumn) -> tuple[str, ...]:
    """Return a column's text; its charset is printed only where it is not the table's own."""
    printed = {AttributeKind.CHARSET, AttributeKind.COLLATION}
    return (column.type_text, *(a.text for a in column.attributes if a.kind not in printed))
