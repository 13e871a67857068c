"""Single keys: canonical form, its inverse, and literals that find their row on a server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_cdc_provider.columns.keys import key_column
from airflow_cdc_provider.columns.row_keys import key_codes
from airflow_cdc_provider.core.identifiers import quote_identifier, quote_table
from airflow_cdc_provider.core.keys import Key
from airflow_cdc_provider.core.table_schema import Column, ColumnType
from airflow_cdc_provider.systems.mysql.dialect.column_types import mysql_type
from airflow_cdc_provider.systems.mysql.dialect.value_model import ZeroDates, arrow_field
from airflow_cdc_provider.systems.mysql.wire.key_values import key_at
from airflow_cdc_provider.systems.mysql.wire.sql_text import key_list
from tests.servers.given import SqlServer
from tests.systems.mysql.wire.raw_select import select_rows
from tests.systems.mysql.wire.selected_rows import fill_every_type
from tests.systems.mysql.wire.strategies import keyed_tables
from tests.systems.mysql.wire.type_cases import MARIADB, MYSQL, cases_for, every_type_schema


def key_arrays(keys: Sequence[Key], columns: Sequence[Column]) -> pa.RecordBatch:
    """Return keys as columns of the value model."""
    fields = [arrow_field(column, ZeroDates.FAIL) for column in columns]
    arrays = [key_column([key[i] for key in keys], field.type) for i, field in enumerate(fields)]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


@given(st.data())
def test_keys_and_their_columns_are_inverse(data: st.DataObject) -> None:
    table = data.draw(keyed_tables())
    keys = data.draw(st.lists(table.keys, min_size=1, max_size=5))
    columns = key_arrays(keys, table.key_columns)
    assert [key_at(columns, i, table.key_columns) for i in range(len(keys))] == keys


@pytest.mark.parametrize(
    ("column", "value", "part"),
    [
        (mysql_type("decimal", precision=9, scale=2), Decimal("1.50"), Decimal("1.50")),
        (mysql_type("datetime", fraction=2), "2024-01-02 03:04:05.6", "2024-01-02 03:04:05.60"),
        (mysql_type("timestamp"), "1970-01-01 00:00:01", "1970-01-01 00:00:01"),
        (mysql_type("date"), "0000-01-01", "0000-01-01"),
        (mysql_type("binary", length=2), b"a\0", b"a\0"),
        (mysql_type("year"), 0, 0),
    ],
)
def test_a_key_part_has_one_canonical_form(column: ColumnType, value: object, part: object) -> None:
    key = Column("k", column)
    rows = key_arrays([(value,)], [key])  # type: ignore[list-item]
    assert key_at(rows, 0, [key]) == (part,)


@given(st.data())
def test_codes_are_equal_where_keys_are(data: st.DataObject) -> None:
    table = data.draw(keyed_tables())
    groups = data.draw(st.lists(st.lists(table.keys, max_size=9), min_size=1, max_size=3))
    batches = [table.rows([(key, 0) for key in keys]) for keys in groups]
    columns = [[batch.column(name) for name in table.schema.primary_key] for batch in batches]
    codes = key_codes(columns)
    code_of: dict[Key, int] = {}
    for keys, found in zip(groups, codes.groups, strict=True):
        for key, code in zip(keys, found.tolist(), strict=True):
            assert 0 <= code < codes.count
            assert code_of.setdefault(key, code) == code
    assert len(set(code_of.values())) == len(code_of)


@pytest.mark.parametrize("kind", [MYSQL, MARIADB])
def test_key_literals_of_every_type_find_their_row(
    kind: str,
    request: pytest.FixtureRequest,
    fresh_database: Callable[[SqlServer], str],
) -> None:
    server: SqlServer = request.getfixturevalue(f"{kind}_server")
    schema = every_type_schema(
        fill_every_type(server, fresh_database(server), kind, "filled"), kind
    )
    rows = select_rows(server, schema).combine_chunks().to_batches()[0]
    missed = []
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("SET time_zone = '+00:00'")
        for case in cases_for(kind):
            if case.type.name in {"json", "vector", "geometry"} or case.type.is_json_text:
                continue  # never part of a key
            column = schema.column(case.name)
            filled = rows.filter(rows.column(case.name).is_valid())
            if case.type.name == "enum":  # index 0 has no literal, and is refused in a key
                filled = filled.filter(pc.not_equal(filled.column(case.name), "0"))
            for keys, names in (
                ([column], quote_identifier(column.name)),
                ([column, schema.column("id")], f"({quote_identifier(column.name)}, id)"),
            ):
                text = key_list(filled, keys)
                found = 0
                for row in range(text.rows):
                    at = filled.column("id")[row].as_py()
                    cursor.execute(
                        b"SELECT COUNT(*) FROM %s WHERE id = %d AND %s IN (%s)"
                        % (
                            quote_table(schema.table).encode(),
                            at,
                            names.encode(),
                            bytes(text.run(row, row + 1)),
                        )
                    )
                    found += cursor.fetchone()[0]
                if found != text.rows:
                    missed.append(f"{names}: {found} of {text.rows}")
    assert missed == []


def test_rows_of_a_run_are_never_longer_than_the_limit() -> None:
    rows = pa.RecordBatch.from_pydict({"k": pa.array(["x" * n for n in range(50)])})
    text = key_list(rows, [Column("k", mysql_type("varchar"))])
    runs = list(text.runs(100))
    assert [first for first, _ in runs[1:]] == [end for _, end in runs[:-1]]
    assert runs[0][0] == 0
    assert runs[-1][1] == 50
    assert all(len(text.run(first, end)) <= 100 for first, end in runs)
    assert b",".join(bytes(text.run(*run)) for run in runs) == bytes(text.run(0, 50))


def test_a_row_longer_than_the_limit_is_a_run_of_its_own() -> None:
    rows = pa.RecordBatch.from_pydict({"k": ["a", "b" * 500, "c"]})
    text = key_list(rows, [Column("k", mysql_type("varchar"))])
    assert list(text.runs(10)) == [(0, 1), (1, 2), (2, 3)]
