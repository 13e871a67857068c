"""How many rows a request would read, and how many the sink holds there.

Up to 100,000 rows are counted. More are told by the boundaries of small splits, as far as these are
found in a few seconds; the server's own estimates are not asked.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace

from airflow_cdc_provider.columns.source_port import Boundaries, Verifies, offered
from airflow_cdc_provider.columns.verify_port import RowCounts, VerifySide
from airflow_cdc_provider.core.errors import NOTHING_CHANGED, RefusedError
from airflow_cdc_provider.core.identifiers import TableId, table_option
from airflow_cdc_provider.core.keys import Key, KeyRange, bounding_whole
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.requests import MOST_COUNTED, Scope
from airflow_cdc_provider.core.splits import Chosen, Condition, Interval, KeyList
from airflow_cdc_provider.core.table_schema import TableSchema
from airflow_cdc_provider.engine.requests.ranges import inside
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps.known_orders import require_known_orders
from airflow_cdc_provider.pipeline.steps.sink import sink_of, source_of

_ROWS_A_LOOK = 10_000
_LOOK_FOR_S = 10.0


@dataclass(frozen=True, slots=True)
class TableEstimate:
    """The row counts of one table in a request's range; None is not known."""

    table: TableId
    source_rows: int | None
    """About, where there are more than are counted."""
    sink_rows: int | None
    """None where there are more than are counted."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """The row counts of a request's tables."""

    tables: tuple[TableEstimate, ...]

    @property
    def source_rows(self) -> int | None:
        """Return the source's rows of all tables, None if one is not known."""
        return _added(each.source_rows for each in self.tables)

    @property
    def most_rows(self) -> int | None:
        """Return the larger of source's and sink's row counts; None if one is not known."""
        sink_rows = _added(each.sink_rows for each in self.tables)
        if self.source_rows is None or sink_rows is None:
            return None
        return max(self.source_rows, sink_rows)

    def is_above(self, most: int) -> bool:
        """Tell whether a request may be about more than `most` rows; True if not known."""
        return self.most_rows is None or self.most_rows > most


def estimate(run: Run, scope: Scope) -> Estimate:
    """Count the rows of a request at source and sink, up to a limit of rows and time."""
    require_known_orders(run, scope)
    plans = {state.table: state.plan for state in run.store.tables(run.name)}
    with ExitStack() as stack:
        looks = _Looks(
            stack.enter_context(closing(offered(source_of(run), Verifies).open_side())),
            stack.enter_context(closing(sink_of(run, plans=tuple(plans.values())).open_side())),
            stack.enter_context(source_of(run).boundaries(_ROWS_A_LOOK)),
            time.monotonic() + _LOOK_FOR_S,
        )
        return Estimate(tuple(looks.estimate(plans[table], scope) for table in scope.tables))


@dataclass(frozen=True, slots=True)
class _Looks:
    """Sessions on source and sink for counting, and the time limit."""

    source: VerifySide
    sink: VerifySide
    boundaries: Boundaries
    until_s: float

    def estimate(self, plan: TablePlan, scope: Scope) -> TableEstimate:
        """Count one table's rows at source and sink."""
        definition = self.sink.definition(plan.sink_table)
        if definition is None:
            raise _no_sink_table(plan)
        here = self.source.counts(plan.schema, plan.schema.primary_key)
        flag, shard = plan.shape.deleted_flag, plan.shard
        there = self.sink.counts(definition, key_at_sink(plan), flag=flag, shard=shard)
        if isinstance(scope.chosen, Condition):
            for side in (here, there):
                side.require(scope.chosen)
        return TableEstimate(
            plan.schema.table,
            _added(self._at_source(here, plan.schema, keys, scope) for keys in scope.parts),
            _added(_counted(there, keys, _at_sink(scope.chosen, plan)) for keys in scope.parts),
        )

    def _at_source(
        self, side: RowCounts, schema: TableSchema, keys: KeyRange, scope: Scope
    ) -> int | None:
        """Count the source's rows of a range; estimate by split boundaries if they are many."""
        rows = _counted(side, keys, scope.chosen)
        if rows is None and scope.chosen is None and bounding_whole(schema.key_kinds):
            return self._about(side, keys, self.boundaries(schema, keys.start))
        return rows

    def _about(self, side: RowCounts, keys: KeyRange, cuts: Iterator[Key]) -> int | None:
        """Estimate rows by counting boundaries, and the rows after the last; None if too slow."""
        rows, last = 0, keys.start
        for cut in inside(cuts, keys):
            if time.monotonic() > self.until_s:
                return None
            rows, last = rows + _ROWS_A_LOOK, cut
        return rows + side.count(KeyRange(last, keys.end), most=_ROWS_A_LOOK)


def key_at_sink(plan: TablePlan) -> tuple[str, ...]:
    """Return the columns of the source's key by their names at the sink; refuse if it lacks one."""
    try:
        return plan.shape.source_key_of(plan.schema)
    except ValueError as error:
        raise RefusedError(
            str(error),
            where="the sink",
            risk=NOTHING_CHANGED,
            remedy="read the whole table again: `reset` with "
            f"{table_option(plan.schema.table)}, and run",
        ) from None


def _at_sink(chosen: Chosen | None, plan: TablePlan) -> Chosen | None:
    """Return what chooses rows by the names of the sink; a condition is as it was written."""
    if isinstance(chosen, KeyList):
        return replace(chosen, columns=key_at_sink(plan))
    if isinstance(chosen, Interval):
        column = _names_at_sink(plan).get(chosen.column, chosen.column)
        return replace(chosen, column=column)
    return chosen


def _names_at_sink(plan: TablePlan) -> dict[str, str]:
    """Return the sink's names of the source's columns that it has as they are."""
    outputs = plan.shape.columns_of(plan.schema)
    return {each.source: each.name for each in outputs if each.mask is None}


def _added(rows: Iterable[int | None]) -> int | None:
    """Return the sum; None if one count is not known."""
    total = 0
    for each in rows:
        if each is None:
            return None
        total += each
    return total


def _counted(side: RowCounts, keys: KeyRange, chosen: Chosen | None) -> int | None:
    """Count rows up to the limit; None if there are more."""
    rows = side.count(keys, chosen, most=MOST_COUNTED + 1)
    return rows if rows <= MOST_COUNTED else None


def _no_sink_table(plan: TablePlan) -> RefusedError:
    """Return the error for a sink table that does not exist."""
    return RefusedError(
        f"{plan.sink_table} is not there, or the account may not see it",
        where=f"sink of {plan.schema.table}",
        risk=NOTHING_CHANGED,
        remedy="bring the table back; or `reset` with --table and run: it alone is then read",
    )
