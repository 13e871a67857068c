"""A sink's own log, for who has to know what others write at the sink.

It is read as a source's log is, with the sink's account: an `OwnLog` is the part of a `Source` that
concerns its log. Its readers are not the source's, wherever the two are: they are numbered from 0
again, and whatever a server knows its readers by, none of the source's and none of another
pipeline's is among it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from airflow_cdc_provider.columns.source_port import (
    LOOK_AT_TABLES,
    Catalogue,
    LogEnd,
    LogReading,
    TailReader,
)
from airflow_cdc_provider.core.findings import Finding
from airflow_cdc_provider.core.history import AppliedThrough
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.stream_split import StreamSplit

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_cdc_provider.core.jobspec import SourceOptions
    from airflow_cdc_provider.core.table_schema import TableSchema
    from airflow_cdc_provider.core.topology import Topology


class OwnLog(Protocol):
    """The log that a sink's server writes of all that is committed there."""

    @property
    def most_readers(self) -> int:
        """Return how many of a pipeline's readers may read this log at once."""

    def catalogue(self, *, purpose: str = LOOK_AT_TABLES) -> AbstractContextManager[Catalogue]:
        """Open the catalogue of the sink's server, whose tables are the sink's."""

    def firing_triggers(self, tables: Sequence[TableId]) -> Mapping[TableId, Sequence[str]]:
        """Return the triggers of these tables that fire for what an edge writes, by table."""

    def log_end(self, *, purpose: str) -> LogEnd:
        """Open a session that returns positions at the log's end."""

    def log_reader(self, stream: StreamSplit, reading: LogReading) -> TailReader:
        """Open a reader at a stream's position in this log; the schemas are the sink's tables."""

    def change_columns(self, reading: LogReading) -> Mapping[TableId, pa.Schema]:
        """Return the columns of each table's changes, in the value model."""

    def require_same_log(
        self, read: LogPosition, held: Sequence[AppliedThrough], captured: Collection[TableId]
    ) -> str:
        """Require that the log is the one that was read (law 10), as a source does."""

    def preflight(self, *, is_new: bool) -> tuple[Finding, ...]:
        """Check the log's settings, the account's rights and clashes of readers.

        `is_new` says that no reader that the sink has now can be the pipeline's own.
        """


@runtime_checkable
class HasOwnLog(Protocol):
    """A sink with a log of its own that can be read."""

    def own_log(self) -> OwnLog:
        """Return the sink's own log; nothing is connected yet."""


def open_changes_of_others(
    own_log: OwnLog,
    edge: Topology,
    tables: Sequence[TableId],
    start: LogPosition,
    *,
    options: SourceOptions,
    reader: int,
) -> tuple[Mapping[TableId, TableSchema], TailReader]:
    """Open a reader of the sink's log after a position, for what others than this edge write.

    It leaves out what the edge back leaves out. Returns the tables' definitions, too; `reader` is
    its number among the readers of this log. Each statement that names one of the tables ends a
    batch, harmless ones as well.
    """
    with own_log.catalogue(purpose="changes of others at the sink") as catalogue:
        schemas = catalogue.schemas(tables)
    reading = LogReading(
        schemas,
        reader,
        options=options,
        origins=edge.opposite().origins(),
        every_statement=True,
    )
    stream = StreamSplit(start, None, ()).with_tables(dict.fromkeys(schemas, start), ())
    return schemas, own_log.log_reader(stream.read(schemas), reading)
