"""What the stream's owner does at a statement that changes captured tables.

The stream stands before the statement: what came before it is committed, nothing behind it. The
log is read ahead to its end for all statements about these tables, and the catalogue says what
they have become. That is a table's definition behind the last of these statements. If no rows of
the table came between them, and each value is still what the log says, the same change is made at
the sink and the stream goes on. If rows came, the first statement is followed alone, where it is
sure what the table was behind it; the next is then met in its turn. Where rows may have changed
along with it, the table is changed too, and its rows are read again beside the stream; the other
tables flow on.

What is to be done is in the ledger before it is begun, and all of it may be done twice. So a
process that is killed anywhere leaves a change that the next owner brings to its end.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace

from airflow_cdc_provider.columns.changes import ChangeBatch
from airflow_cdc_provider.columns.source_port import (
    FollowsDefinitions,
    LogReading,
    PreflightQuestion,
    offered,
)
from airflow_cdc_provider.core.errors import (
    RefusedError,
    SchemaMovedError,
    TableChangedError,
    UnsupportedTableError,
)
from airflow_cdc_provider.core.findings import Level
from airflow_cdc_provider.core.identifiers import TableId, table_option
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.schema_changes import (
    CARRIED,
    ChangeKind,
    Difference,
    Policy,
    SchemaChange,
    names_behind,
    with_left_out,
)
from airflow_cdc_provider.core.statement_effect import StatementEffect, came_from
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.core.table_patterns import TablePattern
from airflow_cdc_provider.core.table_schema import TableSchema
from airflow_cdc_provider.engine.definitions import difference_between, redefined, way_back
from airflow_cdc_provider.engine.job import Job
from airflow_cdc_provider.engine.ledger.ledger import Ledger
from airflow_cdc_provider.engine.sink.port import KeepsValues
from airflow_cdc_provider.engine.sink.selection import CapturedTables
from airflow_cdc_provider.engine.stream.dropped_tables import leaving_table
from airflow_cdc_provider.engine.stream.early_log import (
    EarlyLog,
    is_in_step,
    truncation,
)
from airflow_cdc_provider.engine.stream.edge_changes import (
    COPY_ANEW,
    is_ahead,
    never_passed,
    why_filled_otherwise,
    why_not_passed,
)
from airflow_cdc_provider.engine.stream.pending_changes import finish_changes
from airflow_cdc_provider.engine.stream.stream_control import Following
from airflow_cdc_provider.engine.stream.table_statements import TableStatements

_READ_S = 5.0
"""How long one batch of the look ahead may be read."""
COMES_BACK_S = 5.0
"""A table that is dropped or renamed has another in its place soon, as a rule."""
_LOOK_EVERY_S = 0.5

_OUT_OF_STEP = "not all of its rows were in step yet"


class SchemaChanges:
    """Applies changes of the source's table definitions to the sink, for one stream job."""

    def __init__(self, job: Job, following: Following, reading: LogReading) -> None:
        self._job = job
        self._following = following
        self._reading = reading
        self._captured = CapturedTables(job.plans(), {})

    def make(
        self,
        stopped_by: TableChangedError,
        ledger: Ledger,
        stream: StreamSplit | None,
    ) -> None:
        """Apply the change that stopped the stream; raise it if it may not be applied."""
        job, sink = self._job, self._job.sink()
        if stream is None:
            raise stopped_by
        early = self._early(stream)
        if not sink.abilities.changes_tables:
            raise stopped_by
        if not ledger.open_changes():
            ledger.begin_changes(early or self._changes(stream, stopped_by))
        with self._following.changing:
            finish_changes(job.store, sink, ledger, job.spec.pipeline, job.spec.generation)
            followed = ledger.stream() or stream
            self._following.tables = frozenset(each.table for each in followed.tables)

    def _changes(
        self, stream: StreamSplit, stopped_by: TableChangedError
    ) -> tuple[SchemaChange, ...]:
        """Return the changes of all tables that the next statement changes."""
        tables = self._tables_at(stream)
        if not tables:
            raise stopped_by
        said, now = self._look_ahead(stream, tables)
        until_s = time.monotonic() + COMES_BACK_S
        while len(now) < len(tables) and time.monotonic() < until_s:
            if self._following.ending.wait(_LOOK_EVERY_S):
                raise _being_changed(tables, f"catalogue of {self._job.source()}")
            said, now = self._look_ahead(stream, tables)
        changes = tuple(
            self._change(stream, table, said.get(table), now.get(table), stopped_by)
            for table in sorted(tables)
        )
        if self._captured.plans.keys() <= {change.table for change in changes if change.leaves}:
            raise stopped_by.saying(
                f"{stopped_by.what}; no table of the pipeline is left; `drop` it"
            )
        return changes

    def _early(self, stream: StreamSplit) -> tuple[SchemaChange, ...]:
        """Return the next change of a stream that is where definitions are not known yet.

        None where they are known; what does not say what a table was is raised.
        """
        if not stream.is_early:
            return ()
        columns = self._job.source().change_columns(self._reading)
        early = EarlyLog(self._captured, columns, self._job.spec.schema_changes)
        for batch in self._read(stream, self._reading):
            early.require_known_columns(batch, stream)
            if batch.barrier is not None and batch.end is not None:
                found = self._captured.concerned(batch.barrier, stream)
                if found:
                    return early.changes(batch.barrier, batch.end, found, stream)
        return ()

    def anew(self, stream: StreamSplit, table: TableId, why: str) -> SchemaChange:
        """Return the change that takes a table as it is now, with its rows read again."""
        before, through, statement = self._catalogue([table]), stream.start, ""
        reading = replace(self._reading, every_statement=True)
        for batch in self._read(stream, reading):
            barrier = batch.barrier
            if barrier is not None and batch.end is not None and barrier.effect.names(table):
                through, statement = batch.end, barrier.sql[:300]
        now = self._catalogue_as(before, [table])
        if table not in now:
            raise _not_taken(table, "it is not at the source any more")
        plan = self._captured.plans[table]
        at_sink = self._at_sink(plan)
        after = redefined(
            plan, self._copied_anew(plan.schema, now[table], at_sink), self._job.sink()
        )
        found = self._difference_between(plan, after)
        refused = found.refused or self._unshared(after) or self._refused(after)
        if refused:
            error = _not_taken(table, refused)
            raise error if plan.shape.is_identity else error.with_remedy(self._way_back(plan))
        found = self._onto(plan, after, found, at_sink).read_again(why)
        keeps = self._job.spec.schema_changes.drop_column is Policy.IGNORE
        return SchemaChange(plan, after, found, through, statement, keeps_dropped=keeps)

    def _copied_anew(
        self, before: TableSchema, now: TableSchema, at_sink: Collection[str]
    ) -> TableSchema:
        """Return the table as it is now; columns stay left out only if the policy says so."""
        if self._job.spec.schema_changes.add_column is not Policy.IGNORE:
            return now
        return with_left_out(before, now, None, ignores=True, at_sink=at_sink)

    def _difference_between(
        self, before: TablePlan, after: TablePlan, effects: Sequence[StatementEffect] = ()
    ) -> Difference:
        """Return how the sink's definitions of a table differ."""
        keeps_columns = self._job.sink().abilities.keeps_columns
        return difference_between(
            before, after, self._definitions, effects, keeps_columns=keeps_columns
        )

    @property
    def _definitions(self) -> FollowsDefinitions:
        return offered(self._job.source(), FollowsDefinitions)

    def _at_sink(self, plan: TablePlan) -> Collection[str]:
        """Return the columns that the sink's table has, in lower case."""
        with closing(self._job.sink().open_tables()) as tables:
            return tables.columns(plan)

    def _onto(
        self, plan: TablePlan, after: TablePlan, found: Difference, at_sink: Collection[str]
    ) -> Difference:
        """Return what is left of a difference for the sink, by what its rows are like."""
        found = found.onto(at_sink, is_shared=plan.shard is not None)
        called = {new: old for old, new in found.renamed}
        olds = {column.name: column.type for column in plan.target.columns}
        changed = {
            name: (olds[old], after.target.column(name).type)
            for name in found.modified
            if (old := called.get(name, name)) in olds
        }
        with closing(self._job.sink().open_tables()) as tables:
            why = tables.rewritten(changed) if isinstance(tables, KeepsValues) else ""
        return found.read_again(why) if why else found

    # --- what the log and the catalogue say ---------------------------------------------------

    def _tables_at(self, stream: StreamSplit) -> list[TableId]:
        """Return the tables that the first statement after the stream's position changes."""
        for batch in self._read(stream, self._reading):
            statement = batch.barrier
            if statement is not None:
                found = self._captured.concerned(statement, stream)
                if found:
                    return found
            if batch.changes:
                return []
        return []

    def _look_ahead(
        self, stream: StreamSplit, tables: Collection[TableId]
    ) -> tuple[Mapping[TableId, TableStatements], Mapping[TableId, TableSchema]]:
        """Return what the log says of tables up to its end, and their definitions there."""
        before = self._catalogue(tables)
        schemas = {table: self._reading.schemas[table] for table in tables}
        said: dict[TableId, TableStatements] = {}
        reading = replace(self._reading, schemas=schemas, every_statement=True)
        for batch in self._read(stream, reading):
            self._note(batch, stream, said)
        return said, self._catalogue_as(before, tables)

    def _catalogue_as(
        self, before: Mapping[TableId, TableSchema], tables: Collection[TableId]
    ) -> Mapping[TableId, TableSchema]:
        """Return the tables' definitions now; raise if they are not those of `before`."""
        now = self._catalogue(tables)
        same = self._definitions.is_same
        if before.keys() != now.keys() or not all(same(before[t], now[t]) for t in now):
            raise _being_changed(tables, f"catalogue of {self._job.source()}")
        return now

    def _read(self, stream: StreamSplit, reading: LogReading) -> Iterator[ChangeBatch]:
        """Yield batches of the log from the stream's position to the log's end."""
        source = self._job.source()
        with ExitStack() as stack:
            log_end = stack.enter_context(closing(source.log_end(purpose="end of the log")))
            end = log_end.now()
            reader = stack.enter_context(closing(source.log_reader(stream, reading)))
            yield from reader.read_up_to(end, batch_s=_READ_S)

    def _note(
        self, batch: ChangeBatch, stream: StreamSplit, said: dict[TableId, TableStatements]
    ) -> None:
        """Note what one batch says of the tables: rows, and statements about them."""
        for changes in batch.tables:
            if changes.table in said:
                said[changes.table].has_rows = True
        statement, end = batch.barrier, batch.end
        if statement is None or end is None:
            return
        concerned = self._captured.concerned(statement, stream)
        for table, seen in said.items():
            if table in concerned:
                seen.has_rows_between = seen.has_rows_between or seen.has_rows
                seen.found.append(statement)
                seen.through, seen.has_rows = end, False
            elif statement.effect.names(table):
                seen.has_harmless = True
            else:
                continue
            seen.named.append(statement.effect)
        for table in concerned:
            said.setdefault(table, TableStatements([statement], [statement.effect], end, end))

    def _catalogue(self, tables: Collection[TableId]) -> Mapping[TableId, TableSchema]:
        """Return the tables' definitions at the source now."""
        with self._job.source().catalogue() as catalogue:
            return catalogue.schemas(sorted(tables))

    # --- what is done about it ----------------------------------------------------------------

    def _change(
        self,
        stream: StreamSplit,
        table: TableId,
        said: TableStatements | None,
        now: TableSchema | None,
        stopped_by: TableChangedError,
    ) -> SchemaChange:
        """Return the change of one table; one that may not be made is raised."""
        if said is None:
            raise _stopped(stopped_by, f"the log does not say what became of {table}", table)
        plan = self._captured.plans[table]
        if now is None:
            leaving = leaving_table(plan, said.found, said.through, self._job.spec.schema_changes)
            if leaving is None:
                raise _stopped(stopped_by, f"{table} is not at the source any more", table)
            return leaving
        if self._job.spec.edge is not None:
            return self._on_edge(stream, plan, said, now, stopped_by)
        try:
            change = self._followed(stream, plan, said, now, stopped_by)
        except TableChangedError:
            alone = self._first_alone(stream, plan, said, now, stopped_by)
            if alone is None:
                raise
            return alone  # a later statement is what is not followed
        if change.rereads and (alone := self._first_alone(stream, plan, said, now, stopped_by)):
            return alone
        if refused := self._refused(change.after):
            raise _stopped(stopped_by, f"{table}: {refused}", table)
        return change

    def _on_edge(
        self,
        stream: StreamSplit,
        plan: TablePlan,
        said: TableStatements,
        now: TableSchema,
        stopped_by: TableChangedError,
    ) -> SchemaChange:
        """Return a change that an edge carries, or that both nodes have made already."""
        carried = self._carried(stream, plan, said, now, stopped_by)
        return carried or self._made_at_both(stream, plan, said, now, stopped_by)

    def _carried(
        self,
        stream: StreamSplit,
        plan: TablePlan,
        said: TableStatements,
        now: TableSchema,
        stopped_by: TableChangedError,
    ) -> SchemaChange | None:
        """Return a change that comes from the node where definitions are changed.

        It is made at the other node, or comes back from there as nothing. None if people make it.
        """
        edge, node = self._job.spec.edge, self._job.spec.schema_changes.from_node
        if edge is None or node not in {edge.src_node, edge.dst_node}:
            return None
        if node == edge.dst_node:
            return self._come_back(stream, plan, said, now)
        try:
            change = self._followed(stream, plan, said, now, stopped_by)
        except TableChangedError:
            change = None
        if change is None or change.rereads:
            change = self._first_alone(stream, plan, said, now, stopped_by)
        if change is None or not self._is_survived(change.difference, plan, change.after):
            return None
        other = why_filled_otherwise(self._job.sink(), plan, change.after, self._definitions)
        return None if other or self._refused(change.after) else change

    def _come_back(
        self, stream: StreamSplit, plan: TablePlan, said: TableStatements, now: TableSchema
    ) -> SchemaChange | None:
        """Return a change that the sink's node made first, where it may be ahead by more."""
        sink, first = self._job.sink(), said.first
        at_first = now
        if len(said.named) > 1:
            between = self._definitions.after_first(plan.schema, now, said.named)
            if between is None:
                return None
            at_first = between
        try:
            after = redefined(plan, at_first, sink)
        except TableChangedError:
            return None
        effects = [statement.effect for statement in first.found]
        found = self._difference_between(plan, after, effects)
        if first.truncates or found.why or not is_in_step(stream, plan.schema.table):
            return None
        if not self._is_survived(found, plan, after) or not is_ahead(sink, after):
            return None
        return SchemaChange(plan, after, Difference(), first.through, first.found[0].sql[:300])

    def _is_survived(self, found: Difference, before: TablePlan, after: TablePlan) -> bool:
        """Tell whether rows of the old definition find their place, as they are, in the new one."""
        if found.refused or found.why or not found.kinds <= CARRIED:
            return False
        was, now = (
            [plan.schema.column(name).type.scale for name in found.modified]
            for plan in (before, after)
        )
        return was == now and not self._definitions.needed(after.schema, found.added)

    def _made_at_both(
        self,
        stream: StreamSplit,
        plan: TablePlan,
        said: TableStatements,
        now: TableSchema,
        stopped_by: TableChangedError,
    ) -> SchemaChange:
        """Return a change that both nodes of an edge have made; nothing is altered for it."""
        table, sink = plan.schema.table, self._job.sink()
        try:
            after = redefined(plan, now, sink)
        except TableChangedError as error:
            raise _stopped(stopped_by, error.what, table) from None
        effects = [statement.effect for statement in said.found]
        found = self._difference_between(plan, after, effects)
        why = never_passed(found, truncates=said.truncates, rows_between=said.has_rows_between)
        why = why or why_filled_otherwise(sink, plan, after, self._definitions)
        if why := why or ("" if is_in_step(stream, table) else _OUT_OF_STEP):
            raise _stopped(stopped_by, why, table).with_remedy(COPY_ANEW)
        if why := self._refused(after) or why_not_passed(sink, after):
            raise _stopped(stopped_by, why, table).with_remedy(
                "make the same change at the other node, then `resume` it with "
                f"{table_option(table)}"
            )
        return SchemaChange(plan, after, Difference(), said.through, said.found[0].sql[:300])

    def _first_alone(
        self,
        stream: StreamSplit,
        plan: TablePlan,
        said: TableStatements,
        now: TableSchema,
        stopped_by: TableChangedError,
    ) -> SchemaChange | None:
        """Return the change by the first of several statements; None if it cannot be made alone.

        What preflight would say of the table is asked behind the last.
        """
        if len(said.named) < 2:
            return None
        between = self._definitions.after_first(plan.schema, now, said.named)
        if between is None:
            return None
        alone = self._followed(stream, plan, said.first, between, stopped_by)
        return None if alone.rereads else alone

    def _followed(
        self,
        stream: StreamSplit,
        plan: TablePlan,
        said: TableStatements,
        now: TableSchema,
        stopped_by: TableChangedError,
    ) -> SchemaChange:
        """Return the change by statements after which the table is defined as `now`."""
        at_sink = self._at_sink(plan)
        try:
            after = redefined(plan, self._copied(plan.schema, now, said, at_sink), self._job.sink())
        except TableChangedError as error:
            stopped = _stopped(stopped_by, error.what, plan.schema.table)
            raise stopped.with_remedy(error.remedy) from None
        change = SchemaChange(
            before=plan,
            after=after,
            difference=self._onto(plan, after, self._difference(plan, after, said), at_sink),
            through=said.through,
            statement=said.found[0].sql[:300],
        )
        refused = change.difference.refused or self._unshared(after) or self._shown(plan, said)
        if refused:
            stopped = _stopped(stopped_by, f"{change.table}: {refused}", change.table)
            raise stopped if plan.shape.is_identity else stopped.with_remedy(self._way_back(plan))
        return self._by_policy(change, said, stream, stopped_by)

    def _copied(
        self, before: TableSchema, now: TableSchema, said: TableStatements, at_sink: Collection[str]
    ) -> TableSchema:
        """Return the definition now, without the columns that the policy leaves out."""
        names = names_behind(before, [statement.effect for statement in said.found])
        if names is not None and len(said.found) == 1:
            # what is renamed at the sink leaves its name to others
            called = {c.name.lower(): names[c.name].lower() for c in before.as_copied.columns}
            at_sink = {name for name in at_sink if called.get(name, name) in at_sink}
        ignores = self._job.spec.schema_changes.add_column is Policy.IGNORE
        return with_left_out(before, now, names, ignores=ignores, at_sink=at_sink)

    def _difference(self, before: TablePlan, after: TablePlan, said: TableStatements) -> Difference:
        """Return how two definitions differ, by the definitions and the log's statements."""
        effects = [statement.effect for statement in said.found]
        found = self._difference_between(before, after, effects)
        if said.has_harmless and found.added:
            found = found.read_again("it was altered once more, and a default may be another")
        if said.has_rows_between:
            found = found.read_again("rows were written between two of its changes")
        return found

    def _by_policy(
        self,
        change: SchemaChange,
        said: TableStatements,
        stream: StreamSplit,
        stopped_by: TableChangedError,
    ) -> SchemaChange:
        """Return the change as the policy wants it; raise if the policy is to stop."""
        policy, found = self._job.spec.schema_changes, change.difference
        in_step = is_in_step(stream, change.table)
        truncates = in_step and _only_truncates(found, said)
        if truncates:
            found = replace(found, moved="")
        elif said.truncates and policy.truncate is Policy.IGNORE:
            why = f"{change.table} was truncated, and not that alone"
            raise _stopped(stopped_by, why, change.table)
        if not in_step:
            found = found.read_again(_OUT_OF_STEP)
        kinds = found.kinds | ({ChangeKind.TRUNCATE} if said.truncates else frozenset())
        for kind in sorted(kinds):
            if policy.of(kind) is Policy.STOP:
                raise _stopped(stopped_by, f"schema_changes says {kind.value}: stop", change.table)
        if policy.rows is Policy.IGNORE:
            found = replace(found, moved="")
        return replace(
            change,
            difference=found,
            keeps_dropped=policy.drop_column is Policy.IGNORE,
            truncates=truncates and policy.truncate is Policy.APPLY,
            stamp=truncation(said.found[0], said.through) if truncates else None,
        )

    def _way_back(self, plan: TablePlan) -> str:
        """Return what to do about a table whose columns are not what the pipeline says of them."""
        return way_back(plan, self._job.sink().abilities)

    def _shown(self, plan: TablePlan, said: TableStatements) -> str:
        """Return why a table would show what is hidden of the one that has its name now."""
        effects = [statement.effect for statement in said.found]
        origin = came_from(plan.schema.table, effects)
        other = self._captured.plans.get(origin)
        if other is None or not other.shape.hides or other.shape == plan.shape:
            return ""
        return f"it is the table that {origin} was, which the pipeline does not copy as it is"

    def _unshared(self, plan: TablePlan) -> str:
        """Return why a table cannot share its sink table any more; empty if it can."""
        if plan.shard is None:
            return ""
        try:
            with closing(self._job.sink().open_tables()) as tables:
                tables.require_fit([plan])
        except (RefusedError, UnsupportedTableError) as error:
            return error.what
        return ""

    def _refused(self, plan: TablePlan) -> str:
        """Return why preflight would refuse the table as it is now, empty if it would not."""
        source, table = self._job.source(), plan.schema.table
        with source.catalogue() as catalogue:
            picked = catalogue.picked([TablePattern.of(table)])
        question = PreflightQuestion(
            (plan,),
            picked,
            is_snapshot_done=True,
            needs_defaults=self._job.sink().abilities.has_defaults,
        )
        return "; ".join(
            f"{finding.observed}: {finding.why}"
            for finding in source.preflight(question).findings
            if finding.level is Level.BLOCK and finding.subject.startswith(str(table))
        )


def _only_truncates(found: Difference, said: TableStatements) -> bool:
    """Tell whether a statement truncated the table, and changed nothing else."""
    return said.truncates and len(said.found) == 1 and found.kinds <= {ChangeKind.ROWS}


def _being_changed(tables: Collection[TableId], where: str) -> SchemaMovedError:
    """Return the error for tables whose definition is being changed right now."""
    return SchemaMovedError(
        f"{', '.join(map(str, sorted(tables)))} is being changed right now",
        where,
        "none: nothing was done about it yet",
        "nothing: it is looked at again",
    )


def _stopped(error: TableChangedError, why: str, table: TableId) -> TableChangedError:
    """Return the error that stopped the stream, with the reason, for one table."""
    return error.saying(f"{error.what}; {why}").about(table)


def _not_taken(table: TableId, why: str) -> TableChangedError:
    """Return the error for a table that cannot be taken as it is now."""
    return TableChangedError(
        f"{table}: {why}",
        where=f"definition of {table}",
        risk="none: nothing was changed, and it stays as it is at the sink",
        remedy=f"mend it at the source, or `reset` it with {table_option(table)}",
    ).about(table)
