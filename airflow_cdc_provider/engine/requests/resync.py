"""Reading rows again while their table flows on.

A range comes into the sink at one place of the log, the stream's own position P:

1. it is read as in a snapshot (L, rows, H, and the log between replayed onto the rows);
2. the stream goes on until it has passed H;
3. the sink locks the stream's position, which is P then. The log in (H, P] is replayed onto the
   rows, they take the place of what the sink holds in the range, and all is committed together.

So a table never stops, nobody sees an older state of a row than before, and whatever is killed
leaves nothing to repair: rows in and out of the range are the source's at P. What the stream waits
for is the writing of one split, so the splits are small. The next one is read meanwhile.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, count

import pyarrow as pa

from airflow_cdc_provider.columns.rows import ArrowRows
from airflow_cdc_provider.columns.shaping import source_keys
from airflow_cdc_provider.core.errors import NOTHING_STARTED, RefusedError
from airflow_cdc_provider.core.identifiers import TableId, table_option
from airflow_cdc_provider.core.keys import Key, KeyRange
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.requests import Request, RequestKind
from airflow_cdc_provider.core.row_metadata import RowStamp
from airflow_cdc_provider.core.splits import Chosen, Interval
from airflow_cdc_provider.core.stored_error import NO_ERROR, StoredError
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.core.table_schema import TableSchema
from airflow_cdc_provider.engine.job import Job
from airflow_cdc_provider.engine.requests.chosen_reads import (
    ChosenReads,
    listed_reads,
    missing_from,
    pieces_of,
)
from airflow_cdc_provider.engine.requests.joined_rows import joined_rows, shaped_join
from airflow_cdc_provider.engine.requests.ranges import left_of, next_number, splits_of
from airflow_cdc_provider.engine.requests.read_gate import ReadGate
from airflow_cdc_provider.engine.requests.reads import (
    HeldReads,
    Read,
    ReadAhead,
    halves_of,
    open_readers,
)
from airflow_cdc_provider.engine.sink.port import JoinedRows, JoinedSplit, JoinSink
from airflow_cdc_provider.engine.throttle.throttle import Throttle

log = logging.getLogger(__name__)

_LOOK_EVERY_S = 0.02
_NOTE_EVERY_S = 0.5


class GivenUpError(Exception):
    """Ends a request's work here: the request was cancelled, or the job ends."""


@dataclass(frozen=True, slots=True)
class RequestContext:
    """What a request needs of the stream job that runs it."""

    job: Job
    push: Callable[[], None]
    """Commit where the stream is, if it has only passed over log that holds nothing."""
    is_ending: Callable[[], bool]
    throttle: Throttle
    """Each split waits there before it is read."""
    changing: AbstractContextManager[object]
    """Held while a table's definition is changed: then nothing joins."""


