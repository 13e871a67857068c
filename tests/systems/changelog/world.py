"""A change log in a folder or a bucket, and what a reader finds in it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from airflow_cdc_provider.core.endpoint import Folder
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.splits import FinishedSplit
from airflow_cdc_provider.core.stream_split import StreamSplit, hand_off
from airflow_cdc_provider.engine.sink.port import Owner
from airflow_cdc_provider.systems.changelog.changelog_sink import ChangelogSink
from airflow_cdc_provider.systems.file_log.files import Format
from airflow_cdc_provider.systems.file_log.layout import TRANSACTION, table_folder
from airflow_cdc_provider.systems.file_log.manifest import Manifest
from airflow_cdc_provider.systems.files.file_store import FileStore
from airflow_cdc_provider.systems.files.object_store import ObjectStore
from airflow_cdc_provider.systems.files.opening import open_files
from tests.behaviours.sink_world import Row, SinkWorld

Event = dict[str, Any]


@dataclass
class ChangelogWorld(SinkWorld):
    """The sinks' world in a folder, or in a bucket that takes its place."""

    root: Path
    form: Format = Format.JSON
    bucket: Folder | None = None

    @property
    def place(self) -> Folder:
        return Folder(str(self.root), self.form) if self.bucket is None else self.bucket

    @property
    def store(self) -> ObjectStore:
        return open_files(self.place.store)

    def make_tables(self) -> None:
        """Make nothing: a table's folder comes with its first file."""

    def under(self, generation: int, **_: Any) -> ChangelogSink:
        plans = (self.orders, self.seats)
        return ChangelogSink(self.place, Owner(self.pipeline, generation), plans)

    def events(self, table: str = "orders") -> list[Event]:
        """What the log holds of a table, in order."""
        return events_at(self.store, table_folder(TableId("shop", table)))

    def markers(self) -> list[Event]:
        return events_at(self.store, TRANSACTION)

    def held(self, table: str = "orders") -> list[Row]:
        """The table that a reader of the log makes of it; each event must fit what it has."""
        rows: dict[Any, Event] = {}
        for event in self.events(table):
            key, op = json.dumps(event["key"]), event["op"]
            if op == "t":
                rows.clear()
                continue
            assert (key in rows) == (op in "ud"), f"{op} of {key}, which the log holds: {rows}"
            if op in "ud":
                assert rows[key] == event["before"]
                del rows[key]
            if op in "rcu":
                rows[key] = event["after"]
        return sorted(tuple(row.values()) for row in rows.values())

    def stream_from(self, *rows: Row, splits: tuple[int | None, ...] = (None, None)) -> StreamSplit:
        """Publish `orders` in splits between these keys, each settled 10 later, and hand off."""
        sink = self.splits()
        finished = []
        for number, (start, end) in enumerate(pairwise(splits)):
            split = self.split(number, start, end)
            own = [row for row in rows if split.keys.contains((row[0],))]
            report = self.publish(sink, split, *own, high=100 + 10 * number)
            finished.append(FinishedSplit.of(split, report, backfilled=True))
        stream = hand_off(finished)
        self.ledger.store_stream(stream)
        return stream


def events_in(root: Path, table: str) -> list[Event]:
    """Return what a folder holds of a table, in order."""
    return events_at(FileStore(root), table_folder(TableId.parse(table)))


def events_at(store: ObjectStore, folder: str) -> list[Event]:
    """Return what a store holds in a folder of the log, in order."""
    files = Manifest(store, "").read_any().files(folder)
    return [each for file in files for each in _read(store, file.path)]


def _read(store: ObjectStore, name: str) -> list[Event]:
    content = store.read(name)
    assert content is not None
    if name.endswith(".parquet"):
        return list(pq.read_table(BytesIO(content)).to_pylist())
    return [json.loads(line) for line in content.decode().splitlines()]
