"""The assigner over its real door and a real state store."""

from __future__ import annotations

import os
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_cdc_provider.columns.source_port import Boundaries
from airflow_cdc_provider.core.backoff import BackOff
from airflow_cdc_provider.core.errors import (
    AssignerPortError,
    FencedError,
    IntegrityError,
    SourceUnreachableError,
    StateUnreachableError,
)
from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.keys import Key, KeyRange
from airflow_cdc_provider.core.lifecycle import SplitStatus, TablePhase
from airflow_cdc_provider.core.records import TablePlan, TableState
from airflow_cdc_provider.core.splits import SnapshotSplit, SplitReport
from airflow_cdc_provider.core.table_schema import Column, TableSchema
from airflow_cdc_provider.core.throttle import ThrottleLimits
from airflow_cdc_provider.engine.snapshot.assigner import SplitAssigner
from airflow_cdc_provider.engine.snapshot.assigner_protocol import AssignerAddress
from airflow_cdc_provider.engine.snapshot.assigner_server import AssignerServer, DriverPlace
from airflow_cdc_provider.engine.snapshot.certificates import own_certificate
from airflow_cdc_provider.engine.snapshot.planner import Planner, frontier
from airflow_cdc_provider.engine.snapshot.remote_assigner import RemoteAssigner
from airflow_cdc_provider.engine.snapshot.split_queue import Claim, NoClaim
from airflow_cdc_provider.engine.throttle.throttle import Throttle
from airflow_cdc_provider.state.store import SqlStateStore, open_store
from airflow_cdc_provider.systems.mysql.dialect.column_types import mysql_type
from airflow_cdc_provider.systems.mysql.positions.position import BinlogPosition, MySqlPosition

NAME = PipelineName("shop")
ORDERS = TableId("shop", "orders")
SCHEMA = TableSchema(ORDERS, (Column("id", mysql_type("int"), nullable=False),), ("id",))
HERE = MySqlPosition("3e11fa47-71ca-11e1-9e33-c80aa9429562", BinlogPosition(1, 4))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlStateStore]:
    with closing(open_store(f"sqlite:///{tmp_path / 'state.db'}")) as opened:
        opened.take_over(NAME, "test")
        opened.start_plan(NAME, 1, "plan", [TablePlan.alike(SCHEMA, ORDERS, 0)])
        yield opened


def split(number: int, start: int | None, end: int | None) -> SnapshotSplit:
    keys = KeyRange(None if start is None else (start,), None if end is None else (end,))
    return SnapshotSplit(ORDERS, number, ("id",), SCHEMA.key_kinds, keys)


def report_of(split: SnapshotSplit) -> SplitReport:
    return SplitReport(split.split_id, HERE, HERE, 3, 30, SCHEMA.fingerprint, 1)


def table_of(store: SqlStateStore) -> TableState:
    return store.tables(NAME)[0]


def statuses(store: SqlStateStore) -> dict[int, SplitStatus]:
    return {state.split.number: state.status for state in store.splits(NAME)}


def loaded(store: SqlStateStore, *splits: SnapshotSplit) -> SplitAssigner:
    store.add_splits(NAME, 1, splits)
    store.finish_planning(NAME, 1, ORDERS)
    assigner = SplitAssigner(store, NAME, 1)
    assigner.load()
    return assigner


@contextmanager
def served(assigner: SplitAssigner) -> Iterator[AssignerAddress]:
    with AssignerServer(assigner, DriverPlace("127.0.0.1")) as server:
        yield server.address


def test_the_first_port_that_is_free_is_taken_and_none_is_a_named_error(
    store: SqlStateStore,
) -> None:
    assigner = loaded(store)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        first = taken.getsockname()[1]
        place = DriverPlace("127.0.0.1", ports=range(first, first + 9))
        with AssignerServer(assigner, place) as server:
            assert server.address.port in place.ports
            assert server.address.port != first
        one = DriverPlace("127.0.0.1", ports=range(first, first + 1))
        with pytest.raises(AssignerPortError, match=f"port {first}: Address already in use"):
            AssignerServer(assigner, one)


