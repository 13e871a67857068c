"""Random rows written as SQL and by LOAD DATA are read back as the same Arrow columns."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_cdc_provider.core.identifiers import TableId, quote_table
from airflow_cdc_provider.core.table_schema import Column, TableSchema
from airflow_cdc_provider.systems.mysql.dialect.column_types import mysql_type
from airflow_cdc_provider.systems.mysql.dialect.value_model import arrow_schema, type_text
from airflow_cdc_provider.systems.mysql.wire.load_text import load_rows
from tests.servers.given import SqlServer
from tests.systems.mysql.wire.raw_select import select_rows
from tests.systems.mysql.wire.round_trips import insert, load

ROWS = 1500
TYPES = {
    "id": mysql_type("int"),
    "t": mysql_type("varchar", length=300, charset="utf8mb4"),
    "b": mysql_type("varbinary", length=300),
    "d": mysql_type("decimal", precision=30, scale=15),
    "w": mysql_type("decimal", precision=65, scale=30),
    "u": mysql_type("bigint", unsigned=True),
    "f": mysql_type("float"),
    "x": mysql_type("double"),
    "h": mysql_type("time", fraction=6),
    "m": mysql_type("datetime", fraction=6),
    "y": mysql_type("year"),
}
SPECIAL = "'\"\\\t\n\r\0\x1a\x1d\x1e\x1f,;%_ Naé€汉\U0001f600\u0131\ufeff"


def _text(rng: random.Random) -> str:
    alphabet = SPECIAL if rng.random() < 0.5 else "abc XYZ0"
    return "".join(rng.choice(alphabet) for _ in range(rng.choice([0, 1, 2, 5, 60])))


def _double(rng: random.Random, kind: str) -> float:
    while True:
        width = struct.calcsize(kind)
        value: float = struct.unpack(kind, rng.randbytes(width))[0]
        if value == value and abs(value) != float("inf") and value != 0:
            return value


def _row(rng: random.Random, number: int) -> dict[str, Any]:
    digits = rng.randint(1, 15)
    row: dict[str, Any] = {
        "t": _text(rng),
        "b": rng.randbytes(rng.choice([0, 1, 2, 3, 16, 251])),
        "d": Decimal(rng.randint(-(10**digits), 10**digits)).scaleb(-15),
        "w": Decimal(rng.randint(-(10**64), 10**64)).scaleb(-30),
        "u": rng.getrandbits(64),
        "f": _double(rng, "<f"),
        "x": _double(rng, "<d"),
        "h": rng.randint(-3020399999999, 3020399999999),
        "m": rng.randint(-30610224000000000, 253402300799999999),
        "y": rng.choice([0, 1901, 2024, 2155]),
    }
    row = {name: None if rng.random() < 0.1 else value for name, value in row.items()}
    return {"id": number, **row}


def random_rows(seed: int) -> tuple[TableSchema, pa.Table]:
    """Make rows of many types; a tenth of the values are NULL."""
    rng = random.Random(seed)
    columns = tuple(Column(name, kind) for name, kind in TYPES.items())
    schema = TableSchema(TableId("", ""), columns, ("id",))
    rows = [_row(rng, number) for number in range(ROWS)]
    arrays = []
    for field in arrow_schema(columns):
        values = [row[field.name] for row in rows]
        raw = pa.int64() if field.name in {"h", "m"} else field.type
        arrays.append(pa.array(values, raw).cast(field.type))
    return schema, pa.Table.from_arrays(arrays, schema=arrow_schema(columns))


@pytest.mark.parametrize("kind", ["mysql", "mariadb"])
@pytest.mark.parametrize("way", ["insert", "load"])
def test_random_rows_come_back_as_they_were_written(
    kind: str,
    way: str,
    request: pytest.FixtureRequest,
    fresh_database: Callable[[SqlServer], str],
    tmp_path: Path,
) -> None:
    seed = random.SystemRandom().getrandbits(32)
    print(f"seed {seed}")
    server: SqlServer = request.getfixturevalue(f"{kind}_server")
    drawn, rows = random_rows(seed)
    schema = TableSchema(TableId(fresh_database(server), "copied"), drawn.columns, ("id",))
    body = ", ".join(f"`{column.name}` {type_text(column.type)}" for column in schema.columns)
    server.execute(
        f"CREATE TABLE {quote_table(schema.table)} ({body}, PRIMARY KEY (id)) CHARSET utf8mb4"
    )
    if way == "insert":
        insert(server, schema, rows)
    else:
        load(server, schema, [load_rows(b, schema.columns) for b in rows.to_batches()], tmp_path)
    found = select_rows(server, schema, order_by="id")
    for name in rows.schema.names:
        assert found.column(name).combine_chunks().equals(rows.column(name).combine_chunks()), name
