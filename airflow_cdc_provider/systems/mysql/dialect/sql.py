"""SQL text that must be the same everywhere: literals and key-range predicates.

Values are written so that no session setting (sql_mode, connection charset) changes their
meaning: text and bytes as hexadecimal, numbers as digits.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import assert_never

from airflow_cdc_provider.core.identifiers import quote_identifier
from airflow_cdc_provider.core.keys import Key, KeyPart, KeyRange
from airflow_cdc_provider.core.splits import (
    Chosen,
    Condition,
    Interval,
    KeyList,
    SnapshotSplit,
)
from airflow_cdc_provider.core.table_schema import TableSchema
from airflow_cdc_provider.core.table_shape import OutputColumn


def literal(part: KeyPart) -> str:
    """Return a key's part as an SQL literal that reads the same in every session."""
    match part:
        case int():
            return str(part)
        case Decimal():
            return format(part, "f")
        case bytes():
            return f"x'{part.hex()}'"
        case str():
            return f"_utf8mb4 x'{part.encode().hex()}'"
        case _:
            assert_never(part)


def text_literal(text: str) -> str:
    """Return a text as an SQL literal, quoted if it is plain, else in hexadecimal."""
    is_plain = text.isascii() and text.isprintable() and not {"'", "\\"} & set(text)
    return f"'{text}'" if is_plain else literal(text)


def by_key(schema: TableSchema) -> str:
    """Return the index hint behind a table's name that makes servers read rows by the key.

    Without it they may read a range by another index, or the whole table, and sort. Of a table
    without a key it is empty.
    """
    if not schema.has_key:
        return ""
    return f"FORCE INDEX ({quote_identifier(schema.key_name or 'PRIMARY')})"


def range_predicate(columns: Sequence[str], keys: KeyRange) -> str:
    """Return the condition `start <= key < end`, in a form for which servers use the index.

    A row constructor would read better, but the servers do not use an index range for it. Written
    as below each bound becomes a few disjoint ranges over all key columns; the shorter form
    `a >= x AND (a > x OR b >= y)` makes both servers scan every row with `a = x`.
    """
    parts = []
    if keys.start is not None:
        parts.append(_bound(columns, keys.start, strict=">", last=">="))
    if keys.end is not None:
        parts.append(_bound(columns, keys.end, strict="<", last="<"))
    return " AND ".join(parts) if parts else "TRUE"


def split_predicate(split: SnapshotSplit) -> str:
    """Return the condition for a split's rows; listed keys are not part of it."""
    keys = range_predicate(split.key_columns, split.keys)
    if split.chosen is None:
        return keys
    inside = chosen_predicate(split.chosen)
    return inside if split.keys == KeyRange() else f"{keys} AND {inside}"


def chosen_predicate(chosen: Chosen) -> str:
    """Return the condition for rows that are chosen by a condition, interval or list of keys."""
    match chosen:
        case Condition(text):
            return f"({text})"
        case Interval(column, _, _):
            return range_predicate((column,), chosen.values)
        case KeyList((column,), keys):
            return f"{quote_identifier(column)} IN ({', '.join(literal(key[0]) for key in keys)})"
        case KeyList(columns, keys):
            return f"({' OR '.join(_equal(columns, key) for key in keys)})"
        case _:
            assert_never(chosen)


def one_of(expressions: Sequence[str], keys: Sequence[Key]) -> str:
    """Return the condition that some SQL expressions have the values of one of these keys."""
    # MariaDB finds no index range for (a, b) IN (...)
    equal = (
        " AND ".join(f"{e} = {literal(part)}" for e, part in zip(expressions, key, strict=True))
        for key in keys
    )
    return " OR ".join(f"({condition})" for condition in equal)


def behind_predicate(columns: Sequence[str], key: Key) -> str:
    """Return the condition for keys greater than all that begin with `key`."""
    return _bound(columns, key, strict=">", last=">")


def living(flag: str) -> str:
    """Return the condition that a row is not marked as deleted, by the flag's column."""
    return f"{quote_identifier(flag)} = 0"


def of_shard(shard: OutputColumn | None, condition: str) -> str:
    """Return a condition on rows of a sink table that is true for those of one shard alone.

    Without a shard the table is not shared, and the condition is as it was.
    """
    if shard is None or shard.constant is None:
        return condition
    own = f"{quote_identifier(shard.name)} = {literal(shard.constant)}"
    return own if condition == "TRUE" else f"{own} AND ({condition})"


def _equal(columns: Sequence[str], key: Key) -> str:
    """Return the condition that a key's columns have these values."""
    # MariaDB finds no index range for (a, b) IN (...)
    pairs = zip(columns, key, strict=True)
    return f"({' AND '.join(f'{quote_identifier(c)} = {literal(part)}' for c, part in pairs)})"


def _bound(columns: Sequence[str], key: Key, *, strict: str, last: str) -> str:
    """Return the condition that bounds a key at one side, column by column."""
    column, value = quote_identifier(columns[0]), literal(key[0])
    if len(key) == 1:
        return f"{column} {last} {value}"
    rest = _bound(columns[1:], key[1:], strict=strict, last=last)
    return f"({column} {strict} {value} OR ({column} = {value} AND {rest}))"
