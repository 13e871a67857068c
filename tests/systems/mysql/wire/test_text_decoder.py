"""Values that have no place in the value model are named; zero dates follow their policy."""

from __future__ import annotations

import datetime as dt
from contextlib import closing

import pytest

from airflow_cdc_provider.core.errors import UnknownTypeError, ValueRefusedError
from airflow_cdc_provider.core.identifiers import TableId, quote_table
from airflow_cdc_provider.core.table_schema import Column, TableSchema
from airflow_cdc_provider.systems.mysql.dialect.column_types import mysql_type
from airflow_cdc_provider.systems.mysql.dialect.value_model import (
    ZeroDates,
    arrow_schema,
    arrow_type,
    type_text,
)
from airflow_cdc_provider.systems.mysql.wire.load_text import load_chunk
from airflow_cdc_provider.systems.mysql.wire.text_decoder import TextDecoder
from airflow_cdc_provider.systems.mysql.wire.text_protocol import TextChunk
from tests.servers.given import SqlServer
from tests.systems.mysql.wire.raw_select import select_rows
from tests.systems.mysql.wire.text_packets import END, framed, packets, row

KEY = Column("id", mysql_type("int"), nullable=False)
DATE = Column("d", mysql_type("date"))


def schema(*columns: Column, key: tuple[str, ...] = ("id",)) -> TableSchema:
    return TableSchema(TableId("shop", "orders"), columns, primary_key=key)


def chunk(*rows: tuple[bytes | None, ...]) -> TextChunk:
    stream = b"".join(row(*fields) for fields in rows) + packets(END)
    return framed(stream, len(rows[0]), chunk_bytes=1 << 16)[1][0]


def test_an_unknown_type_is_fatal() -> None:
    with pytest.raises(UnknownTypeError, match="'xmltype'"):
        arrow_type(mysql_type("xmltype"))


def test_a_set_whose_member_reads_as_no_member_is_refused() -> None:
    """Both servers print {''} and {} alike: it would be copied as another value."""
    with pytest.raises(UnknownTypeError, match="empty text as a member"):
        arrow_type(mysql_type("set", members=("p", "", "q")))
    assert arrow_type(mysql_type("set", members=("p", "q"))) == "string"


def test_fields_carry_the_servers_type() -> None:
    kind = mysql_type("enum", members=("a", "it's"))
    assert type_text(kind) == "enum('a','it''s')"
    field = arrow_schema([Column("e", kind)]).field("e")
    assert field.metadata[b"mysql_type"] == b"enum('a','it''s')"


@pytest.mark.parametrize("bad", [b"300", b"", b"x", b"-129"])
def test_a_value_that_does_not_fit_names_table_column_and_key(bad: bytes) -> None:
    table = schema(KEY, Column("n", mysql_type("tinyint")))
    rows = [(str(i).encode(), b"1") for i in range(100)]
    rows[57] = (b"57", bad)
    with pytest.raises(ValueRefusedError, match=r"shop\.orders, column n, key id='57'"):
        TextDecoder(table).to_arrow(chunk(*rows))


def test_a_date_of_damaged_bytes_is_refused_by_name() -> None:
    table = schema(KEY, Column("d", mysql_type("datetime")))
    rows = [(b"1", b"2024-01-02 03:04:05"), (b"2", b"1969-00-31 23\xfb59:59")]
    with pytest.raises(ValueRefusedError, match=r"23\\+xfb59:59.*column d, key id='2'"):
        TextDecoder(table, zero_dates=ZeroDates.FAIL).to_arrow(chunk(*rows))


@pytest.mark.parametrize("bad", [b"1:2:3", b"12:34", b"12:34:5x", b"1234:00:00", b"12-34:56"])
def test_a_time_of_another_form_is_refused(bad: bytes) -> None:
    table = schema(KEY, Column("t", mysql_type("time")))
    with pytest.raises(ValueRefusedError, match="column t, key id='2'"):
        TextDecoder(table).to_arrow(chunk((b"1", None), (b"2", bad)))


def test_bytes_that_are_not_utf8_are_refused() -> None:
    table = schema(KEY, Column("t", mysql_type("varchar", charset="utf8mb4")))
    with pytest.raises(ValueRefusedError, match="column t"):
        TextDecoder(table).to_arrow(chunk((b"1", b"\xff")))


ZEROS = (b"0000-00-00", b"2024-00-15", b"2024-02-00", b"2023-02-29", b"2024-02-31", b"2024-13-01")


@pytest.mark.parametrize("zero", ZEROS)
def test_a_zero_date_fails_by_default(zero: bytes) -> None:
    rows = chunk((b"1", b"2024-02-29"), (b"2", zero))
    with pytest.raises(ValueRefusedError, match=r"no day of the calendar.*column d, key id='2'"):
        TextDecoder(schema(KEY, DATE)).to_arrow(rows)


