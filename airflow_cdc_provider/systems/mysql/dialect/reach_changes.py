"""Which statements change what a row change reaches: triggers, foreign keys, views, functions.

A catalogue says what is so now. For a row change of some time ago it speaks only if the log has had
no such statement since.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.statement_effect import StatementEffect, StatementKind
from airflow_cdc_provider.systems.mysql.dialect.sql_tokens import Token
from airflow_cdc_provider.systems.mysql.dialect.statement_tokens import StatementTokens

_VERBS = {"ALTER", "CREATE", "DROP"}
_OF_KEYS = ("FOREIGN", "REFERENCES", "CONSTRAINT", "ENGINE")


@dataclass(frozen=True, slots=True)
class ReachChange:
    """The tables whose triggers, keys or views a statement may have changed."""

    tables: tuple[TableId, ...] = ()
    databases: tuple[str, ...] = ()
    """All tables of these."""
    everything: bool = False

    def concerns(self, table: TableId) -> bool:
        """Tell whether a table is among those changed, whatever the case of its name."""
        folded = {name.casefold() for name in self.databases}
        if self.everything or table.database.casefold() in folded:
            return True
        return str(table).casefold() in {str(each).casefold() for each in self.tables}


NOTHING = ReachChange()
_EVERYTHING = ReachChange(everything=True)


def reach_change(found: Sequence[Token], effect: StatementEffect, database: str) -> ReachChange:
    """Return the tables whose triggers, keys, views or functions a statement may have changed."""
    if effect.kind is StatementKind.UNKNOWN:
        return _EVERYTHING
    reading = StatementTokens(found, database)
    verb = reading.verb()
    if effect.kind in {StatementKind.DROP, StatementKind.RENAME, StatementKind.CREATE}:
        is_there = effect.harmless or effect.temporary  # IF NOT EXISTS
        return NOTHING if is_there else ReachChange(effect.tables, effect.databases)
    if effect.kind is StatementKind.ALTER:
        has_keys = any(token.is_word(*_OF_KEYS) for token in found)
        return ReachChange(effect.tables) if has_keys or effect.is_doubtful else NOTHING
    return _of_noun(reading, verb) if verb in _VERBS else NOTHING


def _of_noun(reading: StatementTokens, verb: str) -> ReachChange:
    """Return what a statement on a trigger, view or function changes."""
    noun = reading.noun()
    if noun in {"FUNCTION", "PACKAGE"}:
        return _EVERYTHING
    if noun not in {"TRIGGER", "VIEW"}:
        return NOTHING
    reading.skip_existence()
    named = reading.table_list() if verb == "DROP" else (reading.table(),)
    tables = tuple(table for table in named if table is not None)
    if not tables:
        return _EVERYTHING
    if noun == "VIEW":
        return ReachChange(tables)
    # a trigger is in its table's database; DROP does not name the table
    return ReachChange(databases=tuple(table.database for table in tables))
