"""The foreign keys a table has as the child, read from its own definition.

`information_schema` is not asked: MariaDB's list of their rules is empty, without an error, for an
account that may only read. SHOW CREATE TABLE names keys and rules to whoever may read the table,
and is refused, not cut short, to others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.systems.mysql.dialect.create_statement import (
    KeyForm,
    ParsedKey,
    not_understood,
    parse_keys,
)
from airflow_cdc_provider.systems.mysql.dialect.sql_tokens import Token
from airflow_cdc_provider.systems.mysql.server.connection import Role
from airflow_cdc_provider.systems.mysql.server.introspection import create_statements

if TYPE_CHECKING:
    from airflow_cdc_provider.systems.mysql.server.connection import ServerConnection

NO_RULE = "NO ACTION"
_RULES = {
    "NO": NO_RULE,
    "RESTRICT": "RESTRICT",
    "CASCADE": "CASCADE",
    "NULL": "SET NULL",
    "DEFAULT": "SET DEFAULT",
}
"""By the word that tells a rule from the others."""


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """A foreign key of `table`, the child, which refers to `referenced`, the parent."""

    name: str
    table: TableId
    columns: tuple[str, ...]
    referenced: TableId
    referenced_columns: tuple[str, ...]
    on_update: str
    on_delete: str

    @property
    def cascades(self) -> bool:
        """Tell whether a change of the parent's row changes rows of the child."""
        return not {self.on_update, self.on_delete} <= {NO_RULE, "RESTRICT"}


def foreign_keys(
    connection: ServerConnection, tables: Iterable[TableId], *, role: Role = Role.SOURCE
) -> tuple[ForeignKey, ...]:
    """Return the foreign keys of existing tables, as children."""
    statements = create_statements(connection, sorted(set(tables)), role=role)
    return tuple(key for table, text in statements.items() for key in keys_in(table, text))


def keys_in(table: TableId, create_statement: str) -> tuple[ForeignKey, ...]:
    """Return the foreign keys in a table's definition."""
    keys = parse_keys(create_statement)
    return tuple(_key(table, key) for key in keys if key.form is KeyForm.FOREIGN)


def _key(table: TableId, key: ParsedKey) -> ForeignKey:
    """Return a parsed key as a foreign key."""
    parts = key.tokens
    at = next((i for i, token in enumerate(parts) if token.is_word("REFERENCES")), len(parts))
    names, lists = parts[at + 1 :], [*_lists(parts)]
    if len(lists) != 2 or len(names) < 3:
        raise not_understood(key.text)
    has_database = names[1].is_mark(".")
    return ForeignKey(
        name=key.name,
        table=table,
        columns=lists[0],
        referenced=TableId(names[0].text, names[2].text)
        if has_database
        else TableId(table.database, names[0].text),
        referenced_columns=lists[1],
        on_update=_rule(key, "UPDATE"),
        on_delete=_rule(key, "DELETE"),
    )


def _lists(parts: Sequence[Token]) -> Iterator[tuple[str, ...]]:
    """Yield the names in each pair of parentheses."""
    inside: list[str] | None = None
    for token in parts:
        if token.is_mark("("):
            inside = []
        elif token.is_mark(")") and inside is not None:
            yield tuple(inside)
            inside = None
        elif inside is not None and token.is_name:
            inside.append(token.text)


def _rule(key: ParsedKey, event: str) -> str:
    """Return the rule of `ON UPDATE` or `ON DELETE`; NO ACTION if it is not stated."""
    for on, kind, first, *rest in _windows(key.tokens):
        if not (on.is_word("ON") and kind.is_word(event)):
            continue
        deciding = rest[0] if rest and first.is_word("SET") else first
        rule = _RULES.get(deciding.text.upper())
        if rule is None:
            raise not_understood(key.text)
        return rule
    return NO_RULE


def _windows(parts: Sequence[Token]) -> Iterator[Sequence[Token]]:
    """Yield each token with up to three tokens that follow it."""
    for at in range(len(parts) - 2):
        yield parts[at : at + 4]
