"""Stopping one table so that the others flow on, and bringing it back.

What only one table has, such as a row that the sink refuses, need not stop the others: the table is
taken out of the stream where it stands, and the ledger keeps its place. A person may ask for that
too. It comes back by the log, changes of its definition along with it:

- a continuous stream has it read beside, from the table's place on. When that has come to the end
  of the log, the stream begins again from the ledger, and takes the table back in between;
- a bounded run reads it before its stream begins.

A run tries by itself what an error has stopped, once. Where the log does not bring a table back,
because it is purged, or holds what is not followed or understood, its rows are read again beside
the stream, as it is defined now: but only if a person asked for it to come back.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping
from contextlib import ExitStack, closing, suppress

from airflow_cdc_provider.core.edge_remedies import for_edge
from airflow_cdc_provider.core.edge_requests import refused_by
from airflow_cdc_provider.core.errors import (
    CdcError,
    FencedError,
    IntegrityError,
    RetryableError,
    RowRefusedError,
    SinkTableChangedError,
    TableChangedError,
    TablesStoppedError,
)
from airflow_cdc_provider.core.history import held_by_stream
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.jobspec import StreamMode
from airflow_cdc_provider.core.lifecycle import TablePhase
from airflow_cdc_provider.core.requests import Request, RequestKind, RequestStatus
from airflow_cdc_provider.core.stopped_tables import StoppedTable, read_again_by_reset
from airflow_cdc_provider.core.stored_error import NO_ERROR, StoredError
from airflow_cdc_provider.engine.job import Job
from airflow_cdc_provider.engine.ledger.ledger import Ledger
from airflow_cdc_provider.engine.readings import STREAM, log_reading
from airflow_cdc_provider.engine.requests.drifted import ask_for_drifted
from airflow_cdc_provider.engine.stream.edge_changes import is_alike_now
from airflow_cdc_provider.engine.stream.isolation import stopped_by, stopped_text
from airflow_cdc_provider.engine.stream.pending_changes import finish_changes
from airflow_cdc_provider.engine.stream.schema_changes import SchemaChanges
from airflow_cdc_provider.engine.stream.stream_control import Following

log = logging.getLogger(__name__)

_NEAR_S = 1.0
"""A table whose last stretch of log took less is where the log ends, or nearly."""
_SHOWN = 3
_NONE_LEFT = "no table would be left in the stream: `pause` the pipeline instead"
_OF_THE_SINK = (RowRefusedError, SinkTableChangedError)


class TableIsolation:
    """Isolates tables from one stream job, and brings them back."""

    def __init__(self, job: Job, following: Following) -> None:
        self._job = job
        self._following = following
        self._name = job.spec.pipeline

    def stop(self, error: CdcError) -> bool:
        """Isolate the tables that an error is about; False if the error is of the whole stream."""
        sink = self._job.sink()
        if not (self._job.spec.isolates_tables and sink.abilities.isolates_tables):
            return False
        with closing(sink.open_ledger()) as ledger:
            is_changed = isinstance(error, TableChangedError)
            or_all = is_changed and self._job.spec.edge is not None
            alone = stopped_by(ledger, error, or_all=or_all)
            stopped = alone or self._stand_still(ledger, error)
            if not stopped:
                return False
            # asked first: a table that was stopped comes back as if its rows were right
            self._ask_for_drifted(self._changed_at_sink(error, stopped))
            error = self._scrubbed(error)
            ledger.stop_tables(stopped, StoredError.of(error))
        self._tell(stopped_text(stopped, error), level="error")
        return True

    def _stand_still(self, ledger: Ledger, error: CdcError) -> tuple[TableId, ...]:
        """Return the tables that an error is about, if all of them were isolated before."""
        if isinstance(error, RetryableError):
            return ()
        found = tuple(each.table for each in ledger.stopped() if str(each.table) in error.tables)
        return found if found and len(found) == len(error.tables) else ()

    def _changed_at_sink(
        self, error: CdcError, stopped: Collection[TableId]
    ) -> Collection[TableId]:
        """Return isolated tables whose definition changed at the sink: values may be wrong by now.

        A row that does not fit may be the first sign of it.
        """
        if isinstance(error, SinkTableChangedError):
            return stopped
        plans = [plan for plan in self._job.plans() if plan.schema.table in stopped]
        with closing(self._job.sink().open_tables()) as tables:
            return [drift.table for drift in tables.drifted(plans)]

    def heed(self, ledger: Ledger) -> None:
        """Pause tables and bring tables back as requested, before the stream begins."""
        self._pause(ledger)
        stopped = {each.table: each for each in ledger.stopped()}
        wanted = self._wanted(stopped)
        may_wait = self._job.spec.stream_mode is StreamMode.CONTINUOUS and self._readers > 1
        later = wanted - self._following.caught_up if may_wait else frozenset()
        failed = {}
        for table in sorted(wanted - later):
            back, error = self._bring_back(ledger, stopped[table], at_once=not may_wait)
            if error:
                failed[table] = error
            elif not back:
                later |= {table}
        self._following.coming_back, self._following.caught_up = later, frozenset()
        left = ledger.stopped()
        for each in left:
            phase = TablePhase.PAUSED if each.is_paused else TablePhase.FAILED
            self._job.store.mark_table(self._name, self._generation, each.table, phase, each.error)
        self._answer({each.table for each in left}, failed)

    def catch_up_isolated(self) -> None:
        """Apply the log to tables that come back, beside the stream, which then takes them in."""
        tables = self._following.coming_back - self._following.caught_up
        if not tables:
            return
        for table in sorted(tables):
            try:
                self._by_the_log(table, reader=STREAM + 1)
            except (RetryableError, FencedError):
                raise
            except CdcError as error:
                # it meets this once more where something is done about it
                log.warning("table does not come back: table=%s cause=%s", table, error)
            if self._following.ending.is_set():
                return
        self._following.caught_up = tables
        self._following.begin_again()

    # --- what is asked ------------------------------------------------------------------------

    def _asked(self, kind: RequestKind) -> list[Request]:
        """Return the open requests of a kind."""
        found = self._job.store.requests(self._name, only_open=True)
        return [request for request in found if request.kind is kind]

    def _pause(self, ledger: Ledger) -> None:
        """Carry out the requests to pause tables."""
        for request in self._asked(RequestKind.PAUSE):
            error = NO_ERROR if request.is_cancel_wanted else self._pause_tables(ledger, request)
            self._end(request, error)

    def _pause_tables(self, ledger: Ledger, request: Request) -> StoredError:
        """Isolate a request's tables; return an error if that is refused.

        No table would be left to flow, or it is of an edge whose tables flow together.
        """
        refused = refused_by(self._job.spec.edge, request.kind)
        if refused is not None:
            return StoredError.of(refused)
        stream, asked = ledger.stream(), set(request.scope.tables)
        flowing = {each.table for each in stream.tables} if stream is not None else set()
        if not flowing - asked:
            return StoredError.saying(_NONE_LEFT)
        ledger.stop_tables(sorted(asked & flowing))
        for each in ledger.stopped():
            if each.table in asked:
                ledger.say_of_stopped(each.table, NO_ERROR)
        return NO_ERROR

    def _wanted(self, stopped: Mapping[TableId, StoppedTable]) -> frozenset[TableId]:
        """Return the isolated tables that are to come back.

        Asked for by `resume`, or stopped by an error and the run has just begun.
        """
        asked = {
            table
            for request in self._asked(RequestKind.RESUME)
            for table in request.scope.tables
            if not request.is_cancel_wanted
        }
        if self._following.before is None:  # a run begins: what was mended is not known
            asked |= {table for table, each in stopped.items() if not each.is_paused}
        return frozenset(stopped.keys() & (asked | self._following.coming_back))

    def _answer(self, stopped: Collection[TableId], failed: Mapping[TableId, StoredError]) -> None:
        """End the requests to resume tables that came back or failed; the others go on."""
        for request in self._asked(RequestKind.RESUME):
            tables = request.scope.tables
            error = next((failed[table] for table in tables if table in failed), NO_ERROR)
            if error or request.is_cancel_wanted or not set(stopped) & set(tables):
                self._end(request, error)
            elif request.status is RequestStatus.ASKED:
                self._job.move_request(request, RequestStatus.READING)

    def _end(self, request: Request, error: StoredError) -> None:
        """Move a request to its last status: cancelled, failed or done."""
        if request.is_cancel_wanted:
            self._job.move_request(request, RequestStatus.CANCELLED)
            return
        if request.status is RequestStatus.ASKED:
            request = self._job.move_request(request, RequestStatus.READING)
        self._job.move_request(
            request, RequestStatus.FAILED if error else RequestStatus.DONE, error
        )

    # --- coming back --------------------------------------------------------------------------

    def _bring_back(
        self, ledger: Ledger, stopped: StoppedTable, *, at_once: bool
    ) -> tuple[bool, StoredError]:
        """Bring a table back; return whether it is back, and the error if one prevents it."""
        table = stopped.table
        try:
            return self._by_the_log_or_changed(ledger, table, at_once=at_once), NO_ERROR
        except (RetryableError, FencedError):
            raise
        except CdcError as error:
            refused = error
        if self._may_be_read_again(table, refused):
            try:
                self._read_again(ledger, table, refused)
            except (RetryableError, FencedError):
                raise
            except CdcError as error:
                refused = error
            else:
                return True, NO_ERROR
        if isinstance(refused, SinkTableChangedError):
            self._ask_for_drifted([table])
        refused = self._scrubbed(refused)
        stored = StoredError.of(refused)
        ledger.stop_tables([table])  # what was begun of its definition is looked at anew
        ledger.say_of_stopped(table, stored)
        self._tell(f"{table}: stays stopped; {refused}", level="error")
        return False, stored

    def _by_the_log_or_changed(self, ledger: Ledger, table: TableId, *, at_once: bool) -> bool:
        """Bring a table back by the log; False if its definition changed and log is left."""
        changed_by: tuple[object, ...] = ()
        while (stopped := _of(ledger, table)) is not None:
            try:
                self._by_the_log(table, reader=STREAM)
                self._give_back(ledger, stopped)
            except TableChangedError as error:
                if error.args == changed_by:
                    raise
                changed_by = error.args
                now = _of(ledger, table)
                self._changes(table).make(error, ledger, None if now is None else now.stream)
                if not at_once:
                    return _of(ledger, table) is None
        return True

    def _give_back(self, ledger: Ledger, stopped: StoppedTable) -> None:
        """Let a table that has caught up join the stream again."""
        table, store = stopped.table, self._job.store
        stream = ledger.rejoin(table)
        store.store_hand_off(self._name, self._generation, stream)
        phase = TablePhase.CATCHING_UP if table in stream.inconsistent else TablePhase.CONSISTENT
        store.mark_table(self._name, self._generation, table, phase)
        self._tell(f"{table}: flows again, brought back by the log")

    def _by_the_log(self, table: TableId, *, reader: int) -> None:
        """Apply the log to one isolated table, from its position to the end of the log."""
        spec, source = self._job.spec, self._job.source()
        reading = log_reading(spec, {table: self._job.schemas()[table]}, reader=reader)
        columns = source.change_columns(reading)
        with ExitStack() as stack:
            is_ahead = spec.edge is not None and is_alike_now(self._job, table)
            opened = self._job.sink().open_stopped(table, columns, is_ahead=is_ahead)
            sink = stack.enter_context(closing(opened))
            stream = sink.stream()
            if stream is None:
                return
            source.require_same_log(stream.start, held_by_stream(stream), {table})
            log_end = stack.enter_context(closing(source.log_end(purpose="end of the log")))
            log_reader = stack.enter_context(closing(source.log_reader(stream, reading)))
            while not self._following.ending.is_set():
                began = time.monotonic()
                for batch in log_reader.read_up_to(log_end.now(), batch_s=spec.max_batch_s):
                    if self._following.ending.is_set():
                        return
                    sink.apply(batch)
                if time.monotonic() - began < _NEAR_S:
                    return

    def _ask_for_drifted(self, tables: Collection[TableId]) -> None:
        """Ask for the rows of tables that somebody changed at the sink."""
        ask_for_drifted(self._job.store, self._name, tables, edge=self._job.spec.edge)

    def _may_be_read_again(self, table: TableId, error: CdcError) -> bool:
        """Tell whether the log cannot bring the table back, and a `resume` was asked for."""
        if self._job.spec.edge is not None:
            return False
        asked = any(table in request.scope.tables for request in self._asked(RequestKind.RESUME))
        by_log = isinstance(error, IntegrityError) and not isinstance(error, _OF_THE_SINK)
        return asked and (by_log or error.ends_the_stream)

    def _read_again(self, ledger: Ledger, table: TableId, error: CdcError) -> None:
        """Have the table, as it is defined now, read again."""
        job, stream = self._job, ledger.stream()
        if stream is None:
            raise error
        change = self._changes(table).anew(stream, table, error.what)
        ledger.begin_changes([change])
        finish_changes(job.store, job.sink(), ledger, self._name, self._generation)

    def _changes(self, table: TableId) -> SchemaChanges:
        """Return what applies definition changes of this table alone."""
        reading = log_reading(self._job.spec, {table: self._job.schemas()[table]})
        return SchemaChanges(self._job, self._following, reading)

    # --- what is told -------------------------------------------------------------------------

    @property
    def _generation(self) -> int:
        return self._job.spec.generation

    @property
    def _readers(self) -> int:
        """How many readers of the log may connect at once."""
        return self._job.source().most_readers(self._job.spec.source_options)

    def _tell(self, text: str, *, level: str = "info") -> None:
        """Log a text, and record it among the pipeline's events."""
        log.log(logging.ERROR if level == "error" else logging.INFO, "%s", text)
        with suppress(CdcError):
            self._job.store.tell(self._name, text, level=level)

    def _scrubbed(self, error: CdcError) -> CdcError:
        """Return the error without the job's passwords, with what can be done for its tables."""
        told = for_edge(read_again_by_reset(error, error.tables), self._job.spec.edge)
        return told.rewritten(self._job.servers.secrets.scrub)


def _of(ledger: Ledger, table: TableId) -> StoppedTable | None:
    """Return an isolated table as the ledger has it, None if it flows."""
    return next((each for each in ledger.stopped() if each.table == table), None)


def require_none_stopped(job: Job, stopped: Collection[StoppedTable]) -> None:
    """Raise `TablesStoppedError` if an error stopped a table: success means all are copied."""
    errors = [each for each in stopped if not each.is_paused]
    if not errors:
        return
    told = [each.error.read() for each in errors]
    named = "; ".join(
        f"{each.table}: {error.code} {error.what}"
        for each, error in list(zip(errors, told, strict=True))[:_SHOWN]
    )
    more = f"; and {len(errors) - _SHOWN} more" if len(errors) > _SHOWN else ""
    raise TablesStoppedError(
        f"stopped while all other tables flow: {named}{more}",
        where=told[0].where or f"tables of {job.spec.pipeline}",
        risk="rows of these tables stand still at the sink; nothing is lost",
        remedy="each run tries them again by the log. "
        + "; ".join(dict.fromkeys(error.remedy for error in told if error.remedy)),
    )
