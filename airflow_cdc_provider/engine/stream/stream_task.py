"""What a stream's work needs, whoever does it: the driver's own process, or Spark's workers."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass

from airflow_cdc_provider.columns.source_port import LogReading, Source, TailReader
from airflow_cdc_provider.core.errors import (
    IntegrityError,
    SnapshotRequiredError,
    SourceUnreachableError,
)
from airflow_cdc_provider.core.history import held_by_stream
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.salts import Salt, keep_salts
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.engine.sink.port import ChangeSink, Sink, TellsColumns

BATCH_BYTES = 512 * 1024 * 1024
"""Log in one micro-batch, in whole files: what a restart reads again at most."""


@dataclass(frozen=True, slots=True)
class StreamTask:
    """The settings of the stream's reader and writer, for the driver or Spark's workers.

    For Spark they travel in pickled closures, nowhere else.
    """

    source: Source
    sink: Sink
    reading: LogReading
    max_batch_s: float = 1.0
    salts: tuple[Salt, ...] = ()
    """Those by which columns are masked."""

    @property
    def captured(self) -> frozenset[TableId]:
        """The tables whose changes are read."""
        return frozenset(self.reading.schemas)

    def open_changes(self) -> ChangeSink:
        """Open the sink's writer of changes."""
        keep_salts(self.salts)
        return self.sink.open_changes(self.source.change_columns(self.reading))

    def tell_columns(self) -> None:
        """Have the sink's tables get columns that no row has brought yet, where rows bring them."""
        if isinstance(self.sink, TellsColumns):
            self.sink.tell_columns(self.source.change_columns(self.reading))

    def open_log(self, end: LogPosition) -> TailReader:
        """Open the log at the ledger's position, on the server whose log's end this is."""
        stream = self._committed()
        if stream.start.server != end.server:  # it may be new since the run began
            self.source.require_same_log(stream.start, held_by_stream(stream), self.captured)
        reader = self.source.log_reader(stream, self.reading)
        if reader.position.server != end.server:
            reader.close()
            raise _another_server(reader.position, end)
        return reader

    def _committed(self) -> StreamSplit:
        """Return the stream as the sink's ledger has it."""
        with closing(self.sink.open_ledger()) as ledger:
            stream = ledger.stream()
        if stream is None:
            raise SnapshotRequiredError(
                f"the sink's ledger has no stream for {self.sink.owner.pipeline}",
                where="sink",
                risk="where to go on reading the log is unknown",
                remedy="hand the snapshot off, or take a new one",
            )
        return stream.passed(stream.start)


def check_reached(position: LogPosition, end: LogPosition) -> None:
    """Raise `IntegrityError` if reading ended before the end that it was to reach."""
    if not position.reaches(end):
        raise IntegrityError(
            f"reading the log ended at {position}, before {end}",
            where=f"log of {end.server}",
            risk="changes in between would be missing",
            remedy="report this; the next run reads from the sink's committed position",
        )


def _another_server(position: LogPosition, end: LogPosition) -> SourceUnreachableError:
    """Return the error for an end of another server's log: this log may never reach it."""
    return SourceUnreachableError(
        f"server {position.server} answers, the end was asked of {end.server}",
        where="log of the source",
        remedy="the end is asked for again",
    )
