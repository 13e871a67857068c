"""The log of a MySQL sink's own server, read as a source's is.

Its readers connect with the sink's account and with server ids that are not those of the pipeline's
readers at its source (`server_ids`). What goes wrong names the sink, not the source.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from airflow_cdc_provider.columns.source_port import LOOK_AT_TABLES, LogReading, NextEnd, TailReader
from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.errors import NOTHING_STARTED, RefusedError
from airflow_cdc_provider.core.findings import Finding
from airflow_cdc_provider.core.history import AppliedThrough
from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.jobspec import SourceOptions
from airflow_cdc_provider.core.log_reach import LogReach
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.systems.mysql.mysql_source import MySqlCatalogue, MySqlSource
from airflow_cdc_provider.systems.mysql.options import MySqlOptions
from airflow_cdc_provider.systems.mysql.server.server_errors import errors_of_the_sink
from airflow_cdc_provider.systems.mysql.server.trigger_looks import triggers_that_fire
from airflow_cdc_provider.systems.mysql.server_ids import own_log_ids

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_cdc_provider.columns.changes import ChangeBatch
    from airflow_cdc_provider.systems.mysql.source.log_end import MySqlLogEnd


@dataclass(frozen=True, slots=True)
class MySqlOwnLog:
    """The log of a sink's server, with server ids of its own for those who read it."""

    server: MySqlSource
    server_ids: range

    @classmethod
    def of(cls, sink: Endpoint, pipeline: PipelineName, source_options: SourceOptions) -> Self:
        """Return the log of a pipeline's sink, given the ids of the readers at its source."""
        at_source = MySqlOptions.of(source_options).server_ids
        try:
            ids = own_log_ids(str(pipeline), f"{sink.host}:{sink.port}", at_source=at_source)
        except ValueError as error:
            raise RefusedError(
                str(error),
                where=str(sink),
                risk=NOTHING_STARTED,
                remedy="leave source.server_id out, or write a shorter range",
            ) from None
        return cls(MySqlSource(sink), ids)

    def __str__(self) -> str:
        return f"the log of {self.server}"

    @property
    def most_readers(self) -> int:
        """Return how many may read the log at once."""
        return len(self.server_ids)

    @contextmanager
    def catalogue(self, *, purpose: str = LOOK_AT_TABLES) -> Iterator[MySqlCatalogue]:
        """Open the catalogue of the sink's server within the block."""
        with errors_of_the_sink(), self.server.catalogue(purpose=purpose) as catalogue:
            yield catalogue

    def firing_triggers(self, tables: Sequence[TableId]) -> Mapping[TableId, Sequence[str]]:
        """Return the triggers of these tables that do not ask for `@airflow_cdc`, by table."""
        with self.catalogue(purpose="triggers at the sink") as catalogue:
            return triggers_that_fire(catalogue.connection, tables)

    def log_end(self, *, purpose: str) -> SinkLogEnd:
        """Open a connection to query the end of the log."""
        with errors_of_the_sink():
            return SinkLogEnd(self.server.log_end(purpose=purpose))

    def log_reader(self, stream: StreamSplit, reading: LogReading) -> SinkLogReader:
        """Return a reader of the log that starts at the stream's position."""
        with errors_of_the_sink():
            return SinkLogReader(self.server.log_reader(stream, self._with_own_ids(reading)))

    def change_columns(self, reading: LogReading) -> Mapping[TableId, pa.Schema]:
        """Return the Arrow schema of each table's changes."""
        return self.server.change_columns(reading)

    def require_same_log(
        self, read: LogPosition, held: Sequence[AppliedThrough], captured: Collection[TableId]
    ) -> str:
        """Refuse the server if its log is not the one read before, or has errant transactions."""
        with errors_of_the_sink():
            return self.server.require_same_log(read, held, captured)

    def preflight(self, *, is_new: bool) -> tuple[Finding, ...]:
        """Return the findings about the log: what it holds, who may read it, and clashing ids."""
        from airflow_cdc_provider.systems.mysql.preflight.own_log import (  # noqa: PLC0415
            own_log_findings,
        )

        return own_log_findings(self.server.endpoint, self.server_ids, is_new=is_new)

    def _with_own_ids(self, reading: LogReading) -> LogReading:
        """Return a reading with the ids of this log's readers in place of the source's."""
        first, last = self.server_ids.start, self.server_ids.stop - 1
        return replace(reading, options={**reading.options, "server_ids": [first, last]})


class SinkLogReader:
    """A reader of the sink's own log; its errors name the sink."""

    def __init__(self, reader: TailReader) -> None:
        self._reader = reader

    @property
    def position(self) -> LogPosition:
        """Return the last boundary that was read."""
        return self._reader.position

    def read_up_to(self, end: LogPosition, *, batch_s: float) -> Iterator[ChangeBatch]:
        """Yield the changes up to `end`, a position in this log."""
        with errors_of_the_sink():
            yield from self._reader.read_up_to(end, batch_s=batch_s)

    def follow(self, *, batch_s: float, wait_s: float) -> Iterator[ChangeBatch | None]:
        """Yield changes as they arrive, for ever; None every `wait_s` seconds without one."""
        with errors_of_the_sink():
            yield from self._reader.follow(batch_s=batch_s, wait_s=wait_s)

    def close(self) -> None:
        """Close the connection."""
        self._reader.close()


class SinkLogEnd:
    """The end of the sink's own log; its errors name the sink."""

    def __init__(self, log_end: MySqlLogEnd) -> None:
        self._log_end = log_end

    def now(self) -> LogPosition:
        """Return the end of the log: everything committed so far is before it."""
        with errors_of_the_sink():
            return self._log_end.now()

    def seen(self) -> LogPosition:
        """Return a position that is after all that can be seen now."""
        with errors_of_the_sink():
            return self._log_end.seen()

    def next_end(
        self, start: LogPosition, *, bound: LogPosition | None, batch_bytes: int
    ) -> NextEnd:
        """Return the position at which the micro-batch from `start` ends."""
        with errors_of_the_sink():
            return self._log_end.next_end(start, bound=bound, batch_bytes=batch_bytes)

    def bytes_behind(self, start: LogPosition) -> int | None:
        """Return how many bytes of log come after `start`; None if `start` is not in the log."""
        with errors_of_the_sink():
            return self._log_end.bytes_behind(start)

    def reach(self, start: LogPosition) -> LogReach:
        """Return what log the server keeps, and how many bytes of it are before `start`."""
        with errors_of_the_sink():
            return self._log_end.reach(start)

    def close(self) -> None:
        """Close the connection."""
        self._log_end.close()
