"""What people ask of a pipeline that has rows: each request is checked, then stored.

Nobody writes here. Whoever owns the pipeline carries requests out; where nobody does, whoever waits
for one does the work itself. Asking again under the same id is harmless: it is the same request.
"""

from __future__ import annotations

import difflib
import getpass
import os
import re
import secrets
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress

from airflow_cdc_provider.core.errors import (
    NOTHING_CHANGED,
    CdcError,
    FencedError,
    LeaseHeldError,
    RefusedError,
    RequestEndedError,
    RetryableError,
)
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.keys import Key, KeyRange, comparable
from airflow_cdc_provider.core.lifecycle import Wanted
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.requests import Request, RequestKind, RequestStatus, Scope
from airflow_cdc_provider.core.table_schema import TableSchema
from airflow_cdc_provider.pipeline.run import Run, lease_is_live
from airflow_cdc_provider.pipeline.steps.ended import require_not_ended
from airflow_cdc_provider.pipeline.steps.file_changes import require_unchanged
from airflow_cdc_provider.pipeline.steps.sink import open_table_builder, sink_of, source_of

_POLL_S = 0.5
_MOST_TRIES = 5
"""So often the work may end without the request being closed."""
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:+-]{0,63}")
_LETTERS = "23456789abcdefghjkmnpqrstuvwxyz"
"""Those that are not taken for one another."""


def resync_scope(
    run: Run,
    tables: Sequence[str] = (),
    *,
    from_key: str | None = None,
    to_key: str | None = None,
) -> Scope:
    """Return what is to be read again, all tables without a name; refuse what cannot be.

    A key's parts are separated by commas; `to_key` is the first that is not read. None is an open
    end, and the empty text is no key: whoever wrote it meant one.
    """
    plans = _plans(run)
    named = tuple(_named(run, plans, name) for name in dict.fromkeys(tables)) or tuple(plans)
    ranges: tuple[KeyRange, ...] = ()
    if from_key is not None or to_key is not None:
        if not tables or len(named) > 1:
            raise _refused("a range of keys is one table's", "name that one table with --table")
        ranges = (_range(run, plans[named[0]].schema, from_key, to_key),)
    scope = Scope(named, ranges)
    _require_as_planned(run, [plans[table] for table in scope.tables])
    return scope


def ask_resync(
    run: Run,
    scope: Scope,
    *,
    request_id: str = "",
    asked_by: str = "",
    estimated_rows: int | None = None,
) -> Request:
    """Ask for rows to be read again; everything is checked once more before it is stored.

    Of an interval it is a backfill.
    """
    if request_id and not _ID.fullmatch(request_id):
        raise _refused(
            f"{request_id[:80]!r} is no id of a request",
            "write up to 64 letters, digits and . _ : + -, a letter or digit first",
        )
    kind = RequestKind.RESYNC if scope.interval is None else RequestKind.BACKFILL
    request = Request(
        run.name,
        request_id or new_id(kind.value),
        kind,
        scope,
        asked_by or this_person(),
        asked_us=run.store.now_us(),
        estimated_rows=estimated_rows,
    )
    # one that is known is returned, or refused, whatever has become of its tables since
    if run.store.request(run.name, request.request_id) is None:
        plans = _plans(run)
        _require_as_planned(run, [_planned(run, plans, table) for table in scope.tables])
    return run.store.ask(request)


def planned_schema(run: Run, table: TableId) -> TableSchema:
    """Return a table of the plan as it was planned."""
    return _planned(run, _plans(run), table).schema


def new_id(kind: str) -> str:
    """Return an id that no request has."""
    return f"{kind}-{''.join(secrets.choice(_LETTERS) for _ in range(6))}"


def wait_for(
    run: Run,
    request_id: str,
    work: Callable[[], object],
    *,
    on_tick: Callable[[Request], None] = lambda _: None,
) -> Request:
    """Wait until a request is done, or raise what became of it.

    Where nobody owns the pipeline, `work` takes it over and carries out what waits.
    """
    tries = 0
    while (request := _known(run, request_id)).status.is_open:
        on_tick(request)
        if not is_owned(run):
            if tries == _MOST_TRIES:
                raise _left(request)
            tries += 1
            # another one may be faster, or come in between: then it does the work
            with suppress(LeaseHeldError, FencedError):
                work()
        time.sleep(_POLL_S)
    if request.status is not RequestStatus.DONE:
        raise _ended(request)
    return request


def is_owned(run: Run) -> bool:
    """Tell whether someone is at work on the pipeline."""
    return lease_is_live(run, run.store.ensure(run.name))


def who_carries_out(run: Run) -> str:
    """Say who will do what is asked."""
    state = run.store.ensure(run.name)
    if state.wanted is Wanted.STOP:
        return f"{run.name} is paused: the first run after `resume` carries it out"
    if lease_is_live(run, state):
        return f"{state.owner} is at work on {run.name}, and carries it out"
    return "nobody is at work: the next run carries it out, or give --wait to do it here"


