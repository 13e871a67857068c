"""Splits that readers try again are told as an outage, which ends with the next one published."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from airflow_cdc_provider.columns.arrow_arrays import numbers_of
from airflow_cdc_provider.columns.rows import ArrowRows, SplitRows
from airflow_cdc_provider.columns.source_port import Source, SplitReading
from airflow_cdc_provider.core.backoff import BackOff
from airflow_cdc_provider.core.errors import (
    CdcError,
    SinkBusyError,
    SinkUnreachableError,
    SourceUnreachableError,
)
from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.keys import KeyRange
from airflow_cdc_provider.core.lifecycle import SplitStatus
from airflow_cdc_provider.core.records import NoteKind, TablePlan
from airflow_cdc_provider.core.splits import SnapshotSplit, SplitReport
from airflow_cdc_provider.core.table_schema import Column, TableSchema
from airflow_cdc_provider.engine.outages import Outages, Part
from airflow_cdc_provider.engine.scrubbing import Secrets
from airflow_cdc_provider.engine.sink.port import Sink
from airflow_cdc_provider.engine.snapshot.assigner import SplitAssigner
from airflow_cdc_provider.engine.snapshot.assigner_protocol import AssignerAddress
from airflow_cdc_provider.engine.snapshot.assigner_server import AssignerServer, DriverPlace
from airflow_cdc_provider.engine.snapshot.reader_task import ReadersEnd, ReaderTask, read_splits
from airflow_cdc_provider.engine.snapshot.split_failures import SplitFailures
from airflow_cdc_provider.engine.snapshot.split_queue import Claim
from airflow_cdc_provider.state.store import SqlStateStore, open_store
from airflow_cdc_provider.systems.mysql.dialect.column_types import mysql_type
from airflow_cdc_provider.systems.mysql.positions.position import BinlogPosition, MySqlPosition

SHOP = PipelineName("shop")
ORDERS, OTHERS = TableId("shop", "orders"), TableId("shop", "others")
SCHEMA = TableSchema(ORDERS, (Column("id", mysql_type("int"), nullable=False),), ("id",))
PLAN = TablePlan.alike(SCHEMA, ORDERS, 0)
HERE = MySqlPosition("3e11fa47-71ca-11e1-9e33-c80aa9429562", BinlogPosition(1, 4))
SECRET = "planted-secret"
FULL = SinkUnreachableError(f"No space left on device at {SECRET}", where=f"sink {SECRET}")
BUSY = SinkBusyError("deadlock")
AWAY = SourceUnreachableError("the source is away")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlStateStore]:
    with closing(open_store(f"sqlite:///{tmp_path / 'state.db'}")) as opened:
        opened.take_over(SHOP, "test")
        opened.start_plan(SHOP, 1, "plan", [PLAN])
        yield opened


def split(number: int, table: TableId = ORDERS) -> SnapshotSplit:
    keys = KeyRange((number,), (number + 1,))
    return SnapshotSplit(table, number, ("id",), SCHEMA.key_kinds, keys)


@dataclass
class Seen:
    """What an onlooker sees of a job's outages."""

    store: SqlStateStore
    outages: Outages = field(init=False)
    failures: SplitFailures = field(init=False)

    def __post_init__(self) -> None:
        self.outages = Outages(self.store, SHOP, 1)
        self.failures = SplitFailures(self.outages, self._warn)

    def _warn(self, text: str) -> None:
        self.store.tell(SHOP, text, level="warning")

    def shown(self) -> list[dict[str, Any]]:
        self.outages.tell()
        note = self.store.note(SHOP, NoteKind.OUTAGES)
        return [] if note is None else list(note.form["outages"])

    def codes(self) -> list[tuple[str, int]]:
        return [(each["error"]["code"], each["tries"]) for each in self.shown()]

    def texts(self) -> list[str]:
        """Return the events, the oldest first."""
        self.outages.tell()
        return [event.text for event in reversed(self.store.events(SHOP))]

    def ends(self) -> list[str]:
        return [text for text in self.texts() if text.startswith("over")]


@pytest.fixture
def seen(store: SqlStateStore) -> Seen:
    return Seen(store)


