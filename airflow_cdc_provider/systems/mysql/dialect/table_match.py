"""Whether a table of the sink can hold every row of a table of the source, unchanged.

Preflight and the sink itself ask the same question at different moments, so both ask it here: what
preflight lets through, the sink takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from airflow_cdc_provider.core.keys import KeyKind
from airflow_cdc_provider.core.table_schema import Column, ColumnType, TableSchema
from airflow_cdc_provider.systems.mysql.dialect.collation_order import counterpart, is_same_name
from airflow_cdc_provider.systems.mysql.dialect.definition_changes import widens
from airflow_cdc_provider.systems.mysql.dialect.stand_ins import stands_in

_SAME = {"geomcollection": "geometrycollection"}
_UNIVERSAL = "utf8mb4"
_LONGEST_MEMBERS = 160
"""Characters of an ENUM's or SET's members that are written out."""


class MismatchKind(StrEnum):
    """What of a sink table's definition does not fit the source's."""

    ENGINE = "engine"
    PRIMARY_KEY = "primary_key"
    COLUMN = "column"
    """It is missing, or one side computes it."""
    COLUMN_TYPE = "column_type"
    COLUMN_NULL = "column_null"
    COLUMN_CHARSET = "column_charset"
    KEY_COLLATION = "key_collation"
    UNIQUE_KEY = "unique_key"


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One reason why a sink table cannot hold the source's rows unchanged."""

    kind: MismatchKind
    text: str
    """What is so, in words that follow the table's name."""
    wanted: str
    subject: str = ""
    """The column or the key it is about; of another primary key, the one that is in its place."""

    is_loud: bool = False
    """Rows are written unchanged all the same, or refused with an error; none is altered."""

    def __str__(self) -> str:
        return self.text


def mismatches(
    source: TableSchema, sink: TableSchema, *, may_be_wider: bool = False
) -> Iterator[Mismatch]:
    """Yield why a sink table cannot hold the source table's rows unchanged.

    Its types may be wider where others share it, or where it is ahead of the source.
    """
    source = source.as_copied
    if sink.engine.lower() != "innodb":
        what = f"its engine is {sink.engine}" if sink.engine else "it is a view, or has no engine"
        text = f"{what}, not InnoDB, so nothing could be rolled back"
        yield Mismatch(MismatchKind.ENGINE, text, "ENGINE = InnoDB")
    if not _numbers_itself(source, sink):
        yield from _of_key(source, sink)
    columns = {column.name.lower(): column for column in sink.columns}
    for column in source.columns:
        other = columns.get(column.name.lower())
        if other is None:
            text = f"column {column.name} is missing"
            yield Mismatch(MismatchKind.COLUMN, text, "the source's columns", column.name)
            continue
        yield from column_mismatches(column, other, may_be_wider=may_be_wider)
        if column.name in source.primary_key and not column.generated:
            yield from _of_key_column(column, other, source.flavour, sink.flavour)
    known = {source.primary_key, *(key.columns for key in source.unique_keys)}
    for key in sink.unique_keys:
        if key.columns not in known:
            text = f"it has a unique key {key.name} over {', '.join(key.columns)} of its own"
            wanted = "the source's unique keys, which are added after the consistent point"
            yield Mismatch(MismatchKind.UNIQUE_KEY, text, wanted, key.name, is_loud=True)


def key_mismatches(source: TableSchema, sink: TableSchema) -> Iterator[Mismatch]:
    """Yield why the keys of two tables are not the same: other columns, or another order."""
    yield from _of_key(source, sink)
    columns = {column.name: column for column in sink.columns}
    for name in source.primary_key:
        if name in columns:
            column = source.column(name)
            yield from _of_key_column(column, columns[name], source.flavour, sink.flavour)


def _of_key(source: TableSchema, sink: TableSchema) -> Iterator[Mismatch]:
    """Yield why a sink table's key has other columns, or other parts of them."""
    if sink.primary_key == source.primary_key and _prefixes(sink) == _prefixes(source):
        return
    own = "primary key" if not sink.key_name else "key, for it has no primary one,"
    text = f"its {own} is {_shown_key(sink)}, the source's is {_shown_key(source)}"
    dropped = "" if sink.key_name or not sink.primary_key else "PRIMARY"
    yield Mismatch(MismatchKind.PRIMARY_KEY, text, f"PRIMARY KEY {_shown_key(source)}", dropped)


