"""Tables that are gone at the source: the stream lets go of them where the log says that they went.

What came before is committed. Their rows at the sink stay, or the sink's table is dropped, too. A
table under a new name is another table: it is read as any that appears at the source, if the file
picks it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager

from airflow_cdc_provider.columns.changes import Statement
from airflow_cdc_provider.core.errors import IntegrityError, RefusedError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.ports import StateStore
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.schema_changes import (
    ChangeKind,
    Difference,
    Policy,
    SchemaChange,
    SchemaPolicy,
)
from airflow_cdc_provider.core.statement_effect import StatementEffect, StatementKind
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.engine.ledger.ledger import Ledger
from airflow_cdc_provider.engine.sink.port import DeletesShards, Sink


def leaving_table(
    plan: TablePlan, said: Sequence[Statement], through: LogPosition, policy: SchemaPolicy
) -> SchemaChange | None:
    """Return the change that removes a dropped or renamed table; None if the policy is to stop.

    `said` are the statements about it, of which the last must have taken its name away.
    """
    kind = _taken_by(said[-1].effect, plan.schema.table)
    if kind is None or policy.of(kind) is Policy.STOP:
        return None
    return SchemaChange(
        before=plan,
        after=plan,
        difference=Difference(),
        through=through,
        statement=said[-1].sql[:300],
        leaves=True,
        drops_target=policy.drop_table is Policy.APPLY,
    )


def _taken_by(effect: StatementEffect, table: TableId) -> ChangeKind | None:
    """Return the kind of statement that removed a table's name; None if the name is still there."""

    def same(left: object, right: object) -> bool:
        return str(left).casefold() == str(right).casefold()

    if any(same(old, table) for old, _ in effect.renames):
        return ChangeKind.RENAME_TABLE
    if effect.kind is not StatementKind.DROP:
        return None
    is_named = any(same(database, table.database) for database in effect.databases)
    return ChangeKind.DROP_TABLE if is_named or effect.names(table) else None


def delete_shard(sink: Sink, plan: TablePlan) -> None:
    """Delete a table's rows from the sink's table that it shares with others; these stay."""
    with _shards_of(sink, plan) as shards:
        shards.delete_shard(plan)


def empty_columns(sink: Sink, plan: TablePlan, names: Collection[str]) -> None:
    """Make columns NULL in a table's rows in the sink's table that it shares with others.

    `names` are in lower case.
    """
    with _shards_of(sink, plan) as shards:
        shards.empty_columns(plan, names)


@contextmanager
def _shards_of(sink: Sink, plan: TablePlan) -> Iterator[DeletesShards]:
    """Open what changes a table's rows in one that it shares; refuse a sink that cannot."""
    with closing(sink.open_tables()) as tables:
        if not isinstance(tables, DeletesShards):
            raise RefusedError(
                "this kind of sink does not tell the rows of several tables apart",
                where=f"table {plan.sink_table}",
                risk="rows of other tables would be lost; nothing was deleted",
                remedy="delete them by hand",
            )
        yield tables


def finish_removal(
    store: StateStore, sink: Sink, ledger: Ledger, generation: int, change: SchemaChange
) -> StreamSplit:
    """Finish removing a table. Its change stays open until the last step."""
    name, table = sink.owner.pipeline, change.table
    store.change_plan(name, generation, removed=[table])
    kept = [state.plan for state in store.tables(name)]
    fate = f"the rows in {change.before.sink_table} stay"
    with closing(sink.open_targets()) as targets:
        is_ours = change.before.sink_table in {target for _, target in targets.routes()}
        is_shared = change.before.sink_table in {plan.sink_table for plan in kept}
        if change.drops_target and is_ours and is_shared and change.before.shard is not None:
            delete_shard(sink, change.before)
            fate = f"its rows in {change.before.sink_table} are deleted, those of others stay"
        elif change.drops_target and is_ours and not is_shared:
            try:
                targets.drop([change.before.sink_table])
                fate = f"dropped at the sink: {change.before.sink_table}"
            except (IntegrityError, RefusedError) as error:
                fate += f", for it cannot be dropped: {error.what}"
        targets.release(keep=kept)
    stream = ledger.change_tables(removed=[table])
    store.store_hand_off(name, generation, stream)
    text = f"not copied any more: {table}, which is gone at the source ({change.statement}); {fate}"
    store.tell(name, text, level="warning")
    return stream
