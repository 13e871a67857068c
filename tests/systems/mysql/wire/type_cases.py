"""For each column type: how to declare it, values as SQL, and what the value model makes of them.

Used against real servers by every test that says "for every type".
"""

from __future__ import annotations

import datetime as dt
import struct
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from airflow_cdc_provider.core.identifiers import TableId, quote_identifier, quote_table
from airflow_cdc_provider.core.table_schema import Column, ColumnType, TableSchema
from airflow_cdc_provider.systems.mysql.dialect.column_types import mysql_type

BOTH, MYSQL, MARIADB = "both", "mysql", "mariadb"


@dataclass(frozen=True)
class TypeCase:
    """One column: its declaration, its type, and pairs of SQL value and canonical value."""

    name: str
    declared: str
    type: ColumnType
    values: tuple[tuple[str, Any], ...]
    servers: str = BOTH

    @property
    def column(self) -> Column:
        return Column(self.name, self.type)


def _micros(hours: int, minutes: int, seconds: int, micros: int = 0) -> dt.timedelta:
    return dt.timedelta(hours=hours, minutes=minutes, seconds=seconds, microseconds=micros)


def _utc(*parts: int) -> dt.datetime:
    return dt.datetime(*parts, tzinfo=dt.UTC)  # type: ignore[arg-type,misc]


def _integers(name: str, bits: int) -> list[TypeCase]:
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    signed = tuple((str(value), value) for value in (low, -1, 0, 42, high))
    unsigned = tuple((str(value), value) for value in (0, 42, high + 1, 2**bits - 2, 2**bits - 1))
    return [
        TypeCase(f"c_{name}", name, mysql_type(name), signed),
        TypeCase(f"c_{name}_u", f"{name} unsigned", mysql_type(name, unsigned=True), unsigned),
    ]


def _text(
    name: str, declared: str, charset: str, values: list[str], servers: str = BOTH
) -> TypeCase:
    kind = mysql_type("varchar", length=50, charset=charset)
    pairs = tuple((f"_utf8mb4 x'{value.encode().hex()}'", value) for value in values)
    return TypeCase(name, declared, kind, pairs, servers)


_F32_THIRD = struct.unpack("<f", struct.pack("<f", 1 / 3))[0]
_POINT = struct.pack("<IBIdd", 4326, 1, 1, 2.0, 1.0)
_POINT_0 = struct.pack("<IBIdd", 0, 1, 1, 1.5, -2.5)
_NINES = "9999999999999999999999999999.9999999999"
_WIDE = "12345678901234567890123456789012345.123456789012345678901234567890"

