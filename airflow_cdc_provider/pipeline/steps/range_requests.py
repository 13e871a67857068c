"""What people ask of a pipeline that has rows: each request is checked, then stored.

Nobody writes here. Whoever owns the pipeline carries requests out; where nobody does, whoever waits
for one does the work itself. Asking again under the same id is harmless: it is the same request.
"""

from __future__ import annotations

import difflib
import getpass
import os
import re
import socket
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import replace

from airflow_cdc_provider.columns.source_port import ReadsText, Verifies, offered
from airflow_cdc_provider.core.errors import (
    NOTHING_CHANGED,
    FencedError,
    LeaseHeldError,
    RefusedError,
    RequestEndedError,
    RequestWaitsError,
    RetryableError,
    TablesStoppedError,
)
from airflow_cdc_provider.core.identifiers import TableId, table_option
from airflow_cdc_provider.core.keys import Key, KeyRange, comparable
from airflow_cdc_provider.core.lifecycle import LEFT_ALONE, Wanted
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.requests import Request, RequestKind, RequestStatus, Scope, new_id
from airflow_cdc_provider.core.splits import Condition, Interval
from airflow_cdc_provider.core.table_schema import TableSchema, TypeKind
from airflow_cdc_provider.pipeline.run import Run, lease_is_live
from airflow_cdc_provider.pipeline.steps.edges import require_rows_can_be_read_again
from airflow_cdc_provider.pipeline.steps.ended_stream import require_not_ended
from airflow_cdc_provider.pipeline.steps.estimating import Estimate, estimate, key_at_sink
from airflow_cdc_provider.pipeline.steps.file_diff import require_unchanged
from airflow_cdc_provider.pipeline.steps.known_orders import require_known_orders
from airflow_cdc_provider.pipeline.steps.requests_both_ways import (
    require_last_node,
    require_not_read_there,
)
from airflow_cdc_provider.pipeline.steps.sink import (
    open_table_builder,
    require_sinks_folder,
    sink_of,
    source_of,
)
from airflow_cdc_provider.pipeline.steps.stream_ends import require_streams_on

_POLL_S = 0.5
_BETWEEN_STEPS_US = 3_000_000
"""An owner has its lease again within that time, while its run goes on."""
_MOST_TRIES = 5
"""So often the work may end without the request being closed."""
_OF_ONE_SYSTEM = frozenset({TypeKind.OTHER, TypeKind.VECTOR})
"""Kinds of values for which another may stand at the sink."""
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:+-]{0,63}")

_ALTERED = (
    "`run` the pipeline: its stream follows the change or says why not. Then ask again; or `reset` "
    "with --table and run: that table alone is read, as it is now"
)
_ALTERED_AT_A_NODE = (
    "make the same change at both nodes, and `run` the pipeline, or `resume` with --table if it "
    "has stopped; then ask again"
)


def resync_scope(
    run: Run,
    tables: Sequence[str] = (),
    *,
    from_key: str | None = None,
    to_key: str | None = None,
    where: str | None = None,
) -> Scope:
    """Return the scope of a request to read rows again; refuse what cannot be read again.

    A key's parts are separated by commas; `to_key` is the first that is not read. None is an open
    end, and the empty text is no key: whoever wrote it meant one. `where` is a condition in the
    source's own SQL, on the columns of that one table.
    """
    require_rows_can_be_read_again(run)
    require_streams_on(run, "reading rows again")
    plans = _plans(run)
    require_sinks_folder(run)
    named = tuple(_named(run, plans, name) for name in dict.fromkeys(tables)) or tuple(plans)
    ranges: tuple[KeyRange, ...] = ()
    is_part = from_key is not None or to_key is not None or where is not None
    if is_part and (not tables or len(named) > 1):
        raise refused(
            "a range of keys is one table's, and so is a condition",
            "name that one table with --table",
        )
    plan = plans[named[0]]
    if is_part:
        require_parts(plan)
    if from_key is not None or to_key is not None:
        ranges = (_range(run, plan.schema, from_key, to_key),)
    scope = Scope(named, ranges, None if where is None else _condition(run, plan.schema, where))
    chosen = [plans[table] for table in scope.tables]
    _require_as_planned(run, chosen)
    require_last_node(run, chosen)
    return scope


def require_parts(plan: TablePlan) -> None:
    """Refuse to read a part of a table's rows again if the sink cannot find it."""
    if plan.is_one_split:
        why = "hashes of its key at the sink" if plan.schema.has_key else "no key"
        raise refused(
            f"{plan.schema.table} has {why}, so a part of its rows cannot be read again",
            "ask for the whole table by `resync`",
        )


