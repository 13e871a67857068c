"""A column of any type leaves the charsets, signs and members of the columns behind it alone.

The log names a charset for "the third text column"; which columns a server counts as text is its
own matter. So each type stands before columns that would show a count that is off by one: once
where each column's charset is written out, and once where most have the same.
"""

from __future__ import annotations

from typing import Any

import pytest

from airflow_cdc_provider.core.errors import CorruptLogError, UnknownTypeError
from airflow_cdc_provider.systems.mysql.binlog.events.byte_reader import ByteReader
from airflow_cdc_provider.systems.mysql.binlog.rows.column_metadata import OptionalMetadata
from airflow_cdc_provider.systems.mysql.binlog.rows.wire_types import read_wire
from tests.systems.mysql.binlog.captured import captured_log, rows_after
from tests.systems.mysql.wire.type_cases import MARIADB, MYSQL, cases_for

BEHIND = {
    "a": ("VARCHAR(9) CHARACTER SET armscii8", "ԱԲ"),
    "b": ("VARBINARY(9)", b"\xff\0"),
    "c": ("TEXT CHARACTER SET greek", "αβγ"),
    "n": ("BIGINT UNSIGNED", 2**64 - 1),
    "m": ("TINYINT", -1),
    "e": ("ENUM('x','ж') CHARACTER SET koi8r", "ж"),
    "s": ("SET('č','x') CHARACTER SET latin2", "č,x"),
    "d": ("CHAR(3) CHARACTER SET tis620", "ก"),
}
MOSTLY_BINARY = {f"b{number}": ("VARBINARY(3)", b"\xb2") for number in range(5)}
FORMS = {"each": BEHIND, "default": MOSTLY_BINARY | BEHIND}


def literal(value: Any) -> str:
    match value:
        case bytes():
            return f"x'{value.hex()}'"
        case str():
            return f"_utf8mb4 x'{value.encode().hex()}'"
        case _:
            return str(value)


@pytest.mark.parametrize("kind", [MYSQL, MARIADB])
@pytest.mark.parametrize("form", FORMS)
def test_a_column_of_any_type_leaves_those_behind_it_as_they_are(
    request: pytest.FixtureRequest, fresh_database: Any, kind: str, form: str
) -> None:
    server = request.getfixturevalue(f"{kind}_server")
    behind = FORMS[form]
    columns = ", ".join(f"{name} {ddl}" for name, (ddl, _) in behind.items())
    names = ", ".join(behind)
    values = ", ".join(literal(value) for _, value in behind.values())
    cases = cases_for(kind)
    connection = server.connect(fresh_database(server))
    with captured_log(server) as log:
        with connection, connection.cursor() as cursor:
            cursor.execute("SET NAMES utf8mb4")
            for number, case in enumerate(cases):
                cursor.execute(f"CREATE TABLE t{number} (x {case.declared}, {columns})")
                cursor.execute(f"INSERT INTO t{number} ({names}) VALUES ({values})")
        batches = log().batches()
    expected = {name: value for name, (_, value) in behind.items()}
    for number, case in enumerate(cases):
        assert rows_after(batches, f"t{number}") == [{"x": None, **expected}], case.declared


VECTOR, TEXT, NUMBER = (242, b"\4"), (252, b"\2"), (8, b"")


def metadata(data: bytes, *columns: tuple[int, bytes]) -> OptionalMetadata:
    wires = [read_wire(code, ByteReader(details)) for code, details in columns]
    return OptionalMetadata.read(data, wires)


@pytest.mark.parametrize(
    ("data", "columns"),
    [
        (bytes([3, 3, 32, 63, 8]), (TEXT, TEXT)),
        (bytes([3, 2, 8, 32]), (VECTOR, TEXT)),
        (bytes([2, 1, 8]), (VECTOR, TEXT)),
        (bytes([2, 3, 8, 2, 63]), (TEXT, TEXT)),
        (bytes([1, 2, 0x80, 0]), (NUMBER,)),
    ],
)
def test_metadata_about_another_number_of_columns_is_refused(
    data: bytes, columns: tuple[tuple[int, bytes], ...]
) -> None:
    with pytest.raises(UnknownTypeError, match="counts its columns in another way"):
        metadata(data, *columns)


def test_metadata_about_fewer_columns_than_there_are_is_refused() -> None:
    with pytest.raises(CorruptLogError):
        metadata(bytes([3, 1, 8]), TEXT, TEXT)


def test_a_vector_counts_as_a_text_without_charset() -> None:
    found = metadata(bytes([3, 3, 32, 63, 8]), TEXT, VECTOR, TEXT)
    assert found.collations == {0: 32, 1: 63, 2: 8}