def _of_key_column(source: Column, sink: Column, family: str, other: str) -> Iterator[Mismatch]:
    """Yield why a key column tells its values apart otherwise, or orders them otherwise."""
    if source.type.collation:
        yield from _of_order(source, sink, family, other)
    elif stands_in(sink.type, source.type):
        yield from _of_bytes(source, sink)


def _numbers_itself(source: TableSchema, sink: TableSchema) -> bool:
    """Tell whether the sink numbers the rows of a table without a key by a column of its own."""
    if source.has_key or len(sink.primary_key) != 1:
        return False
    (name,) = sink.primary_key
    own = {column.name.lower() for column in source.columns}
    return sink.column(name).auto_increment and name.lower() not in own


def column_mismatches(
    source: Column, sink: Column, *, may_be_wider: bool = False
) -> Iterator[Mismatch]:
    """Yield why a sink column cannot hold the source column's values."""
    name = source.name
    if source.generated != sink.generated:
        here, there = (
            "computed" if column.generated else "stored as given" for column in (sink, source)
        )
        text = f"column {name} is {here}, at the source it is {there}"
        yield Mismatch(MismatchKind.COLUMN, text, f"a column that is {there}", name)
        return
    if source.generated:
        return
    if source.nullable and not sink.nullable:
        text = f"column {name} does not take NULL"
        yield Mismatch(MismatchKind.COLUMN_NULL, text, "a column that does", name, is_loud=True)
    if not (_holds(sink.type, source.type) or (may_be_wider and _widened(sink.type, source.type))):
        here, there = _shown_types(sink.type, source.type)
        text = f"column {name} is {here}, at the source it is {there}"
        is_wider = _is_wider_integer(sink.type, source.type)
        yield Mismatch(MismatchKind.COLUMN_TYPE, text, there, name, is_loud=is_wider)
    elif _json(source.type) and _json(sink.type):
        return  # one family keeps it as a text
    elif source.type.charset not in (None, sink.type.charset) and sink.type.charset != _UNIVERSAL:
        text = f"column {name} has the charset {sink.type.charset}, not {source.type.charset}"
        wanted = f"{source.type.charset}, or {_UNIVERSAL}"
        yield Mismatch(MismatchKind.COLUMN_CHARSET, text, wanted, name)


def _of_order(source: Column, sink: Column, family: str, other: str) -> Iterator[Mismatch]:
    """Yield why a sink key column does not order its values as the source's does."""
    if source.type.key_kind is not KeyKind.TEXT:
        return
    theirs, ours = str(source.type.collation), str(sink.type.collation)
    wanted = counterpart(theirs, family, other)
    if wanted is None:
        text = f"key column {source.name} has the collation {theirs}, whose order {other} lacks"
        wanted = "utf8mb4_bin, utf8mb4_unicode_ci or VARBINARY, at source and sink"
    elif is_same_name(ours, wanted):
        return
    else:
        text = f"key column {source.name} has the collation {ours}, not {wanted}"
    yield Mismatch(MismatchKind.KEY_COLLATION, text, wanted, source.name)


def _of_bytes(source: Column, sink: Column) -> Iterator[Mismatch]:
    """Yield why a text that stands in for a UUID or address in a key is not compared by bytes."""
    if not str(sink.type.collation).endswith("_bin"):
        text = f"key column {source.name} has the collation {sink.type.collation}, not ascii_bin"
        yield Mismatch(MismatchKind.KEY_COLLATION, text, "ascii_bin", source.name)


_TEXTS = ("tinytext", "text", "mediumtext", "longtext")
_BLOBS = ("tinyblob", "blob", "mediumblob", "longblob")
_INTEGERS = ("tinyint", "smallint", "mediumint", "int", "bigint")
"""From the narrowest to the widest."""


def _is_wider_integer(sink: ColumnType, source: ColumnType) -> bool:
    """Tell whether both are integers of the same sign, and the sink's is the wider one."""
    if sink.unsigned != source.unsigned or not {sink.name, source.name} <= set(_INTEGERS):
        return False
    return _INTEGERS.index(sink.name) > _INTEGERS.index(source.name)


