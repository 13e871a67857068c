"""Looking at what is remembered; nothing here writes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, Row, case, func, select

from airflow_cdc_provider.core.codec import report_from_json, stream_from_text
from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.lifecycle import SplitStatus
from airflow_cdc_provider.core.many_records import gc_paused
from airflow_cdc_provider.core.overview import PipelineOverview, TableOverview
from airflow_cdc_provider.core.records import (
    Note,
    NoteKind,
    PipelineEvent,
    PipelineState,
    PlanOrigin,
    Sample,
    SplitState,
    StreamState,
    TableState,
)
from airflow_cdc_provider.core.requests import Request, RequestKind
from airflow_cdc_provider.core.splits import SplitReport, split_id
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.state.database_errors import explained
from airflow_cdc_provider.state.overviews import find_overviews, find_tables
from airflow_cdc_provider.state.request_rows import find_request, find_requests, last_done_us
from airflow_cdc_provider.state.rows import (
    SPLIT_COLUMNS,
    event_of,
    origin_of,
    pipeline_of,
    split_of,
    stream_of,
    table_of,
)
from airflow_cdc_provider.state.samples import find_samples
from airflow_cdc_provider.state.tables import (
    NAME,
    events,
    hand_offs,
    notes,
    pipelines,
    plans,
    splits,
    streams,
    tables,
)

_JOB_EVENTS = 20
"""About jobs of one generation: each start has two."""
# What is asked all the time is put together once: that takes longer than the database's answer.
_PIPELINE = select(pipelines).where(pipelines.c.name == NAME)
_PLAN = select(plans).where(plans.c.pipeline == NAME)
_HANDED_OFF = select(hand_offs.c.pipeline).where(hand_offs.c.pipeline == NAME)
_STREAM = select(streams).where(streams.c.pipeline == NAME)
_TABLES = select(tables).where(tables.c.pipeline == NAME)
_FINISHED = splits.c.status == SplitStatus.FINISHED.value
_SPLIT_COUNTS = (
    select(
        splits.c.source_table,
        func.count().label("planned"),
        func.sum(case((_FINISHED, 1), else_=0)).label("finished"),
        func.sum(case((_FINISHED, splits.c.row_count), else_=0)).label("rows"),
        func.sum(case((_FINISHED, splits.c.byte_count), else_=0)).label("bytes"),
    )
    .where(splits.c.pipeline == NAME, splits.c.status != SplitStatus.CUT.value)
    .group_by(splits.c.source_table)
)


class SqlStateReader:
    """Reads the state store, in any SQLAlchemy database."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        """Open a connection to read; database errors become the product's errors."""
        with explained(self._engine), self._engine.connect() as connection:
            yield connection

    def close(self) -> None:
        """Close the connections."""
        self._engine.dispose()

    def pipeline(self, name: PipelineName) -> PipelineState | None:
        """Return the pipeline, None if it was never seen."""
        with self._reading() as connection:
            return find_pipeline(connection, name)

    def origin(self, name: PipelineName) -> PlanOrigin | None:
        """Return what the plan was made from, None if that was not stored."""
        row = self._plan(name)
        return None if row is None else origin_of(row.origin)

    def not_copied(self, name: PipelineName) -> tuple[TableId, ...]:
        """Return the tables that the file picks but the plan lacks, as they were last seen."""
        row = self._plan(name)
        return () if row is None else tuple(map(TableId.parse, json.loads(row.not_copied)))

    def _plan(self, name: PipelineName) -> Row[Any] | None:
        """Return the pipeline's row of `cdc_plan`, None if there is none."""
        with self._reading() as connection:
            return connection.execute(_PLAN, {"name": str(name)}).first()

    def tables(self, name: PipelineName) -> tuple[TableState, ...]:
        """Return the plan's tables by name, with sums over their splits."""
        with self._reading() as connection:
            counts = _split_counts(connection, name)
            rows = connection.execute(_TABLES, {"name": str(name)}).all()
        states = [table_of(row, counts.get(row.source_table, {})) for row in rows]
        return tuple(sorted(states, key=lambda state: state.table))

    def splits(self, name: PipelineName, table: TableId | None = None) -> tuple[SplitState, ...]:
        """Return the splits by table and number, those that were cut included."""
        mine = select(*SPLIT_COLUMNS).where(splits.c.pipeline == str(name))
        if table is not None:
            mine = mine.where(splits.c.source_table == str(table))
        with self._reading() as connection, gc_paused():
            states = [split_of(row) for row in connection.execute(mine)]
            states.sort(key=lambda state: (state.split.table, state.split.number))
            return tuple(states)

    def split_reports(self, name: PipelineName, table: TableId) -> tuple[SplitReport, ...]:
        """Return the reports of a table's splits, by number."""
        mine = splits.c.pipeline == str(name), splits.c.source_table == str(table)
        query = select(splits.c.report).where(*mine, splits.c.report.is_not(None))
        with self._reading() as connection, gc_paused():
            found = connection.execute(query.order_by(splits.c.number)).scalars()
            return tuple(report_from_json(json.loads(text)) for text in found)

    def split_statuses(self, name: PipelineName) -> Mapping[str, SplitStatus]:
        """Return each split's status by the split's id; faster than reading the splits."""
        columns = splits.c.source_table, splits.c.number, splits.c.status
        mine = select(*columns).where(splits.c.pipeline == str(name))
        with self._reading() as connection:
            rows = connection.execute(mine).all()
        return {split_id(table, number): SplitStatus(status) for table, number, status in rows}

    def is_handed_off(self, name: PipelineName) -> bool:
        """Tell whether a hand-off is stored; reading a large `hand_off` takes seconds."""
        with self._reading() as connection:
            return connection.execute(_HANDED_OFF, {"name": str(name)}).first() is not None

    def hand_off(self, name: PipelineName) -> StreamSplit | None:
        """Return the stream split as it was stored at hand-off."""
        mine = select(hand_offs.c.stream).where(hand_offs.c.pipeline == str(name))
        with self._reading() as connection:
            stored = connection.execute(mine).scalar()
        return None if stored is None else stream_from_text(stored)

    def stream(self, name: PipelineName) -> StreamState | None:
        """Return the stream's progress as it was last stored."""
        with self._reading() as connection:
            row = connection.execute(_STREAM, {"name": str(name)}).first()
        return None if row is None else stream_of(row)

    def events(self, name: PipelineName, limit: int = 100) -> tuple[PipelineEvent, ...]:
        """Return the latest events, newest first."""
        mine = select(events).where(events.c.pipeline == str(name))
        latest = mine.order_by(events.c.id.desc()).limit(limit)
        with self._reading() as connection:
            return tuple(event_of(row) for row in connection.execute(latest))

    def job_events(self, name: PipelineName, generation: int) -> tuple[PipelineEvent, ...]:
        """Return the latest events about jobs of a generation, newest first, however old."""
        mine = select(events).where(
            events.c.pipeline == str(name),
            events.c.text.contains(f" under generation {generation}", autoescape=True),
        )
        latest = mine.order_by(events.c.id.desc()).limit(_JOB_EVENTS)
        with self._reading() as connection:
            return tuple(event_of(row) for row in connection.execute(latest))

    def requests(self, name: PipelineName, *, only_open: bool = False) -> tuple[Request, ...]:
        """Return the requests on a pipeline, oldest first."""
        with self._reading() as connection:
            return find_requests(connection, name, only_open=only_open)

    def to_do(self, name: PipelineName) -> tuple[Request, ...]:
        """Return the open requests that a running stream carries out, oldest first."""
        return tuple(
            each
            for each in self.requests(name, only_open=True)
            if each.status.is_to_do and not each.kind.changes_tables
        )

    def table_requests(self, name: PipelineName) -> tuple[Request, ...]:
        """Return the open requests that add, remove or restart tables, oldest first."""
        asked = self.requests(name, only_open=True)
        return tuple(each for each in asked if each.kind.changes_tables)

    def added_us(self, name: PipelineName) -> int:
        """Return when a request to add a table was last done, 0 if none was."""
        with self._reading() as connection:
            return last_done_us(connection, name, RequestKind.ADD)

    def request(self, name: PipelineName, request_id: str) -> Request | None:
        """Return one request, None if there is none of this id."""
        with self._reading() as connection:
            return find_request(connection, name, request_id)

    def note(self, name: PipelineName, kind: NoteKind) -> Note | None:
        """Return the last note of a kind, None if there is none."""
        mine = notes.c.pipeline == str(name), notes.c.kind == kind.value
        with self._reading() as connection:
            row = connection.execute(select(notes).where(*mine)).first()
        return None if row is None else Note(row.at_us, json.loads(row.form))

    def samples(self, name: PipelineName, since_us: int) -> tuple[Sample, ...]:
        """Return the pipeline's samples of lag and row counts since a time, oldest first."""
        with self._reading() as connection:
            return find_samples(connection, name, since_us)

    def overviews(self, names: Sequence[PipelineName], now_us: int) -> tuple[PipelineOverview, ...]:
        """Return overviews of the known ones of many pipelines, by name, in a few queries."""
        with self._reading() as connection:
            return find_overviews(connection, names, now_us)

    def table_overviews(self, name: PipelineName, now_us: int) -> tuple[TableOverview, ...]:
        """Return the plan's tables for display, with counts of their splits."""
        with self._reading() as connection:
            return find_tables(connection, name, now_us)

    def pipelines(self) -> tuple[PipelineState, ...]:
        """Return every pipeline that this store has, by name."""
        with self._reading() as connection:
            rows = connection.execute(select(pipelines).order_by(pipelines.c.name)).all()
        return tuple(pipeline_of(row) for row in rows)


def find_pipeline(connection: Connection, name: PipelineName) -> PipelineState | None:
    """Read one pipeline's row in the caller's transaction."""
    row = connection.execute(_PIPELINE, {"name": str(name)}).first()
    return None if row is None else pipeline_of(row)


def _split_counts(connection: Connection, name: PipelineName) -> dict[str, dict[str, Any]]:
    """Return each table's sums over its splits: planned, finished, rows and bytes."""
    return {
        row.source_table: {
            # MySQL sums integers as decimals
            "planned": int(row.planned),
            "finished": int(row.finished),
            "rows": int(row.rows),
            "bytes": int(row.bytes),
        }
        for row in connection.execute(_SPLIT_COUNTS, {"name": str(name)})
    }
