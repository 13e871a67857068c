"""The sink's own statement for a change of the source's table, from what the sink has by then.

What is there already is left alone, so the statement may be made and run again after a crash.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from airflow_cdc_provider.core.identifiers import TableId, quote_identifier, quote_table
from airflow_cdc_provider.core.schema_changes import SchemaChange, takes_free_name
from airflow_cdc_provider.core.table_schema import TableSchema, UniqueKey
from airflow_cdc_provider.systems.mysql.dialect.create_statement import (
    AttributeKind,
    KeyForm,
    parse_create_statement,
)
from airflow_cdc_provider.systems.mysql.dialect.sql_tokens import TokenKind, tokens
from airflow_cdc_provider.systems.mysql.dialect.table_ddl import (
    MYSQL,
    DeferredKind,
    column_definition,
    counts_from_the_start,
    deferred_keys,
    nullable_definition,
    uncounted_definition,
)

_NOT_ENFORCED = " NOT ENFORCED"


def alter_statement(
    change: SchemaChange, found: TableSchema, *, sink_flavour: str, anew: bool = False
) -> str:
    """Return the ALTER TABLE that the sink still needs for a schema change, empty if none.

    With `anew` columns of another type are made anew, without their values.
    """
    clauses = list(_Alteration(change, found, sink_flavour, anew=anew).clauses())
    if not clauses:
        return ""
    return f"ALTER TABLE {quote_table(change.before.sink_table)} {', '.join(clauses)}"


def unique_key_statements(
    change: SchemaChange, present: Collection[str], *, sink_flavour: str
) -> tuple[str, ...]:
    """Return the statements that add the source's new unique keys, without those `present`."""

    def nowhere(_table: TableId) -> None:
        """Name no sink table for any foreign key: only unique keys are wanted here."""

    keys = deferred_keys(
        change.after.written, change.after.sink_table, sink_flavour=sink_flavour, route=nowhere
    )
    return tuple(
        key.statement
        for key in keys
        if key.kind is DeferredKind.UNIQUE
        and key.name in change.difference.unique_added
        and key.name.lower() not in present
    )


def uncounted(
    before: TableSchema,
    after: TableSchema,
    found: TableSchema,
    dropped: Iterable[UniqueKey],
    *,
    sink_flavour: str,
) -> Iterator[str]:
    """Yield the clauses that take AUTO_INCREMENT from the sink's columns that begin dropped keys.

    Servers let a column count only while a key begins with it. It counts again with the key.
    """
    first = {key.columns[0].lower() for key in dropped}
    names = {column.name.lower(): column.name for column in after.as_copied.columns}
    for column in found.columns:
        name = names.get(column.name.lower())
        if not column.auto_increment or column.name.lower() not in first or name is None:
            continue
        if not counts_from_the_start(before, name):
            yield f"MODIFY COLUMN {uncounted_definition(after, name, sink_flavour=sink_flavour)}"


