"""Carrying out what was asked, beside the stream, by whoever owns the pipeline.

A thread of the stream job looks for open requests and carries out one after the other, oldest
first. What fails is the request's failure, never the stream's: its error stands in its row. What
may pass is tried again from where the sink's ledger says that the request is. When the job ends,
or is killed, a request stays where it is, for the next owner; one that is to be cancelled ends with
the job, and where the stream failed for good the others say so in their rows.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace

from airflow_cdc_provider.core.errors import (
    CdcError,
    FencedError,
    RetryableError,
    TableChangedError,
)
from airflow_cdc_provider.core.lifecycle import TablePhase
from airflow_cdc_provider.core.requests import Request, RequestKind, RequestStatus
from airflow_cdc_provider.engine.backoff import BackOff
from airflow_cdc_provider.engine.job import Job
from airflow_cdc_provider.engine.requests.resync import GivenUpError, Resync, Surroundings
from airflow_cdc_provider.engine.stream.following import Following

log = logging.getLogger(__name__)

_LOOK_EVERY_S = 2.0
_CANCELLED = "cancelled; what was joined stays"


class RequestWorker:
    """Carries out requests while it is open; a context manager.

    `on_idle` is called each time that nothing is left to do.
    """

    def __init__(
        self,
        job: Job,
        following: Following,
        *,
        on_idle: Callable[[], None] = lambda: None,
    ) -> None:
        self._job = job
        self._following = following
        self._passed_over = following.passed_over
        self._on_idle = on_idle
        self._back_off = BackOff()
        self._closing = threading.Event()
        self._around = Surroundings(job, self._push, self._is_ending, following.changing)
        self._thread = threading.Thread(target=self._run, name="cdc-requests", daemon=True)

    def __enter__(self) -> RequestWorker:
        self._thread.start()
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self._closing.set()
        self._thread.join(timeout=60)
        with suppress(CdcError):
            for request in self._open():
                self._leave(request, error)

    def _leave(self, request: Request, error: BaseException | None) -> None:
        """End what is to be cancelled; say of what stays why it waits, if the stream failed."""
        if request.is_cancel_wanted and self._has_freed(request):
            return  # whoever comes next brings these rows back first
        if request.is_cancel_wanted:
            self._end(request, RequestStatus.CANCELLED, _CANCELLED)
        elif isinstance(error, CdcError) and not isinstance(error, (RetryableError, FencedError)):
            text = f"waits: the stream stopped with {self._scrubbed(error)}"
            self._job.store.note_request(self._job.spec.generation, replace(request, error=text))

    def _has_freed(self, request: Request) -> bool:
        tables = self._job.schemas().keys() & set(request.scope.tables)
        with closing(self._job.sink().open_joins()) as sink:
            return any(sink.freed_keys(request.ledger_key, table).num_rows for table in tables)

    def _run(self) -> None:
        while not self._is_ending():
            try:
                for request in self._open():
                    self._carry_out(request)
                self._on_idle()
            except GivenUpError:
                return
            except FencedError as fenced:
                self._following.end(fenced)
                return
            except CdcError as error:
                log.warning("requests wait: cause=%s", self._scrubbed(error))
            self._closing.wait(_LOOK_EVERY_S)

    def _is_ending(self) -> bool:
        return self._closing.is_set() or self._following.ending.is_set()

    def _open(self) -> tuple[Request, ...]:
        return self._job.store.requests(self._job.spec.pipeline, only_open=True)

    def _carry_out(self, request: Request) -> None:
        if request.status is RequestStatus.ASKED:
            request = self._move(request, RequestStatus.READING)
            self._tell(f"{request.kind.value} {request.request_id} begins: {request.scope}")
        resync = Resync(self._around, request)
        try:
            self._try(resync, resync.run)
            self._note_read(request)
        except GivenUpError:
            if self._is_ending():
                raise
            self._give_up(resync, RequestStatus.CANCELLED, _CANCELLED)
        except FencedError:
            raise
        except CdcError as error:
            self._give_up(resync, RequestStatus.FAILED, self._scrubbed(error))
        else:
            self._end(resync.request, RequestStatus.DONE)

    def _give_up(self, resync: Resync, status: RequestStatus, text: str) -> None:
        """End a request before all of it is read, without a row less for it at the sink."""
        try:
            self._try(resync, resync.bring_back)
        except FencedError:
            raise
        except CdcError as error:
            cause = self._scrubbed(error)
            self._tell(
                f"request {resync.request.request_id}: rows whose unique values others needed are "
                f"not brought back, `verify` names them; {cause}",
                level="error",
            )
        self._end(resync.request, status, text)

    def _try(self, resync: Resync, act: Callable[[], None]) -> None:
        """Carry it out, again and again from where it is while that may help."""
        failures, since, done = 0, time.monotonic(), resync.request.splits
        while True:
            try:
                act()
                return
            except (RetryableError, TableChangedError) as error:
                # the stream makes a change of the table's its own when it comes there
                if resync.request.splits > done:
                    failures, since, done = 0, time.monotonic(), resync.request.splits
                failures += 1
                if self._back_off.is_over(time.monotonic() - since):
                    raise
                text = self._scrubbed(error)
                log.warning(
                    "request is tried again: request=%s cause=%s", resync.request.request_id, text
                )
                resync.wait(text, self._back_off.wait_s(failures))

    def _note_read(self, request: Request) -> None:
        """Tell the ledger that all rows of tables that were added are there."""
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

    def _end(self, request: Request, status: RequestStatus, error: str = "") -> None:
        self._move(request, status, error)
        with suppress(CdcError), closing(self._job.sink().open_joins()) as sink:
            sink.forget(request.ledger_key)
        text = f"{request.kind.value} {request.request_id} {status.value}: {request.rows:,} rows"
        level = "error" if status is RequestStatus.FAILED else "info"
        self._tell(f"{text}; {error}" if error else text, level=level)

    def _move(self, request: Request, to: RequestStatus, error: str = "") -> Request:
        spec = self._job.spec
        return self._job.store.move_request(
            spec.pipeline,
            spec.generation,
            request.request_id,
            expected=request.status,
            to=to,
            error=error,
        )

    def _tell(self, text: str, *, level: str = "info") -> None:
        with suppress(CdcError):
            self._job.store.tell(self._job.spec.pipeline, text, level=level)

    def _push(self) -> None:
        """Bring the ledger to where the stream is, if it has passed over log in between."""
        passed_over = self._passed_over
        if passed_over.log is None:
            return
        with passed_over.micro_batch, closing(self._job.sink().open_ledger()) as ledger:
            passed_over.commit(ledger)

    def _scrubbed(self, error: CdcError) -> str:
        return self._job.servers.secrets.scrub(str(error))