def test_zero_dates_become_null_and_are_counted() -> None:
    decoder = TextDecoder(schema(KEY, DATE), zero_dates=ZeroDates.NULL)
    days = (b"2024-02-29", None, b"1000-12-31")
    rows = [(b"1", day) for day in (*days, *ZEROS)]
    batch = decoder.to_arrow(chunk(*rows))
    assert batch.column("d").to_pylist()[:3] == [dt.date(2024, 2, 29), None, dt.date(1000, 12, 31)]
    assert batch.column("d").null_count == 1 + len(ZEROS)
    assert decoder.nulled == {"d": len(ZEROS)}


def test_a_zero_date_in_a_key_is_never_null() -> None:
    decoder = TextDecoder(schema(DATE, key=("d",)), zero_dates=ZeroDates.NULL)
    with pytest.raises(ValueRefusedError, match="no day"):
        decoder.to_arrow(chunk((b"0000-00-00",)))


def test_zero_dates_stay_text_for_the_whole_column() -> None:
    decoder = TextDecoder(schema(KEY, DATE), zero_dates=ZeroDates.TEXT)
    batch = decoder.to_arrow(chunk((b"1", b"2024-00-15"), (b"2", b"2024-02-29")))
    assert batch.column("d").to_pylist() == ["2024-00-15", "2024-02-29"]


def test_raw_rows_with_zero_dates_go_through_the_value_model() -> None:
    table = schema(KEY, DATE)
    good, bad = chunk((b"1", b"2024-02-29")), chunk((b"1", b"2024-02-31"))
    assert load_chunk(good, table.columns, ZeroDates.FAIL) is not None
    assert load_chunk(bad, table.columns, ZeroDates.FAIL) is None
    assert load_chunk(bad, table.columns, ZeroDates.TEXT) is not None


@pytest.mark.parametrize("kind", ["mysql", "mariadb"])
def test_zero_dates_of_a_server_follow_the_policy(
    kind: str, request: pytest.FixtureRequest
) -> None:
    server: SqlServer = request.getfixturevalue(f"{kind}_server")
    table = TableId(request.getfixturevalue(f"{kind}_database"), "zeros")
    columns = (
        KEY,
        DATE,
        Column("t", mysql_type("datetime", fraction=3)),
        Column("s", mysql_type("timestamp")),
    )
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'")
        cursor.execute(
            f"CREATE TABLE {quote_table(table)} "
            "(id int primary key, d date, t datetime(3), s timestamp null)"
        )
        cursor.execute(
            f"INSERT INTO {quote_table(table)} VALUES (1, 0, 0, 0), "
            "(2, '2024-02-31', '2024-00-15 01:02:03.5', '2024-02-29 01:02:03')"
        )
    decoded = TableSchema(table, columns, ("id",))
    as_text = select_rows(server, decoded, zero_dates=ZeroDates.TEXT, order_by="id").to_pylist()
    assert as_text == [
        {"id": 1, "d": "0000-00-00", "t": "0000-00-00 00:00:00.000", "s": "0000-00-00 00:00:00"},
        {"id": 2, "d": "2024-02-31", "t": "2024-00-15 01:02:03.500", "s": "2024-02-29 01:02:03"},
    ]
    as_null = select_rows(server, decoded, zero_dates=ZeroDates.NULL, order_by="id").to_pylist()
    moment = dt.datetime(2024, 2, 29, 1, 2, 3, tzinfo=dt.UTC)
    assert as_null == [
        {"id": 1, "d": None, "t": None, "s": None},
        {"id": 2, "d": None, "t": None, "s": moment},
    ]
    with pytest.raises(ValueRefusedError, match="column d, key id='1'"):
        select_rows(server, decoded, order_by="id")


@pytest.mark.parametrize("text", ["", "plain", "größer", "日本語", "🚢"])
def test_a_text_is_the_same_beside_any_other(text: str) -> None:
    table = schema(KEY, Column("t", mysql_type("varchar", charset="utf8mb4")))
    for beside in (None, b"", b"ascii", "é".encode()):
        decoded = TextDecoder(table).to_arrow(chunk((b"1", text.encode()), (b"2", beside)))
        decoded.validate(full=True)
        assert decoded.column("t")[0].as_py() == text
        assert decoded.column("t")[1].as_py() == (None if beside is None else beside.decode())


@pytest.mark.parametrize("rows", [1, 8191, 8192, 8193, 20_000])
def test_chunks_of_any_number_of_rows_are_decoded(rows: int) -> None:
    table = schema(KEY, Column("t", mysql_type("varchar", charset="utf8mb4")))
    decoded = TextDecoder(table).to_arrow(chunk(*[(b"%d" % i, b"v%d" % i) for i in range(rows)]))
    assert decoded.column("id").to_pylist() == list(range(rows))
    assert decoded.column("t").to_pylist() == [f"v{i}" for i in range(rows)]
