"""Making the sink's tables, and looking at those that are there already.

A missing table is made from the source's own definition, without secondary unique keys and
foreign keys. Before the consistent point rows of different moments stand side by side, and a
unique key would refuse rows that are right: one row still has a value that another has already
taken over. For the same reason the source's unique keys are taken off a table that is to be
filled anew; `finish` puts them back.

A table that is there already must be able to hold every row as it is: the same primary key with
the same collation (another one could merge two rows), each column with the same type and at
least as wide, InnoDB. All findings are told at once.

A table that several of the source's share has the columns of all of them. One that is there
already gets what a new shard needs. What a shard needs that has rows there is never mended in
silence: whoever dropped that column took values with it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import replace

from airflow_cdc_provider.core.errors import (
    CdcError,
    IntegrityError,
    RefusedError,
    RowRefusedError,
    UnsupportedTableError,
)
from airflow_cdc_provider.core.identifiers import (
    TableId,
    quote_identifier,
    quote_table,
    table_option,
)
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.row_metadata import Operation, RowStamp
from airflow_cdc_provider.core.schema_changes import SchemaChange
from airflow_cdc_provider.core.table_drift import TableDrift, drift_error
from airflow_cdc_provider.core.table_schema import TableSchema
from airflow_cdc_provider.engine.sink.port import Owner
from airflow_cdc_provider.systems.mysql.dialect.sql import literal, living
from airflow_cdc_provider.systems.mysql.dialect.stand_ins import (
    carried,
    lacked_types,
    lacking_columns,
)
from airflow_cdc_provider.systems.mysql.dialect.table_changes import (
    alter_statement,
    uncounted,
    unique_key_statements,
)
from airflow_cdc_provider.systems.mysql.dialect.table_ddl import (
    DeferredKey,
    DeferredKind,
    deferred_keys,
    sink_create_statement,
)
from airflow_cdc_provider.systems.mysql.server.connection import Role
from airflow_cdc_provider.systems.mysql.server.introspection import read_schemas
from airflow_cdc_provider.systems.mysql.sink import (
    foreign_key_indexes,
    ledger,
    table_drift,
    writers,
)
from airflow_cdc_provider.systems.mysql.sink.foreign_key_checks import add_foreign_key
from airflow_cdc_provider.systems.mysql.sink.ledger_schema import create_ledger
from airflow_cdc_provider.systems.mysql.sink.marked_rows import marking
from airflow_cdc_provider.systems.mysql.sink.shard_checks import ShardChecks
from airflow_cdc_provider.systems.mysql.sink.shared_tables import SharedTable, as_made
from airflow_cdc_provider.systems.mysql.sink.sink_session import SinkSession

_LOCK_WAIT_S = 120
_STATEMENT_TIMEOUT_S = 12 * 3600.0
"""An index of a large table takes its time."""


class MySqlTableBuilder:
    """Creates, alters and finishes the sink's tables, over one session."""

    def __init__(
        self,
        session: SinkSession,
        owner: Owner,
        plans: Sequence[TablePlan] = (),
        *,
        is_edge: bool = False,
    ) -> None:
        """`is_edge`: of a topology, whose tables may be ahead of the plans."""
        self._is_edge = is_edge
        self._session = session
        self._owner = owner
        self._plans = plans
        shards = [plan for plan in plans if plan.shard is not None]
        self._shards = ShardChecks(session, owner, shards, self._carried, is_edge=is_edge)
        create_ledger(session)
        # an ALTER waits for transactions of the stream, but not for ever
        session.execute(f"SET SESSION lock_wait_timeout = {_LOCK_WAIT_S}")
        session.raw.set_read_timeout(_STATEMENT_TIMEOUT_S)

    def close(self) -> None:
        """Close the connection."""
        self._session.close()

    def require_fit(self, plans: Sequence[TablePlan]) -> None:
        """Refuse the plans if an existing sink table cannot hold the source's rows."""
        for plan in plans if self._is_edge else ():
            self._carried(plan)
        self._shards.require_agreed(plans)
        existing = self._existing(plans)
        self._refuse_unfit(plans, existing, begun=plans)
        self._shards.require_whole(plans, existing)

    def require_creatable(self, plans: Sequence[TablePlan]) -> None:
        """Refuse the plans if a table cannot be created at this sink; creates nothing."""
        for plan in plans:
            self._create_statement(self._carried(plan))
        self.require_fit([plan for plan in plans if plan.shard is not None])

    def missing(self, plans: Sequence[TablePlan]) -> tuple[TableId, ...]:
        """Return the plans' sink tables that do not exist."""
        existing = self._existing(plans)
        wanted = dict.fromkeys(plan.sink_table for plan in plans)
        return tuple(table for table in wanted if table not in existing)

    def create_missing(self, plans: Sequence[TablePlan]) -> Mapping[TableId, bool]:
        """Create missing databases and tables, and return which tables were created."""
        existing = self._existing(plans)
        self._shards.require_agreed(plans)
        begun = self._shards.begun(plans)
        self._refuse_unfit(plans, existing, begun=begun)
        self._refuse_lost(plans, existing)
        self._shards.require_whole(plans, existing)
        plans = [self._carried(plan) for plan in plans]
        self._create_databases({plan.sink_table.database for plan in plans})
        created = {}
        for plan in as_made(plans, list(map(self._carried, self._shards.known))):
            found = existing.get(plan.sink_table)
            created[plan.sink_table] = found is None
            if found is None:
                self._session.execute(self._create_statement(plan))
            elif plan.shard is None and not self._is_streamed(plan):
                self._drop_unique_keys(plan, found)
        for plan in begun:
            if plan.sink_table in existing:
                self._extend(self._carried(plan))
        return created

    def _is_streamed(self, plan: TablePlan) -> bool:
        """Tell whether the stream has a plan's table."""
        return ledger.stream_owns(self._session, self._owner, plan.schema.table)

    def _extend(self, plan: TablePlan) -> None:
        """Give a shared sink table what it lacks for one more shard."""
        found = self._existing([plan])[plan.sink_table]
        SharedTable(self._session, plan, flavour=self._flavour).extend(found)

    def delete_shard(self, plan: TablePlan) -> None:
        """Delete the rows of one shard from a sink table that others share."""
        with self._shard(plan) as (shard, found):
            if found is not None:
                shard.delete_rows()

    def empty_columns(self, plan: TablePlan, names: Collection[str]) -> None:
        """Make columns NULL in the rows of one shard, as far as the sink's table has them."""
        with self._shard(plan) as (shard, found):
            columns = () if found is None else found.columns
            shard.empty([c.name for c in columns if c.nullable and c.name.lower() in names])

    @contextmanager
    def _shard(self, plan: TablePlan) -> Iterator[tuple[SharedTable, TableSchema | None]]:
        """Give a shard's part of a sink table, as the owner; and its definition, if it is there."""
        lock = writers.register_writer(self._session, self._owner)
        try:
            ledger.check_generation(self._session, self._owner)
            found = self._existing([plan]).get(plan.sink_table)
            yield SharedTable(self._session, plan, flavour=self._flavour), found
        finally:
            writers.unregister_writer(self._session, lock)

    def _create_databases(self, wanted: Set[str]) -> None:
        """Create the databases that are missing.

        One that is there is left alone: the statement would wait for each lock on its tables.
        """
        shown = self._session.rows("SELECT SCHEMA_NAME FROM information_schema.SCHEMATA")
        for name in sorted(wanted - {str(row[0]) for row in shown}):
            quoted = quote_identifier(name)
            self._session.execute(f"CREATE DATABASE IF NOT EXISTS {quoted} CHARACTER SET utf8mb4")

    def drifted(self, plans: Sequence[TablePlan]) -> tuple[TableDrift, ...]:
        """Return the sink tables whose altered definitions may now refuse or alter rows."""
        return table_drift.drifted(
            self._session, self._owner, plans, known=self._shards.known, is_edge=self._is_edge
        )

    def columns(self, plan: TablePlan) -> frozenset[str]:
        """Return the names of the sink table's columns, in lower case; none without a table."""
        found = self._existing([plan]).get(plan.sink_table)
        return frozenset(column.name.lower() for column in found.columns) if found else frozenset()

    def change(self, change: SchemaChange) -> None:
        """Make a schema change of a source table at the sink; making it twice is harmless."""
        target = change.before.sink_table
        found = self._existing([change.before], with_statement=True).get(target)
        is_shared = change.before.shard is not None
        if found is None and (is_shared or not change.is_made_anew):
            gone = TableDrift.gone(change.table, target)
            raise drift_error([gone], f"sink {self._session.where}")
        # a newer owner ends this session, so no statement of it comes after that one's
        lock = writers.register_writer(self._session, self._owner)
        try:
            ledger.check_generation(self._session, self._owner)
            before, after = self._carried(change.before), self._carried(change.after)
            change = replace(change, before=before, after=after)
            if found is not None and is_shared:
                SharedTable(self._session, after, flavour=self._flavour).follow(change, found)
                return
            if found is None or change.is_made_anew:
                self._require_none_marked(change, found)
                self._session.execute(f"DROP TABLE IF EXISTS {quote_table(target)}")
                self._session.execute(self._create_statement(change.after))
                return
            if change.truncates:
                self._truncate(change)
            self._alter(change, found)
        except (IntegrityError, RefusedError, UnsupportedTableError) as error:
            raise _not_made(change, error) from None
        finally:
            writers.unregister_writer(self._session, lock)

    def _truncate(self, change: SchemaChange) -> None:
        """Take away all rows of a sink table, or mark them where it keeps deleted rows.

        Those of one that is read again are marked by that: what is not found is deleted.
        """
        plan = change.before
        table = quote_table(plan.sink_table)
        if not plan.shape.deleted_flag:
            self._session.execute(f"TRUNCATE TABLE {table}")
        elif not change.rereads:
            through = change.through
            stamp = change.stamp or RowStamp(Operation.TRUNCATE, through.short, through.server)
            only = living(plan.shape.deleted_flag)
            self._session.execute(f"UPDATE {table} SET {marking(plan, stamp)} WHERE {only}")

    def _require_none_marked(self, change: SchemaChange, found: TableSchema | None) -> None:
        """Refuse to make a sink table anew that keeps rows which are deleted at the source."""
        plan = change.before
        flag = plan.shape.deleted_flag
        if found is None or not flag or flag not in {column.name for column in found.columns}:
            return
        table = quote_table(plan.sink_table)
        if self._session.rows(f"SELECT 1 FROM {table} WHERE NOT {living(flag)} LIMIT 1"):
            raise RefusedError(
                f"{plan.sink_table} cannot be altered to fit, and keeps rows that the source has "
                "deleted",
                where=f"table {plan.sink_table} on {self._session.where}",
                risk="made anew it would lose them; nothing was changed",
                remedy=f"rename {plan.sink_table}, to keep it; then run again: it is made and read",
            ).about(change.table)

    def _create_statement(self, plan: TablePlan) -> str:
        """Return the CREATE TABLE of the plan's sink table."""
        return sink_create_statement(plan.written, plan.sink_table, sink_flavour=self._flavour)

    def _alter(self, change: SchemaChange, found: TableSchema) -> None:
        """Alter a sink table as the source's was, and add unique keys unless it is read again."""
        statement = alter_statement(change, found, sink_flavour=self._flavour)
        if change.rereads:
            self._alter_leniently(change, found, statement)
            return  # rows of before and after stand side by side; `finish` adds the keys
        if statement:
            self._session.execute(statement)
        present = self._constraints(change.before.sink_table)
        for added in unique_key_statements(change, present, sink_flavour=self._flavour):
            self._session.execute(added)

    def _alter_leniently(self, change: SchemaChange, found: TableSchema, statement: str) -> None:
        """Alter a table that is read again, without strict mode: its values are replaced anyway."""
        if not statement:
            return
        with self._session.lenient():
            try:
                self._without_keys(statement, change.after)
            except (IntegrityError, RefusedError):  # values that cannot be converted
                again = alter_statement(change, found, sink_flavour=self._flavour, anew=True)
                self._without_keys(again, change.after)

    def finish(self, plans: Sequence[TablePlan]) -> tuple[str, ...]:
        """Add the tables' unique and foreign keys that are missing; return remarks on them."""
        routes = foreign_key_indexes.routes_of_copies(plans)
        plans = [self._carried(plan) for plan in plans]
        missing: list[tuple[TablePlan, DeferredKey]] = []
        for plan in plans:
            if not plan.target.create_statement:
                continue  # nothing is known of its keys
            present = self._constraints(plan.sink_table)
            keys = deferred_keys(
                plan.written, plan.sink_table, sink_flavour=self._flavour, route=routes.get
            )
            missing += [(plan, key) for key in keys if key.name.lower() not in present]
        # all unique keys first: a foreign key may refer to one
        ordered = sorted(missing, key=lambda each: each[1].kind is DeferredKind.FOREIGN)
        remarks = [self._add(plan, key) for plan, key in ordered]
        return tuple(filter(None, remarks))

    def _carried(self, plan: TablePlan) -> TablePlan:
        """Return a plan with stand-ins for the types that the sink's server lacks.

        Refused on an edge of a topology: the way back would have to turn the values again.
        """
        there = self._session.capabilities
        family = plan.schema.flavour
        lacked = lacked_types(family, is_mariadb=there.is_mariadb, version=there.version)
        if self._is_edge and (names := lacking_columns(plan.target, lacked)):
            raise UnsupportedTableError(
                f"the sink lacks the types of {', '.join(names)} of {plan.schema.table}",
                where=f"sink {self._session.where}",
                risk="the nodes of a topology hold the same types: an edge back could not bring "
                "the values",
                remedy="leave the table out of the topology, or give these columns a type that "
                "both nodes have",
            ).about(plan.schema.table)
        return carried(plan, lacked)

    @property
    def _flavour(self) -> str:
        """Return the sink's family, `mariadb` or `mysql`."""
        return "mariadb" if self._session.capabilities.is_mariadb else "mysql"

    def _existing(
        self, plans: Sequence[TablePlan], *, with_statement: bool = False
    ) -> Mapping[TableId, TableSchema]:
        """Read the definitions of the plans' sink tables, as far as they exist."""
        return read_schemas(
            self._session.connection,
            [plan.sink_table for plan in plans],
            with_statement=with_statement,
            role=Role.SINK,
        )

    def _refuse_unfit(
        self,
        plans: Sequence[TablePlan],
        existing: Mapping[TableId, TableSchema],
        *,
        begun: Collection[TablePlan],
    ) -> None:
        """Raise an error if an existing sink table cannot hold the source's rows.

        Of `begun` shards no row is there, and the table may still be extended for them.
        """
        extends = {plan.schema.table for plan in begun if plan.shard is not None}
        unfit = {
            plan: self._shards.misfits(
                plan, existing[plan.sink_table], extends=plan.schema.table in extends
            )
            for plan in plans
            if plan.sink_table in existing
        }
        unfit = {plan: found for plan, found in unfit.items() if found}
        if unfit:
            texts = [f"{plan.sink_table}: {each}" for plan in unfit for each in unfit[plan]]
            raise RefusedError(
                "tables of the sink cannot hold the source's rows: " + "; ".join(texts),
                where=f"sink {self._session.where}",
                risk="rows would be refused, changed or merged; nothing was written",
                remedy="alter or rename these tables; missing ones are created as they should be",
            ).about(*(plan.schema.table for plan in unfit))

    def _refuse_lost(
        self, plans: Sequence[TablePlan], existing: Mapping[TableId, TableSchema]
    ) -> None:
        """Refuse plans whose sink table is gone although rows were committed to it."""
        lost = [
            plan
            for plan in plans
            if plan.sink_table not in existing
            and ledger.holds_rows(self._session, self._owner, plan.schema.table)
        ]
        self._shards.raise_lost(lost)

    def _drop_unique_keys(self, plan: TablePlan, found: TableSchema) -> None:
        """Drop the unique keys that the source has, too, from a sink table that is to be filled."""
        wanted = {key.columns for key in plan.target.unique_keys}
        keys = [key for key in found.unique_keys if key.columns in wanted]
        drops = [f"DROP INDEX {quote_identifier(key.name)}" for key in keys]
        if drops:
            table = quote_table(plan.sink_table)
            written = plan.written
            drops += uncounted(written, written, found, keys, sink_flavour=self._flavour)
            self._without_keys(f"ALTER TABLE {table} {', '.join(drops)}", plan)

    def _without_keys(self, statement: str, plan: TablePlan) -> None:
        """Run a statement, dropping the foreign keys that keep it from dropping unique keys."""
        foreign_key_indexes.execute_without(self._session, statement, plan, self._plans)

    def _constraints(self, table: TableId) -> set[str]:
        """Return the names of a table's unique and foreign keys, in lower case."""
        rows = self._session.rows(
            "SELECT constraint_name FROM information_schema.table_constraints "
            f"WHERE table_schema = {literal(table.database)} "
            f"AND table_name = {literal(table.table)} "
            "AND constraint_type IN ('UNIQUE', 'FOREIGN KEY')"
        )
        return {str(row[0]).lower() for row in rows}

    def _add(self, plan: TablePlan, key: DeferredKey) -> str | None:
        """Add a unique or foreign key, and return a remark on it or None."""
        try:
            if key.kind is DeferredKind.FOREIGN:
                return add_foreign_key(self._session, plan, key)
            self._session.execute(key.statement)
        except RowRefusedError as error:
            raise IntegrityError(
                f"the {key.kind.value} key {key.name} cannot be added: {error.what}",
                where=f"table {plan.sink_table} on {self._session.where}",
                risk="the sink has rows the source's own key would refuse",
                remedy="`verify` the table, and `resync` it if it differs; then run again",
            ) from None
        except CdcError:
            # another run may have added it in the meantime
            if self._session.is_lost or not self._has(plan.sink_table, key):
                raise
        return None

    def _has(self, table: TableId, key: DeferredKey) -> bool:
        """Tell whether the sink table has a key of that name."""
        return key.name.lower() in self._constraints(table)


def _not_made(change: SchemaChange, error: CdcError) -> CdcError:
    """Return the error for a schema change that the sink refused, and how to go on."""
    dropped = "" if change.before.shard is not None else "drop its table, then "
    return type(error)(
        f"the sink's table cannot be changed as {change.table} was ({change.statement}): "
        f"{error.what}",
        f"table {change.before.sink_table}; {error.where}",
        "none yet: what came before the statement is committed, nothing behind it",
        f"mend what the sink speaks of and run again; or {dropped}"
        f"`reset` with {table_option(change.table)}: only that is read again",
    )
