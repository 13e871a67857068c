"""Add, remove and reset of single tables: requests, carried out by whoever owns the pipeline.

Who asks looks at the servers first and is refused what cannot be done; the page, which reaches no
server, stores what it is asked, and the owner refuses. An owner that streams ends its stream for
them, at a transaction's end, and begins it again behind them; a bounded run does them as it begins.
Where nobody is at work the one who asks does them. Before the hand-off tables can only be removed.

A request that was cut off stays open, and the next run goes on with it. Tables that are to begin
again do so together: where one has to leave before the stream can reach the end of the log, the
others do not wait for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace

from airflow_cdc_provider.core.errors import (
    NOTHING_CHANGED,
    CdcError,
    FencedError,
    LeaseHeldError,
    PausedError,
    RefusedError,
    RetryableError,
    StateMovedError,
)
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.lifecycle import Wanted
from airflow_cdc_provider.core.records import NoteKind
from airflow_cdc_provider.core.requests import Request, RequestKind, RequestStatus
from airflow_cdc_provider.core.salts import keep_salts, proofs
from airflow_cdc_provider.core.stored_error import NO_ERROR, StoredError
from airflow_cdc_provider.pipeline.connections import find_salts
from airflow_cdc_provider.pipeline.file.loader import load_pipeline
from airflow_cdc_provider.pipeline.run import Run, take_over
from airflow_cdc_provider.pipeline.steps.edges import require_edge_does
from airflow_cdc_provider.pipeline.steps.ended_stream import ended_with
from airflow_cdc_provider.pipeline.steps.last_try import scrubbed
from airflow_cdc_provider.pipeline.steps.pause_tables import outcome_of
from airflow_cdc_provider.pipeline.steps.range_requests import is_at_work, is_owned, this_person
from airflow_cdc_provider.pipeline.steps.sink import open_ledger
from airflow_cdc_provider.pipeline.steps.stream_ends import require_streams_on
from airflow_cdc_provider.pipeline.steps.table_catch_up import CatchUp
from airflow_cdc_provider.pipeline.steps.table_membership import (
    add_tables,
    remove_tables,
    require_removable,
    reset_tables,
    shards_beside_others,
    sink_tables,
    to_be_added,
    to_be_reset,
)
from airflow_cdc_provider.state.asking import ask_about_tables

OnTick = Callable[[], None]
_POLL_S = 0.2
_PASSING = (RetryableError, FencedError, LeaseHeldError, PausedError, StateMovedError)
"""What says nothing against a request: the next run carries it out."""


def _silent() -> None:
    """Do nothing."""


def add(
    run: Run, tables: Collection[TableId] = (), *, wait_s: float = 0.0, on_tick: OnTick = _silent
) -> str:
    """Request that tables be added to the stream, see the request through, describe the result."""
    require_edge_does(run, RequestKind.FOLLOW)
    require_streams_on(run, "adding a table")
    _require_same_salts(run)
    asked = _ask(run, RequestKind.FOLLOW, to_be_added(run, tables))
    return _seen_through(
        run,
        asked,
        wait_s,
        on_tick,
        done="the stream follows {tables} from now on. The rows there are are read beside it, by "
        "the next run if none is at work. The other tables are not read again",
    )


def reset_some(
    run: Run, tables: Collection[TableId], *, wait_s: float = 0.0, on_tick: OnTick = _silent
) -> str:
    """Request that tables be reset, see the request through, and describe the result."""
    require_edge_does(run, RequestKind.RESET)
    require_streams_on(run, "reading a table anew beside the stream")
    _require_same_salts(run)
    run.held.begins = frozenset(tables)
    asked = _ask(run, RequestKind.RESET, to_be_reset(run, tables))
    return _seen_through(
        run,
        asked,
        wait_s,
        on_tick,
        done="{tables} begins again. Its rows are read beside the stream, by the next run if none "
        "is at work. The other tables are not read again",
    )


def remove(
    run: Run,
    tables: Collection[TableId],
    *,
    drop_targets: bool = False,
    wait_s: float = 0.0,
    on_tick: OnTick = _silent,
) -> str:
    """Request that tables be removed, see the request through, and describe the result."""
    require_removable(run, tables)
    known = sink_tables(run)
    targets = sorted({known[table] for table in tables if table in known})
    if not targets:
        names = ", ".join(map(str, tables))
        return (
            f"{names} was removed before, and nothing was left to do; what is at the sink was "
            "not looked at"
        )
    asked = _ask(run, RequestKind.DROP if drop_targets else RequestKind.REMOVE, tables)
    fate = _fate(run, tables, targets, drop_targets=drop_targets)
    done = f"{{tables}} is not copied any more. {fate}"
    return _seen_through(run, asked, wait_s, on_tick, done=done)


def _fate(
    run: Run, tables: Collection[TableId], targets: Sequence[TableId], *, drop_targets: bool
) -> str:
    """Return what becomes of the rows of tables that are removed."""
    if not drop_targets:
        return f"The rows in {', '.join(map(str, targets))} stay"
    shared = {plan.sink_table for plan in shards_beside_others(run, tables)}
    alone = [target for target in targets if target not in shared]
    fates = [f"{', '.join(map(str, alone))} is dropped"] if alone else []
    fates += [f"Its rows in {each} are deleted, those of others stay" for each in sorted(shared)]
    return "; ".join(fates)


def _require_same_salts(run: Run) -> None:
    """Refuse to have rows read by a process that has another salt than this one."""
    note = run.store.note(run.name, NoteKind.SALTS)
    if note is None or not is_owned(run):
        return
    mine = proofs(run.servers.salts)
    others = sorted(name for name, proof in mine.items() if note.form.get(name, proof) != proof)
    if others:
        raise RefusedError(
            f"the process that runs {run.name} has another value of {others[0]} than this one",
            where="salts of masks",
            risk=NOTHING_CHANGED,
            remedy="end that run, and ask again: then the rows are read with this one's value. "
            "Begin the run with the same value",
        )


def _ask(run: Run, kind: RequestKind, tables: Collection[TableId]) -> Request:
    """Store a request about tables by this person."""
    return ask_about_tables(run.store, run.name, kind, tables, by=this_person())


def _seen_through(run: Run, request: Request, wait_s: float, on_tick: OnTick, *, done: str) -> str:
    """Carry a request out if no process owns the pipeline, else wait; describe the result."""
    while not is_owned(run) and is_at_work(run):
        time.sleep(_POLL_S)
    if not is_owned(run):
        with suppress(LeaseHeldError, FencedError, PausedError):  # an owner carries it out
            carry_out_table_requests(run)
    told = outcome_of(run, request, wait_s=wait_s, on_tick=on_tick)
    closed = run.store.request(run.name, request.request_id)
    if closed is None or closed.status is not RequestStatus.DONE:
        return told
    return done.format(tables=", ".join(map(str, request.scope.tables)))


def carry_out_table_requests(run: Run, *, reach: CatchUp | None = None) -> tuple[str, ...]:
    """Carry out the open requests on tables, and describe what was done.

    A refused one fails, and nothing is changed for it. What only keeps it from being done now, such
    as a server that does not answer, is raised, and the request stays open.
    """
    asked = run.store.table_requests(run.name)
    if not asked or not run.store.tables(run.name):
        return ()
    handed_off = run.store.is_handed_off(run.name)
    told: list[str] = []
    for kind, deed in _DEEDS.items():
        of_kind = [each for each in asked if each.kind is kind and (handed_off or not deed.streams)]
        if of_kind and deed.may_begin(run):
            told += _Group(run, deed, reach).carry_out(of_kind)
    return tuple(told)


@dataclass(frozen=True, slots=True)
class _Deed:
    """How requests of one kind are checked and carried out."""

    check: Callable[[Run, Collection[TableId]], object]
    do: Callable[[Run, Collection[TableId], CatchUp | None], object]
    done: str
    streams: bool = True
    """The stream has to catch up with the log for it."""
    needs_good_stream: bool = False

    def may_begin(self, run: Run) -> bool:
        """Tell whether such requests can be tried now, else they wait for a later run."""
        if self.streams and run.store.ensure(run.name).wanted is Wanted.STOP:
            return False
        return not (self.needs_good_stream and ended_with(run))


def _check_added(run: Run, tables: Collection[TableId]) -> None:
    """Refuse tables that cannot be added, except those added already."""
    left = _not_planned(run, tables)
    if left:
        to_be_added(run, left)


def _add(run: Run, tables: Collection[TableId], reach: CatchUp | None) -> None:
    """Add the tables that are not added already."""
    left = _not_planned(run, tables)
    if left:
        add_tables(run, left, reach=reach)


def _not_planned(run: Run, tables: Collection[TableId]) -> tuple[TableId, ...]:
    """Return the tables that are not in the plan yet; a run or a former try may have added some."""
    planned = {state.table for state in run.store.tables(run.name)}
    return tuple(table for table in tables if table not in planned)


def _check_reset(run: Run, tables: Collection[TableId]) -> None:
    """Refuse tables that cannot be reset."""
    to_be_reset(run, tables)


def _reset(run: Run, tables: Collection[TableId], reach: CatchUp | None) -> None:
    """Reset the tables."""
    reset_tables(run, tables, reach=reach)


def _remove(run: Run, tables: Collection[TableId], _: CatchUp | None) -> None:
    """Remove the tables; their rows at the sink stay."""
    remove_tables(run, tables)


def _remove_and_drop(run: Run, tables: Collection[TableId], _: CatchUp | None) -> None:
    """Remove the tables, and drop them at the sink."""
    remove_tables(run, tables, drop_targets=True)


_DEEDS = {
    RequestKind.REMOVE: _Deed(require_removable, _remove, "removed", streams=False),
    RequestKind.DROP: _Deed(require_removable, _remove_and_drop, "removed", streams=False),
    RequestKind.RESET: _Deed(_check_reset, _reset, "begun again"),
    RequestKind.FOLLOW: _Deed(_check_added, _add, "added", needs_good_stream=True),
}
"""In the order in which they are done: those first by which a stream can go on."""


@dataclass(frozen=True, slots=True)
class _Group:
    """The open requests of one kind, carried out together."""

    run: Run
    deed: _Deed
    reach: CatchUp | None

    def carry_out(self, requests: Sequence[Request]) -> list[str]:
        """Carry out the requests that can be; return lines that say what was done."""
        generation = _own(self.run)
        begun = [each for each in requests if self._begins(each, generation)]
        begun = [self._moved(each, RequestStatus.READING) for each in begun]
        return [line for some in self._together(begun) for line in self._done(some)]

    def _together(self, begun: Sequence[Request]) -> Sequence[Sequence[Request]]:
        """Group the requests; one by one if all at once would leave the stream without tables."""
        planned = {state.table for state in self.run.store.tables(self.run.name)}
        if planned <= {table for request in begun for table in request.scope.tables}:
            return [[each] for each in begun]
        return [begun] if begun else []

    def _done(self, begun: Sequence[Request]) -> list[str]:
        """Carry out the requests together, and mark them done."""
        tables = sorted({table for request in begun for table in request.scope.tables})
        try:
            self.deed.do(self.run, tables, self.reach)
        except CdcError as error:
            self._stay_or_fail(begun, error)
            return []
        for request in begun:
            self._moved(request, RequestStatus.DONE)
        return [f"{self.deed.done}: {', '.join(map(str, tables))}"]

    def _begins(self, request: Request, generation: int) -> bool:
        """Tell whether a request can be done; else it is cancelled, fails, or waits."""
        if request.is_cancel_wanted and not _is_begun(self.run, request):
            self._moved(request, RequestStatus.CANCELLED)
            return False
        return may_be_done(self.run, request, generation)

    def _stay_or_fail(self, begun: Sequence[Request], error: CdcError) -> None:
        """Keep requests open that may be done later or have begun; fail the others."""
        for request in begun:
            if isinstance(error, _PASSING) or _is_begun(self.run, request):
                note_waiting(self.run, self.run.held.generation, request, error)
            else:
                self._moved(request, RequestStatus.FAILED, scrubbed(self.run, error))
        if isinstance(error, _PASSING) or any(_is_begun(self.run, each) for each in begun):
            raise error

    def _moved(self, request: Request, to: RequestStatus, error: CdcError | None = None) -> Request:
        """Move a request to another status, as the owner."""
        return _move(self.run, self.run.held.generation, request, to, error)


def may_be_done(run: Run, request: Request, generation: int) -> bool:
    """Tell whether a request can be done; else it fails, or says why it waits."""
    tables = request.scope.tables
    try:
        require_edge_does(run, request.kind)
        _DEEDS[request.kind].check(run, tables)
    except _PASSING as error:
        note_waiting(run, generation, request, error)
        return False
    except CdcError as error:
        if _is_begun(run, request):
            note_waiting(run, generation, request, error)
        else:
            _move(run, generation, request, RequestStatus.FAILED, scrubbed(run, error))
        return False
    return True


def reloaded(run: Run) -> Run:
    """Return the run with its pipeline file read again, which a person may have edited.

    Salts that are in connections are read again, too.
    """
    fresh = load_pipeline(run.loaded.path)
    if fresh.model.name != run.name:
        raise RefusedError(
            f"the file is of another pipeline now: {fresh.model.name}",
            where=str(run.loaded.path),
            risk=NOTHING_CHANGED,
            remedy=f"give {run.name} its file back, or end its run",
        )
    if run.connections is None:
        return replace(run, loaded=fresh)
    salts = find_salts(fresh, run.connections)
    keep_salts(salts)
    return replace(run, loaded=fresh, servers=replace(run.servers, salts=salts))


def _own(run: Run) -> int:
    """Take the pipeline over, and return the generation."""
    with closing(open_ledger(run)) as ledger:
        return take_over(run, ledger).generation


def _is_begun(run: Run, request: Request) -> bool:
    """Tell whether a table that is to be reset has left the stream already."""
    if request.kind is not RequestKind.RESET:
        return False
    with closing(open_ledger(run)) as ledger:
        stream = ledger.stream()
        known = {each.table for each in ledger.stopped()}
    if stream is None:
        return False
    known |= {progress.table for progress in stream.tables}
    return not known.issuperset(request.scope.tables)


def note_waiting(run: Run, generation: int, request: Request, error: CdcError) -> None:
    """Store in a request why it waits."""
    waits = StoredError.saying(f"waits: {scrubbed(run, error)}")
    with suppress(CdcError):  # who is fenced leaves it to the newer owner
        run.store.note_request(generation, replace(request, error=waits))


def _move(
    run: Run,
    generation: int,
    request: Request,
    to: RequestStatus,
    error: CdcError | None = None,
) -> Request:
    """Move a request to another status, unless it has that already."""
    if request.status is to:
        return request
    why = NO_ERROR if error is None else StoredError.of(error)
    return run.store.move_request(
        run.name, generation, request.request_id, expected=request.status, to=to, error=why
    )
