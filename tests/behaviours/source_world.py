"""What the source behaviours stand on: one table at a source, and transactions that change it.

What only a system knows is asked of its own world: how the table is made and written to, and how
log that was read is thrown away.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from airflow_cdc_provider.columns.changes import ChangeBatch, Op, TableChanges
from airflow_cdc_provider.columns.source_port import LogReading, Source, SplitReader, TailReader
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.keys import Key, KeyRange
from airflow_cdc_provider.core.ports import PhaseListener
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.splits import SnapshotSplit
from airflow_cdc_provider.core.stream_split import StreamSplit, TableProgress
from airflow_cdc_provider.core.table_schema import TableSchema
from tests.behaviours.sink_world import Change, Row

READER_ID = 7951
OPTIONS = {"server_ids": [READER_ID, READER_ID + 9]}
"""For sources that know their readers by such numbers; others look at nothing of it."""


@dataclass
class SourceWorld(ABC):
    """A table `orders` of a whole number `id`, its key, and a text `name`."""

    database: str

    @property
    @abstractmethod
    def source(self) -> Source:
        """The source itself."""

    @abstractmethod
    def make_table(self) -> None:
        """Make the table, empty."""

    @abstractmethod
    def commit(self, *changes: Change) -> None:
        """Make these changes in one transaction, on a connection of its own."""

    @abstractmethod
    def held(self) -> list[Row]:
        """What the table holds now, by key."""

    @abstractmethod
    def split_reader(self, listener: PhaseListener) -> SplitReader:
        """A reader of splits that tells of its watermarks."""

    @abstractmethod
    def throw_log_away(self) -> None:
        """Make the source forget its log up to now."""

    @property
    def table(self) -> TableId:
        return TableId(self.database, "orders")

    def schema(self) -> TableSchema:
        with self.source.catalogue() as catalogue:
            return catalogue.schemas([self.table])[self.table]

    def split(self, start: Key | None = None, end: Key | None = None) -> SnapshotSplit:
        schema = self.schema()
        return SnapshotSplit(
            schema.table, 0, schema.primary_key, schema.key_kinds, KeyRange(start, end)
        )

    def end(self) -> LogPosition:
        with closing(self.source.log_end(purpose="test")) as log_end:
            return log_end.now()

    def log_reader(self, start: LogPosition, *, batch_changes: int = 100_000) -> TailReader:
        stream = StreamSplit(start, None, (TableProgress(self.table, start),))
        reading = LogReading({self.table: self.schema()}, 0, batch_changes, OPTIONS)
        return self.source.log_reader(stream, reading)

    def batches(
        self, start: LogPosition, end: LogPosition, *, batch_changes: int = 100_000
    ) -> list[ChangeBatch]:
        """What the log has between two places."""
        with closing(self.log_reader(start, batch_changes=batch_changes)) as reader:
            return list(reader.read_up_to(end, batch_s=1.0))

    def logged(self, start: LogPosition) -> list[Change]:
        """The table's changes in the log from a place to its end."""
        return changes_in(self.batches(start, self.end()))


def changes_in(batches: Sequence[ChangeBatch]) -> list[Change]:
    """Return the changes in log order."""
    return changes_of(part for batch in batches for part in batch.tables)


def changes_of(parts: Iterable[TableChanges]) -> list[Change]:
    """Return the changes of parts in their order."""
    return [change for part in parts for change in _changes(part)]


def _changes(part: TableChanges) -> Iterator[Change]:
    images = (part.before.to_pylist(), part.after.to_pylist())
    for op, before, after in zip(part.op.to_pylist(), *images, strict=True):
        yield (
            Op(op),
            None if op == Op.INSERT else tuple(before.values()),
            None if op == Op.DELETE else tuple(after.values()),
        )


def replayed(rows: Sequence[Row], changes: Sequence[Change]) -> list[Row]:
    """Return what rows become by changes, each of which must fit what is there."""
    held: dict[Any, Row] = {row[0]: row for row in rows}
    for _, before, after in changes:
        if before is not None:
            assert held.pop(before[0], None) == before, f"{before} is not what is there"
        if after is not None:
            assert after[0] not in held, f"{after[0]} is there already"
            held[after[0]] = after
    return sorted(held.values())


def within(change: Change, first: int, end: int) -> Change:
    """Return of a change what concerns the keys from `first` up to, not including, `end`."""
    op, *images = change
    before, after = (row if row and first <= row[0] < end else None for row in images)
    return op, before, after
