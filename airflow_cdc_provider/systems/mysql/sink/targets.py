"""Which pipeline owns which table of the sink.

A split replaces everything its table holds in its range, so two pipelines that write to one table
delete each other's rows, each of them rightly by its own ledger. Therefore a pipeline claims its
tables before it touches them: one row a table, the table's name being its key, so that of two
pipelines that come at once one is refused. The claim is made in a transaction that holds the
pipeline's generation, and it is given back under a generation too; what wrote before that is
fenced. So a table that changes hands has no writer left behind.

A table that nobody owns may hold rows that came from elsewhere. They would go with the first
split, so such a table is refused, unless the pipeline's own ledger or plan says that the rows are
its own, or the pipeline file says to replace them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from airflow_cdc_provider.core.errors import RefusedError
from airflow_cdc_provider.core.identifiers import TableId, quote_table
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.stopped_tables import StoppedTable
from airflow_cdc_provider.core.topology import Topology
from airflow_cdc_provider.engine.sink.port import Owner, TargetConflict
from airflow_cdc_provider.systems.mysql.dialect.sql import literal
from airflow_cdc_provider.systems.mysql.sink import ledger
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

_Name = tuple[str, str]
"""Database and table, as the sink compares them."""


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
        rows = self._session.rows(
            " UNION ".join(
                f"SELECT source_table, sink_table FROM {LEDGER}.{claims} WHERE {self._mine}"
                for claims in where
            )
            + " ORDER BY source_table, sink_table"
        )
        return tuple((TableId.parse(source), TableId.parse(sink)) for source, sink in rows)

    def conflicts(
        self, plans: Sequence[TablePlan], *, known: Collection[TableId] = ()
    ) -> tuple[TargetConflict, ...]:
        """Return why the plans' tables may not be written to: another owner, or unknown rows.

        `known` are tables whose rows are known to be this pipeline's.
        """
        where = self._claims()
        holders = self._holders(plans, where)
        return self._judged(plans, holders, known, has_ledger=bool(where))

    def claim(
        self,
        plans: Sequence[TablePlan],
        *,
        known: Collection[TableId] = (),
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
        self, plans: Sequence[TablePlan], known: Collection[TableId], *, replace_rows: bool
    ) -> tuple[TableId, ...]:
        """Claim the plans' sink tables within a transaction that holds the generation."""
        ledger.check_generation(self._session, self._owner, lock="FOR UPDATE")
        mine = [each for each in self._holders(plans, _CLAIMS) if self._is_mine(each[1])]
        # in one order for all pipelines, or two could wait for each other
        for plan in sorted(plans, key=lambda plan: self._name(plan.sink_table)):
            self._insert(plan)
        after = self._holders(plans, _CLAIMS, lock="FOR UPDATE")
        others = [each for each in after if not self._is_mine(each[1])]
        found = self._judged(plans, [*mine, *others], known, has_ledger=True)
        refused = [each for each in found if each.pipeline or not replace_rows]
        if refused:
            raise RefusedError(
                "; ".join(conflict.text for conflict in refused),
                where=f"sink {self._session.where}",
                risk="rows that are not this pipeline's would be deleted; nothing was changed",
                remedy="; ".join(dict.fromkeys(conflict.remedy for conflict in refused)),
            )
        return tuple(conflict.table for conflict in found)

    def release(self, *, keep: Sequence[TablePlan] = ()) -> None:
        """Delete the pipeline's claims on all tables except those of `keep`; their rows stay."""
        kept = {self._name(plan.sink_table) for plan in keep}

        def give_back() -> None:
            ledger.check_generation(self._session, self._owner, lock="FOR UPDATE")
            for claims in self._claims():
                for database, table in self._session.rows(
                    f"SELECT database_name, table_name FROM {LEDGER}.{claims} WHERE {self._mine}"
                ):
                    if (database, table) not in kept:
                        self._session.execute(
                            f"DELETE FROM {LEDGER}.{claims} WHERE {self._mine} "
                            f"AND {_is((database, table))}"
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
            name = _is(self._name(table))
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

    def _holders(
        self, plans: Sequence[TablePlan], where: Sequence[str], *, lock: str = ""
    ) -> Sequence[tuple[_Name, _Holder]]:
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
                f"WHERE {' OR '.join(f'({_is(name)})' for name in names)} {lock}"
            )
            found += [((row[0], row[1]), _Holder(*row[2:])) for row in rows]
        return found

    def _judged(
        self,
        plans: Sequence[TablePlan],
        holders: Sequence[tuple[_Name, _Holder]],
        known: Collection[TableId],
        *,
        has_ledger: bool,
    ) -> tuple[TargetConflict, ...]:
        """Return the conflicts of the plans' tables: claimed by others, or with unknown rows."""
        found = []
        existing = self._existing(plans)
        by_name: dict[_Name, list[_Holder]] = {}
        for name, holder in holders:
            by_name.setdefault(name, []).append(holder)
        for plan in plans:
            held = by_name.get(self._name(plan.sink_table), [])
            if strange := [each for each in held if not self._may_share(each)]:
                found.append(_taken(plan, strange[0]))
                continue
            if any(self._is_mine(each) for each in held):
                continue
            if plan.sink_table in known or self._name(plan.sink_table) not in existing:
                continue
            source = plan.schema.table
            ours = has_ledger and ledger.holds_rows(self._session, self._owner, source)
            if not ours and self._session.rows(
                f"SELECT 1 FROM {quote_table(plan.sink_table)} LIMIT 1"
            ):
                found.append(_filled(plan))
        return tuple(found)

    def _existing(self, plans: Sequence[TablePlan]) -> set[_Name]:
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

    def _name(self, table: TableId) -> _Name:
        """Return a table's name as the sink compares names: in lower case if it folds them."""
        if self._folds:
            return table.database.lower(), table.table.lower()
        return table.database, table.table


def _is(name: _Name) -> str:
    """Return the condition that picks a sink table's claim."""
    return f"database_name = {literal(name[0])} AND table_name = {literal(name[1])}"


def _taken(plan: TablePlan, holder: _Holder) -> TargetConflict:
    """Return the conflict of a sink table that another pipeline owns."""
    return TargetConflict(
        table=plan.sink_table,
        pipeline=holder.pipeline,
        text=f"{plan.sink_table} belongs to the pipeline {holder.pipeline}, which copies "
        f"{holder.source} there",
        remedy=f"route {plan.schema.table} elsewhere, or `drop` the pipeline {holder.pipeline}",
    )


def _filled(plan: TablePlan) -> TargetConflict:
    """Return the conflict of a sink table that holds rows of unknown origin."""
    return TargetConflict(
        table=plan.sink_table,
        pipeline="",
        text=f"{plan.sink_table} holds rows, and nothing says that this pipeline wrote them",
        remedy="empty or rename the table, route elsewhere, or write `existing_rows: replace` "
        "under sink to have all of its rows replaced by the source's",
    )