class Resync:
    """Carries out one request to read rows again, from where the sink's ledger says it is.

    `readers` are the numbers of the readers that it may open.
    """

    def __init__(self, around: RequestContext, request: Request, readers: Sequence[int]) -> None:
        self.request = request
        self.schemas: Mapping[TableId, TableSchema] = {}
        """Its tables as it last began to read them."""
        self._plans: Mapping[TableId, TablePlan] = {}
        self._numbers = readers
        self._around = around
        self._job = around.job
        self._noted_s = 0.0
        self._gate = ReadGate(around.throttle)
        self._is_leaving = False
        self._epoch = 0
        """Under which its splits join; nobody else's do."""

    def run(self) -> None:
        """Read the rows of the request's tables that are left, and join them to the sink."""
        edge = self._job.spec.edge
        if edge is not None and not edge.reads_rows_again:
            raise edge.refusal_to_read_again()
        if edge is not None and self.request.kind is RequestKind.ADD:
            raise edge.refusal("adds no tables")
        schemas = self._own_schemas()
        for table in self.request.scope.tables:
            if table not in schemas:
                raise _not_in_plan(table)
        stream = self._stream()
        for table in self.request.scope.tables:
            if stream is None or stream.progress_of(table) is None:
                raise _not_streamed(table)
        with closing(self._open_joins()) as sink:
            self._epoch = sink.begin(self.request.ledger_key, self.request.scope.tables)
            for number, table in enumerate(self.request.scope.tables, start=1):
                joined = self._count(sink, tables_done=number - 1)
                self._go_on_or_give_up()  # it may have been cancelled while nobody was at work
                self._table(sink, schemas[table], joined)
            self._count(sink, tables_done=len(self.request.scope.tables))

    def _table(self, sink: JoinSink, schema: TableSchema, joined: Sequence[JoinedSplit]) -> None:
        """Read and join the splits of one table that have not joined yet."""
        _require_interval(schema, self.request.scope.chosen)
        mine = [each.split for each in joined if each.split.table == schema.table]
        scope, rows = self.request.scope, self._job.spec.request_split_rows
        plan = self._plans[schema.table]
        with ExitStack() as stack:
            boundaries = stack.enter_context(self._job.source().boundaries(rows))
            readers = open_readers(self._job, schema, self._numbers)
            reads: ReadAhead | ChosenReads
            held = HeldReads(self._gate, self._while_reading)
            if scope.chosen is None:
                left = left_of(scope.parts, [split for split in mine if not split.listed])
                cuts_of = _no_cuts if plan.is_one_split else boundaries
                splits = chain.from_iterable(
                    splits_of(schema, keys, cuts_of(schema, keys.start)) for keys in left
                )
                halves = partial(halves_of, self._job, plan)
                reads = ReadAhead(halves, readers, splits, next_number(mine), held)
            else:
                cuts = stack.enter_context(self._job.source().value_cuts(rows))
                pieces = pieces_of(schema, scope, mine, (cuts, boundaries))
                reads = ChosenReads(
                    self._job, readers, sink, plan, (pieces, next_number(mine)), held
                )
            for read in stack.enter_context(closing(reads)):
                self._join(sink, schema, read)

    def _join(self, sink: JoinSink, schema: TableSchema, read: Read) -> None:
        """Join one split's rows to the sink, at the stream's position."""
        request, rows = self.request, read.report.rows

        def rows_at(position: LogPosition) -> JoinedRows:
            nonlocal rows
            changes = read.reader.changes(read.split, read.report, position)
            joined = joined_rows(read.rows, changes, schema, read.split, listed=read.listed)
            stamp = RowStamp.of_read(position, read.report.high)
            joined = shaped_join(joined, self._plans[schema.table], stamp)
            rows = joined.rows.rows
            return joined

        def join() -> LogPosition | None:
            with self._around.changing:
                return sink.join(
                    request.ledger_key,
                    read.split,
                    read.report,
                    rows_at,
                    epoch=self._epoch,
                    within=request.scope.parts if request.scope.chosen is None else (),
                )

        if self._job.spec.edge is not None:
            self._around.push()  # what its source knows by now is known there then, too
        while (position := join()) is None:
            self._go_on_or_give_up()
            self._around.push()
            time.sleep(_LOOK_EVERY_S)
        self.request = replace(
            self.request,
            splits=self.request.splits + 1,
            rows=self.request.rows + rows,
            position=position,
            error=NO_ERROR,
        )
        self._go_on_or_give_up()

    def bring_back(self) -> None:
        """Read again the rows that were deleted to free a unique value for another row.

        Each comes back as the source has it. It may need a value, too, that a drifted row has: that
        row is next. A correct row has no other row's value, so there is an end.
        """
        self._is_leaving = True
        schemas, stream = self._own_schemas(), self._stream()
        with closing(self._open_joins()) as sink:
            self._epoch = sink.begin(self.request.ledger_key, tuple(schemas))
            for table in self.request.scope.tables:
                if table not in schemas or self._plans[table].is_one_split:
                    continue  # of a table that is replaced whole no row was deleted for another
                if stream and stream.progress_of(table) is not None:
                    self._bring_back(sink, schemas[table])

    def _bring_back(self, sink: JoinSink, schema: TableSchema) -> None:
        """Read and join the rows of one table that were deleted to free a unique value."""
        key, table = self.request.ledger_key, schema.table
        plan = self._plans[table]
        back = sink.freed_keys(key, table).slice(0, 0)
        while True:
            freed = sink.freed_keys(key, table)
            keys = missing_from(freed, ArrowRows(back), plan.target.primary_key)
            if not keys.num_rows:
                return
            joined = [each.split for each in sink.joined(key) if each.split.table == table]
            like = replace(joined[0], keys=KeyRange())
            with ExitStack() as stack:
                readers = open_readers(self._job, schema, self._numbers)
                for reader in readers:
                    stack.callback(reader.close)
                listed = source_keys(keys, plan)
                for read in listed_reads(readers[0], like, listed, count(next_number(joined))):
                    self._join(sink, schema, read)
            back = pa.concat_tables([back, keys])

    def _open_joins(self) -> JoinSink:
        """Open the part of the sink that joins rows; no other request has this one's readers."""
        return self._job.sink().open_joins(reader=self._numbers[0])

    def _own_schemas(self) -> Mapping[TableId, TableSchema]:
        """Return the planned definitions of the request's tables, and remember them."""
        self._plans = {plan.schema.table: plan for plan in self._job.plans()}
        tables = self.request.scope.tables
        self.schemas = {
            table: self._plans[table].schema for table in tables if table in self._plans
        }
        return self.schemas

    def _stream(self) -> StreamSplit | None:
        """Return the stream as the sink's ledger has it."""
        with closing(self._job.sink().open_ledger()) as ledger:
            return ledger.stream()

    def wait(self, cause: str, seconds: float) -> None:
        """Record what the request waits for, and wait `seconds`."""
        self.request = replace(self.request, error=StoredError.saying(cause))
        self._note(now=True)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._go_on_or_give_up()
            time.sleep(min(_NOTE_EVERY_S, seconds))

    # --- what is told -------------------------------------------------------------------------

    def _count(self, sink: JoinSink, *, tables_done: int) -> Sequence[JoinedSplit]:
        """Record how many splits and rows of the request are in the sink, and return its splits."""
        joined = sink.joined(self.request.ledger_key)
        self.request = replace(
            self.request,
            splits=len(joined),
            rows=sum(each.rows for each in joined),
            left=sum(each.left for each in joined),
            tables_done=tables_done,
        )
        self._note(now=True)
        return joined

    def _note(self, *, now: bool = False) -> None:
        """Store the request's progress, now or when the last note is old enough."""
        if not now and time.monotonic() - self._noted_s < _NOTE_EVERY_S:
            return
        self._noted_s = time.monotonic()
        self.request = self._job.store.note_request(self._job.spec.generation, self.request)

    def _while_reading(self, why: str) -> None:
        """Show why the next split waits, and raise `GivenUpError` if the request is to end."""
        shown = StoredError.saying(f"throttled: {why}") if why else NO_ERROR
        if shown != self.request.error:
            self.request = replace(self.request, error=shown)
            self._note(now=True)
        self._go_on_or_give_up()

    def _go_on_or_give_up(self) -> None:
        """Raise `GivenUpError` if the request is cancelled or the job ends; else note progress."""
        self._note()
        is_unwanted = self.request.is_cancel_wanted and not self._is_leaving
        if self._around.is_ending() or is_unwanted:
            raise GivenUpError


