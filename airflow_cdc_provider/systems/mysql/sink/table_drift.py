"""Whether the sink's tables can still hold every row as it is.

Who changes a table of the sink may have its values altered with no error: a narrower DECIMAL
rounds, a trigger rewrites. So definitions are read again when changes are going to be applied,
when a split is written, and now and then beside the stream. What preflight lets through is let
through here.

A look costs a few milliseconds. A writer of splits looks at a table once a minute, inside its
transaction: from the look to the commit nobody can change the table.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.core.identifiers import TableId, quote_table
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.table_drift import (
    WAY_BACK_OF_NODES,
    TableDrift,
    drift_error,
    firing_text,
)
from airflow_cdc_provider.engine.sink.port import Owner
from airflow_cdc_provider.systems.mysql.dialect.table_match import mismatches
from airflow_cdc_provider.systems.mysql.server.connection import Role
from airflow_cdc_provider.systems.mysql.server.introspection import read_schemas
from airflow_cdc_provider.systems.mysql.server.own_values import values_of_others
from airflow_cdc_provider.systems.mysql.server.trigger_looks import triggers_that_fire
from airflow_cdc_provider.systems.mysql.sink import ledger
from airflow_cdc_provider.systems.mysql.sink.sink_session import SinkSession

_FRESH_S = 60.0
_NO_SUCH_TABLE = 1146


def drifted(
    session: SinkSession,
    owner: Owner,
    plans: Sequence[TablePlan],
    *,
    known: Sequence[TablePlan] = (),
    is_edge: bool = False,
) -> tuple[TableDrift, ...]:
    """Return the sink tables whose definitions cannot hold the plans' rows as they are.

    `known` are the pipeline's other tables, of which some may share these sink tables. To a newer
    owner they may be right: then this one is fenced. On an edge of a topology a table
    may be ahead of its plan, where its rows are none the worse for it: the other node's people
    have made a change that the source's log still brings.
    """
    found = tuple(_drifted(session, plans, known, is_edge=is_edge))
    if found:
        ledger.check_generation(session, owner)
    return found


def require_as_planned(
    session: SinkSession,
    owner: Owner,
    plans: Sequence[TablePlan],
    *,
    known: Sequence[TablePlan] = (),
    is_edge: bool = False,
) -> None:
    """Refuse the plans if any sink table cannot hold their rows as they are."""
    found = drifted(session, owner, plans, known=known, is_edge=is_edge)
    if found:
        error = drift_error(found, f"sink {session.where}")
        raise error.with_remedy(WAY_BACK_OF_NODES) if is_edge else error


@contextmanager
def missing_as_drift(session: SinkSession, plan: TablePlan) -> Iterator[None]:
    """Raise the server's answer that a plan's table does not exist as the drift that it is."""
    try:
        yield
    except CdcError as error:
        if error.server_error != _NO_SUCH_TABLE:
            raise
        gone = TableDrift.gone(plan.schema.table, plan.sink_table)
        raise drift_error([gone], f"sink {session.where}") from None


class TableLooks:
    """Checks sink tables' definitions for a session that writes splits, at most once a minute."""

    def __init__(self, session: SinkSession, owner: Owner, plans: Sequence[TablePlan]) -> None:
        """`plans` are those of all the pipeline's tables."""
        self._session = session
        self._owner = owner
        self._plans = plans
        self._looked_s: dict[TableId, float] = {}

    def require_as_planned(self, plan: TablePlan) -> None:
        """Refuse a sink table that is not as planned; it cannot be altered until the commit."""
        # by the source's table: what is right for one may not be for others that share the sink's
        table, now_s = plan.schema.table, time.monotonic()
        if now_s - self._looked_s.get(table, -_FRESH_S) < _FRESH_S:
            return
        with missing_as_drift(self._session, plan):
            self._session.rows(f"SELECT 1 FROM {quote_table(plan.sink_table)} LIMIT 0")
        require_as_planned(self._session, self._owner, [plan], known=self._plans)
        self._looked_s[table] = now_s


def _drifted(
    session: SinkSession, plans: Sequence[TablePlan], known: Sequence[TablePlan], *, is_edge: bool
) -> Iterator[TableDrift]:
    """Yield the sink tables that are gone, unfit for the plan, or have a trigger."""
    targets = [plan.sink_table for plan in plans]
    found = read_schemas(session.connection, targets, with_statement=False, role=Role.SINK)
    firing = triggers_that_fire(session.connection, targets)
    values = values_of_others(session.connection, [*known, *plans])
    for plan in plans:
        there, table = found.get(plan.sink_table), plan.sink_table
        if there is None:
            yield TableDrift.gone(plan.schema.table, table)
            continue
        # a node that is ahead may have wider types, as a table that is shared
        differing = mismatches(plan.target, there, may_be_wider=is_edge or plan.shard is not None)
        texts = [str(each) for each in differing if not (is_edge and each.is_loud)]
        texts += [firing_text(firing[table])] if table in firing else []
        texts += [values[plan.schema.table]] if plan.schema.table in values else []
        if texts:
            is_shared = plan.shard is not None
            yield TableDrift(plan.schema.table, table, "; ".join(texts), is_shared=is_shared)
