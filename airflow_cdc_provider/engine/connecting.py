"""Opening what the other rooms offer, from the plain values of a job or a task.

Everything that runs on executors opens its connections through here, inside the task, and closes
them there. Nothing here imports the state store.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Protocol

from airflow_cdc_provider.columns.changes import ChangeBatch
from airflow_cdc_provider.columns.rows import SplitRows
from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.history import Held, held_by_stream
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.keys import Key
from airflow_cdc_provider.core.positions import BinlogPosition, LogPosition
from airflow_cdc_provider.core.splits import SnapshotSplit, SplitReport
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.core.table_schema import TableSchema
from airflow_cdc_provider.systems.mysql.binlog.event_chunks import BatchLimits
from airflow_cdc_provider.systems.mysql.server.capabilities import WatermarkMode, read_capabilities
from airflow_cdc_provider.systems.mysql.server.connection import connect
from airflow_cdc_provider.systems.mysql.source.errant import require_order
from airflow_cdc_provider.systems.mysql.source.key_bounds import boundaries, split_middle
from airflow_cdc_provider.systems.mysql.source.known_log import require_known
from airflow_cdc_provider.systems.mysql.source.lineage import taken_over
from airflow_cdc_provider.systems.mysql.source.log_reader import LogReader
from airflow_cdc_provider.systems.mysql.source.snapshot_reader import SnapshotReader

if TYPE_CHECKING:
    from airflow_cdc_provider.engine.snapshot.reader_task import ReaderTask
    from airflow_cdc_provider.engine.stream.stream_task import StreamTask

_BATCH_LOG_BYTES = 32 * 1024 * 1024
"""Log behind one batch of changes: what the reader and the writer each hold of it, decoded."""


class Boundaries(Protocol):
    """Finds a table's split boundaries over a connection that it holds."""

    def __call__(self, schema: TableSchema, start: Key | None) -> Iterator[Key]: ...


class SplitReader(Protocol):
    """Reads whole splits over connections that it keeps."""

    def read(self, split: SnapshotSplit) -> tuple[SplitRows, SplitReport]: ...

    def close(self) -> None: ...


class TailReader(Protocol):
    """Reads the log on from where it is."""

    @property
    def position(self) -> LogPosition: ...

    def read_to(self, until: BinlogPosition | None, *, batch_s: float) -> Iterator[ChangeBatch]: ...

    def close(self) -> None: ...


def connections_a_reader(source: Endpoint, *, backfill: bool) -> int:
    """Return how many connections one snapshot reader holds on the source.

    Where L equals H there is nothing to replay and so no log connection.
    """
    if not backfill:
        return 1
    with closing(connect(source, purpose="snapshot")) as connection:
        modes = read_capabilities(connection).watermark_modes
    return 1 if modes[:1] == (WatermarkMode.CONSISTENT_SNAPSHOT,) else 2


@contextmanager
def open_boundaries(source: Endpoint, split_rows: int) -> Iterator[Boundaries]:
    """Open what finds split boundaries."""
    with closing(connect(source, purpose="planning splits")) as connection:

        def find(schema: TableSchema, start: Key | None) -> Iterator[Key]:
            return boundaries(connection, schema, split_rows, start)

        yield find


def split_middle_of(task: ReaderTask, split: SnapshotSplit) -> Key:
    """Ask the source for a key in the middle of a split."""
    with closing(connect(task.source, purpose="cutting a split")) as connection:
        return split_middle(connection, split)


def open_split_reader(task: ReaderTask, reader: int) -> SplitReader:
    """Open a snapshot reader; `reader` counts from 0 and gives it an id of its own."""
    return SnapshotReader(
        task.source,
        {plan.schema.table: plan.schema for plan in task.sink.plans},
        server_id=task.server_id_first + reader,
        backfill=task.backfill,
        max_split_bytes=task.max_split_bytes,
        zero_dates=task.sink.zero_dates,
    )


def check_source(
    source: Endpoint, read: LogPosition, held: Sequence[Held], captured: Collection[TableId]
) -> str:
    """Require that the server that answers now has what was read, and what the sink holds.

    It must have it in the very log that was read, or have it by GTIDs, with nothing before it that
    changed captured tables and was not read. Returns what is to be told of a server that took
    over; empty if it is the one that was read.
    """
    require_known(source, read, held)
    with closing(connect(source, purpose="identity")) as connection:
        capabilities = read_capabilities(connection)
        ours = [read, *(each.position for each in held)]
        require_order(source, connection, capabilities.server_uuid, ours, captured)
        return taken_over(connection, capabilities, ours)


def open_log_reader(task: StreamTask, stream: StreamSplit) -> TailReader:
    """Open the reader of the log where a committed stream goes on."""
    schemas = {plan.schema.table: plan.schema for plan in task.sink.plans}
    return LogReader(
        task.source,
        server_id=task.server_id,
        start=stream.start,
        held=held_by_stream(stream),
        captured=frozenset(schemas),
        limits=BatchLimits(changes=task.max_batch_changes, bytes=_BATCH_LOG_BYTES),
        zero_dates=task.sink.zero_dates,
        schemas=schemas.get,
    )
