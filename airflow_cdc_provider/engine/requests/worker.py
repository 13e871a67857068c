"""Carrying out what was asked, beside the stream, by whoever owns the pipeline.

A thread of the stream job looks for open requests, and begins each in a thread of its own, oldest
first, as `side_by_side` lets them. What fails is the request's failure, never the stream's: its
error stands in its row. What may pass is tried again from where the sink's ledger says that the
request is. When the job ends, or is killed, a request stays where it is, for the next owner; one
that is to be cancelled ends with the job, and where the stream failed for good the others say so in
their rows.

When the stream ends, or begins again from the ledger, all tables wait for these threads to leave.
So a thread that is not gone at once has its connections shut: it may hang at a server that does not
answer. What is left even then is fenced by a new epoch of its request, and joins nothing any more.
"""

from __future__ import annotations

import logging
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace

from airflow_cdc_provider.core.backoff import BackOff
from airflow_cdc_provider.core.edge_remedies import for_edge
from airflow_cdc_provider.core.errors import (
    CdcError,
    CriticalLoadError,
    FencedError,
    RetryableError,
    StateMovedError,
    TableChangedError,
)
from airflow_cdc_provider.core.lifecycle import TablePhase
from airflow_cdc_provider.core.open_connections import OpenConnections
from airflow_cdc_provider.core.plurals import counted
from airflow_cdc_provider.core.requests import Request, RequestKind, RequestStatus
from airflow_cdc_provider.core.stopped_tables import read_again_by_reset
from airflow_cdc_provider.core.stored_error import NO_ERROR, StoredError
from airflow_cdc_provider.engine.job import Job
from airflow_cdc_provider.engine.requests.reads import room_for_readers
from airflow_cdc_provider.engine.requests.resync import GivenUpError, RequestContext, Resync
from airflow_cdc_provider.engine.requests.side_by_side import ReaderRoom, may_begin
from airflow_cdc_provider.engine.stream.stream_control import Following
from airflow_cdc_provider.engine.throttle.load_watch import LoadWatch
from airflow_cdc_provider.engine.throttle.throttle import Throttle

log = logging.getLogger(__name__)

_LOOK_EVERY_S = 2.0
_LEAVE_WITHIN_S = 0.5
"""Longer than it takes to write one split, as a rule: that is not thrown away."""
_SHUT_WITHIN_S = 1.0
_CANCELLED = StoredError.saying("cancelled; what was joined stays")


@dataclass(frozen=True, slots=True)
class _Running:
    """A running request, and the thread that carries it out."""

    request: Request
    thread: threading.Thread


