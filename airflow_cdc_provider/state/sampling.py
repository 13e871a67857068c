"""The part of the state store that takes samples, within the writes that are made anyway."""

from __future__ import annotations

from sqlalchemy import Connection, Engine

from airflow_cdc_provider.core.identifiers import PipelineName
from airflow_cdc_provider.core.records import StreamState
from airflow_cdc_provider.state.fencing import Clock, FencedStore, clock_us
from airflow_cdc_provider.state.samples import SampleNotes, write_sample


class SampledStore(FencedStore):
    """The part of the state store that samples lag and row counts of pipelines."""

    def __init__(self, engine: Engine, clock: Clock = clock_us) -> None:
        super().__init__(engine, clock)
        self._notes = SampleNotes()

    def _sample_beat(
        self, connection: Connection, name: PipelineName, stream: StreamState, *, is_last: bool
    ) -> None:
        """Store a sample of the stream, if one is due or this is the last heartbeat."""
        now = self._clock()
        if self._notes.is_due(name, now) or is_last:
            write_sample(connection, name, now, lag_us=stream.lag_us, changes=stream.changes)

    def _sample_rows(
        self, connection: Connection, name: PipelineName, rows: int, *, is_last: bool = False
    ) -> None:
        """Count rows that were read, and store a sample if one is due, or if `is_last`."""
        now = self._clock()
        self._notes.add(name, rows)
        due = self._notes.rows_due(name, now, all_of_them=is_last)
        if due > 0:
            write_sample(connection, name, now, rows=due)
