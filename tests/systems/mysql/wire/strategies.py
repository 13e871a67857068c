"""Tables, keys and runs of changes for hypothesis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from airflow_cdc_provider.columns.changes import Op, TableChanges
from airflow_cdc_provider.columns.keys import key_column
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.keys import Key, KeyRange
from airflow_cdc_provider.core.table_schema import Column, ColumnType, TableSchema
from airflow_cdc_provider.systems.mysql.dialect.column_types import mysql_type
from airflow_cdc_provider.systems.mysql.dialect.value_model import arrow_schema
from airflow_cdc_provider.systems.mysql.wire.key_values import key_at

TABLE = TableId("shop", "orders")
Change = tuple[Op, Key | None, Key | None, int]
"""What happened, the key before, the key after, the value after."""

_PARTS: dict[str, tuple[ColumnType, st.SearchStrategy[Any]]] = {
    "int": (mysql_type("int"), st.integers(-4, 4)),
    "tinyint": (mysql_type("tinyint"), st.sampled_from([-128, -1, 0, 127])),
    "bigint": (
        mysql_type("bigint", unsigned=True),
        st.sampled_from([0, 1, 2**63 - 1, 2**63, 2**64 - 1]),
    ),
    "decimal": (
        mysql_type("decimal", precision=20, scale=2),
        st.sampled_from([Decimal("-1.50"), Decimal("0.00"), Decimal("0.01"), Decimal("9.99")]),
    ),
    "date": (mysql_type("date"), st.sampled_from(["1000-01-01", "2024-02-29", "9999-12-31"])),
    "datetime": (
        mysql_type("datetime", fraction=3),
        st.sampled_from(["2024-01-01 00:00:00.000", "2024-01-01 00:00:00.120"]),
    ),
    "timestamp": (
        mysql_type("timestamp"),
        st.sampled_from(["1970-01-01 00:00:01", "2024-01-01 00:00:00"]),
    ),
    "varbinary": (mysql_type("varbinary", length=4), st.sampled_from([b"", b"\0", b"a", b"\xff"])),
}


@dataclass(frozen=True)
class KeyedTable:
    """A table of one or two key columns and a value, and how to draw keys of it."""

    schema: TableSchema
    keys: st.SearchStrategy[Key]

    @property
    def key_columns(self) -> tuple[Column, ...]:
        return tuple(self.schema.column(name) for name in self.schema.primary_key)

    def rows(self, found: Sequence[tuple[Key | None, int | None]]) -> pa.RecordBatch:
        """Build a batch; a key of None is a row of nulls."""
        arrow = arrow_schema(self.schema.columns)
        arrays = []
        for field in arrow:
            if field.name == "value":
                arrays.append(pa.array([value for _, value in found], field.type))
                continue
            at = self.schema.primary_key.index(field.name)
            parts = [None if key is None else key[at] for key, _ in found]
            arrays.append(key_column(parts, field.type))  # type: ignore[arg-type]
        return pa.RecordBatch.from_arrays(arrays, schema=arrow)

    def changes(
        self, run: Sequence[Change], transactions: Sequence[int] | None = None
    ) -> TableChanges:
        """Build the columns of a run of changes."""
        return TableChanges(
            table=self.schema.table,
            transaction=pa.array(transactions or [0] * len(run), pa.int32()),
            ordinal=pa.array(range(len(run)), pa.int64()),
            op=pa.array([int(op) for op, *_ in run], pa.int8()),
            before=self.rows(
                [(before, 0 if before is not None else None) for _, before, _, _ in run]
            ),
            after=self.rows(
                [(after, value if after is not None else None) for _, _, after, value in run]
            ),
        )


@st.composite
def keyed_tables(draw: st.DrawFn) -> KeyedTable:
    """Tables over one or two key columns, whose index order may differ from the table's."""
    names = draw(st.lists(st.sampled_from(sorted(_PARTS)), min_size=1, max_size=2, unique=True))
    columns = [Column(name, _PARTS[name][0], nullable=False) for name in sorted(names)]
    columns.insert(draw(st.integers(0, len(columns))), Column("value", mysql_type("int")))
    schema = TableSchema(TABLE, tuple(columns), primary_key=tuple(names))
    return KeyedTable(schema, st.tuples(*(_PARTS[name][1] for name in names)))


@st.composite
def runs(draw: st.DrawFn, table: KeyedTable, existing: dict[Key, int]) -> list[Change]:
    """Changes that a table with the `existing` rows could have had; `existing` is moved on."""
    found: list[Change] = []
    for number in range(draw(st.integers(0, 12))):
        op = draw(st.sampled_from(list(Op)))
        old = draw(st.sampled_from(sorted(existing, key=repr))) if existing else None
        new = draw(table.keys)
        value = 1000 + number
        if op is Op.INSERT and new not in existing:
            found.append((op, None, new, value))
        elif op is Op.DELETE and old is not None:
            del existing[old]
            found.append((op, old, None, 0))
            continue
        elif op is Op.UPDATE and old is not None:
            if new in existing:
                new = old
            del existing[old]
            found.append((op, old, new, value))
        else:
            continue
        existing[new] = value
    return found


@st.composite
def key_ranges(draw: st.DrawFn, table: KeyedTable) -> KeyRange:
    """Ranges over the table's keys, bounded by whole keys or prefixes."""
    bounds = []
    for _ in range(2):
        bound = draw(st.none() | table.keys)
        if bound is not None:
            bound = bound[: draw(st.integers(1, len(bound)))]
        bounds.append(bound)
    return KeyRange(*bounds)


def rows_by_key(table: KeyedTable, rows: pa.RecordBatch | pa.Table) -> dict[Key, int]:
    """Read keys and values back; a key that comes twice is an error."""

    found: dict[Key, int] = {}
    for row in range(rows.num_rows):
        key = key_at(rows, row, table.key_columns)
        if key in found:
            raise AssertionError(f"key {key} comes twice")
        found[key] = rows.column("value")[row].as_py()
    return found
