"""One collation name, two orders: what is said of a name is what both families' servers do.

Only a few names are tried here; `make sweep` tries them all.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from airflow_cdc_provider.core.errors import UnsupportedTableError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.table_schema import TableSchema
from airflow_cdc_provider.systems.mysql.dialect.collation_order import NOT_THE_SAME, counterpart
from airflow_cdc_provider.systems.mysql.dialect.table_ddl import sink_create_statement
from airflow_cdc_provider.systems.mysql.dialect.table_match import MismatchKind, mismatches
from airflow_cdc_provider.systems.mysql.server.introspection import read_schema
from tests.servers.given import SqlServer
from tests.systems.mysql.collations import order_of, samples
from tests.systems.mysql.sessions import source

_FEW = 300
_EVERY = 9
DIFFERENT = sorted(NOT_THE_SAME)


@pytest.fixture
def here(mysql_server: SqlServer, fresh_database: Callable[[SqlServer], str]) -> str:
    return fresh_database(mysql_server)


@pytest.fixture
def there(mariadb_server: SqlServer, fresh_database: Callable[[SqlServer], str]) -> str:
    return fresh_database(mariadb_server)


@pytest.mark.parametrize(
    "name", ["utf8mb4_croatian_ci", "ucs2_croatian_ci", "big5_chinese_ci", "latin2_czech_cs"]
)
def test_a_counterpart_has_the_same_order_and_equality(
    name: str, mysql_server: SqlServer, mariadb_server: SqlServer, here: str, there: str
) -> None:
    texts = samples(mysql_server, name.split("_", 1)[0], some=_FEW, every=_EVERY)
    other = counterpart(name, "mysql", "mariadb")
    assert other is not None
    ours = order_of(mysql_server, here, name, texts)
    assert ours == order_of(mariadb_server, there, other, texts)
    assert counterpart(other, "mariadb", "mysql") == name


@pytest.mark.parametrize("name", DIFFERENT)
def test_one_name_may_be_two_orders(
    name: str, mysql_server: SqlServer, mariadb_server: SqlServer, here: str, there: str
) -> None:
    charset = name.split("_", 1)[0]
    encoding = {"utf8mb3": "utf-8", "utf8mb4": "utf-8", "utf32": "utf-32-be"}
    words = ["dž", "dŽ", "Dž", "DŽ", "dz", "dža", "e", "lj", "lJ", "l", "m", "nj", "nJ", "n"]
    texts = [word.encode(encoding.get(charset, "utf-16-be")) for word in words]
    if charset == "euckr":
        texts = [b"\x81a", b"\x81A", b"\x81b"]
    ours, theirs = (
        order_of(server, database, name, texts)
        for server, database in ((mysql_server, here), (mariadb_server, there))
    )
    assert len(ours.equal) > len(theirs.equal), "MySQL holds keys for one that MariaDB tells apart"
    assert counterpart(name, "mariadb", "mysql") is None
    assert counterpart(name, "mysql", "mariadb") != name


def test_a_name_that_was_never_compared_has_no_counterpart() -> None:
    assert counterpart("utf8mb4_0900_ai_ci", "mysql", "mariadb") is None
    assert counterpart("utf8mb4_0900_ai_ci", "mariadb", "mysql") is None
    assert counterpart("utf8mb4_0900_ai_ci", "mysql", "mysql") == "utf8mb4_0900_ai_ci"


def schema_of(server: SqlServer, database: str, name: str) -> TableSchema:
    """Return a table whose key has this collation, made if it is not there."""
    charset = name.split("_", 1)[0]
    server.execute(
        f"CREATE TABLE IF NOT EXISTS {name} "
        f"(k VARCHAR(9) CHARACTER SET {charset} COLLATE {name} PRIMARY KEY)",
        database=database,
    )
    with source(server) as connection:
        return read_schema(connection, TableId(database, name), with_statement=True)


def test_a_table_is_made_under_the_name_that_has_the_order(
    mysql_server: SqlServer, mariadb_server: SqlServer, here: str, there: str
) -> None:
    schema = schema_of(mysql_server, here, "utf8mb4_croatian_ci")
    target = TableId(there, "made")
    mariadb_server.execute(sink_create_statement(schema, target, sink_flavour="mariadb"))
    with source(mariadb_server) as connection:
        made = read_schema(connection, target, with_statement=True)
    assert made.column("k").type.collation == "utf8mb4_croatian_mysql561_ci"
    assert list(mismatches(schema, made)) == []
    back = TableId(here, "back")
    mysql_server.execute(sink_create_statement(made, back, sink_flavour="mysql"))
    with source(mysql_server) as connection:
        assert list(mismatches(made, read_schema(connection, back))) == []


def test_an_order_that_the_other_family_lacks_is_refused(
    mariadb_server: SqlServer, there: str
) -> None:
    schema = schema_of(mariadb_server, there, "utf8mb4_croatian_ci")
    with pytest.raises(UnsupportedTableError, match="utf8mb4_croatian_ci, whose order mysql"):
        sink_create_statement(schema, TableId("x", "y"), sink_flavour="mysql")


@pytest.mark.parametrize("name", DIFFERENT)
def test_a_key_of_the_same_name_and_another_order_is_refused(
    name: str, mysql_server: SqlServer, mariadb_server: SqlServer, here: str, there: str
) -> None:
    ours = schema_of(mysql_server, here, name)
    theirs = schema_of(mariadb_server, there, name)
    for one, another in ((ours, theirs), (theirs, ours)):
        assert [each.kind for each in mismatches(one, another)] == [MismatchKind.KEY_COLLATION]
    assert list(mismatches(ours, ours)) == []
