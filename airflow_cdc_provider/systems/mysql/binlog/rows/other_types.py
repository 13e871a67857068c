"""Types of columns in the log by which values mean something else than by the catalogue's types.

The log is written with the types of its time. Where a table was altered since, and no statement
that was read says so, values of the old type would be taken for some of the new one: a fraction of
a second that the type does not have, blanks at the end that it drops, a text that is no member.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from airflow_cdc_provider.core.table_schema import Column, ColumnType, TableSchema
from airflow_cdc_provider.systems.mysql.dialect.type_text import type_text

_TIMES = {"datetime", "timestamp", "time"}
_LISTED = {"enum", "set"}
_PADDED = {"char", "binary"}


def defined_otherwise(logged: Sequence[Column], stated: TableSchema) -> str:
    """Return which columns of a table were defined otherwise when the log was written, and how.

    What the types of values tell in Arrow is not looked at. Empty for none.
    """
    return "; ".join(_otherwise(logged, stated))


def _otherwise(logged: Sequence[Column], stated: TableSchema) -> Iterator[str]:
    """Yield the columns that were defined otherwise."""
    known = {column.name: column.type for column in stated.columns}
    for column in logged:
        now = known.get(column.name)
        if now is not None and _means_another(column.type, now):
            was, become = type_text(column.type), type_text(now)
            yield f"{column.name} was {was} in the log, and is {become}"


def _means_another(was: ColumnType, now: ColumnType) -> bool:
    """Tell whether a value of one type may be another value in the other one."""
    if was.name == now.name and now.name in _TIMES:
        return was.fraction != now.fraction
    if now.name in _LISTED:
        return was.name != now.name or not {*was.members} <= {*now.members}
    if now.name in _PADDED:
        return was.name != now.name or (now.name == "binary" and was.length != now.length)
    return False
