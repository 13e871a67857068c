"""One table on one server, read column by column, for a comparison by columns.

Rows come by the snapshot reader's decoders. Dates stay texts, so that zero and impossible ones are
values like all others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_cdc_provider.columns.verify_port import ColumnsRead, KeyedRows
from airflow_cdc_provider.core.identifiers import quote_identifier, quote_table
from airflow_cdc_provider.core.keys import Key, KeyRange
from airflow_cdc_provider.core.table_schema import Column, TypeKind
from airflow_cdc_provider.systems.mysql.dialect.column_types import ZeroDates, mysql_type
from airflow_cdc_provider.systems.mysql.dialect.sql import by_key, of_shard, one_of, range_predicate
from airflow_cdc_provider.systems.mysql.server.connection import RawConnection, Role
from airflow_cdc_provider.systems.mysql.source.key_bounds import key_at
from airflow_cdc_provider.systems.mysql.verify.verify_text import (
    float_bits,
    key_texts,
    no_day,
    plain_key,
)
from airflow_cdc_provider.systems.mysql.wire.text_decoder import TextDecoder
from airflow_cdc_provider.systems.mysql.wire.text_result import chunks_as_they_come
from airflow_cdc_provider.systems.mysql.wire.text_values import select_expression

if TYPE_CHECKING:
    from airflow_cdc_provider.systems.mysql.server.connection import ServerConnection

_KEYS_A_QUERY = 500
_TEXT = mysql_type("longtext", charset="utf8mb4", collation="utf8mb4_bin")


@dataclass(frozen=True, slots=True)
class _KeyColumn:
    """How one column of a key is read and looked up."""

    column: Column
    """The column in which it comes: itself, or a text."""
    selected: str
    """The SQL expression that is selected for it."""
    compared: str
    """The SQL expression that is compared with a key's part."""
    is_float: bool
    """It comes as a number, and is looked up by its bits."""


class MySqlColumnsSide:
    """One table on one server, whose rows are read as columns."""

    def __init__(
        self,
        connection: ServerConnection,
        own: ColumnsRead,
        other: ColumnsRead,
        role: Role,
        nulled: Collection[str] = (),
    ) -> None:
        """`nulled` are columns of which dates that are no day are read as NULL."""
        self._connection, self._read, self._role = connection, own, role
        self._key = tuple(_key_columns(own, other))
        columns = tuple(map(own.table.column, own.columns))
        self._columns = (*columns, *(each.column for each in self._key))
        self._selected = ", ".join(
            [
                *(
                    _days(each) if each.name in nulled else select_expression(each)
                    for each in columns
                ),
                *(each.selected for each in self._key),
            ]
        )

    def rows(self, keys: KeyRange) -> Iterator[KeyedRows]:
        """Yield the rows in a range of keys."""
        yield from self._select(range_predicate(self._read.key, keys))

    def rows_of(self, keys: Collection[Key]) -> Iterator[KeyedRows]:
        """Yield the rows with these keys; a collation may find more."""
        compared = [each.compared for each in self._key]
        wanted = [self._as_compared(key) for key in keys]
        for at in range(0, len(wanted), _KEYS_A_QUERY):
            yield from self._select(one_of(compared, wanted[at : at + _KEYS_A_QUERY]))

    def key_at(self, keys: KeyRange, number: int) -> Key | None:
        """Return the key of the row with this number in a range of keys; None beyond its end."""
        read = self._read
        return key_at(self._connection, read.table, read.key, keys, number, read.shard)

    def _as_compared(self, key: Key) -> Key:
        """Return a key as the server compares it."""
        return tuple(
            float_bits(str(part)) if each.is_float else part
            for each, part in zip(self._key, key, strict=True)
        )

    def _select(self, condition: str) -> Iterator[KeyedRows]:
        """Yield the rows that meet a condition, as they come from the server."""
        table, count = self._read.table, len(self._read.columns)
        decoder = TextDecoder(table, self._columns, ZeroDates.TEXT)
        hint = f" {by_key(table)}" if self._read.is_by_primary_key else ""
        own = of_shard(self._read.shard, condition)
        sql = f"SELECT {self._selected} FROM {quote_table(table.table)}{hint} WHERE {own}"
        raw = RawConnection(self._connection, role=self._role)
        for chunk in chunks_as_they_come(raw, sql, decoder):
            rows = decoder.to_arrow(chunk)
            yield KeyedRows(rows.select(list(range(count))), tuple(rows.columns[count:]))


def _days(column: Column) -> str:
    """Return the SQL expression of a date that is NULL where it is no day of the calendar."""
    return f"IF({no_day(column)}, NULL, {select_expression(column)})"


def _key_columns(own: ColumnsRead, other: ColumnsRead) -> Iterator[_KeyColumn]:
    """Yield how each column of a key is read and looked up."""
    columns = [own.table.column(name) for name in own.key]
    texts = key_texts([(c, other.table.column(n)) for c, n in zip(columns, other.key, strict=True)])
    others = map(other.table.column, other.key)
    for column, text, there in zip(columns, texts, others, strict=True):
        name = quote_identifier(column.name)
        if own.plain_key:
            selected = plain_key(column, there, select_expression(column))
            yield _KeyColumn(column, selected, name, is_float=False)
        elif column.type.kind is TypeKind.FLOAT:
            yield _KeyColumn(column, select_expression(column), text, is_float=True)
        else:
            yield _KeyColumn(Column(column.name, _TEXT), text, text, is_float=False)