CASES: tuple[TypeCase, ...] = (
    *_integers("tinyint", 8),
    *_integers("smallint", 16),
    *_integers("mediumint", 24),
    *_integers("int", 32),
    *_integers("bigint", 64),
    TypeCase("c_bool", "tinyint(1)", mysql_type("tinyint"), (("2", 2), ("-128", -128))),
    TypeCase(
        "c_zerofill",
        "int(8) zerofill",
        mysql_type("int", unsigned=True),
        (("42", 42), ("0", 0)),
    ),
    TypeCase("c_bit1", "bit(1)", mysql_type("bit", length=1), (("b'0'", 0), ("b'1'", 1))),
    TypeCase("c_bit10", "bit(10)", mysql_type("bit", length=10), (("b'0101'", 5), ("1023", 1023))),
    TypeCase(
        "c_bit64",
        "bit(64)",
        mysql_type("bit", length=64),
        (("18446744073709551615", 2**64 - 1), ("9223372036854775808", 2**63), ("49", 49)),
    ),
    TypeCase("c_year", "year", mysql_type("year"), (("'0000'", 0), ("1901", 1901), ("2155", 2155))),
    TypeCase(
        "c_float",
        "float",
        mysql_type("float"),
        (
            ("16777217", 16777216.0),
            ("16777216", 16777216.0),
            ("1e0/3", _F32_THIRD),
            ("'-0'", -0.0),
            ("3.4028234663852886e38", 3.4028234663852886e38),
            ("1.401298464324817e-45", 1.401298464324817e-45),
            ("123456.79", struct.unpack("<f", struct.pack("<f", 123456.79))[0]),
        ),
    ),
    TypeCase(
        "c_double",
        "double",
        mysql_type("double"),
        (
            ("0.1", 0.1),
            ("'-0'", -0.0),
            ("1e308", 1e308),
            ("1.7976931348623157e308", 1.7976931348623157e308),
            ("2.2250738585072014e-308", 2.2250738585072014e-308),
            ("5e-324", 5e-324),
            ("123456789.12345679", 123456789.12345679),
            ("1e15", 1e15),
            ("-1e-7", -1e-7),
        ),
    ),
    TypeCase(
        "c_double_md",
        "double(10,2)",
        mysql_type("double", precision=10, scale=2),
        (("1.005", 1.0), ("-12345678.91", -12345678.91)),
    ),
    TypeCase(
        "c_decimal",
        "decimal(15,2)",
        mysql_type("decimal", precision=15, scale=2),
        (("-0.01", Decimal("-0.01")), ("9999999999999.99", Decimal("9999999999999.99"))),
    ),
    TypeCase(
        "c_decimal_0",
        "decimal(10)",
        mysql_type("decimal", precision=10, scale=0),
        (("-42", Decimal(-42)), ("0", Decimal(0))),
    ),
    TypeCase(
        "c_decimal_small",
        "decimal(20,15)",
        mysql_type("decimal", precision=20, scale=15),
        (
            ("0.000000000000001", Decimal("0.000000000000001")),
            ("-0.000000000000123", Decimal("-0.000000000000123")),
            ("0", Decimal("0.000000000000000")),
            ("-99999.999999999999999", Decimal("-99999.999999999999999")),
        ),
    ),
    TypeCase(
        "c_decimal_38",
        "decimal(38,10)",
        mysql_type("decimal", precision=38, scale=10),
        (
            (f"-{_NINES}", Decimal(f"-{_NINES}")),
            ("0.0000000001", Decimal("0.0000000001")),
        ),
    ),
    TypeCase(
        "c_decimal_65",
        "decimal(65,30)",
        mysql_type("decimal", precision=65, scale=30),
        (
            (_WIDE, Decimal(_WIDE)),
            (f"-{_WIDE}", Decimal(f"-{_WIDE}")),
            ("1e-30", Decimal("0.000000000000000000000000000001")),
            ("0", Decimal("0.000000000000000000000000000000")),
        ),
    ),
    TypeCase(
        "c_date",
        "date",
        mysql_type("date"),
        (("'1000-01-01'", dt.date(1000, 1, 1)), ("'9999-12-31'", dt.date(9999, 12, 31))),
    ),
    TypeCase(
        "c_datetime",
        "datetime",
        mysql_type("datetime"),
        (
            ("'1000-01-01 00:00:00'", dt.datetime(1000, 1, 1)),  # noqa: DTZ001
            ("'2024-03-31 02:30:00'", dt.datetime(2024, 3, 31, 2, 30)),  # noqa: DTZ001
        ),
    ),
    TypeCase(
        "c_datetime6",
        "datetime(6)",
        mysql_type("datetime", fraction=6),
        (
            ("'9999-12-31 23:59:59.999999'", dt.datetime(9999, 12, 31, 23, 59, 59, 999999)),  # noqa: DTZ001
            ("'1969-12-31 23:59:59.000001'", dt.datetime(1969, 12, 31, 23, 59, 59, 1)),  # noqa: DTZ001
        ),
    ),
    TypeCase(
        "c_datetime3",
        "datetime(3)",
        mysql_type("datetime", fraction=3),
        (("'2024-02-29 12:00:00.120'", dt.datetime(2024, 2, 29, 12, 0, 0, 120000)),),  # noqa: DTZ001
    ),
    TypeCase(
        "c_timestamp",
        "timestamp null",
        mysql_type("timestamp"),
        (
            ("'1970-01-01 00:00:01'", _utc(1970, 1, 1, 0, 0, 1)),
            ("'2038-01-19 03:14:07'", _utc(2038, 1, 19, 3, 14, 7)),
        ),
    ),
    TypeCase(
        "c_timestamp6",
        "timestamp(6) null",
        mysql_type("timestamp", fraction=6),
        (("'2024-10-27 00:30:00.000001'", _utc(2024, 10, 27, 0, 30, 0, 1)),),
    ),
    TypeCase(
        "c_time",
        "time",
        mysql_type("time"),
        (
            ("'838:59:59'", _micros(838, 59, 59)),
            ("'-838:59:59'", -_micros(838, 59, 59)),
            ("'00:00:00'", _micros(0, 0, 0)),
            ("'-00:00:01'", -_micros(0, 0, 1)),
            ("'23:59:59'", _micros(23, 59, 59)),
        ),
    ),
    TypeCase(
        "c_time3",
        "time(3)",
        mysql_type("time", fraction=3),
        (
            ("'-12:34:56.789'", -_micros(12, 34, 56, 789000)),
            ("'100:00:00.001'", _micros(100, 0, 0, 1000)),
        ),
    ),
    TypeCase(
        "c_time6",
        "time(6)",
        mysql_type("time", fraction=6),
        (
            ("'-838:59:58.999999'", -_micros(838, 59, 58, 999999)),
            ("'-00:00:00.000001'", -_micros(0, 0, 0, 1)),
            ("'00:00:00.100000'", _micros(0, 0, 0, 100000)),
        ),
    ),
    TypeCase(
        "c_char",
        "char(10) character set utf8mb4",
        mysql_type("char", length=10, charset="utf8mb4"),
        (("'a'", "a"), ("''", ""), ("'a  '", "a"), ("_utf8mb4 x'f09f9880'", "\U0001f600")),
    ),
    _text(
        "c_varchar",
        "varchar(50) character set utf8mb4",
        "utf8mb4",
        [
            "",
            " ",
            "a ",
            "NULL",
            "\\N",
            "it's",
            'q"q',
            "back\\slash",
            "tab\tnl\ncr\rnul\0",
            "\x1a%_",
            "\x1d\x1e\x1f",
            "\U0001f600é",
            "'",
        ],
    ),
    _text(
        "c_latin1",
        "varchar(50) character set latin1",
        "latin1",
        ["é", "€", "\x81\x8d\x8f\x90\x9d", "ÿ"],
    ),
    _text("c_utf8mb3", "varchar(50) character set utf8mb3", "utf8mb3", ["é", "€", "汉字"]),
    _text("c_utf16", "varchar(50) character set utf16", "utf16", ["é", "\U0001f600"]),
    _text("c_utf16le", "varchar(50) character set utf16le", "utf16le", ["é", "\U0001f600"]),
    _text("c_utf32", "varchar(50) character set utf32", "utf32", ["é", "\U0001f600"]),
    _text("c_ucs2", "varchar(50) character set ucs2", "ucs2", ["é", "汉"]),
    _text("c_gbk", "varchar(50) character set gbk", "gbk", ["汉字", "ⅲ"]),
    _text(
        "c_gb18030", "varchar(50) character set gb18030", "gb18030", ["汉字", "\U0001f600"], MYSQL
    ),
    _text("c_sjis", "varchar(50) character set sjis", "sjis", ["表", "ソ"]),
    _text("c_cp932", "varchar(50) character set cp932", "cp932", ["表", "①"]),
    _text("c_eucjpms", "varchar(50) character set eucjpms", "eucjpms", ["表", "①"]),
    _text("c_big5", "varchar(50) character set big5", "big5", ["漢字", "功"]),
    _text("c_greek", "varchar(50) character set greek", "greek", ["αβγ"]),
    _text("c_geostd8", "varchar(50) character set geostd8", "geostd8", ["აბგ"]),
    _text("c_armscii8", "varchar(50) character set armscii8", "armscii8", ["ԱԲ"]),
    _text("c_swe7", "varchar(50) character set swe7", "swe7", ["Å"]),
    _text("c_dec8", "varchar(50) character set dec8", "dec8", ["é"]),
    _text("c_hp8", "varchar(50) character set hp8", "hp8", ["é"]),
    _text("c_keybcs2", "varchar(50) character set keybcs2", "keybcs2", ["č"]),
    _text("c_macce", "varchar(50) character set macce", "macce", ["č"]),
    _text("c_koi8r", "varchar(50) character set koi8r", "koi8r", ["ж"]),
    _text("c_tis620", "varchar(50) character set tis620", "tis620", ["ก"]),
    TypeCase(
        "c_text_long",
        "mediumtext",
        mysql_type("mediumtext", charset="utf8mb4"),
        (
            ("REPEAT('x', 250)", "x" * 250),
            ("REPEAT('x', 251)", "x" * 251),
            ("REPEAT('y', 65536)", "y" * 65536),
            ("''", ""),
        ),
    ),
    TypeCase(
        "c_text_binary",
        "varchar(10) character set binary",
        mysql_type("varbinary", length=10),
        (("x'ff00'", b"\xff\x00"),),
    ),
    TypeCase(
        "c_enum",
        "enum('small','it''s','', 'gr\u00f6\u00df') character set latin1",
        mysql_type("enum", charset="latin1", members=("small", "it's", "", "größ")),
        (
            ("'small'", "small"),
            ("2", "it's"),
            ("0", "0"),
            ("_utf8mb4 x'6772c3b6c39f'", "größ"),
        ),
    ),
    TypeCase(
        "c_set",
        "set('b','a','c')",
        mysql_type("set", charset="utf8mb4", members=("b", "a", "c")),
        (("''", ""), ("'a,b'", "b,a"), ("'c,a,b'", "b,a,c")),
    ),
    TypeCase(
        "c_json",
        "json",
        mysql_type("json"),
        (
            ("'null'", "null"),
            ('\'{"b": 1.0, "a": [1, "x", true, null]}\'', '{"a": [1, "x", true, null], "b": 1.0}'),
            ("'18446744073709551615'", "18446744073709551615"),
            ("CAST(-1.50 AS JSON)", "-1.50"),
            ("CAST(CAST('-12:34:56.5' AS TIME(1)) AS JSON)", '"-12:34:56.500000"'),
            ("CAST(x'ff00' AS JSON)", '"base64:type15:/wA="'),
            ("JSON_QUOTE('it''s \\\\ é')", '"it\'s \\\\ é"'),
        ),
        MYSQL,
    ),
    TypeCase(
        "c_json",
        "json",
        mysql_type("longtext", charset="utf8mb4", is_json_text=True),
        (("'null'", "null"), ('\'{"b": 1.0,"a":2}\'', '{"b": 1.0,"a":2}')),
        MARIADB,
    ),
    TypeCase(
        "c_binary",
        "binary(4)",
        mysql_type("binary", length=4),
        (("x'0100'", b"\x01\0\0\0"), ("x''", b"\0\0\0\0"), ("x'ff27225c'", b"\xff'\"\\")),
    ),
    TypeCase(
        "c_varbinary",
        "varbinary(300)",
        mysql_type("varbinary", length=300),
        (
            ("x''", b""),
            ("x'0100'", b"\x01\0"),
            ("x'f00a'", b"\xf0\n"),
            ("x'f09f091f1e1d5c'", b"\xf0\x9f\t\x1f\x1e\x1d\\"),
            ("x'c31f'", b"\xc3\x1f"),
            (f"x'{bytes(range(256)).hex()}'", bytes(range(256))),
        ),
    ),
    TypeCase(
        "c_blob",
        "longblob",
        mysql_type("longblob"),
        (("REPEAT(x'00ff', 40000)", b"\0\xff" * 40000), ("x'e5'", b"\xe5"), ("x'5c4e'", b"\\N")),
    ),
    TypeCase(
        "c_geometry",
        "geometry",
        mysql_type("geometry"),
        (
            ("ST_GeomFromText('POINT(1 2)', 4326)", _POINT),
            ("ST_GeomFromText('POINT(1.5 -2.5)')", _POINT_0),
        ),
        MYSQL,
    ),
    TypeCase(
        "c_geometry",
        "geometry",
        mysql_type("geometry"),
        (("ST_GeomFromText('POINT(1.5 -2.5)')", _POINT_0),),
        MARIADB,
    ),
    TypeCase(
        "c_vector",
        "vector(3)",
        mysql_type("vector", length=3),
        (("TO_VECTOR('[1,-2.5,3e10]')", struct.pack("<fff", 1, -2.5, 3e10)),),
        MYSQL,
    ),
    TypeCase(
        "c_uuid",
        "uuid",
        mysql_type("uuid"),
        (("'123E4567-E89B-12D3-A456-426655440000'", "123e4567-e89b-12d3-a456-426655440000"),),
        MARIADB,
    ),
    TypeCase("c_inet4", "inet4", mysql_type("inet4"), (("'10.0.0.1'", "10.0.0.1"),), MARIADB),
    TypeCase(
        "c_inet6",
        "inet6",
        mysql_type("inet6"),
        (("'2001:db8::1'", "2001:db8::1"), ("'::ffff:10.0.0.1'", "::ffff:10.0.0.1")),
        MARIADB,
    ),
)