def _no_cuts(schema: TableSchema, start: Key | None) -> Iterator[Key]:  # noqa: ARG001 - as Boundaries
    """Return no boundaries: the rows are one split."""
    return iter(())


def _require_interval(schema: TableSchema, chosen: Chosen | None) -> None:
    """Refuse an interval of a column that the table no longer has."""
    if not isinstance(chosen, Interval):
        return
    if chosen.column not in {column.name for column in schema.copied_columns}:
        raise RefusedError(
            f"{schema.table} has no column {chosen.column} any more",
            where="interval of the request",
            risk="none: what was joined stays, and nothing else was changed",
            remedy="ask for an interval of a column that it has now, or `resync` the table",
        )


def _not_in_plan(table: TableId) -> RefusedError:
    """Return the error for a request of a table that is not in the plan."""
    return RefusedError(
        f"{table} is not in the plan",
        where="tables of the request",
        risk=NOTHING_STARTED,
        remedy="ask for tables that the pipeline copies",
    )


def _not_streamed(table: TableId) -> RefusedError:
    """Return the error for a request of a table that the stream does not follow."""
    return RefusedError(
        f"the stream does not follow {table}, so its rows cannot join it",
        where="tables of the request",
        risk="none: nothing was read",
        remedy=f"`reset` it with {table_option(table)}, or `add` it, and ask again",
    )
