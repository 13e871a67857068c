"""The value model: for each column type of the server one Arrow type and one canonical value.

A row means the same whether it came by SELECT or from the log, because both decoders produce
what this table says:

=====================================  ==================  =====================================
type                                   Arrow               canonical value
=====================================  ==================  =====================================
TINYINT .. BIGINT [UNSIGNED]           int8 .. uint64      MEDIUMINT is 32 bits wide
BIT(n)                                 uint64              the bits as a number
YEAR                                   uint16              0000 is 0
FLOAT, DOUBLE                          float32, float64    every bit exact, -0.0 not at MariaDB
DECIMAL(p,s)                           decimal128/256      256 bits from 39 digits on
DATE                                   date32
DATETIME                               timestamp[us]       wall clock, no zone
TIMESTAMP                              timestamp[us, UTC]  an instant
TIME                                   duration[us]        signed, up to 838:59:59.999999
CHAR, VARCHAR, TEXT                    string              UTF-8 whatever the column's charset
the same with charset `binary`         binary
ENUM                                   string              '0' for index 0, which is no member
SET                                    string              members in definition order
JSON                                   string              the server's own text form
BINARY(n)                              binary              padded with zeros to n bytes
VARBINARY, BLOB                        binary
GEOMETRY and its subtypes              binary              SRID, 4 bytes little-endian, then WKB
VECTOR                                 binary              32-bit floats, little-endian
UUID, INET4, INET6 (MariaDB)           string              as the server prints them
=====================================  ==================  =====================================

**Zero and partial dates** (0000-00-00, 2024-00-15, 2024-02-31) are values to MySQL and to nobody
else. What becomes of them is a policy, `ZeroDates`; under `TEXT` the columns that can hold them
are strings in the server's own form.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.table_schema import Column, ColumnType, TableSchema
from airflow_cdc_provider.systems.mysql.dialect.column_types import (
    BINARY_TYPES,
    CHARACTER_TYPES,
    DATE_TYPES,
    GEOMETRY_TYPES,
    ZeroDates,
    require_known,
)
from airflow_cdc_provider.systems.mysql.dialect.type_text import decimal_digits, type_text

__all__ = [
    "BINARY_TYPES",
    "CHARACTER_TYPES",
    "DATE_TYPES",
    "GEOMETRY_TYPES",
    "ZeroDates",
    "arrow_field",
    "arrow_schema",
    "arrow_schemas",
    "arrow_type",
    "decimal_digits",
    "type_text",
]


_SIGNED = {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "mediumint": pa.int32(),
    "int": pa.int32(),
    "bigint": pa.int64(),
}
_UNSIGNED = {
    "tinyint": pa.uint8(),
    "smallint": pa.uint16(),
    "mediumint": pa.uint32(),
    "int": pa.uint32(),
    "bigint": pa.uint64(),
}
_FIXED = {
    "bit": pa.uint64(),
    "year": pa.uint16(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "datetime": pa.timestamp("us"),
    "timestamp": pa.timestamp("us", "UTC"),
    "time": pa.duration("us"),
    "enum": pa.string(),
    "set": pa.string(),
    "json": pa.string(),
    "uuid": pa.string(),
    "inet4": pa.string(),
    "inet6": pa.string(),
    "vector": pa.binary(),
    **dict.fromkeys(GEOMETRY_TYPES, pa.binary()),
    **dict.fromkeys(BINARY_TYPES, pa.binary()),
}
_DECIMAL128_DIGITS = 38


def arrow_type(column_type: ColumnType, zero_dates: ZeroDates = ZeroDates.FAIL) -> pa.DataType:
    """Return the Arrow type for a column type; an unknown type is an error."""
    require_known(column_type)
    name = column_type.name
    if name in _SIGNED:
        return (_UNSIGNED if column_type.unsigned else _SIGNED)[name]
    if name == "decimal":
        precision, scale = decimal_digits(column_type)
        wide = precision > _DECIMAL128_DIGITS
        return pa.decimal256(precision, scale) if wide else pa.decimal128(precision, scale)
    if name in CHARACTER_TYPES:
        return pa.binary() if column_type.charset == "binary" else pa.string()
    if name in DATE_TYPES and zero_dates is ZeroDates.TEXT:
        return pa.string()
    return _FIXED[name]


def arrow_field(column: Column, zero_dates: ZeroDates = ZeroDates.FAIL) -> pa.Field:
    """Return a column's Arrow field, with `mysql_type` and `mysql_column` as metadata.

    Every field is nullable: the missing side of an insert or a delete is a row of nulls.
    """
    metadata = {"mysql_type": type_text(column.type), "mysql_column": column.name}
    return pa.field(column.name, arrow_type(column.type, zero_dates), metadata=metadata)


def arrow_schema(columns: Iterable[Column], zero_dates: ZeroDates = ZeroDates.FAIL) -> pa.Schema:
    """Return the Arrow schema of columns, in their order."""
    return pa.schema([arrow_field(column, zero_dates) for column in columns])


def arrow_schemas(
    tables: Iterable[TableSchema], zero_dates: ZeroDates = ZeroDates.FAIL
) -> dict[TableId, pa.Schema]:
    """Return the Arrow schema of each table's changes: all columns, in table order."""
    return {table.table: arrow_schema(table.columns, zero_dates) for table in tables}