class _Alteration:
    """The clauses of a sink's ALTER TABLE for one schema change."""

    def __init__(
        self, change: SchemaChange, found: TableSchema, sink_flavour: str, *, anew: bool
    ) -> None:
        self._anew = anew
        self._change = change
        self._difference = change.difference
        self._flavour = sink_flavour
        self._columns = {column.name.lower(): column for column in found.columns}
        self._unique = found.unique_keys
        self._found = found

    def clauses(self) -> Iterator[str]:
        """Yield the clauses that are still to be done."""
        dropped = [key for key in self._unique if self._drops(key)]
        for key in dropped:
            yield f"DROP INDEX {quote_identifier(key.name)}"
        yield from self._uncounted(dropped)
        yield from self._in_the_way()
        yield from self._renamed()
        done = dict(pair for pair in self._difference.renamed if self._is_to_do(*pair))
        for name in self._difference.modified:
            if name not in done.values():
                yield from self._modified(name)
        left = self._columns.keys() - {before.lower() for before in done}
        there = left | {after.lower() for after in done.values()}
        for name in self._difference.added:
            if name.lower() not in left:
                yield f"ADD COLUMN {self._added(name)}{self._place(name, there)}"
                there |= {name.lower()}
        yield from self._dropped()

    def _uncounted(self, dropped: Sequence[UniqueKey]) -> Iterator[str]:
        """Yield the clauses for columns that cannot count without the dropped keys.

        Those that no other clause is about.
        """
        found, of_others = self._difference, {*self._difference.modified}
        of_others |= {*found.dropped, *(name for pair in found.renamed for name in pair)}
        left = [key for key in dropped if key.columns[0] not in of_others]
        before, after = self._change.before.written, self._change.after.written
        yield from uncounted(before, after, self._found, left, sink_flavour=self._flavour)

    def _place(self, name: str, there: Collection[str]) -> str:
        """Return FIRST or AFTER for a new column, as at the source; empty if it comes last.

        Servers add a column that comes last instantly.
        """
        names = [column.name for column in self._change.after.written.as_copied.columns]
        at = names.index(name)
        if not any(behind.lower() in there for behind in names[at + 1 :]):
            return ""
        before = next((each for each in reversed(names[:at]) if each.lower() in there), None)
        return " FIRST" if before is None else f" AFTER {quote_identifier(before)}"

    def _in_the_way(self) -> Iterator[str]:
        """Yield clauses that drop checks and computed columns which would prevent a renaming.

        That is a check that was the source's, or MariaDB's on JSON, which the column's definition
        brings again, and a computed column that the source has dropped and the sink has kept.
        """
        renamed = {
            old.casefold() for old, new in self._difference.renamed if self._is_to_do(old, new)
        }
        if not renamed or not self._found.create_statement:
            return
        stays = {column.name.casefold() for column in self._change.after.written.columns} | renamed
        goes = (
            set() if self._change.keeps_dropped else {*map(str.casefold, self._difference.dropped)}
        )
        found = parse_create_statement(self._found.create_statement)
        for column in found.columns:
            named = _names(a.text for a in column.attributes if a.kind is AttributeKind.GENERATED)
            if named & renamed and column.name.casefold() not in stays | goes:
                yield f"DROP COLUMN {quote_identifier(column.name)}"
        ours = _checks(self._change.before.written)
        for key in found.keys if self._flavour == MYSQL else ():
            stated = key.text.removesuffix(_NOT_ENFORCED)
            if key.form is KeyForm.CHECK and stated in ours and _names([stated]) & renamed:
                yield f"DROP CHECK {quote_identifier(key.name)}"

    def _modified(self, name: str) -> Iterator[str]:
        """Yield the clauses that change a column's type; made anew if its values are not kept."""
        if not self._anew or name in self._change.after.written.primary_key:
            yield f"MODIFY COLUMN {self._definition(name)}"
            return
        yield f"DROP COLUMN {quote_identifier(name)}"
        yield f"ADD COLUMN {self._added(name)}"

    def _added(self, name: str) -> str:
        """Return the definition of a new column, nullable while the table is read again."""
        schema = self._change.after.written
        if not self._change.rereads or schema.column(name).generated:
            return self._definition(name)
        return nullable_definition(schema, name, sink_flavour=self._flavour)

    def _drops(self, key: UniqueKey) -> bool:
        """Tell whether a unique key of the sink's table is to be dropped.

        While rows are read again those of before and after stand side by side, and the source's
        own keys would refuse rows that are right.
        """
        dropped = {name.lower() for name in self._difference.unique_dropped}
        if key.name.lower() in dropped:
            return True
        schemas = (self._change.before.written, self._change.after.written)
        sources = {each.columns for schema in schemas for each in schema.unique_keys}
        return self._change.rereads and key.columns in sources

    def _renamed(self) -> Iterator[str]:
        """Yield the clauses that rename columns."""
        for before, after in self._difference.renamed:
            if self._is_to_do(before, after):
                yield f"CHANGE COLUMN {quote_identifier(before)} {self._definition(after)}"

    def _is_to_do(self, before: str, after: str) -> bool:
        """Tell whether a column still has to be renamed."""
        return before.lower() in self._columns and takes_free_name(before, after, self._columns)

    def _dropped(self) -> Iterator[str]:
        """Yield the clauses that drop columns, or make them nullable where they are kept."""
        for name in self._difference.dropped:
            found = self._columns.get(name.lower())
            if found is None:
                continue
            if not self._change.keeps_dropped:
                yield f"DROP COLUMN {quote_identifier(name)}"
            elif not found.nullable and not found.generated:
                kept = nullable_definition(
                    self._change.before.written, name, sink_flavour=self._flavour
                )
                yield f"MODIFY COLUMN {kept}"

    def _definition(self, name: str) -> str:
        """Return a column's new definition at the sink."""
        return column_definition(self._change.after.written, name, sink_flavour=self._flavour)


def _checks(schema: TableSchema) -> set[str]:
    """Return the texts of all checks of the source's table."""
    if not schema.create_statement:
        return set()
    parsed = parse_create_statement(schema.create_statement)
    own = (a.text for c in parsed.columns for a in c.attributes if a.kind is AttributeKind.CHECK)
    stated = (*own, *(key.text for key in parsed.keys if key.form is KeyForm.CHECK))
    return {text.removesuffix(_NOT_ENFORCED) for text in stated}


def _names(texts: Iterable[str]) -> set[str]:
    """Return the quoted names, in folded case, in texts of a definition."""
    found = (token for text in texts for token in tokens(text))
    return {token.text.casefold() for token in found if token.kind is TokenKind.NAME}