@dataclass
class Servers:
    """A source of one row a split, and a sink that fails as it is told to."""

    seen: Seen
    assigner: SplitAssigner
    failing: list[CdcError]
    shown: list[list[dict[str, Any]]] = field(default_factory=list)
    """The outages at each try."""
    stops_at: int | None = None
    """The try at which the job is asked to end."""

    def split_reader(self, _: SplitReading) -> Servers:
        return self

    def open_splits(self) -> Servers:
        return self

    def read(self, split: SnapshotSplit) -> tuple[SplitRows, SplitReport]:
        columns = pa.schema([pa.field("id", pa.int64())])
        rows = pa.Table.from_batches([pa.record_batch([numbers_of([split.number])], columns)])
        return ArrowRows(rows), SplitReport(split.split_id, HERE, HERE, 1, 8, SCHEMA.fingerprint, 1)

    def publish(self, *_: object) -> None:
        self.shown.append(self.seen.shown())
        if len(self.shown) == self.stops_at:
            self.assigner.queue.stop()
        if self.failing:
            raise self.failing.pop(0)

    def close(self) -> None:
        pass


def served(seen: Seen, *failing: CdcError, splits: int = 1) -> Servers:
    """Queue splits of a table, for a sink that fails so often."""
    seen.store.add_splits(SHOP, 1, [split(number) for number in range(splits)])
    seen.store.finish_planning(SHOP, 1, ORDERS)
    assigner = SplitAssigner(seen.store, SHOP, 1)
    assigner.failures = seen.failures
    assigner.load()
    return Servers(seen, assigner, list(failing))


def read(servers: Servers, back_off: BackOff | None = None) -> ReadersEnd:
    """Run one reader until no split is left."""
    with AssignerServer(servers.assigner, DriverPlace("127.0.0.1")) as server:
        task = task_of(servers, server.address, back_off or BackOff(0.01, 0.01))
        return ReadersEnd.of([row for batch in read_splits(task, 0) for row in batch.to_pylist()])


def task_of(servers: Servers, address: AssignerAddress, back_off: BackOff) -> ReaderTask:
    return ReaderTask(
        source=cast(Source, servers),
        sink=cast(Sink, servers),
        assigner=address,
        secrets=Secrets.of_texts(SECRET),
        plans={ORDERS: PLAN},
        reading=SplitReading({ORDERS: SCHEMA}, reader=1, backfill=False, max_split_bytes=1 << 20),
        back_off=back_off,
    )


def test_a_sink_that_fails_a_reader_is_an_outage_until_its_split_is_published(seen: Seen) -> None:
    servers = served(seen, FULL, FULL, FULL, splits=2)
    end = read(servers)
    assert (end.splits, list(end.errors)) == (2, [])
    first, *failing, after = servers.shown
    assert first == after == []
    ((one,), (two,), (three,)) = failing
    assert [each["tries"] for each in (one, two, three)] == [1, 2, 3]
    assert one["part"] == "readers"
    assert one["since_us"] <= two["since_us"] + 1000  # by two clocks
    assert abs(one["since_us"] - three["since_us"]) < 1000
    assert three["next_us"] > three["since_us"]
    begins, is_over = seen.texts()[-2:]
    assert begins.startswith("a split is tried again: CDC-SNK-001")
    assert is_over == "over, after 0 s: No space left on device at ***"


