"""Which pipeline owns which table of the sink.

A split replaces everything its table holds in its range, so two pipelines that write to one table
delete each other's rows, each of them rightly by its own ledger. Therefore a pipeline claims its
tables before it touches them: one row a table, the table's name being its key, so that of two
pipelines that come at once one is refused. The claim is made in a transaction that holds the
pipeline's generation, and it is given back under a generation too; what wrote before that is
fenced. So a table that changes hands has no writer left behind.

Several tables of one pipeline may share a table of the sink: then the claim is that of all of them
(see `target_shards`).

A table that nobody owns may hold rows that came from elsewhere. They would go with the first
split, so such a table is refused, unless the pipeline's own ledger or plan says that the rows are
its own, or the pipeline file says to replace them. In a shared table that the pipeline owns only
rows of the shard that comes are looked for.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from airflow_cdc_provider.core.errors import RefusedError
from airflow_cdc_provider.core.identifiers import TableId, quote_table
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.stopped_tables import StoppedTable
from airflow_cdc_provider.core.topology import Topology
from airflow_cdc_provider.engine.sink.port import Copied, Owner, TargetConflict
from airflow_cdc_provider.systems.mysql.dialect.sql import literal
from airflow_cdc_provider.systems.mysql.sink import ledger, target_shards
from airflow_cdc_provider.systems.mysql.sink.ledger_schema import (
    LEDGER,
    create_ledger,
    ledger_version,
    pipeline_is,
)
from airflow_cdc_provider.systems.mysql.sink.marker_rows import create_marker
from airflow_cdc_provider.systems.mysql.sink.schema_change_rows import open_changes
from airflow_cdc_provider.systems.mysql.sink.sink_session import SinkSession
from airflow_cdc_provider.systems.mysql.sink.stopped_rows import stopped_tables
from airflow_cdc_provider.systems.mysql.sink.target_shards import (
    SHARDS_SINCE,
    Shard,
    SinkName,
    name_is,
)

_CHANGES_SINCE = 5
"""The version of the ledger that remembers changes of definitions and stopped tables."""
_EDGES_SINCE = 8
"""The version of the ledger that knows edges of topologies."""
_CLAIMS = ("target", "edge_target")
"""A table of one-way pipelines has one owner; edges of one topology share theirs."""


@dataclass(frozen=True, slots=True)
class _Holder:
    """The pipeline that owns a sink table, and the source table that it copies there."""

    pipeline: str
    source: str
    topology: str = ""
    """The topology of which the pipeline is an edge."""


class MySqlTargets:
    """The claims of one pipeline on tables of the sink, over a session of its own."""

    def __init__(self, session: SinkSession, owner: Owner, *, edge: Topology | None = None) -> None:
        self._session = session
        self._edge = edge
        self._owner = owner
        self._mine = pipeline_is(owner.pipeline)
        self._folds = str(session.rows("SELECT @@lower_case_table_names")[0][0]) != "0"

    def close(self) -> None:
        """Close the connection."""
        self._session.close()

    def plan_id(self) -> str:
        """Return the id of the plan whose splits are in the ledger, empty for none."""
        if not ledger_version(self._session):
            return ""
        found = self._session.rows(f"SELECT plan_id FROM {LEDGER}.pipeline WHERE {self._mine}")
        return str(found[0][0]) if found else ""

    def changing(self) -> frozenset[TableId]:
        """Return the source tables whose schema change was begun at the sink and not ended."""
        if ledger_version(self._session) < _CHANGES_SINCE:
            return frozenset()
        changes = open_changes(self._session, self._owner.pipeline)
        return frozenset(change.table for change in changes)

    def stopped(self) -> tuple[StoppedTable, ...]:
        """Return the tables that were taken out of the stream; no ledger is created."""
        if ledger_version(self._session) < _CHANGES_SINCE:
            return ()
        return stopped_tables(self._session, self._owner)

    def routes(self) -> tuple[tuple[TableId, TableId], ...]:
        """Return source and sink table of each of the pipeline's claims."""
        where = self._claims()
        if not where:
            return ()
        queries = [
            f"SELECT source_table, sink_table FROM {LEDGER}.{claims} WHERE {self._mine}"
            for claims in where
        ]
        if self._knows_shards():
            queries[0] = target_shards.routes_query(self._owner)
        rows = self._session.rows(" UNION ".join(queries))
        return tuple(sorted((TableId.parse(source), TableId.parse(sink)) for source, sink in rows))

    def conflicts(
        self, plans: Sequence[TablePlan], *, known: Collection[Copied] = ()
    ) -> tuple[TargetConflict, ...]:
        """Return why the plans' tables may not be written to: another owner, or unknown rows.

        `known` are tables whose rows are known to be this pipeline's: the sink table's, or where it
        is shared those of the source table.
        """
        where = self._claims()
        holders = self._holders(plans, where)
        return self._judged(plans, holders, known, has_ledger=bool(where))

    def claim(
        self,
        plans: Sequence[TablePlan],
        *,
        known: Collection[Copied] = (),
        replace_rows: bool = False,
    ) -> tuple[TableId, ...]:
        """Claim the plans' sink tables, all or none; return those taken with unknown rows.

        These are refused unless `replace_rows` is True.
        """
        create_ledger(self._session)
        create_marker(self._session, self._edge)
        return self._session.transaction(
            lambda: self._claim(plans, known, replace_rows=replace_rows)
        )

    def _claim(
        self, plans: Sequence[TablePlan], known: Collection[Copied], *, replace_rows: bool
    ) -> tuple[TableId, ...]:
        """Claim the plans' sink tables within a transaction that holds the generation."""
        ledger.check_generation(self._session, self._owner, lock="FOR UPDATE")
        mine = [each for each in self._holders(plans, _CLAIMS) if self._is_mine(each[1])]
        # in one order for all pipelines, or two could wait for each other
        for plan in sorted(
            plans, key=lambda plan: (self._name(plan.sink_table), plan.schema.table)
        ):
            self._insert(plan)
        after = self._holders(plans, _CLAIMS, lock="FOR UPDATE")
        others = [each for each in after if not self._is_mine(each[1])]
        found = self._judged(plans, [*mine, *others], known, has_ledger=True)
        names = {self._name(plan.sink_table) for plan in plans}
        shards = {self._shard(plan) for plan in plans if plan.shard}
        target_shards.claim_shards(self._session, self._owner, shards, names)
        refused = [each for each in found if each.pipeline or not replace_rows]
        if refused:
            raise RefusedError(
                "; ".join(conflict.text for conflict in refused),
                where=f"sink {self._session.where}",
                risk="rows that are not this pipeline's would be deleted; nothing was changed",
                remedy="; ".join(dict.fromkeys(conflict.remedy for conflict in refused)),
            )
        return tuple(dict.fromkeys(conflict.table for conflict in found))

    def release(self, *, keep: Sequence[TablePlan] = ()) -> None:
        """Delete the pipeline's claims on all tables except those of `keep`; their rows stay."""
        kept = {self._name(plan.sink_table) for plan in keep}
        shards = {self._shard(plan) for plan in keep}

        def give_back() -> None:
            ledger.check_generation(self._session, self._owner, lock="FOR UPDATE")
            if self._knows_shards():
                target_shards.release_shards(self._session, self._owner, shards)
            for claims in self._claims():
                for database, table in self._session.rows(
                    f"SELECT database_name, table_name FROM {LEDGER}.{claims} WHERE {self._mine}"
                ):
                    if (database, table) not in kept:
                        self._session.execute(
                            f"DELETE FROM {LEDGER}.{claims} WHERE {self._mine} "
                            f"AND {name_is((database, table))}"
                        )

        self._session.transaction(give_back)

    def rows(self, table: TableId) -> int | None:
        """Return the number of a sink table's rows; None if there is no table."""
        named = f"table_schema = {literal(table.database)} AND table_name = {literal(table.table)}"
        if not self._session.rows(f"SELECT 1 FROM information_schema.tables WHERE {named}"):
            return None
        return int(self._session.rows(f"SELECT COUNT(*) FROM {quote_table(table)}")[0][0])

    def drop(self, tables: Collection[TableId]) -> None:
        """Drop sink tables that this pipeline owns, with their rows; refuse those of others.

        Its claims keep other pipelines away until they are given back.
        """
        names = ", ".join(map(quote_table, tables))
        self._session.transaction(lambda: self._require_mine(tables))
        # one that a table of others refers to stays
        self._session.execute("SET SESSION foreign_key_checks = 1")
        self._session.execute(f"DROP TABLE IF EXISTS {names}")

    def _require_mine(self, tables: Collection[TableId]) -> None:
        """Refuse tables that this pipeline does not own."""
        ledger.check_generation(self._session, self._owner, lock="FOR UPDATE")
        where = self._claims()
        for table in tables:
            name = name_is(self._name(table))
            holders = {
                str(row[0])
                for claims in where
                for row in self._session.rows(
                    f"SELECT pipeline FROM {LEDGER}.{claims} WHERE {name} FOR UPDATE"
                )
            }
            if holders != {str(self._owner.pipeline)}:
                whose = "".join(f", but {each}'s" for each in sorted(holders))
                raise RefusedError(
                    f"{table} is not this pipeline's{whose}",
                    where=f"sink {self._session.where}",
                    risk="rows of others would be lost; nothing was dropped",
                    remedy="drop it by hand if nobody needs it",
                )

    def _insert(self, plan: TablePlan) -> None:
        """Insert the claim on a plan's sink table, unless another pipeline has one."""
        database, table = self._name(plan.sink_table)
        source, sink = (str(each) for each in (plan.schema.table, plan.sink_table))
        values: tuple[str, ...] = (database, table, str(self._owner.pipeline), source, sink)
        claims, topology = "target", ""
        if self._edge is not None:
            claims, topology = "edge_target", ", topology"
            values = (*values, self._edge.name)
        self._session.execute(
            f"INSERT INTO {LEDGER}.{claims} "
            f"(database_name, table_name, pipeline, source_table, sink_table{topology}) "
            f"VALUES ({', '.join(map(literal, values))}) ON DUPLICATE KEY UPDATE "
            # a claim of another pipeline stays as it is, and is seen afterwards
            f"source_table = IF({self._mine}, {literal(source)}, source_table)"
        )

    def sharers(self, plans: Sequence[TablePlan]) -> tuple[str, ...]:
        """Return the other pipelines that write the plans' sink tables, in order."""
        holders = self._holders(plans, self._claims())
        return tuple(sorted({each.pipeline for _, each in holders if not self._is_mine(each)}))

    def _claims(self) -> tuple[str, ...]:
        """Return the tables of the ledger that hold claims; none without a ledger."""
        version = ledger_version(self._session)
        if not version:
            return ()
        return _CLAIMS if version >= _EDGES_SINCE else _CLAIMS[:1]

    def _knows_shards(self) -> bool:
        """Tell whether the ledger has shards."""
        return ledger_version(self._session) >= SHARDS_SINCE

    def _holders(
        self, plans: Sequence[TablePlan], where: Sequence[str], *, lock: str = ""
    ) -> Sequence[tuple[SinkName, _Holder]]:
        """Return the owners of the plans' sink tables, as far as `where` has claims on them."""
        names = sorted({self._name(plan.sink_table) for plan in plans})
        if not names:
            return []
        found = []
        for claims in where:
            topology = "''" if claims == "target" else "topology"
            rows = self._session.rows(
                f"SELECT database_name, table_name, pipeline, source_table, {topology} "
                f"FROM {LEDGER}.{claims} "
                f"WHERE {' OR '.join(f'({name_is(name)})' for name in names)} {lock}"
            )
            found += [((row[0], row[1]), _Holder(*row[2:])) for row in rows]
        return found

    def _judged(
        self,
        plans: Sequence[TablePlan],
        holders: Sequence[tuple[SinkName, _Holder]],
        known: Collection[Copied],
        *,
        has_ledger: bool,
    ) -> tuple[TargetConflict, ...]:
        """Return the conflicts of the plans' tables: claimed by others, or with unknown rows."""
        found: dict[SinkName | Shard, TargetConflict] = {}
        existing = self._existing(plans)
        by_name: dict[SinkName, list[_Holder]] = {}
        for name, holder in holders:
            by_name.setdefault(name, []).append(holder)
        owned = {self._name(sink) for _, sink in known}
        owned |= {n for n, held in by_name.items() if any(self._is_mine(each) for each in held)}
        shards = {(self._name(sink), str(source)) for source, sink in known}
        if any(plan.shard for plan in plans) and self._knows_shards():
            shards |= target_shards.claimed_shards(self._session, self._owner)
        unknown = []
        for plan in plans:
            name = self._name(plan.sink_table)
            strange = [each for each in by_name.get(name, ()) if not self._may_share(each)]
            if strange:
                found.setdefault(name, _taken(plan, strange[0]))
            elif name not in existing:
                continue
            # rows of a shard are not known by the claim on its table, which may be older
            elif (name in owned if plan.shard is None else self._shard(plan) in shards) or (
                has_ledger and ledger.holds_rows(self._session, self._owner, plan.schema.table)
            ):
                owned.add(name)
            else:
                unknown.append(plan)
        for plan in unknown:
            name = self._name(plan.sink_table)
            is_owned = name in owned
            if name not in found and self._holds_rows(plan, is_owned=is_owned):
                found[self._shard(plan) if is_owned else name] = _filled(plan, is_owned=is_owned)
        return tuple(found.values())

    def _holds_rows(self, plan: TablePlan, *, is_owned: bool) -> bool:
        """Tell whether a sink table has rows that may not be the plan's.

        In one that the pipeline owns these are only those that the plan's would replace.
        """
        if is_owned:
            return target_shards.holds_own_rows(self._session, plan)
        return bool(self._session.rows(f"SELECT 1 FROM {quote_table(plan.sink_table)} LIMIT 1"))

    def _existing(self, plans: Sequence[TablePlan]) -> set[SinkName]:
        """Return the names of all tables in the databases of the plans' sink tables."""
        databases = sorted({literal(plan.sink_table.database) for plan in plans})
        if not databases:
            return set()
        rows = self._session.rows(
            "SELECT table_schema, table_name FROM information_schema.tables "
            f"WHERE table_schema IN ({', '.join(databases)})"
        )
        return {self._name(TableId(database, table)) for database, table in rows}

    def _is_mine(self, holder: _Holder) -> bool:
        """Tell whether the owner of a sink table is this pipeline."""
        return holder.pipeline == str(self._owner.pipeline)

    def _may_share(self, holder: _Holder) -> bool:
        """Tell whether the owner of a sink table is this pipeline, or an edge of its topology."""
        is_edge = self._edge is not None and holder.topology == self._edge.name
        return is_edge or self._is_mine(holder)

    def _shard(self, plan: TablePlan) -> Shard:
        """Return a plan's sink table and its source table, as a claim."""
        return self._name(plan.sink_table), str(plan.schema.table)

    def _name(self, table: TableId) -> SinkName:
        """Return a table's name as the sink compares names: in lower case if it folds them."""
        if self._folds:
            return table.database.lower(), table.table.lower()
        return table.database, table.table