def ask_resync(
    run: Run,
    scope: Scope,
    *,
    request_id: str = "",
    asked_by: str = "",
    estimated: Estimate | None = None,
    approve_above_rows: int | None = None,
) -> Request:
    """Store a request to read rows again, after all is checked once more.

    For an interval of a column the request is a backfill. A request for more rows than the file, or
    the caller, allows waits for approval; rows that were not estimated are estimated then.
    """
    if request_id and not _ID.fullmatch(request_id):
        raise refused(
            f"{request_id[:80]!r} is no id of a request",
            "write up to 64 letters, digits and . _ : + -, a letter or digit first",
        )
    kind = RequestKind.BACKFILL if isinstance(scope.chosen, Interval) else RequestKind.RESYNC
    request = Request(
        run.name,
        request_id or new_id(kind.value),
        kind,
        scope,
        asked_by or this_person(),
        asked_us=run.store.now_us(),
        estimated_rows=None if estimated is None else estimated.source_rows,
    )
    # one that is known is returned, or refused, whatever has become of its tables since
    if run.store.request(run.name, request.request_id) is None:
        require_rows_can_be_read_again(run)
        require_streams_on(run, "reading rows again")
        plans = _plans(run)
        planned = [_planned(run, plans, table) for table in scope.tables]
        require_known_orders(run, scope)
        _require_as_planned(run, planned)
        for plan in planned:
            plan.chosen_at_sink(scope.chosen)
        _require_condition(run, scope)
        require_last_node(run, planned)
        require_not_read_there(run, planned)
        most = smallest(run.model.requests.approve_above_rows, approve_above_rows)
        request = _waiting_if_large(run, request, estimated, most)
        return _asked_on_one_edge(run, request, planned)
    return run.store.ask(request)


def _asked_on_one_edge(run: Run, request: Request, planned: Sequence[TablePlan]) -> Request:
    """Store a request; cancel it, and refuse, if one came on the edge back at the same moment."""
    asked = run.store.ask(request)
    try:
        require_not_read_there(run, planned)
    except RefusedError:
        run.store.cancel_request(run.name, asked.request_id)
        raise
    return asked


def approve(run: Run, request_id: str, *, by: str = "") -> Request:
    """Let a request begin that waits for approval."""
    before = known(run, request_id)
    approved = run.store.approve_request(run.name, request_id)
    if before.status is RequestStatus.WAITING:
        run.store.tell(run.name, f"request {request_id} approved by {by or this_person()}")
    return approved


def smallest(*limits: int | None) -> int | None:
    """Return the smallest of some limits; None is no limit."""
    return min((limit for limit in limits if limit is not None), default=None)


def _waiting_if_large(
    run: Run, request: Request, estimated: Estimate | None, most: int | None
) -> Request:
    """Return the request, waiting for approval if it is about more rows than allowed."""
    if most is None:
        return request
    estimated = estimated or estimate(run, request.scope)
    status = RequestStatus.WAITING if estimated.is_above(most) else RequestStatus.ASKED
    return replace(request, status=status, estimated_rows=estimated.source_rows)


def planned_table(run: Run, table: TableId) -> TablePlan:
    """Return a table's plan."""
    return _planned(run, _plans(run), table)


def wait_for(
    run: Run,
    request_id: str,
    work: Callable[[], object],
    *,
    on_tick: Callable[[Request], None] = lambda _: None,
) -> Request:
    """Wait until a request is done, or raise its error.

    Without an owner of the pipeline, `work` takes it over and carries out the open requests.
    """
    tries = 0
    while (request := known(run, request_id)).status.is_open:
        on_tick(request)
        if request.status.is_to_do and not is_at_work(run):
            _require_not_paused(run, request)
            if tries == _MOST_TRIES:
                raise left(request)
            tries += 1
            # another one may be faster, or come in between: then it does the work
            with suppress(LeaseHeldError, FencedError, TablesStoppedError):
                work()
        time.sleep(_POLL_S)
    if request.status is not RequestStatus.DONE:
        raise ended(request)
    return request


def _require_not_paused(run: Run, request: Request) -> None:
    """Raise `RequestWaitsError` if the pipeline is paused, so its request cannot begin."""
    if run.store.ensure(run.name).wanted is Wanted.STOP:
        raise RequestWaitsError(
            f"request {request.request_id} is stored, and {run.name} is paused",
            where=f"request of {request.scope}",
            risk="none: it begins with the first run after `resume`",
            remedy=f"`resume` {run.name} and run it; `cancel` gives the request up",
        )


def is_owned(run: Run) -> bool:
    """Tell whether a process owns the pipeline now."""
    return lease_is_live(run, run.store.ensure(run.name))