def test_no_secret_of_a_failure_reaches_the_driver_or_a_log(
    seen: Seen, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    servers = served(seen, *[FULL] * 9)
    read(servers, BackOff(0.01, 0.01, give_up_s=0.02))
    (state,) = seen.store.splits(SHOP)
    assert state.status is SplitStatus.FAILED
    told = [*seen.texts(), caplog.text, state.error, servers.shown]
    assert "***" in str(told)
    assert SECRET not in str(told)


def test_what_ends_with_a_refused_split_is_not_said_to_be_over(seen: Seen) -> None:
    read(served(seen, *[FULL] * 9), BackOff(0.01, 0.01, give_up_s=0.02))
    assert [code for code, _ in seen.codes()] == ["CDC-SNK-001"]  # the job's end takes it away
    assert seen.ends() == []
    seen.failures.over(split(7, OTHERS).split_id)
    assert seen.codes() == []
    assert seen.ends() == []


def test_a_reader_whose_split_fails_heeds_that_the_job_is_to_end(seen: Seen) -> None:
    servers = served(seen, *[FULL] * 9, splits=2)
    servers.stops_at = 2
    end = read(servers, BackOff(0.01, 60.0, give_up_s=600.0))
    assert (end.splits, list(end.errors), len(servers.shown)) == (0, [], 2)
    states = {state.status for state in seen.store.splits(SHOP)}
    assert states == {SplitStatus.READING, SplitStatus.PLANNED}


def test_a_reader_that_waits_to_try_again_ends_at_once_with_the_job(seen: Seen) -> None:
    servers = served(seen, FULL)
    began_s = time.monotonic()
    threading.Timer(0.5, servers.assigner.queue.stop).start()
    end = read(servers, BackOff(60.0, 60.0))
    assert (end.splits, list(end.errors), len(servers.shown)) == (0, [], 1)
    assert time.monotonic() - began_s < 20


def test_a_reader_tries_again_after_its_wait(seen: Seen) -> None:
    servers = served(seen, FULL)
    began_s = time.monotonic()
    assert read(servers, BackOff(0.3)).splits == 1
    assert time.monotonic() - began_s >= 0.3


def test_what_one_more_read_mends_is_no_outage(seen: Seen) -> None:
    servers = served(seen, BUSY)
    read(servers)
    assert servers.shown == [[], []]
    assert [text for text in seen.texts() if "again" in text or "over" in text] == []


def test_a_conflict_that_comes_twice_is_one(seen: Seen) -> None:
    servers = served(seen, BUSY, BUSY)
    read(servers)
    assert [len(each) for each in servers.shown] == [0, 0, 1]
    assert len(seen.ends()) == 1


def test_one_outage_that_several_readers_meet_is_over_when_none_meets_it(seen: Seen) -> None:
    failures = seen.failures
    for number in range(3):
        failures.note(split(number), FULL, wait_s=1.0)
    failures.note(split(1), FULL, wait_s=1.0)
    assert seen.codes() == [("CDC-SNK-001", 1)]
    failures.over(split(0).split_id)
    assert seen.codes() == [("CDC-SNK-001", 2)]
    failures.over(split(2).split_id)
    failures.over(split(8).split_id)  # it never failed
    assert (len(seen.shown()), seen.ends()) == (1, [])
    failures.over(split(1).split_id)
    assert (seen.shown(), len(seen.ends())) == ([], 1)
    assert len([text for text in seen.texts() if "tried again" in text]) == 1


def test_another_outage_is_shown_when_the_first_is_over(seen: Seen) -> None:
    failures = seen.failures
    failures.note(split(0), FULL, wait_s=1.0)
    failures.note(split(1), AWAY, wait_s=1.0)
    failures.note(split(0), FULL, wait_s=1.0)
    assert seen.codes() == [("CDC-SNK-001", 2)]
    failures.over(split(0).split_id)
    assert seen.codes() == [("CDC-SRC-001", 1)]
    failures.over(split(1).split_id)
    assert ["source" in text for text in seen.ends()] == [False, True]


def test_a_split_of_a_lost_reader_goes_on_failing_at_the_next_one(seen: Seen) -> None:
    servers = served(seen)
    for reader in range(2):
        claimed = servers.assigner.claim(reader, wait_s=1.0)
        assert isinstance(claimed, Claim)
        servers.assigner.failed(claimed.split, FULL, wait_s=1.0)
        servers.assigner.reader_lost(reader)
    assert seen.codes() == [("CDC-SNK-001", 2)]


@pytest.mark.parametrize("last", [Part.SOURCE, Part.READERS])
def test_a_source_that_is_away_is_one_outage_for_readers_and_looks(seen: Seen, last: Part) -> None:
    seen.outages.note(Part.SOURCE, AWAY, tries=1)
    seen.failures.note(split(0), AWAY, wait_s=1.0)
    assert {code for code, _ in seen.codes()} == {"CDC-SRC-001"}
    assert len({each["since_us"] // 1_000_000 for each in seen.shown()}) == 1
    ends = {
        Part.READERS: lambda: seen.failures.over(split(0).split_id),
        Part.SOURCE: lambda: seen.outages.over(Part.SOURCE),
    }
    ends.pop(next(part for part in ends if part is not last))()
    assert seen.ends() == []
    ends[last]()
    assert (seen.shown(), len(seen.ends())) == ([], 1)


def test_splits_in_any_order_leave_no_outage_behind(seen: Seen) -> None:
    for order in itertools.permutations(range(3)):
        for number, error in enumerate((FULL, AWAY, BUSY)):
            seen.failures.note(split(number), error, wait_s=0.1)
        for number in order:
            seen.failures.over(split(number).split_id)
        assert seen.shown() == []
        seen.outages.end()