class RequestWorker:
    """Carries out a pipeline's requests beside its stream while open; a context manager.

    `first` is called before each round of requests, `on_idle` whenever none is left to do.
    """

    def __init__(
        self,
        job: Job,
        following: Following,
        *,
        first: Callable[[], None] = lambda: None,
        on_idle: Callable[[], None] = lambda: None,
    ) -> None:
        self._job = job
        self._following = following
        self._passed_over = following.passed_over
        self._first = first
        self._on_idle = on_idle
        self._back_off = BackOff()
        self._closing = threading.Event()
        self._woken = threading.Event()
        self._lock = threading.Lock()
        self._room: ReaderRoom | None = None
        self._running: dict[str, _Running] = {}
        self._connections = OpenConnections()
        spec = job.spec
        self._throttle = Throttle(
            spec.throttle, split_rows=spec.request_split_rows, most_bytes=spec.max_split_bytes
        )
        self._watch = LoadWatch(job, self._throttle)
        self._around = RequestContext(
            job, self._push, self._is_ending, self._throttle, following.changing
        )
        self._thread = threading.Thread(target=self._run, name="cdc-requests", daemon=True)

    def __enter__(self) -> RequestWorker:
        self._watch.__enter__()
        self._thread.start()
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self._closing.set()
        self._woken.set()
        if not self._have_left(_LEAVE_WITHIN_S):
            self._connections.shut()
            if not self._have_left(_SHUT_WITHIN_S):
                self._fence_those_left()
        self._watch.__exit__()
        with suppress(CdcError):
            for request in self._open():
                with suppress(CdcError):  # of one; the others end all the same
                    self._leave(request, error)

    def _have_left(self, wait_s: float) -> bool:
        """Wait up to `wait_s` for all request threads to end; tell whether they have."""
        until = time.monotonic() + wait_s
        self._thread.join(timeout=wait_s)
        with self._lock:
            threads = [each.thread for each in self._running.values()]
        for thread in threads:
            thread.join(timeout=max(0.0, until - time.monotonic()))
        return not any(thread.is_alive() for thread in (self._thread, *threads))

    def _fence_those_left(self) -> None:
        """Stop requests whose threads have not ended from joining more rows."""
        with self._lock:
            left = [each.request for each in self._running.values() if each.thread.is_alive()]
        for request in left:
            log.warning("a thread of a request is left behind: request=%s", request.request_id)
            # the next begin fences it, too
            with suppress(CdcError), closing(self._job.sink().open_joins()) as sink:
                sink.begin(request.ledger_key, request.scope.tables)

    def _leave(self, request: Request, error: BaseException | None) -> None:
        """At the stream's end, cancel a request as wanted, or note why the request waits."""
        if request.is_cancel_wanted and self._has_freed(request):
            return  # whoever comes next brings these rows back first
        if request.is_cancel_wanted:
            self._end(request, RequestStatus.CANCELLED, _CANCELLED)
        elif isinstance(error, CdcError) and not isinstance(error, (RetryableError, FencedError)):
            self._note_waiting(request, f"the stream stopped with {self._scrubbed(error)}")

    def _has_freed(self, request: Request) -> bool:
        """Tell whether the request has deleted sink rows to free unique values for others."""
        tables = self._job.schemas().keys() & set(request.scope.tables)
        with closing(self._job.sink().open_joins()) as sink:
            return any(sink.freed_keys(request.ledger_key, table).num_rows for table in tables)

    def _run(self) -> None:
        """Carry out requests until the job ends; the thread's connections are noted."""
        with self._connections.noted():
            self._look_again_and_again()

    def _look_again_and_again(self) -> None:
        """Begin requests that may run, every few seconds, until the job ends."""
        while True:
            self._woken.clear()
            if self._is_ending():
                return
            try:
                self._first()
                self._begin_those_that_may()
            except FencedError as fenced:
                self._following.end(fenced)
                return
            except CdcError as error:
                log.warning("requests wait: cause=%s", self._scrubbed(error))
            self._woken.wait(_LOOK_EVERY_S)

    def _begin_those_that_may(self) -> None:
        """Start a thread for each request that may run and for which readers are free."""
        with self._lock:
            running = tuple(each.request for each in self._running.values())
        to_do = self._flowing()
        if not to_do and not running:
            self._on_idle()
            return
        for request in tuple(may_begin(to_do, running)):
            readers = self._take_readers(request)
            if not readers:
                return
            thread = threading.Thread(
                target=self._run_one, args=(request, readers), name="cdc-request", daemon=True
            )
            with self._lock:
                self._running[request.request_id] = _Running(request, thread)
            thread.start()

    def _take_readers(self, request: Request) -> Sequence[int]:
        """Take readers for a request; none if no room is left."""
        with self._lock:
            self._room = self._room or room_for_readers(self._job)
            return self._room.take(request)

    def _run_one(self, request: Request, readers: Sequence[int]) -> None:
        """Carry out one request in its thread, and free its readers at the end."""
        is_over = False
        try:
            with self._connections.noted():
                self._carry_out(request, readers)
            is_over = True
        except GivenUpError:
            pass  # the job ends
        except FencedError as fenced:
            self._following.end(fenced)
        except CdcError as error:
            log.warning(
                "request waits: request=%s cause=%s", request.request_id, self._scrubbed(error)
            )
        finally:
            with self._lock:
                if self._room is not None:
                    self._room.give_back(request)
                del self._running[request.request_id]
            if is_over:
                self._woken.set()  # else it is looked at again in a while

    def _is_ending(self) -> bool:
        """Tell whether the worker or the stream is to end."""
        return self._closing.is_set() or self._following.ending.is_set()

    def _flowing(self) -> list[Request]:
        """Return the open requests whose tables all flow; note on the others why they wait."""
        requests = [request for request in self._open() if request.kind.reads_rows]
        if not requests:
            return []
        sink = self._job.sink()
        with closing(sink.open_ledger()) as ledger:
            stopped = {each.table: each for each in ledger.stopped()}
            stream = None if sink.abilities.upserts else ledger.stream()
        unread = () if stream is None else stream.unread
        flowing = []
        for request in requests:
            waits = [stopped[table] for table in request.scope.tables if table in stopped]
            if waits and not request.is_cancel_wanted:
                why = f"the stream leaves {waits[0].table} alone; `resume` it"
                self._note_waiting(request, why)
            elif request.kind is not RequestKind.ADD and set(unread) & set(request.scope.tables):
                self._note_waiting(request, "a table of its is read as a whole first")
            else:
                flowing.append(request)
        return flowing

    def _note_waiting(self, request: Request, why: str) -> None:
        """Store why a request waits, unless that is stored already."""
        waits = StoredError.saying(f"waits: {why}")
        if request.error != waits:
            self._job.store.note_request(self._job.spec.generation, replace(request, error=waits))

    def _open(self) -> tuple[Request, ...]:
        """Return the pipeline's requests that are to be done."""
        return self._job.store.to_do(self._job.spec.pipeline)

    def _carry_out(self, request: Request, readers: Sequence[int]) -> None:
        """Carry out one request from its status to its end: done, cancelled or failed."""
        if request.status is RequestStatus.ASKED:
            request = self._job.move_request(request, RequestStatus.READING)
            self._tell(f"{request.kind.value} {request.request_id} begins: {request.scope}")
        resync = Resync(self._around, request, readers)
        try:
            with self._watch.used():
                self._try(resync, resync.run)
            self._try(resync, lambda: self._note_read(request))
        except GivenUpError:
            if self._is_ending():
                raise
            self._give_up(resync, RequestStatus.CANCELLED, _CANCELLED)
        except (FencedError, StateMovedError):
            raise  # another thread, or another owner, goes on with it
        except CdcError as error:
            if request.kind is RequestKind.ADD:
                error = read_again_by_reset(error, request.scope.tables)
            self._give_up(resync, RequestStatus.FAILED, StoredError.of(self._scrubbed(error)))
        except Exception:  # noqa: BLE001 - whoever waits must hear of a mistake of ours, too
            if self._closing.is_set():
                raise GivenUpError from None  # its connections were shut in the middle
            trace = self._job.servers.secrets.scrub(traceback.format_exc())
            log.error("request fails: request=%s %s", request.request_id, trace)
            last = trace.strip().splitlines()[-1]
            mistake = StoredError.saying(f"a mistake in this program: {last}")
            self._give_up(resync, RequestStatus.FAILED, mistake)
        else:
            self._end(resync.request, RequestStatus.DONE)

    def _give_up(self, resync: Resync, status: RequestStatus, why: StoredError) -> None:
        """End a request early, once the rows that it deleted for unique values are read again."""
        try:
            self._try(resync, resync.bring_back)
        except (FencedError, StateMovedError):
            raise
        except CdcError as error:
            cause = self._scrubbed(error)
            self._tell(
                f"request {resync.request.request_id}: rows whose unique values others needed are "
                f"not brought back, `verify` names them; {cause}",
                level="error",
            )
        self._end(resync.request, status, why)

    def _try(self, resync: Resync, act: Callable[[], None]) -> None:
        """Call `act` again and again, while it makes progress or a retry may help."""
        failures, since, done = 0, time.monotonic(), resync.request.splits
        while True:
            try:
                act()
                return
            except CdcError as error:
                if self._closing.is_set():
                    raise GivenUpError from error
                if not self._may_pass(error, resync):
                    raise
                if resync.request.splits > done:
                    failures, since, done = 0, time.monotonic(), resync.request.splits
                failures += 1
                failing_s = time.monotonic() - since
                if self._back_off.is_over(failing_s):
                    raise
                seen = self._job.servers.secrets.scrub(error.short_message())
                text = f"is tried again ({self._back_off.told(failures, failing_s)}): {seen}"
                log.warning("request %s %s", resync.request.request_id, text)
                resync.wait(text, self._back_off.wait_s(failures))

    def _may_pass(self, error: CdcError, resync: Resync) -> bool:
        """Tell whether a retry may help, as where a table's definition has changed by now.

        The stream makes a change of a table's its own when it comes there.
        """
        if isinstance(error, (RetryableError, TableChangedError)):
            return True
        if isinstance(error, (FencedError, StateMovedError, CriticalLoadError)):
            return False
        known = resync.schemas
        with suppress(CdcError), self._job.source().catalogue() as catalogue:
            now = catalogue.schemas([*known])
            return not all(now[table].is_defined_as(known[table]) for table in now)
        return False

    def _note_read(self, request: Request) -> None:
        """Tell the ledger that all rows of the tables of an ADD request were read."""
        if request.kind is not RequestKind.ADD:
            return
        with self._following.changing, closing(self._job.sink().open_ledger()) as ledger:
            known = self._job.store.request(request.pipeline, request.request_id)
            if known is None or known.is_cancel_wanted:
                raise GivenUpError  # the table was changed, and is to be read once more
            stream = ledger.change_tables(read=request.scope.tables)
        spec = self._job.spec
        for table in set(request.scope.tables) - set(stream.inconsistent):
            self._job.store.mark_table(spec.pipeline, spec.generation, table, TablePhase.CONSISTENT)

    def _end(self, request: Request, status: RequestStatus, error: StoredError = NO_ERROR) -> None:
        """Move a request to its last status, and delete its progress from the ledger."""
        self._job.move_request(request, status, error)
        with suppress(CdcError), closing(self._job.sink().open_joins()) as sink:
            sink.forget(request.ledger_key)
        rows = counted(request.rows, "row")
        done = f"{request.kind.value} {request.request_id} {status.value}"
        text = f"{done}: {rows}{request.left_text}"
        level = "error" if status is RequestStatus.FAILED else "info"
        self._tell(f"{text}; {error}" if error else text, level=level)

    def _tell(self, text: str, *, level: str = "info") -> None:
        """Record a text among the pipeline's events; a state store that is away is ignored."""
        with suppress(CdcError):
            self._job.store.tell(self._job.spec.pipeline, text, level=level)

    def _push(self) -> None:
        """Commit idle log, which moves the ledger to the stream's position."""
        passed_over = self._passed_over
        if passed_over.log is None:
            return
        with passed_over.micro_batch, closing(self._job.sink().open_ledger()) as ledger:
            passed_over.commit(ledger)

    def _scrubbed(self, error: CdcError) -> CdcError:
        """Return the error without the job's passwords, with what can be done on an edge."""
        return for_edge(error.rewritten(self._job.servers.secrets.scrub), self._job.spec.edge)
