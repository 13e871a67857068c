"""The statement in the log that a stream refuses to pass, and the position after it.

What a person skips is looked up in the log, not taken from the message: the statement must be the
very next thing that the stream would stop at.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from airflow_cdc_provider.columns.changes import Statement
from airflow_cdc_provider.columns.source_port import LogReading, Source
from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.engine.sink.selection import CapturedTables

_BATCH_S = 5.0


@dataclass(frozen=True, slots=True)
class RefusedPlace:
    """A statement that a stream refuses to pass, its tables, and the log's end after it."""

    statement: Statement
    refusal: CdcError
    tables: tuple[TableId, ...]
    """Tables that it may have changed, of those that the stream follows."""
    end: LogPosition
    """The end of the log, which is behind it."""


def refused_place(
    source: Source, stream: StreamSplit, reading: LogReading, plans: Sequence[TablePlan]
) -> RefusedPlace | None:
    """Return the first statement after the stream's position that it refuses, or None."""
    captured = CapturedTables(plans, {})
    with closing(source.log_end(purpose="end of the log")) as log_end:
        end = log_end.now()
    with closing(source.log_reader(stream, reading)) as reader:
        for batch in reader.read_up_to(end, batch_s=_BATCH_S):
            statement = batch.barrier
            tables = captured.concerned(statement, stream) if statement is not None else []
            if statement is None or not tables:
                continue
            if statement.refusal is None:
                return None  # a change of a definition comes first
            behind = _passed(source, stream, reading, end)
            return RefusedPlace(statement, statement.refusal, tuple(tables), behind)
    return None


def _passed(
    source: Source, stream: StreamSplit, reading: LogReading, end: LogPosition
) -> LogPosition:
    """Return the position at the log's end, read without any table's rows."""
    of_none = replace(stream, tables=())
    with closing(source.log_reader(of_none, replace(reading, schemas={}))) as reader:
        for _ in reader.read_up_to(end, batch_s=_BATCH_S):
            pass
        return reader.position