def cases_for(server: str) -> tuple[TypeCase, ...]:
    """Return the cases that a server of this kind has."""
    return tuple(case for case in CASES if case.servers in {BOTH, server})


def every_type_schema(table: TableId, server: str) -> TableSchema:
    """Return the schema of a table with an `id` and a column for each case."""
    key = Column("id", mysql_type("int"), nullable=False)
    columns = (key, *(case.column for case in cases_for(server)))
    return TableSchema(table, columns, primary_key=("id",))


def create_statement(table: TableId, server: str) -> str:
    """Write the statement that makes the table of `every_type_schema`."""
    columns = [f"{quote_identifier(case.name)} {case.declared}" for case in cases_for(server)]
    body = ", ".join(["id int not null primary key", *columns])
    return f"CREATE TABLE {quote_table(table)} ({body}) DEFAULT CHARACTER SET utf8mb4"


def expected_rows(server: str) -> list[dict[str, Any]]:
    """Return the canonical rows: row 0 is NULLs, row i has each case's i-th value or its last."""
    cases = cases_for(server)
    longest = max(len(case.values) for case in cases)
    rows: list[dict[str, Any]] = [{"id": 0, **{case.name: None for case in cases}}]
    for i in range(longest):
        row = {case.name: case.values[min(i, len(case.values) - 1)][1] for case in cases}
        if server == MARIADB:  # its text has no -0
            floats = {name: value for name, value in row.items() if isinstance(value, float)}
            row |= {name: value + 0.0 for name, value in floats.items()}
        rows.append({"id": i + 1, **row})
    return rows


def insert_statements(table: TableId, server: str) -> list[str]:
    """Write the statements that make `expected_rows`."""
    cases = cases_for(server)
    longest = max(len(case.values) for case in cases)
    names = ", ".join(["id", *(quote_identifier(case.name) for case in cases)])
    statements = [f"INSERT INTO {quote_table(table)} (id) VALUES (0)"]
    for i in range(longest):
        values = [str(i + 1), *(case.values[min(i, len(case.values) - 1)][0] for case in cases)]
        statements.append(
            f"INSERT INTO {quote_table(table)} ({names}) VALUES ({', '.join(values)})"
        )
    return statements