def is_at_work(run: Run) -> bool:
    """Tell whether a process owns the pipeline now, or did a moment ago.

    Between two steps of its run an owner has given its lease back: taking the pipeline over then
    would end that run.
    """
    state = run.store.ensure(run.name)
    since_us = run.store.now_us() - state.updated_us
    was_just_now = state.generation > 0 and 0 <= since_us < _BETWEEN_STEPS_US
    return was_just_now or lease_is_live(run, state)


def who_carries_out(run: Run, request: Request | None = None) -> str:
    """Describe which run will carry out a request, and when."""
    if request is not None and request.status is RequestStatus.WAITING:
        return (
            f"it is about more than {run.model.requests.approve_above_rows:,} rows, and waits: "
            f"`approve` lets it begin, `cancel` gives it up"
        )
    state = run.store.ensure(run.name)
    if state.wanted is Wanted.STOP:
        return f"{run.name} is paused: the first run after `resume` carries it out"
    if lease_is_live(run, state):
        return f"{state.owner} is at work on {run.name}, and carries it out"
    return "nobody is at work: the next run carries it out, or give --wait to do it here"


def this_person() -> str:
    """Return the name under which this process asks: its account and machine."""
    try:
        account = getpass.getuser()
    except (KeyError, OSError):  # a container may know no name for it
        account = f"uid {os.getuid()}"
    return f"{account} on {socket.gethostname()}"


# --- what is checked -------------------------------------------------------------------------


def _plans(run: Run) -> dict[TableId, TablePlan]:
    """Return the plan's tables; refuse a pipeline that cannot read rows again."""
    if not run.store.is_handed_off(run.name):
        raise refused(
            f"{run.name} has no rows to read again: its snapshot is not done",
            "`run` it first, against the same state",
        )
    if not sink_of(run).abilities.replaces_rows:
        raise refused(
            f"a sink of type {run.model.sink.type} takes no rows again: it keeps what it was given",
            "`reset` a table that is to be read again as a whole",
        )
    require_not_ended(run)
    require_unchanged(run)
    return {state.table: state.plan for state in run.store.tables(run.name)}


def _named(run: Run, plans: dict[TableId, TablePlan], name: str) -> TableId:
    """Parse a table's name; refuse one that is not in the plan."""
    try:
        table = TableId.parse(name)
    except ValueError as error:
        raise refused(str(error), "write database.table") from None
    return _planned(run, plans, table).schema.table


def _planned(run: Run, plans: dict[TableId, TablePlan], table: TableId) -> TablePlan:
    """Return a table's plan; refuse a table that is not in the plan."""
    if table in plans:
        return plans[table]
    near = difflib.get_close_matches(str(table), map(str, plans), n=1, cutoff=0.7)
    raise refused(
        f"{table} is not in the plan of {run.name}",
        f"did you mean {near[0]}?" if near else "name a table as the source spells it",
    )


def _range(run: Run, schema: TableSchema, from_key: str | None, to_key: str | None) -> KeyRange:
    """Parse a range of keys; refuse a key whose order code cannot know."""
    if not comparable(schema.key_kinds):
        by_reset = f"`reset` with {table_option(schema.table)}: it is read as a whole"
        whole = "ask for the whole table"
        raise refused(
            f"the order of {schema.table}'s key ({', '.join(schema.primary_key)}) is the server's "
            "own, so a part of it cannot be read again",
            whole if sink_of(run).abilities.knows_all_orders else by_reset,
        )
    start = _key(run, schema, "--from-key", from_key)
    end = _key(run, schema, "--to-key", to_key)
    if start is not None and end is not None and not start < end:
        raise refused(
            f"no key of {schema.table} lies from {from_key} up to {to_key}",
            "give the smaller key as --from-key; --to-key is not read itself",
        )
    return KeyRange(start, end)


def _key(run: Run, schema: TableSchema, option: str, text: str | None) -> Key | None:
    """Parse one end of a key range."""
    if text is None:
        return None
    try:
        return offered(source_of(run), ReadsText).key_of(schema, text.split(","))
    except ValueError as error:
        key = ", ".join(schema.primary_key)
        raise refused(
            f"{option}: {error}", f"write the key ({key}) of {schema.table}, or its first parts"
        ) from None


def _condition(run: Run, schema: TableSchema, text: str) -> Condition:
    """Parse a condition; refuse a wrong one."""
    try:
        return offered(source_of(run), ReadsText).condition_of(schema, text)
    except ValueError as error:
        raise refused(
            f"--where: {error}",
            f"write one condition on columns of {schema.table}, as in a WHERE, of comparisons and "
            "plain functions",
        ) from None


