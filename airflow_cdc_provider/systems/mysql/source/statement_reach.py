"""How far a row change reaches that the log holds as text, as the source's catalogue tells it.

What a session logs as a statement and not as rows, such as the checksums of pt-table-checksum, is
harmless where nothing that is copied can have changed. The text names the table that it writes. So
that table must be a plain one, without triggers, and no foreign key may lead from it to a captured
table. And no stored function may be called, neither by the statement nor by a view that it reads.

The catalogue says what is so now. It speaks for the statement's moment only if the log has no
statement since about triggers, keys or views of these tables. So the log is searched from there to
its end, once for each table; statements that the reader meets later are heeded as they come.

What the account may not see is not taken for absent: then the change may have reached any table.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from airflow_cdc_provider.core.errors import RefusedError
from airflow_cdc_provider.core.identifiers import TableId, quote_identifier
from airflow_cdc_provider.core.table_facts import TableFacts, TableKind
from airflow_cdc_provider.systems.mysql.binlog.events.statements import LoggedStatement
from airflow_cdc_provider.systems.mysql.binlog.events.text_reach import Reach
from airflow_cdc_provider.systems.mysql.dialect.reach_changes import ReachChange
from airflow_cdc_provider.systems.mysql.dialect.row_statements import RowStatement
from airflow_cdc_provider.systems.mysql.preflight.foreign_keys import foreign_keys
from airflow_cdc_provider.systems.mysql.server.catalogue import (
    stored_names,
    table_facts,
    triggers,
)
from airflow_cdc_provider.systems.mysql.server.connection import connect, query
from airflow_cdc_provider.systems.mysql.server.privileges import Grants, read_grants
from airflow_cdc_provider.systems.mysql.server.raw_connection import is_mariadb

if TYPE_CHECKING:
    from airflow_cdc_provider.core.endpoint import Endpoint
    from airflow_cdc_provider.systems.mysql.positions.position import BinlogPosition
    from airflow_cdc_provider.systems.mysql.server.connection import ServerConnection

log = logging.getLogger(__name__)

_NO_SUCH_TABLE = 1146
_PLAIN = {TableKind.BASE, TableKind.VERSIONED}
_OWN_ROWS = {"innodb", "myisam", "aria", "memory", "csv", "archive", "blackhole", "rocksdb"}
"""Engines whose tables hold their own rows, and no other table's."""
_FUNCTIONS = (
    "SELECT LOWER(ROUTINE_NAME) FROM information_schema.ROUTINES WHERE ROUTINE_TYPE <> 'PROCEDURE' "
    "AND ROUTINE_SCHEMA NOT IN ('information_schema', 'mysql', 'performance_schema', 'sys')"
)


@dataclass(frozen=True, slots=True)
class _Doubt:
    """A reason why a table or function may change other rows, and what would rule that out."""

    why: str
    remedy: str = ""


@dataclass(slots=True)
class _Known:
    """What the catalogue said of tables and functions, until a statement of the log changes it."""

    written: dict[TableId, _Doubt | None] = field(default_factory=dict)
    """Tables that are written; None where nothing else changes with them, keys apart."""
    read: dict[TableId, _Doubt | None] = field(default_factory=dict)
    """Tables that are read; None where they are no views."""
    led_to: dict[TableId, frozenset[TableId]] | None = None
    """By captured table: itself, and the tables whose changes foreign keys bring to it."""
    unseen: frozenset[TableId] = frozenset()
    """Of these tables' foreign keys nothing is known."""
    functions: frozenset[str] | _Doubt | None = None

    def forget(self, change: ReachChange) -> None:
        """Forget what a statement may have changed in the catalogue."""
        for tables in (self.written, self.read):
            for table in [table for table in tables if change.concerns(table)]:
                del tables[table]
        led_to = {} if self.led_to is None else self.led_to
        if any(change.concerns(table) for tables in led_to.values() for table in tables):
            self.led_to = None
        if change.everything:
            self.functions = None


