"""Few changes of one table as SQL text, value by value: the statements that `RowWriter` would send.

All that does not depend on the rows is worked out once for a table: where its columns are in the
log's rows, what writes each, and the text around.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from airflow_cdc_provider.columns.few_changes import FewMerged, Row
from airflow_cdc_provider.columns.keys import key_columns
from airflow_cdc_provider.core.table_schema import Column
from airflow_cdc_provider.systems.mysql.sink.commit_script import RowStatement
from airflow_cdc_provider.systems.mysql.sink.insert_statements import (
    InsertStatements,
    WriteMode,
    delete_head,
)
from airflow_cdc_provider.systems.mysql.wire.few_text import NotPlainError, Text, cell, text_of

if TYPE_CHECKING:
    from airflow_cdc_provider.core.records import TablePlan
    from airflow_cdc_provider.systems.mysql.sink.sink_session import SinkSession

Cells = tuple[tuple[int, Text], ...]
"""Of each column to be written: where it is in a row, and what writes it."""
NoMembers = tuple[tuple[int, bytes], ...]


class FewStatements:
    """Builds the SQL statements for a few changes of one sink table, value by value."""

    def __init__(
        self, session: SinkSession, plan: TablePlan, schema: pa.Schema, *, upserts: bool
    ) -> None:
        """Prepare the statements' texts; `schema` is that of the log's rows."""
        columns, key = plan.target.copied_columns, key_columns(plan.target)
        mode = WriteMode.UPSERT if upserts else WriteMode.INSERT
        insert = InsertStatements(session, plan.sink_table, columns, key, mode)
        self.plan, self.schema = plan, schema
        self._upserts = upserts
        self._head, self._tail = insert.around
        self._delete_head = delete_head(plan.sink_table, key)
        self._cells = _cells(schema, columns)
        self._key_cells = _cells(schema, key)
        self._no_members = _no_members(columns, [place for place, _ in self._cells])
        self._no_key_members = _no_members(key, range(len(key)))
        is_one = len(key) == 1
        self._parted = (b"", b"") if is_one else (b"(", b")")
        # of several columns MariaDB compares texts only in the column's own charset
        texts = any(pa.types.is_string(schema.field(column.name).type) for column in key)
        self._deletes = is_one or not (session.capabilities.is_mariadb and texts)

    def of(self, merged: FewMerged) -> list[RowStatement] | None:
        """Return the statements for merged changes; None if they must be written by `RowWriter`."""
        deletes, upserts = merged
        if not self._upserts:
            places = [place for place, _ in self._key_cells]
            again = [tuple([row[place] for place in places]) for row in upserts]
        else:
            again = []
        if (deletes or again) and not self._deletes:
            return None
        if _hold(upserts, self._no_members) or _hold(deletes, self._no_key_members):
            return None
        try:
            statements = [self._delete(keys) for keys in (deletes, again) if keys]
            if upserts:
                statements.append(self._write(upserts))
        except (NotPlainError, ValueError, OverflowError):
            return None
        return statements

    def _delete(self, keys: Sequence[Row]) -> RowStatement:
        """Return the DELETE of the rows with these keys."""
        texts = [text for _, text in self._key_cells]
        opening, closing = self._parted
        listed = b",".join(
            [
                opening
                + b",".join([cell(text, value) for text, value in zip(texts, key, strict=True)])
                + closing
                for key in keys
            ]
        )
        return RowStatement(self._delete_head + listed + b")")

    def _write(self, rows: Sequence[Row]) -> RowStatement:
        """Return the INSERT or upsert of these rows."""
        values = b",".join(
            [
                b"(" + b",".join([cell(text, row[place]) for place, text in self._cells]) + b")"
                for row in rows
            ]
        )
        count = None if self._upserts else len(rows)
        return RowStatement(self._head + values + self._tail, count)


def _no_members(columns: Sequence[Column], places: Iterable[int]) -> NoMembers:
    """Return each ENUM's place in a row and its text for index 0, which SQL cannot write."""
    return tuple(
        (place, column.type.no_member.encode())
        for place, column in zip(places, columns, strict=True)
        if column.type.name == "enum"
    )


def _hold(rows: Sequence[Row], no_members: NoMembers) -> bool:
    """Tell whether any row holds index 0 of an ENUM."""
    return any(row[place] == name for place, name in no_members for row in rows)


def _cells(schema: pa.Schema, columns: Sequence[Column]) -> Cells:
    """Return, for each column to write, its place in the log's rows and its writer of SQL text."""
    return tuple(
        (schema.get_field_index(column.name), text_of(column, schema.field(column.name).type))
        for column in columns
    )
