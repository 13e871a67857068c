"""What a statement of the log does to tables, as far as its text tells.

Each system reads its own statements; what they come to is data, and travels with the changes.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.table_schema import TableSchema


class StatementKind(StrEnum):
    """The kind of a statement in the log, such as create, alter or truncate."""

    CREATE = "create"
    ALTER = "alter"
    DROP = "drop"
    """Tables, or whole databases."""
    RENAME = "rename"
    TRUNCATE = "truncate"
    ROWS = "rows"
    """Row changes as text: the rows themselves are not in the log, nor are those that triggers,
    foreign keys and functions change along with them, in tables the text does not name."""
    TRANSACTION = "transaction"
    """BEGIN, COMMIT, ROLLBACK, savepoints and XA."""
    OTHER = "other"
    """Known to leave tables alone: views, users, routines, maintenance."""
    UNKNOWN = "unknown"


class StepKind(StrEnum):
    """What a statement does to one column, as a kind."""

    ADD = "add"
    DROP = "drop"
    DEFINE = "define"
    """Its definition is another; so may be its name."""
    RENAME = "rename"


@dataclass(frozen=True, slots=True)
class ColumnStep:
    """What a statement does to one column: its kind, and the names as the statement has them."""

    kind: StepKind
    name: str
    to: str = ""
    """The name it has afterwards, empty if its own."""
    after: str | None = None
    """The column it stands behind afterwards, empty if it is the first. None: its own place, or
    behind all others if it is new."""


@dataclass(frozen=True, slots=True)
class StatementEffect:
    """What a statement of the log does, as parsed from its text: kind, tables, columns."""

    kind: StatementKind
    tables: tuple[TableId, ...] = ()
    databases: tuple[str, ...] = ()
    """Databases that are dropped whole."""
    renames: tuple[tuple[TableId, TableId], ...] = ()
    harmless: bool = False
    """Neither rows, nor columns, nor unique keys, nor names change."""
    unlogged_rows: bool = False
    """Rows change without row events: partitions dropped or exchanged, tablespaces imported."""
    temporary: bool = False
    reaches_all: bool = False
    """Any table may be changed, named or not."""
    if_plain: tuple[str, ...] = ()
    """It is harmless if none of these keys and constraints, dropped or renamed, is unique."""
    drops_constraints: bool = False
    """Among these are constraints, which may be checks."""
    column_renames: tuple[tuple[str, str], ...] = ()
    only_adds: bool = False
    """Columns and keys are added, and nothing else is done."""
    is_told: bool = False
    """Of an ALTER: two definitions, and `unlogged_rows`, say all that it did."""
    is_doubtful: bool = False
    """Two definitions do not tell what it did: a column may have taken another's place."""
    column_steps: tuple[ColumnStep, ...] | None = None
    """What it does to columns, in its own order; None if its text does not tell, or not that alone.
    Of a harmless ALTER, too: it may set a default."""
    creates: bool = False
    """It makes a table that was not there: rows come to it by the log alone."""
    unique_keys: bool = False
    """Unique keys may come, go or have another name."""
    cascades: bool = False
    """A foreign key comes that changes rows of its table by itself. Few servers log those."""

    @property
    def coming(self) -> tuple[TableId, ...]:
        """Return the names of tables that the statement may have created, also by renaming."""
        if self.kind is StatementKind.CREATE:
            return self.tables
        return tuple(new for _, new in self.renames)

    def names(self, table: TableId) -> bool:
        """Tell whether the statement names `table`, ignoring case."""
        wanted = str(table).casefold()
        return any(str(named).casefold() == wanted for named in self.tables)

    def concerns(self, table: TableId, *, ignore_case: bool = False) -> bool:
        """Tell whether the statement may change the rows or the definition of `table`."""
        if self.harmless:
            return False
        if self.reaches_all or self.kind is StatementKind.UNKNOWN:
            return True

        def same(left: str, right: str) -> bool:
            return left.casefold() == right.casefold() if ignore_case else left == right

        if any(same(database, table.database) for database in self.databases):
            return True
        return any(
            same(named.database, table.database) and same(named.table, table.table)
            for named in self.tables
        )

    def changes(self, schema: TableSchema, *, ignore_case: bool = False) -> bool:
        """Tell whether the statement may change the rows or the definition of a planned table."""
        if not self.concerns(schema.table, ignore_case=ignore_case):
            return False
        return not self.if_plain or any(self._is_needed(name, schema) for name in self.if_plain)

    def _is_needed(self, name: str, schema: TableSchema) -> bool:
        """Tell whether a name may be a key or constraint that affects how rows are copied.

        MariaDB's JSON is a text with a check, by whatever name.
        """
        unique = {"PRIMARY", schema.key_name, *(key.name for key in schema.unique_keys)}
        if _folded(name) in set(map(_folded, unique)):
            return True
        return self.drops_constraints and any(c.type.is_json_text for c in schema.columns)


def came_from(table: TableId, statements: Sequence[StatementEffect]) -> TableId:
    """Return the name that a table had before some statements, in their order, renamed it."""
    for effect in reversed(statements):
        for old, new in reversed(effect.renames):
            if new == table:
                table = old
    return table


def _folded(name: str) -> str:
    """Fold case and accents of a name at least as far as any server does."""
    parts = unicodedata.normalize("NFKD", name.casefold())
    bare = "".join(each for each in parts if not unicodedata.combining(each))
    return bare.casefold().replace("\u0131", "i")
