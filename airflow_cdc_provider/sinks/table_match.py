"""Whether a table of the sink can hold every row of a table of the source, unchanged. No I/O."""

from __future__ import annotations

from collections.abc import Iterator

from airflow_cdc_provider.core.keys import KeyKind
from airflow_cdc_provider.core.table_schema import Column, ColumnType, TableSchema

_SAME = {"geomcollection": "geometrycollection"}
_UNIVERSAL = "utf8mb4"


def differences(source: TableSchema, sink: TableSchema) -> Iterator[str]:
    """Yield what stands in the way, in words."""
    if sink.engine.lower() != "innodb":
        yield f"its engine is {sink.engine}, not InnoDB, so nothing could be rolled back"
    if sink.primary_key != source.primary_key or _prefixes(sink) != _prefixes(source):
        yield f"its primary key is {_shown(sink)}, the source's is {_shown(source)}"
    columns = {column.name.lower(): column for column in sink.columns}
    for column in source.columns:
        other = columns.get(column.name.lower())
        if other is None:
            yield f"column {column.name} is missing"
            continue
        yield from _column_differences(column, other, in_key=column.name in source.primary_key)
    known = {key.columns for key in source.unique_keys}
    for key in sink.unique_keys:
        if key.columns not in known:
            yield f"it has a unique key {key.name} over {', '.join(key.columns)} of its own"


def _column_differences(source: Column, sink: Column, *, in_key: bool) -> Iterator[str]:
    name = source.name
    if source.generated != sink.generated:
        one, other = ("computed", "stored as given")
        yield (
            f"column {name} is {one if sink.generated else other}, "
            f"at the source it is {one if source.generated else other}"
        )
        return
    if source.generated:
        return
    if source.nullable and not sink.nullable:
        yield f"column {name} does not take NULL"
    if not _holds(sink.type, source.type):
        yield f"column {name} is {_type(sink.type)}, at the source it is {_type(source.type)}"
    elif source.type.charset not in (None, sink.type.charset) and sink.type.charset != _UNIVERSAL:
        yield f"column {name} has the charset {sink.type.charset}, not {source.type.charset}"
    if not in_key or source.type.key_kind is not KeyKind.TEXT:
        return
    if sink.type.collation != source.type.collation:
        yield (
            f"key column {name} has the collation {sink.type.collation}, "
            f"not {source.type.collation}"
        )


def _holds(sink: ColumnType, source: ColumnType) -> bool:
    """Tell whether each value of one type is the same value in the other."""
    if _json(sink) and _json(source):
        return True  # JSON at one family, a checked LONGTEXT at the other
    if _name(sink) != _name(source) or sink.unsigned != source.unsigned:
        return False
    if sink.members != source.members or sink.fraction < source.fraction:
        return False
    if source.name == "decimal":
        return (sink.precision, sink.scale) == (source.precision, source.scale)
    if source.length is None or sink.length is None:
        return True
    if source.name in {"varchar", "varbinary", "char"}:
        return sink.length >= source.length
    if source.name in {"binary", "bit", "vector"}:
        return sink.length == source.length
    return True


def _name(kind: ColumnType) -> str:
    return _SAME.get(kind.name, kind.name)


def _json(kind: ColumnType) -> bool:
    return kind.name == "json" or kind.is_json_text


def _type(kind: ColumnType) -> str:
    size = f"({kind.precision},{kind.scale})" if kind.name == "decimal" else ""
    if kind.length is not None and not size:
        size = f"({kind.length})"
    if kind.fraction:
        size = f"({kind.fraction})"
    return f"{kind.name}{size}{' unsigned' if kind.unsigned else ''}"


def _prefixes(schema: TableSchema) -> tuple[int, ...]:
    return schema.key_prefixes if any(schema.key_prefixes) else ()


def _shown(schema: TableSchema) -> str:
    return f"({', '.join(schema.primary_key)})" if schema.primary_key else "missing"