def _holds(sink: ColumnType, source: ColumnType) -> bool:
    """Tell whether each value of the source's type is the same value in the sink's."""
    if _json(sink) and _json(source):
        return True  # JSON at one family, a checked LONGTEXT at the other
    if stands_in(sink, source):
        return True
    if _name(sink) != _name(source) or sink.unsigned != source.unsigned:
        return False
    if sink.members != source.members or sink.fraction < source.fraction:
        return False
    if sink.scale is not None:  # DECIMAL, and the FLOAT(7,3) that rounds what it is given
        return (sink.precision, sink.scale) == (source.precision, source.scale)
    if source.length is None or sink.length is None:
        return True
    if source.name in {"varchar", "varbinary", "char"}:
        return sink.length >= source.length
    if source.name in {"binary", "bit", "vector"}:
        return sink.length == source.length
    return True


def _widened(sink: ColumnType, source: ColumnType) -> bool:
    """Tell whether the sink's type has each value of the source's, written in the same way."""
    if _is_wider_integer(sink, source):
        return True
    if sink.name == source.name in {"enum", "set"}:
        return sink.members[: len(source.members)] == source.members
    if sink.name == source.name == "decimal" and sink.unsigned == source.unsigned:
        return sink.scale == source.scale and (sink.precision or 0) >= (source.precision or 0)
    for sizes in (_TEXTS, _BLOBS):
        if {sink.name, source.name} <= {*sizes}:
            return sizes.index(sink.name) >= sizes.index(source.name)
    return source.name in {"varchar", "varbinary"} and widens(source, sink)


def _name(kind: ColumnType) -> str:
    """Return a type's name, the same for both families."""
    return _SAME.get(kind.name, kind.name)


def _json(kind: ColumnType) -> bool:
    """Tell whether a type is JSON, MariaDB's checked text included."""
    return kind.name == "json" or kind.is_json_text


def _shown_types(sink: ColumnType, source: ColumnType) -> tuple[str, str]:
    """Return two types as texts in which their difference shows."""
    here, there = _type(sink), _type(source)
    if here != there or not sink.members:
        return here, there
    # longer lists of members than are written out, and they differ behind that
    number = next(
        at
        for at in range(max(len(sink.members), len(source.members)))
        if sink.members[at : at + 1] != source.members[at : at + 1]
    )
    return _member_at(sink, number), _member_at(source, number)


def _member_at(kind: ColumnType, number: int) -> str:
    """Return a type as text with only its member at one place."""
    member = _quoted(kind.members[number]) if number < len(kind.members) else "missing"
    return f"{kind.name} of {len(kind.members)} members, the one at {number + 1} {member}"


def _type(kind: ColumnType) -> str:
    """Return a type as text, with a long list of members cut."""
    if kind.members:
        members = ",".join(map(_quoted, kind.members))
        if len(members) > _LONGEST_MEMBERS:
            members = f"{members[:_LONGEST_MEMBERS]}..."
        return f"{kind.name}({members})"
    size = "" if kind.scale is None else f"({kind.precision},{kind.scale})"
    if kind.length is not None and not size:
        size = f"({kind.length})"
    if kind.fraction:
        size = f"({kind.fraction})"
    return f"{kind.name}{size}{' unsigned' if kind.unsigned else ''}"


def _quoted(member: str) -> str:
    """Return a member in quotes."""
    return "'" + member.replace("'", "''") + "'"


def _prefixes(schema: TableSchema) -> tuple[int, ...]:
    """Return the lengths of the key's column prefixes, empty if all columns are whole."""
    return schema.key_prefixes if any(schema.key_prefixes) else ()


def _shown_key(schema: TableSchema) -> str:
    """Return a primary key as text, with its column prefixes."""
    if not schema.primary_key:
        return "missing"
    prefixes = _prefixes(schema) or (0,) * len(schema.primary_key)
    parts = (
        f"{name}({prefix})" if prefix else name
        for name, prefix in zip(schema.primary_key, prefixes, strict=True)
    )
    return f"({', '.join(parts)})"