def test_readers_are_told_another_address_than_the_one_listened_at(store: SqlStateStore) -> None:
    place = DriverPlace("localhost", bind="127.0.0.1")
    with (
        AssignerServer(loaded(store), place) as server,
        closing(RemoteAssigner(server.address)) as reader,
    ):
        assert server.address.host == "localhost"
        assert server._listener.getsockname()[0] == "127.0.0.1"
        assert reader.claim() is None


def test_the_first_claim_does_not_wait_for_the_greeting_to_be_acknowledged(
    store: SqlStateStore,
) -> None:
    with (
        served(loaded(store)) as address,
        closing(RemoteAssigner(address)) as reader,
        socket.socket(fileno=os.dup(reader._connection.fileno())) as same,
    ):
        assert same.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_reader_claims_reports_and_is_sent_home(store: SqlStateStore) -> None:
    with served(loaded(store, split(0, None, 5), split(1, 5, None))) as address:
        with closing(RemoteAssigner(address)) as reader:
            read = []
            while (mine := reader.claim()) is not None:
                assert statuses(store)[mine.number] is SplitStatus.READING
                reader.report(report_of(mine))
                reader.report(report_of(mine))
                read.append(mine.number)
        assert read == [1, 0]
    assert set(statuses(store).values()) == {SplitStatus.FINISHED}
    assert table_of(store).rows == 6
    assert table_of(store).phase is TablePhase.READ


def test_a_split_of_a_reader_that_left_is_given_out_again_at_once(store: SqlStateStore) -> None:
    with served(loaded(store, split(0, None, None))) as address:
        first = RemoteAssigner(address)
        assert first.claim() is not None
        with closing(RemoteAssigner(address)) as second:
            claimed: list[SnapshotSplit | None] = []
            waiting = threading.Thread(target=lambda: claimed.append(second.claim()))
            waiting.start()
            time.sleep(0.1)
            left = time.monotonic()
            first.close()
            waiting.join(timeout=3)
            assert claimed == [split(0, None, None)]
            assert time.monotonic() - left < 2
            assert second.attempt == 2
    assert store.splits(NAME)[0].attempt == 2


def test_a_split_that_ends_each_of_its_readers_is_refused_at_last(store: SqlStateStore) -> None:
    assigner = loaded(store, split(0, None, None))
    with served(assigner) as address:
        for _ in range(6):
            with closing(RemoteAssigner(address)) as reader:
                assert reader.claim() is not None
        with closing(RemoteAssigner(address)) as reader:
            assert reader.claim() is None
    assert "failed 6 times" in assigner.queue.failed_tables[ORDERS].what
    assert table_of(store).phase is TablePhase.FAILED


def test_a_cut_split_is_read_as_two_halves_with_numbers_of_their_own(store: SqlStateStore) -> None:
    assigner = loaded(store, split(0, None, None))
    with served(assigner) as address, closing(RemoteAssigner(address)) as reader:
        whole = reader.claim()
        assert whole is not None
        reader.cut(whole, (7,))
        halves = [reader.claim(), reader.claim()]
    assert halves == [split(1, None, 7), split(2, 7, None)]
    assert statuses(store)[0] is SplitStatus.CUT


def test_a_cut_that_was_not_noted_to_its_end_is_completed(store: SqlStateStore) -> None:
    halves = split(3, 5, 7), split(4, 7, None)
    assigner = loaded(store, split(0, None, 5), split(1, 5, None), *halves)
    assert statuses(store)[1] is SplitStatus.CUT
    claims = [assigner.queue.claim(1, wait_s=0) for _ in range(3)]
    assert not any(isinstance(claim, NoClaim) for claim in claims)
    assert isinstance(assigner.queue.claim(1, wait_s=0), NoClaim)


def test_a_newer_owner_ends_the_reader(store: SqlStateStore) -> None:
    assigner = loaded(store, split(0, None, None))
    store.take_over(NAME, "someone else")
    with served(assigner) as address, closing(RemoteAssigner(address)) as reader:  # noqa: SIM117
        with pytest.raises(FencedError):
            reader.claim()
    assert isinstance(assigner.queue.stopped_by, FencedError)