def _require_condition(run: Run, scope: Scope) -> None:
    """Refuse a condition that the source or the sink cannot evaluate."""
    if not isinstance(scope.chosen, Condition):
        return
    (table,) = scope.tables
    plan = {state.table: state.plan for state in run.store.tables(run.name)}[table]
    _condition(run, plan.schema, scope.chosen.text)
    with ExitStack() as stack:
        source = stack.enter_context(closing(offered(source_of(run), Verifies).open_side()))
        sink = stack.enter_context(closing(sink_of(run, plans=[plan]).open_side()))
        definition = sink.definition(plan.sink_table)
        if definition is None:  # what was compared just now is gone
            raise refused(f"{plan.sink_table} is not there", "bring the table back, and ask again")
        _require_same_kinds(run, plan, definition, scope.chosen)
        source.counts(plan.schema, plan.schema.primary_key).require(scope.chosen)
        sink.counts(definition, key_at_sink(plan)).require(scope.chosen)


def _require_same_kinds(
    run: Run, plan: TablePlan, at_sink: TableSchema, condition: Condition
) -> None:
    """Refuse a condition on a column whose values are of another kind at the sink.

    The condition would choose other rows there, and these would be lost or doubled.
    """
    kinds = {column.name.casefold(): column.type.kind for column in at_sink.columns}
    others = [
        column.name
        for column in plan.schema.copied_columns
        if column.type.kind in _OF_ONE_SYSTEM
        and kinds.get(column.name.casefold(), column.type.kind) is not column.type.kind
    ]
    if not others:
        return
    without = plan.schema.ignoring({*plan.schema.ignored, *others})
    try:
        offered(source_of(run), ReadsText).condition_of(without, condition.text)
    except ValueError:
        raise refused(
            f"--where: of the columns of {plan.schema.table}, {', '.join(others)} cannot be in a "
            "condition: another type stands in for theirs at the sink",
            "write the condition on other columns, or `resync` the whole table",
        ) from None


def _require_as_planned(run: Run, plans: Sequence[TablePlan]) -> None:
    """Refuse tables that are isolated, or defined otherwise than planned on either side."""
    _require_flowing(run, {plan.schema.table for plan in plans})
    with source_of(run).catalogue() as catalogue:
        now = catalogue.schemas([plan.schema.table for plan in plans])
    for planned in (plan.schema for plan in plans):
        found = now.get(planned.table)
        if found is None:
            raise refused(
                f"{planned.table} is gone at the source",
                "bring it back, or take it out of the file and `remove` it",
            )
        if found.key_problem:
            raise refused(
                f"{planned.table}: {found.key_problem}",
                "bring the key back as it was; or name another one in the file, then `reset` with "
                f"{table_option(planned.table)}",
            )
        if not found.is_defined_as(planned):
            raise refused(
                f"{planned.table} has another definition now than when it was planned",
                _ALTERED if run.model.edge is None else _ALTERED_AT_A_NODE,
            )
    with closing(open_table_builder(run)) as builder:
        builder.require_fit(plans)


def _require_flowing(run: Run, tables: Collection[TableId]) -> None:
    """Refuse tables that are isolated from the stream."""
    for state in run.store.tables(run.name):
        if state.table in tables and state.phase in LEFT_ALONE:
            why = state.error.read().what if state.error else "a person paused it"
            raise refused(
                f"the stream leaves {state.table} alone: {why}",
                f"`resume` with {table_option(state.table)} brings it back, or says that `reset` "
                "has to; ask again then",
            )


def known(run: Run, request_id: str) -> Request:
    """Return a stored request; refuse if there is none."""
    request = run.store.request(run.name, request_id)
    if request is None:
        raise refused(
            f"{run.name} has no request {request_id!r}",
            "`requests` lists those it has; who drops a pipeline drops its requests, too",
        )
    return request


def left(request: Request) -> RetryableError:
    """Return the error for a waiter whose request no process carries out."""
    return RetryableError(
        f"request {request.request_id} is still {request.status.value}, and nobody is at work",
        where=f"request of {request.scope}",
        risk="none: rows that were read again are right, the others are as they were",
        remedy="`run` the pipeline: it goes on there",
    )


def ended(request: Request) -> RequestEndedError:
    """Return the error for a waiter whose request failed or was cancelled."""
    cause = request.error.read()
    is_cancelled = request.status is RequestStatus.CANCELLED
    why = f": {request.error if is_cancelled else cause.what}" if request.error else ""
    return RequestEndedError(
        f"request {request.request_id} {'was' if is_cancelled else 'has'} "
        f"{request.status.value}{why}",
        where=cause.where or f"request of {request.scope}",
        risk=cause.risk or "none: rows that were read again are right, the others are as they were",
        remedy=cause.remedy or "ask again under another id",
    )


def refused(what: str, remedy: str) -> RefusedError:
    """Return the error for a request that is refused."""
    return RefusedError(what, where="what is asked", risk=NOTHING_CHANGED, remedy=remedy)
