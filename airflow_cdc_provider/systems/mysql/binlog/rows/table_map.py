"""TABLE_MAP events: what the log itself says about a table's columns.

Each statement's row events follow a table map with the columns' wire types and, with
`binlog_row_metadata=FULL`, names, signedness, charsets and the members of ENUM and SET. That is
the definition at that moment, so it stays right over every ALTER TABLE. What the log does not say
(which columns are generated, MariaDB's UUID and INET types) comes from a schema, if one is given.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from airflow_cdc_provider.core.errors import (
    RESET,
    IntegrityError,
    UnknownTypeError,
    ValueRefusedError,
)
from airflow_cdc_provider.core.identifiers import TableId, table_option
from airflow_cdc_provider.core.table_schema import Column, ColumnType, TableSchema, TypeKind
from airflow_cdc_provider.systems.mysql.binlog.events.byte_reader import ByteReader
from airflow_cdc_provider.systems.mysql.binlog.rows.column_metadata import OptionalMetadata
from airflow_cdc_provider.systems.mysql.binlog.rows.other_types import defined_otherwise
from airflow_cdc_provider.systems.mysql.binlog.rows.system_versions import (
    hidden_columns,
    row_end_place,
)
from airflow_cdc_provider.systems.mysql.binlog.rows.wire_types import Wire, logged_type, read_wire

SchemaSource = Callable[[TableId], TableSchema | None]
"""Returns a table's definition as the server states it, None if it is not known."""


def no_schema(_table: TableId) -> TableSchema | None:
    """Return no schema: only the log describes the table."""
    return None


@dataclass(frozen=True, slots=True)
class TableMap:
    """A table's columns and their wire types, as a table map in the log describes them."""

    table: TableId
    columns: tuple[Column, ...]
    wires: tuple[Wire, ...]
    primary_key: tuple[int, ...] = ()
    """Places of the key's columns: by the table's definition, else as far as the log says."""
    row_end: int | None = None
    """MariaDB: the index of a system-versioned table's ROW END."""
    hidden: int = 0
    """Columns at the end that the server added and its catalogue does not show."""
    otherwise: str = ""
    """Which columns had a type by which their values mean something else than by the stated one,
    where both have the same type in Arrow."""


def read_table_id(body: bytes) -> TableId:
    """Read only the table's name from a table map's body."""
    reader = ByteReader(body, 8)
    names = []
    for _ in range(2):
        names.append(reader.text(reader.number(1)))
        reader.take(1)
    return TableId(*names)