def test_a_reader_without_its_driver_stops(store: SqlStateStore) -> None:
    with served(loaded(store, split(0, None, None))) as address:
        reader = RemoteAssigner(address)
        assert reader.claim() is not None
    with closing(reader), pytest.raises(FencedError, match="driver"):
        reader.claim()


def test_a_stranger_without_the_key_gets_nothing(store: SqlStateStore) -> None:
    with served(loaded(store, split(0, None, None))) as address:
        with pytest.raises(FencedError):
            RemoteAssigner(replace(address, key=b"guess"))
        silent = socket.create_connection((address.host, address.port))
        with closing(silent), closing(RemoteAssigner(address)) as reader:
            assert reader.claim() is not None
    assert str(address.key) not in repr(address)


def test_a_reader_speaks_to_its_own_driver_only(store: SqlStateStore) -> None:
    _, another = own_certificate()
    with served(loaded(store)) as address, pytest.raises(FencedError) as refused:
        RemoteAssigner(replace(address, certificate=another))
    assert isinstance(refused.value.__cause__, ssl.SSLCertVerificationError)


def test_no_key_value_of_a_split_passes_in_plain_text(store: SqlStateStore) -> None:
    planted = "planted-in-a-bound"
    keys = KeyRange((planted,), None)
    assigner = loaded(store, SnapshotSplit(ORDERS, 0, ("id",), SCHEMA.key_kinds, keys))
    with (
        served(assigner) as address,
        overheard(address) as (relay, heard),
        closing(RemoteAssigner(relay)) as reader,
    ):
        claimed = reader.claim()
        assert claimed is not None
        assert claimed.keys == keys
    assert len(heard) > 500
    assert planted.encode() not in heard
    assert address.key not in heard


@contextmanager
def overheard(address: AssignerAddress) -> Iterator[tuple[AssignerAddress, bytearray]]:
    """Pass one connection on, and keep all of its bytes."""
    heard = bytearray()

    def pump(source: socket.socket, target: socket.socket) -> None:
        while part := source.recv(1 << 16):
            heard.extend(part)
            target.sendall(part)
        with suppress(OSError):  # the other side may have left before
            target.shutdown(socket.SHUT_WR)

    def relay() -> None:
        left, _ = listener.accept()
        with left, socket.create_connection((address.host, address.port)) as right:
            back = threading.Thread(target=pump, args=(right, left))
            back.start()
            pump(left, right)
            back.join()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=relay)
        thread.start()
        yield replace(address, port=listener.getsockname()[1]), heard
        thread.join(timeout=10)


# --- planning -------------------------------------------------------------------------------------


class Bounds:
    """Boundaries at 10, 20 and so on, which fail as told."""

    def __init__(self, *failures: int) -> None:
        self.failures = list(failures)
        self.started_at: list[Key | None] = []

    @contextmanager
    def __call__(self, _: TableState) -> Iterator[Boundaries]:
        yield self.find

    def find(self, schema: TableSchema, start: Key | None) -> Iterator[Key]:
        self.started_at.append(start)
        first = 0 if start is None else int(start[0])
        for bound in range(first + 10, 60, 10):
            if bound in self.failures:
                self.failures.remove(bound)
                time.sleep(0.4)  # so that what was found before is stored before
                yield (bound,)
                raise SourceUnreachableError("cut off")
            yield (bound,)


def planned(store: SqlStateStore, bounds: Bounds) -> SplitAssigner:
    assigner = SplitAssigner(store, NAME, 1)
    assigner.load()
    planner = Planner(
        assigner,
        store.tables(NAME),
        bounds,
        stored=lambda table: store.splits(NAME, table.table),
        back_off=BackOff(first_s=0.01),
    )
    with planner:
        while not table_of(store).planning_done:
            time.sleep(0.02)
    return assigner


def ranges(store: SqlStateStore) -> list[tuple[Key | None, Key | None]]:
    return [(state.split.keys.start, state.split.keys.end) for state in store.splits(NAME)]


WHOLE: list[tuple[Key | None, Key | None]] = [
    (None, (10,)),
    *(((n,), (n + 10,)) for n in range(10, 50, 10)),
    ((50,), None),
]