class StatementReach:
    """Finds out from the catalogue which tables a statement logged as text may change."""

    def __init__(
        self,
        endpoint: Endpoint,
        captured: Collection[TableId],
        statements_since: Callable[[BinlogPosition], Iterable[LoggedStatement]],
    ) -> None:
        """Prepare for captured tables.

        `statements_since` yields the log's statements from a place on.
        """
        self._endpoint = endpoint
        self._captured = captured
        self._names = {str(table).casefold() for table in captured}
        self._statements_since = statements_since
        self._known = _Known()

    def heed(self, statement: LoggedStatement) -> None:
        """Forget what a statement of the log may have changed in the catalogue."""
        known = self._known
        if known.written or known.read or known.led_to is not None or known.functions is not None:
            known.forget(statement.reach_change)

    def of(self, statement: LoggedStatement, since: BinlogPosition) -> Reach:
        """Return the tables whose rows a statement may have changed, also by foreign keys."""
        rows = statement.rows
        written = rows.writes
        if written is None:
            return Reach(is_any=True, why="its text does not say which one table it writes")
        reads = tuple(each for each in rows.reads if str(each).casefold() not in self._names)
        rows = replace(rows, reads=reads)  # a captured table is no view
        self._look(written, rows, since)
        doubt = self._known.written[written] or self._doubt(rows)
        if doubt is not None:
            return Reach(is_any=True, why=doubt.why, remedy=doubt.remedy)
        led_to = self._led_to(written)
        why = ""
        if led_to:
            names = ", ".join(map(str, sorted(led_to)))
            why = f"foreign keys lead from {written} to {names}, or it cannot be told"
        return Reach(frozenset({written, *led_to}), why=why)

    # --- what is known ------------------------------------------------------------------------

    def _doubt(self, rows: RowStatement) -> _Doubt | None:
        """Return why a statement may call stored functions that change rows.

        None if it does not.
        """
        known = self._known
        views = [doubt for each in rows.reads if (doubt := known.read[each]) is not None]
        if not (views or rows.calls):
            return None
        functions = known.functions
        what = f"it calls {rows.calls[0]}()" if rows.calls else views[0].why
        what = f"{what}, and stored functions may change rows"
        if not isinstance(functions, frozenset):
            return _Doubt(what, functions.remedy if functions else "")
        if functions & set(rows.calls) or (views and functions):
            return _Doubt(what)
        return None

    def _led_to(self, written: TableId) -> frozenset[TableId]:
        """Return the captured tables to which foreign keys bring changes of a table."""
        led_to, unseen = self._known.led_to or {}, self._known.unseen
        name = str(written).casefold()
        return frozenset(
            table
            for table, parents in led_to.items()
            if str(table).casefold() != name
            and (parents & unseen or name in {str(parent).casefold() for parent in parents})
        )

    # --- looking ------------------------------------------------------------------------------

    def _look(self, table: TableId, rows: RowStatement, since: BinlogPosition) -> None:
        """Query the catalogue for what is not known of a statement's tables.

        Check the later log.
        """
        known = self._known
        written = {table} - known.written.keys()
        read = set(rows.reads) - known.read.keys()
        asks_functions = bool(rows.calls or read) and known.functions is None
        if not (written or read or known.led_to is None or asks_functions):
            return
        found = self._looked_at(written, read)
        for statement in self._statements_since(since):
            _note(found, statement.reach_change)
        known.written |= found.written
        known.read |= found.read
        known.functions = found.functions
        if found.led_to is not None:
            known.led_to, known.unseen = found.led_to, found.unseen
        log.info("catalogue asked about a statement logged as text: writes=%s", table)

    def _looked_at(self, written: Collection[TableId], read: Collection[TableId]) -> _Known:
        """Query the catalogue about tables written and read, functions and foreign keys."""
        purpose = "statements logged as text"
        with closing(connect(self._endpoint, purpose=purpose)) as connection:
            grants = read_grants(connection)
            stored = stored_names(connection, {*written, *read})
            facts = table_facts(connection, set(stored.values()))
            found = _Known(functions=_functions(connection, grants))
            for table in written:
                fact = facts.get(stored[table])
                found.written[table] = _writing(connection, grants, stored[table], fact)
            for table in read:
                found.read[table] = _reading(grants, table, facts.get(stored[table]))
            if self._known.led_to is None:
                found.led_to, found.unseen = _parents(connection, self._captured)
            return found


