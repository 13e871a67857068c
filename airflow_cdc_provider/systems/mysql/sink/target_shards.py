"""Which source tables share a table of the sink that their pipeline owns, one row each.

The claim on the sink's table is the pipeline's (see `targets`); these rows say of which of its
tables it holds rows. So the rows of one that comes later are looked for before they are replaced,
and the claim on the table goes with the last of them. A row counts only beside a claim of the same
pipeline.
"""

from __future__ import annotations

from collections.abc import Collection

from airflow_cdc_provider.core.identifiers import quote_table
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.engine.sink.port import Owner
from airflow_cdc_provider.systems.mysql.dialect.sql import literal, of_shard
from airflow_cdc_provider.systems.mysql.sink.ledger_schema import LEDGER, pipeline_is
from airflow_cdc_provider.systems.mysql.sink.sink_session import SinkSession

SHARDS_SINCE = 12
"""The version of the ledger that knows shards."""

SinkName = tuple[str, str]
"""Database and table, as the sink compares them."""
Shard = tuple[SinkName, str]
"""A table of the sink, and the source table whose rows it holds among others."""

_SAME_TABLE = (
    "shard.database_name = target.database_name AND shard.table_name = target.table_name "
    "AND shard.pipeline = target.pipeline"
)


def claimed_shards(session: SinkSession, owner: Owner) -> frozenset[Shard]:
    """Return the shards of the pipeline."""
    rows = session.rows(
        "SELECT shard.database_name, shard.table_name, shard.source_table "
        f"FROM {LEDGER}.target_shard AS shard JOIN {LEDGER}.target ON {_SAME_TABLE} "
        f"WHERE shard.{pipeline_is(owner.pipeline)}"
    )
    return frozenset(((str(row[0]), str(row[1])), str(row[2])) for row in rows)


def routes_query(owner: Owner) -> str:
    """Return the query for source and sink table of each claim of a pipeline that is no edge."""
    mine = f"target.{pipeline_is(owner.pipeline)}"
    return (
        "SELECT COALESCE(shard.source_table, target.source_table), target.sink_table "
        f"FROM {LEDGER}.target LEFT JOIN {LEDGER}.target_shard AS shard ON {_SAME_TABLE} "
        f"WHERE {mine}"
    )


def claim_shards(
    session: SinkSession, owner: Owner, shards: Collection[Shard], names: Collection[SinkName]
) -> None:
    """Note the shards of the sink tables `names`, in the transaction that claims these.

    Where a table has none it is no longer shared.
    """
    wanted = {name for name, _ in shards}
    for name, source in sorted(claimed_shards(session, owner)):
        if name in names and name not in wanted:
            _delete(session, owner, (name, source))
    for (database, table), source in sorted(shards):
        values = (database, table, source, str(owner.pipeline))
        session.execute(
            f"INSERT INTO {LEDGER}.target_shard "
            f"(database_name, table_name, source_table, pipeline) "
            f"VALUES ({', '.join(map(literal, values))}) "
            "ON DUPLICATE KEY UPDATE pipeline = VALUES(pipeline)"
        )


def release_shards(session: SinkSession, owner: Owner, kept: Collection[Shard]) -> None:
    """Delete the pipeline's shards but for those to be kept, before the claims on their tables.

    A claim that stays is in the name of a table whose rows it holds.
    """
    held = claimed_shards(session, owner)
    for shard in sorted(held.difference(kept)):
        _delete(session, owner, shard)
    stay = sorted(held.intersection(kept), reverse=True)
    for name in {name for name, _ in held.difference(kept)}:
        left = [source for each, source in stay if each == name]
        if left:
            session.execute(
                f"UPDATE {LEDGER}.target SET source_table = {literal(left[-1])} "
                f"WHERE {pipeline_is(owner.pipeline)} AND {name_is(name)}"
            )


def holds_own_rows(session: SinkSession, plan: TablePlan) -> bool:
    """Tell whether a shared sink table has rows of a plan's shard, or the other one any rows.

    One that lacks the column of shards has no rows of any.
    """
    table, shard = plan.sink_table, plan.shard
    if shard is not None and not session.rows(
        "SELECT 1 FROM information_schema.columns "
        f"WHERE table_schema = {literal(table.database)} AND table_name = {literal(table.table)} "
        f"AND column_name = {literal(shard.name)}"
    ):
        return False
    own = of_shard(shard, "TRUE")
    return bool(session.rows(f"SELECT 1 FROM {quote_table(table)} WHERE {own} LIMIT 1"))


def _delete(session: SinkSession, owner: Owner, shard: Shard) -> None:
    """Delete a shard of the pipeline."""
    name, source = shard
    session.execute(
        f"DELETE FROM {LEDGER}.target_shard WHERE {pipeline_is(owner.pipeline)} "
        f"AND {name_is(name)} AND source_table = {literal(source)}"
    )


def name_is(name: SinkName) -> str:
    """Return the condition that picks a sink table's claim."""
    return f"database_name = {literal(name[0])} AND table_name = {literal(name[1])}"
