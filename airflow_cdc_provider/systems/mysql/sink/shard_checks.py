"""Whether one of several tables that share a sink table may begin there, and the others are well.

A shared table is extended for a shard of which no row is there. What shards have lost there that
do have rows is not mended along with it: they would not miss their values then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from airflow_cdc_provider.core.errors import RefusedError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.shards import shards_of
from airflow_cdc_provider.core.table_drift import TableDrift, drift_error
from airflow_cdc_provider.core.table_schema import TableSchema
from airflow_cdc_provider.engine.sink.port import Owner
from airflow_cdc_provider.systems.mysql.dialect.shared_tables import extension
from airflow_cdc_provider.systems.mysql.dialect.table_match import mismatches
from airflow_cdc_provider.systems.mysql.server.own_values import values_of_others
from airflow_cdc_provider.systems.mysql.sink import ledger
from airflow_cdc_provider.systems.mysql.sink.shared_tables import require_agreed
from airflow_cdc_provider.systems.mysql.sink.sink_session import SinkSession


@dataclass(frozen=True, slots=True)
class ShardChecks:
    """Checks the shards of a pipeline, over a session."""

    session: SinkSession
    owner: Owner
    known: Sequence[TablePlan]
    """All shards of the pipeline's plan."""
    carried: Callable[[TablePlan], TablePlan]
    """Gives a plan with stand-ins for the types that the sink lacks."""
    is_edge: bool = False
    """Of a topology: a table of a node may have wider types than its plan, which it is ahead of."""

    def begun(self, plans: Sequence[TablePlan]) -> list[TablePlan]:
        """Return the shards among the plans of which no row is at the sink."""
        return [plan for plan in plans if plan.shard is not None and not self._has_rows(plan)]

    def require_agreed(self, plans: Sequence[TablePlan]) -> None:
        """Refuse shards that one sink table cannot hold, or not as it is there already."""
        asked = {plan.schema.table for plan in plans}
        for shards in shards_of(plans, self.known):
            require_agreed(list(map(self.carried, shards)), asked, self.session.where)
            found = values_of_others(self.session.connection, shards)
            if mine := {table: text for table, text in found.items() if table in asked}:
                raise _with_values(mine, shards[0].sink_table, self.session.where)

    def require_whole(
        self, plans: Sequence[TablePlan], existing: Mapping[TableId, TableSchema]
    ) -> None:
        """Refuse shards whose sink table is gone, or lost columns, that others have rows in.

        Made anew or mended for one of them it would hide that values of the others are gone. So
        they have to begin again together.
        """
        asked = {plan.schema.table for plan in plans}
        for shards in shards_of(plans, self.known):
            others = [each for each in shards if each.schema.table not in asked]
            others = list(filter(self._has_rows, others))
            found = existing.get(shards[0].sink_table)
            if found is None:
                self.raise_lost(shards if others else ())
            else:
                mine = [each for each in shards if each.schema.table in asked]
                self._refuse_mended(mine, others, found)

    def raise_lost(self, lost: Sequence[TablePlan]) -> None:
        """Raise the error for tables of which rows are gone with the sink's table, if any."""
        if lost:
            gone = [TableDrift.gone(plan.schema.table, plan.sink_table) for plan in lost]
            raise drift_error(gone, f"sink {self.session.where}")

    def misfits(self, plan: TablePlan, found: TableSchema, *, extends: bool) -> list[str]:
        """Return why a sink table cannot hold a plan's rows; with `extends`, once it is extended.

        A column that is extended is what the sink makes of the source's: its stand-in.
        """
        if extends:
            return list(map(str, extension(self.carried(plan).target, found).unfit))
        may_be_wider = self.is_edge or plan.shard is not None
        return list(map(str, mismatches(plan.target, found, may_be_wider=may_be_wider)))

    def _refuse_mended(
        self, plans: Sequence[TablePlan], others: Sequence[TablePlan], found: TableSchema
    ) -> None:
        """Refuse to give a shared table what others have lost there, and would not miss then."""
        needed = [extension(self.carried(plan).target, found) for plan in plans]
        if not any(each.added or each.widened for each in needed):
            return
        if drifts := self._drifted(others, found):
            raise drift_error([*self._drifted(plans, found), *drifts], f"sink {self.session.where}")

    def _drifted(self, shards: Sequence[TablePlan], found: TableSchema) -> list[TableDrift]:
        """Return the shards whose rows a shared table cannot hold as it is."""
        return [
            TableDrift(plan.schema.table, plan.sink_table, "; ".join(texts), is_shared=True)
            for plan in shards
            if (texts := self.misfits(plan, found, extends=False))
        ]

    def _has_rows(self, plan: TablePlan) -> bool:
        """Tell whether rows of a plan's table were committed to the sink."""
        return ledger.holds_rows(self.session, self.owner, plan.schema.table)


def _with_values(found: Mapping[TableId, str], target: TableId, where: str) -> RefusedError:
    """Return the error for a shared table that writes values of its own into rows of shards."""
    texts = [f"for {table}: {text}" for table, text in found.items()]
    return RefusedError(
        f"{target} gives rows values that their shard does not have: {'; '.join(texts)}",
        where=f"table {target} on {where}",
        risk="rows would have values that nobody wrote; nothing was written",
        remedy="ALTER TABLE ... MODIFY these columns without DEFAULT and ON UPDATE, nullable",
    ).about(*found)