def test_a_plan_covers_the_table_once(store: SqlStateStore) -> None:
    planned(store, Bounds())
    assert ranges(store) == WHOLE


def test_a_plan_goes_on_where_its_connection_was_lost(store: SqlStateStore) -> None:
    bounds = Bounds(30)
    planned(store, bounds)
    assert ranges(store) == WHOLE
    assert len(bounds.started_at) == 2
    assert bounds.started_at[1] is not None


def test_a_plan_of_a_dead_driver_goes_on_behind_its_last_split(store: SqlStateStore) -> None:
    store.add_splits(NAME, 1, [split(0, None, 10), split(1, 10, 20)])
    bounds = Bounds()
    planned(store, bounds)
    assert ranges(store) == WHOLE
    assert bounds.started_at == [(20,)]


def test_the_frontier_lies_behind_cut_splits_too() -> None:
    assert frontier([]) is None
    assert frontier([split(0, None, 10), split(1, 10, 20)]) == (20,)
    assert frontier([split(0, None, 10), split(5, 15, 20), split(4, 10, 15)]) == (20,)
    assert frontier([split(0, None, 10), split(1, 10, None)]) is None


def test_a_state_store_that_is_away_is_waited_for_and_costs_a_split_no_attempt(
    store: SqlStateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = [StateUnreachableError("away") for _ in range(9)]
    mark_split = store.mark_split

    def mark(*arguments: Any, **options: Any) -> None:
        if failing:
            raise failing.pop()
        mark_split(*arguments, **options)

    monkeypatch.setattr(store, "mark_split", mark)
    quick = BackOff(first_s=0.001, longest_s=0.001)
    assigner = SplitAssigner(store, NAME, 1, most_attempts=2, back_off=quick)
    assigner.plan([split(0, None, None)])
    assigner.planned(ORDERS)
    with AssignerServer(assigner, DriverPlace("127.0.0.1")) as server:
        reader = RemoteAssigner(server.address)
        claimed = reader.claim()
        assert claimed is not None
        assert (claimed.number, reader.attempt, failing) == (0, 1, [])
        failing.append(StateUnreachableError("away"))
        reader.report(report_of(claimed))
        assert reader.claim() is None
        reader.close()
    (state,) = store.splits(NAME)
    assert state.status is SplitStatus.FINISHED
    failing.append(StateUnreachableError("away for good"))
    impatient = SplitAssigner(store, NAME, 1, back_off=BackOff(give_up_s=0.0))
    with pytest.raises(StateUnreachableError, match="for good"):
        impatient.refuse(split(0, None, None), IntegrityError("x"))


def test_a_reader_that_the_throttle_holds_up_has_no_split_and_hears_of_the_end(
    store: SqlStateStore,
) -> None:
    assigner = loaded(store, split(0, None, 10), split(1, 10, None))
    assigner.throttle = Throttle(ThrottleLimits(rows_per_second=1), split_rows=1_000)
    first = assigner.claim(1, wait_s=1.0)
    assert isinstance(first, Claim)
    assert assigner.claim(2, wait_s=0.05) is NoClaim.WAIT
    assert sorted(statuses(store).values()) == [SplitStatus.PLANNED, SplitStatus.READING]
    threading.Timer(0.1, assigner.queue.stop).start()
    began_s = time.monotonic()
    assert assigner.claim(2, wait_s=30.0) is NoClaim.END
    assert time.monotonic() - began_s < 5


def test_a_split_that_was_small_lets_the_next_one_through_at_once(store: SqlStateStore) -> None:
    assigner = loaded(store, split(0, None, 10), split(1, 10, None))
    assigner.throttle = Throttle(ThrottleLimits(rows_per_second=100), split_rows=100_000)
    first = assigner.claim(1, wait_s=1.0)
    assert isinstance(first, Claim)
    assigner.report(report_of(first.split), read_rows=10)  # of which the file's filter left 3
    began_s = time.monotonic()
    assert isinstance(assigner.claim(1, wait_s=5.0), Claim)
    assert 0.05 < time.monotonic() - began_s < 3