def _note(found: _Known, change: ReachChange) -> None:
    """Turn into doubts what a later statement of the log may have changed in the catalogue."""
    for tables in (found.written, found.read):
        for table in [table for table in tables if change.concerns(table)]:
            tables[table] = _Doubt(
                f"the log has a later statement about triggers, keys or the definition of {table}, "
                "so that the catalogue does not say what they were"
            )
    for captured, parents in (found.led_to or {}).items():
        if any(map(change.concerns, parents)):
            found.unseen |= {captured}
    if change.everything:
        found.functions = _Doubt("the log has a later statement about functions")


def _writing(
    connection: ServerConnection, grants: Grants, table: TableId, fact: TableFacts | None
) -> _Doubt | None:
    """Return why writing to a table may change other tables; None if it cannot."""
    grant = f"GRANT TRIGGER ON {quote_identifier(table.database)}.* TO {grants.account}"
    if not grants.holds("TRIGGER", table.database, table.table):
        return _Doubt(
            f"whether {table} has triggers, which may change any table, cannot be told",
            f"{grant}, which shows them, and run again",
        )
    if fact is None:
        return _Doubt(f"there is no table {table} now, or the account does not see it", grant)
    if fact.kind not in _PLAIN or fact.engine.lower() not in _OWN_ROWS:
        kind = f"engine {fact.engine}" if fact.kind in _PLAIN else fact.kind.value
        return _Doubt(f"{table} may write to other tables: {kind}")
    names = triggers(connection, [table]).get(table, ())
    if names:
        return _Doubt(f"{table} has triggers, which may change any table: {', '.join(names)}")
    return None


def _reading(grants: Grants, table: TableId, fact: TableFacts | None) -> _Doubt | None:
    """Return why reading a table may call functions: it may be a view; None for a plain table."""
    if fact is not None and fact.kind in _PLAIN:
        return None
    what = "a view" if fact is not None else "a view or a table that the account does not see"
    return _Doubt(f"it reads {table}, {what}", f"GRANT SELECT ON {table} TO {grants.account}")


def _functions(connection: ServerConnection, grants: Grants) -> frozenset[str] | _Doubt:
    """Return the names of all stored functions, or the doubt if the account cannot see them all."""
    if is_mariadb(connection):
        sees, grant = grants.holds("SELECT", "mysql", "proc"), "SELECT ON mysql.proc"
    else:
        sees = grants.holds("SHOW_ROUTINE") or grants.holds("SELECT")
        grant = "SHOW_ROUTINE ON *.*"
    if sees:
        return frozenset(str(row[0]) for row in query(connection, _FUNCTIONS))
    remedy = f"GRANT {grant} TO {grants.account}, which shows whether there are any, and run again"
    return _Doubt("the account does not see all stored functions", remedy)


def _parents(
    connection: ServerConnection, captured: Collection[TableId]
) -> tuple[dict[TableId, frozenset[TableId]], frozenset[TableId]]:
    """Return, by captured table, itself and the tables whose changes reach it by foreign keys.

    Also return the tables whose foreign keys this account may not see.
    """
    direct: dict[TableId, frozenset[TableId]] = {}
    unseen: set[TableId] = set()
    waiting = set(captured)
    while waiting:
        for table in sorted(waiting):
            try:
                keys = foreign_keys(connection, [table])
            except RefusedError as refused:
                keys = ()
                if refused.server_error != _NO_SUCH_TABLE:
                    unseen.add(table)
            direct[table] = frozenset(key.referenced for key in keys if key.cascades)
        waiting = {each for parents in direct.values() for each in parents} - direct.keys()
    return {table: _all_before(table, direct) for table in captured}, frozenset(unseen)


def _all_before(table: TableId, direct: dict[TableId, frozenset[TableId]]) -> frozenset[TableId]:
    """Return a table and all its direct and indirect parents by foreign keys."""
    found, waiting = {table}, [table]
    while waiting:
        new = direct[waiting.pop()] - found
        found |= new
        waiting += new
    return frozenset(found)