def _taken(plan: TablePlan, holder: _Holder) -> TargetConflict:
    """Return the conflict of a sink table that another pipeline owns."""
    return TargetConflict(
        table=plan.sink_table,
        pipeline=holder.pipeline,
        text=f"{plan.sink_table} belongs to the pipeline {holder.pipeline}, which copies "
        f"{holder.source} there",
        remedy=f"route {plan.schema.table} elsewhere, or `drop` the pipeline {holder.pipeline}",
    )


def _filled(plan: TablePlan, *, is_owned: bool) -> TargetConflict:
    """Return the conflict of a sink table that holds rows of unknown origin."""
    shard = plan.shard
    if shard is None:
        rows, way = "rows", "all of its rows replaced by the source's"
    else:
        own = f"rows with {shard.name} = {shard.constant!r}"
        rows, way = own if is_owned else "rows", f"the {own} replaced by the source's; others stay"
    ways = "delete them" if is_owned else "empty or rename the table"
    return TargetConflict(
        table=plan.sink_table,
        pipeline="",
        text=f"{plan.sink_table} holds {rows}, and nothing says that this pipeline wrote them",
        remedy=f"{ways}, route elsewhere, or write `existing_rows: replace` under sink to have "
        f"{way}",
        is_shared=shard is not None,
    )
