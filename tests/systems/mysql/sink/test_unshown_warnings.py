"""A value that a sink changed is refused, whether or not the server shows what it warns of."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from decimal import Decimal

import pyarrow as pa
import pytest

from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.errors import CdcError, IntegrityError, RowRefusedError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.table_schema import Column
from airflow_cdc_provider.systems.mysql.dialect.column_types import mysql_type
from airflow_cdc_provider.systems.mysql.dialect.value_model import arrow_schema
from airflow_cdc_provider.systems.mysql.sink.insert_statements import WriteMode
from airflow_cdc_provider.systems.mysql.sink.row_writer import RowWriter
from airflow_cdc_provider.systems.mysql.sink.sink_session import SinkSession
from tests.servers.accounts import least_privileged, sink_account
from tests.servers.families import FAMILIES
from tests.servers.given import SqlServer

KEY = Column("id", mysql_type("int"), nullable=False)
AMOUNT = Column("amount", mysql_type("decimal", precision=10, scale=3))
KIND = Column("kind", mysql_type("enum", members=("a", "b")))


def session_without_texts(server: SqlServer, dsn: str) -> SinkSession:
    """Open a session while the server is set up to keep no text of a warning."""
    (kept,) = server.execute("SELECT @@GLOBAL.max_error_count")[0]
    server.execute("SET GLOBAL max_error_count = 0")
    try:
        return SinkSession.open(Endpoint.parse(dsn), purpose="test")
    finally:
        server.execute(f"SET GLOBAL max_error_count = {kept}")


@FAMILIES
def test_a_value_the_sink_cut_is_refused_where_no_warning_is_shown(
    request: pytest.FixtureRequest, family: str, fresh_database: Callable[[SqlServer], str]
) -> None:
    server = request.getfixturevalue(f"{family}_server")
    table = TableId(fresh_database(server), "t")
    server.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, amount DECIMAL(10,1))")
    schema = arrow_schema((KEY, AMOUNT))
    account = sink_account(server, table.database)
    with (
        least_privileged(account),
        closing(session_without_texts(server, account.dsn)) as session,
    ):
        writer = RowWriter(session, table, (KEY, AMOUNT), (KEY,))
        whole = pa.record_batch([[1], [Decimal("1.500")]], schema=schema)
        cut = pa.record_batch([[2], [Decimal("1.234")]], schema=schema)
        many = pa.record_batch([list(range(10, 5010)), [Decimal("1.234")] * 5000], schema=schema)
        assert writer.write([whole], WriteMode.INSERT) == 1
        with pytest.raises(IntegrityError):
            writer.write([cut], WriteMode.INSERT)
        with pytest.raises(CdcError, match=r"warnings|1265"):
            writer.write([many], WriteMode.INSERT)


@FAMILIES
def test_digits_the_sink_drops_beside_a_value_that_is_no_member_are_refused(
    request: pytest.FixtureRequest, family: str, fresh_database: Callable[[SqlServer], str]
) -> None:
    """Such a row is written without strict mode; of dropped digits the server makes a mere note."""
    server = request.getfixturevalue(f"{family}_server")
    table = TableId(fresh_database(server), "t")
    server.execute(
        f"CREATE TABLE {table} (id INT PRIMARY KEY, amount DECIMAL(10,1), kind ENUM('a', 'b'))"
    )
    columns = (KEY, AMOUNT, KIND)
    schema = arrow_schema(columns)
    none = KIND.type.no_member
    with closing(SinkSession.open(Endpoint.parse(server.dsn()), purpose="test")) as session:
        writer = RowWriter(session, table, columns, (KEY,))
        whole = pa.record_batch([[1], [Decimal("1.500")], [none]], schema=schema)
        cut = pa.record_batch([[2], [Decimal("1.234")], [none]], schema=schema)
        assert writer.write([whole], WriteMode.INSERT) == 1
        with pytest.raises(RowRefusedError, match="amount"):
            writer.write([cut], WriteMode.INSERT)
