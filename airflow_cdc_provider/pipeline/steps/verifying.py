"""Verify: source and sink compared both ways, table by table.

While a stream runs the two are never equal at one moment. Rows that differ are looked at again
once the stream has passed what was at the source then. A stream that does not get there in time
proves nothing, and that is an error of its own, not a difference. Without a stream at work there
is nothing to wait for: what differs, differs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from functools import cache

from airflow_cdc_provider.core.errors import (
    NOTHING_CHANGED,
    CdcError,
    RefusedError,
    RetryableError,
    TablesStoppedError,
)
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.lifecycle import Phase
from airflow_cdc_provider.core.plurals import counted
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.verify_report import VerifyReport
from airflow_cdc_provider.engine.verify.verify import verify as compare
from airflow_cdc_provider.pipeline.run import Run, lease_is_live
from airflow_cdc_provider.pipeline.steps.file_diff import require_unchanged
from airflow_cdc_provider.pipeline.steps.known_orders import with_unknown_orders
from airflow_cdc_provider.pipeline.steps.sink import (
    open_ledger,
    open_targets,
    require_sinks_folder,
    sink_of,
    source_of,
)
from airflow_cdc_provider.pipeline.steps.stream_ends import require_comparable
from airflow_cdc_provider.pipeline.steps.tables import picked_now
from airflow_cdc_provider.pipeline.steps.verified import note_verified
from airflow_cdc_provider.pipeline.steps.verify_budget import EVERY_ROW, Budget
from airflow_cdc_provider.pipeline.steps.way_back import WayBack, covers

SETTLE_S = 120.0
_POLL_S = 0.3


def verify(  # noqa: PLR0913 - each option is one a caller chooses by name
    run: Run,
    *,
    tables: Sequence[TableId] | None = None,
    settle_s: float = SETTLE_S,
    catch_up: Callable[[], None] | None = None,
    refuse_late: bool = False,
    values: bool = False,
    budget: Budget = EVERY_ROW,
) -> VerifyReport:
    """Compare the plan's tables, all or some; refuse a file that differs from the plan.

    `settle_s` is how long the stream may take, each time, to pass what the source had. Where no
    stream is at work, `catch_up` may bring the sink to the source's end instead; without that,
    `refuse_late` refuses to call rows different that may only be late. With `values` the rows that
    are shown have the values that differ. A `budget` leaves tables or rows out.
    """
    plans = [state.plan for state in run.store.tables(run.name)]
    if not plans:
        raise RefusedError(
            f"pipeline {run.name} has no plan, so there is nothing to compare",
            where=f"state of {run.name}",
            remedy="run the pipeline first, against the same state",
        )
    require_sinks_folder(run)
    require_unchanged(run, may_have_rules=True)
    require_comparable(run, tables)
    unknown = sorted(set(tables or ()) - {plan.schema.table for plan in plans})
    if unknown:
        raise RefusedError(
            f"{unknown[0]} is not in the plan of {run.name}",
            where=f"state of {run.name}",
            remedy="name a table as the source spells it",
        )

    began_us = run.store.now_us()
    asked = [plan for plan in plans if tables is None or plan.schema.table in tables]
    chosen = budget.tables_of(run, [plan.schema.table for plan in asked])
    ranges = budget.ranges_of(run, [plan for plan in asked if plan.schema.table in chosen])

    is_late = False

    @cache
    def way_back() -> WayBack | None:
        found = WayBack.of(run)
        return None if found is None else opened.enter_context(closing(found))

    def recheck() -> None:
        nonlocal is_late
        may_wait = catch_up is None or _streams(run)
        if (back := way_back()) is not None:
            back.wait(timeout_s=settle_s)
        if may_wait and wait_for_stream(run, timeout_s=settle_s):
            is_late = False
            return
        if catch_up is not None:  # also where a stream has ended meanwhile
            with suppress(TablesStoppedError):  # the report says which these are
                catch_up()
        elif refuse_late:
            raise _late(run)
        else:
            is_late = True

    failed: dict[TableId, CdcError] = {}
    with ExitStack() as opened:
        found = compare(
            source_of(run),
            sink_of(run, plans=plans),
            plans,
            tables=chosen,
            recheck=recheck,
            values=values,
            ranges=ranges,
            is_written_at_both=run.model.edge is not None,
            options=run.model.source_options,
            failed=failed,
        )
        back = way_back()
        left_alone = frozenset() if back is None else back.stopped()
    note_verified(run, found, began_us)
    if failed:
        raise _incomplete(failed, found)
    planned = {plan.schema.table for plan in plans}
    compared = {verdict.table for verdict in found.tables}
    with closing(open_targets(run)) as targets:
        alone = {each.table for each in targets.stopped()}
    alone |= {plan.schema.table for plan in plans if plan.sink_table in left_alone}
    stopped = tuple(sorted(alone & compared))
    not_copied = tuple(sorted(set(picked_now(run)) - planned))
    return with_unknown_orders(
        run, replace(found, not_copied=not_copied, stopped=stopped, may_be_late=is_late)
    )


def _incomplete(failed: Mapping[TableId, CdcError], found: VerifyReport) -> CdcError:
    """Return the error of the first table that cannot be compared; it says what the others are."""
    first, *more = failed
    told = [f"nor can {table} be compared: {failed[table].what}" for table in more]
    told += [f"{each.table} differs: {each}" for each in found.tables if not each.equal]
    equal = sum(each.equal for each in found.tables)
    told += [f"{counted(equal, 'other table')} equal"] if equal else []
    return failed[first].saying("; ".join([failed[first].what, *told]))


def wait_for_stream(run: Run, *, timeout_s: float) -> bool:
    """Wait until the sink has all that is committed at the source by now.

    Returns False if it has not, and no stream is at work that could bring it.
    """
    deadline = time.monotonic() + timeout_s
    end = source_end(run)
    with closing(open_ledger(run)) as ledger:
        while True:
            stream = ledger.stream()
            if stream is not None and (covers(stream.place, end) or _nothing_waits(run, end)):
                return True
            if not _streams(run):
                return False
            if time.monotonic() >= deadline:
                raise RetryableError(
                    f"the stream did not pass {end} within {timeout_s:g} s",
                    where=f"verify of {run.name}",
                    risk="none: rows on their way are neither equal nor different yet",
                    remedy="look at the stream's lag, and verify again with more time to settle",
                )
            time.sleep(_POLL_S)


def source_end(run: Run) -> LogPosition:
    """Return the position at the end of the source's log."""
    with closing(source_of(run).log_end(purpose="position")) as log_end:
        return log_end.now()


def _late(run: Run) -> RefusedError:
    """Return the error for rows that differ while the sink is behind the source."""
    return RefusedError(
        "rows differ, and the sink is not at the end of the source's log: they may only be late",
        where=f"verify of {run.name}",
        risk=NOTHING_CHANGED,
        remedy="give --wait, which catches up first; or verify again while the stream runs",
    )


def _nothing_waits(run: Run, end: LogPosition) -> bool:
    """Tell whether the stream has read to `end`, and has nothing left to commit."""
    told = run.store.stream(run.name)
    if told is None or told.source_end is None or told.lag_us != 0:
        return False
    return _streams(run) and covers(told.source_end, end)


def _streams(run: Run) -> bool:
    """Tell whether a living process streams the pipeline."""
    state = run.store.ensure(run.name)
    return state.phase is Phase.STREAMING and lease_is_live(run, state)