def read_table_map(body: bytes, schemas: SchemaSource, flavour: str) -> TableMap:
    """Read a whole table map, completed by the table's schema if that is known."""
    reader = ByteReader(body, 8)
    names = []
    for _ in range(2):
        names.append(reader.text(reader.number(1)))
        reader.take(1)
    table = TableId(*names)
    count = reader.packed()
    codes = reader.take(count)
    details = ByteReader(reader.counted())
    wires = tuple(read_wire(code, details) for code in codes)
    if flavour == "mariadb":  # it counts geometries among the columns that have a charset
        wires = tuple(
            replace(wire, groups=wire.groups | {"text"}) if wire.kind == "geometry" else wire
            for wire in wires
        )
    nullable = _bits(reader.take((count + 7) // 8), count)
    metadata = _metadata(table, reader.rest(), wires)
    if not metadata.names:
        raise IntegrityError(
            f"the log does not name the columns of {table}",
            where=str(table),
            risk="values would be written into wrong columns",
            remedy="SET GLOBAL binlog_row_metadata = 'FULL', and keep it in the server's "
            "configuration; then FLUSH BINARY LOGS, so that what was logged before is not read "
            f"again; then `reset` with {table_option(table)}: it is read again, and the "
            f"others go on; or {RESET}",
        )
    columns = tuple(
        Column(
            name=metadata.names[index],
            type=_column_type(table, wire, metadata, index),
            nullable=nullable[index],
            invisible=bool(metadata.visible) and not metadata.visible[index],
        )
        for index, wire in enumerate(wires)
    )
    if flavour == "mariadb":
        columns = tuple(_as_mariadb(column) for column in columns)
    schema, otherwise = schemas(table), ""
    if schema is not None:
        columns = _completed(columns, wires, schema)
        otherwise = defined_otherwise(columns, schema)
    _refuse_untold_fractions(table, columns, wires, schema)
    key = metadata.primary_key
    if schema is not None and schema.has_key:  # the log does not know which key the file names
        key = tuple(i for i, column in enumerate(columns) if column.name in schema.primary_key)
    row_end, hidden = None, 0
    if flavour == "mariadb":
        row_end = row_end_place(columns, metadata.primary_key, schema)
        hidden = hidden_columns(columns, schema)
    return TableMap(table, columns, wires, key, row_end, hidden, otherwise)


def _bits(data: bytes, count: int) -> tuple[bool, ...]:
    """Return a bitmap as booleans, the lowest bit first."""
    return tuple(bool(data[index // 8] >> index % 8 & 1) for index in range(count))


def _metadata(table: TableId, data: bytes, wires: tuple[Wire, ...]) -> OptionalMetadata:
    """Read a table map's optional metadata; an error names the table."""
    try:
        return OptionalMetadata.read(data, wires)
    except UnknownTypeError as error:
        raise error.located(str(table)) from None


def _column_type(table: TableId, wire: Wire, metadata: OptionalMetadata, index: int) -> ColumnType:
    """Return a column's type as logged; an error names the column."""
    try:
        return logged_type(wire, metadata, index)
    except (UnknownTypeError, ValueRefusedError) as error:
        raise error.located(f"{table}, column {metadata.names[index]}") from None


def _as_mariadb(column: Column) -> Column:
    """Return a column with the type name that MariaDB's catalogue uses."""
    if column.type.name == "geomcollection":  # its catalogue kept the older name
        return replace(column, type=replace(column.type, name="geometrycollection"))
    return column


def _refuse_untold_fractions(
    table: TableId,
    columns: tuple[Column, ...],
    wires: tuple[Wire, ...],
    schema: TableSchema | None,
) -> None:
    """Refuse a temporal column of an old format that may have a fraction.

    MariaDB keeps fractions in formats of its own from before 10.1, under the same type numbers
    and in more bytes; the log does not tell of them.
    """
    stated = {} if schema is None else {column.name: column.type for column in schema.columns}
    for column, wire in zip(columns, wires, strict=True):
        known = stated.get(column.name)
        if wire.is_old and (known is None or known.name != column.type.name or known.fraction):
            raise UnknownTypeError(
                f"{column.type.name.upper()} in the format of before MySQL 5.6, "
                "of which the log does not tell whether it has a fraction",
                f"{table}, column {column.name}",
                "its values, and all columns behind it, would be read wrong",
                "rebuild the table with a current type (ALTER TABLE ... FORCE; MariaDB: "
                "mysql56_temporal_format=ON), or leave it out",
            )


_ONLY_IN_SCHEMA = {"uuid": 16, "inet6": 16, "inet4": 4}


def _completed(
    columns: tuple[Column, ...], wires: tuple[Wire, ...], schema: TableSchema
) -> tuple[Column, ...]:
    """Add what only the catalogue knows to columns: MariaDB's types, generated, ignored."""
    known = {column.name: column for column in schema.columns}
    completed = []
    for column, wire in zip(columns, wires, strict=True):
        stated = known.get(column.name)
        if stated is None:
            completed.append(column)
            continue
        kind = column.type
        fixed = kind.name == "binary" and wire.length == _ONLY_IN_SCHEMA.get(stated.type.name)
        if fixed:
            kind = stated.type
        elif stated.type.is_json_text and kind.name == "longtext":
            kind = replace(kind, kind=TypeKind.JSON, is_json_text=True)
        completed.append(
            replace(
                column,
                type=kind,
                generated=stated.generated,
                ignored=stated.ignored,
                auto_increment=stated.auto_increment,
            )
        )
    return tuple(completed)