def this_person() -> str:
    """Name who asks: the account of this process, and the machine."""
    try:
        account = getpass.getuser()
    except (KeyError, OSError):  # a container may know no name for it
        account = f"uid {os.getuid()}"
    return f"{account} on {socket.gethostname()}"


# --- what is checked -------------------------------------------------------------------------


def _plans(run: Run) -> dict[TableId, TablePlan]:
    """Return the plan's tables, of a pipeline that is fit for requests."""
    if not run.store.is_handed_off(run.name):
        raise _refused(
            f"{run.name} has no rows to read again: its snapshot is not done",
            "`run` it first, against the same state",
        )
    if not sink_of(run).abilities.joins:
        raise _refused(
            f"a sink of type {run.model.sink.type} takes no rows again: it keeps what it was given",
            "`reset` and run: all tables are then read again",
        )
    require_not_ended(run)
    require_unchanged(run)
    return {state.table: state.plan for state in run.store.tables(run.name)}


def _named(run: Run, plans: dict[TableId, TablePlan], name: str) -> TableId:
    try:
        table = TableId.parse(name)
    except ValueError as error:
        raise _refused(str(error), "write database.table") from None
    return _planned(run, plans, table).schema.table


def _planned(run: Run, plans: dict[TableId, TablePlan], table: TableId) -> TablePlan:
    if table in plans:
        return plans[table]
    near = difflib.get_close_matches(str(table), map(str, plans), n=1, cutoff=0.7)
    raise _refused(
        f"{table} is not in the plan of {run.name}",
        f"did you mean {near[0]}?" if near else "name a table as the source spells it",
    )


def _range(run: Run, schema: TableSchema, from_key: str | None, to_key: str | None) -> KeyRange:
    if not comparable(schema.key_kinds):
        raise _refused(
            f"the order of {schema.table}'s key ({', '.join(schema.primary_key)}) is the server's "
            "own, so a part of it cannot be read again",
            "ask for the whole table",
        )
    start = _key(run, schema, "--from-key", from_key)
    end = _key(run, schema, "--to-key", to_key)
    if start is not None and end is not None and not start < end:
        raise _refused(
            f"no key of {schema.table} lies from {from_key} up to {to_key}",
            "give the smaller key as --from-key; --to-key is not read itself",
        )
    return KeyRange(start, end)


def _key(run: Run, schema: TableSchema, option: str, text: str | None) -> Key | None:
    if text is None:
        return None
    try:
        return source_of(run).key_of(schema, text.split(","))
    except ValueError as error:
        key = ", ".join(schema.primary_key)
        raise _refused(
            f"{option}: {error}", f"write the key ({key}) of {schema.table}, or its first parts"
        ) from None


def _require_as_planned(run: Run, plans: Sequence[TablePlan]) -> None:
    """Refuse tables that are not those that were planned, at the source or at the sink."""
    with source_of(run).catalogue() as catalogue:
        now = catalogue.schemas([plan.schema.table for plan in plans])
    for planned in (plan.schema for plan in plans):
        found = now.get(planned.table)
        if found is None:
            raise _refused(
                f"{planned.table} is gone at the source",
                "bring it back, or take it out of the file and `remove` it",
            )
        if found.fingerprint != planned.fingerprint:
            raise _refused(
                f"{planned.table} has another definition now than when it was planned",
                "`run` the pipeline: its stream follows the change or says why not. Then ask "
                "again; or `reset` with --table and run: that table alone is read, as it is now",
            )
    with closing(open_table_builder(run)) as builder:
        builder.require_fit(plans)


def _known(run: Run, request_id: str) -> Request:
    request = run.store.request(run.name, request_id)
    if request is None:
        raise _refused(
            f"{run.name} has no request {request_id!r} any more",
            "ask again; whoever dropped the pipeline dropped its requests, too",
        )
    return request


def _left(request: Request) -> RetryableError:
    return RetryableError(
        f"request {request.request_id} is still {request.status.value}, and nobody is at work",
        where=f"request of {request.scope}",
        risk="none: rows that were read again are right, the others are as they were",
        remedy="`run` the pipeline: it goes on there",
    )


def _ended(request: Request) -> RequestEndedError:
    cause = CdcError.parse(request.error)
    is_cancelled = request.status is RequestStatus.CANCELLED
    why = f": {request.error if is_cancelled else cause.what}" if request.error else ""
    return RequestEndedError(
        f"request {request.request_id} {'was' if is_cancelled else 'has'} "
        f"{request.status.value}{why}",
        where=cause.where or f"request of {request.scope}",
        risk=cause.risk or "none: rows that were read again are right, the others are as they were",
        remedy=cause.remedy or "ask again under another id",
    )


def _refused(what: str, remedy: str) -> RefusedError:
    return RefusedError(what, where="what is asked", risk=NOTHING_CHANGED, remedy=remedy)
