"""A request's thread that hangs holds no table up, and joins nothing once another goes on."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace

import pytest

from airflow_cdc_provider.columns.source_port import SplitReader
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.lifecycle import TablePhase, Wanted
from airflow_cdc_provider.core.open_connections import OpenConnections
from airflow_cdc_provider.core.requests import Request, RequestStatus
from airflow_cdc_provider.core.table_schema import TableSchema
from airflow_cdc_provider.engine.job import Job, remembered_failure
from airflow_cdc_provider.engine.requests import resync, worker
from airflow_cdc_provider.engine.requests.reads import Read, open_readers
from airflow_cdc_provider.engine.requests.resync import Resync
from airflow_cdc_provider.engine.sink.port import JoinSink
from airflow_cdc_provider.engine.stream.follow import run_stream
from airflow_cdc_provider.engine.stream.own_follower import OwnFollower
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps.pause_tables import pause_tables, resume_tables
from airflow_cdc_provider.pipeline.steps.range_requests import ask_resync, resync_scope
from airflow_cdc_provider.pipeline.steps.small_work import _job
from airflow_cdc_provider.pipeline.steps.start_jobs import _stream_to_do
from tests.pipeline.conftest import Shop
from tests.pipeline.isolated_tables import phases
from tests.pipeline.shop_tables import at_sink, at_source, synced
from tests.pipeline.synced_shops import in_a_thread
from tests.servers.given import SqlServer
from tests.servers.patience import wait_until
from tests.servers.proxy import CuttingProxy, Fault

ROWS = 200
SPLIT_ROWS = 10
SILENCE_S = 30.0
"""No connection notices before that a server hangs."""


def streaming(shop: Shop) -> AbstractContextManager[Run]:
    """Stream in a thread of this process, and carry out requests in small splits."""

    def work(run: Run) -> None:
        spec = replace(_stream_to_do(run, "continuous"), request_split_rows=SPLIT_ROWS)
        job: Job = _job(run, spec, threading.Event())
        with remembered_failure(job):
            run_stream(job, OwnFollower)

    return in_a_thread(shop, work)


def fill(shop: Shop) -> None:
    """Give `orders` rows, and the pipeline another table."""
    shop.at_source("DELETE FROM orders")
    rows = ", ".join(f"({number}, 'v{number}', {number})" for number in range(ROWS))
    shop.at_source(f"INSERT INTO orders VALUES {rows}")
    shop.at_source("CREATE TABLE others (id INT PRIMARY KEY, n INT)")
    shop.at_source("INSERT INTO others VALUES (1, 1)")
    synced(shop)


def ask(shop: Shop, run: Run) -> Request:
    """Ask for all rows of `orders`, which have drifted."""
    shop.sink.execute("UPDATE orders SET note = 'wrong'", database=shop.target)
    return ask_resync(run, resync_scope(run, [f"{shop.database}.orders"]))


def known(run: Run, request: Request) -> Request:
    found = run.store.request(run.name, request.request_id)
    assert found is not None
    return found


def is_done(run: Run, request: Request) -> bool:
    found = known(run, request)
    assert found.status is not RequestStatus.FAILED, found.error
    return found.status is RequestStatus.DONE


@dataclass
class Hang:
    """Holds the first thread that comes to the third split, whatever it is asked."""

    at: int = 2
    hangs: threading.Event = field(default_factory=threading.Event)
    goes_on: threading.Event = field(default_factory=threading.Event)
    is_over: threading.Event = field(default_factory=threading.Event)
    ended: list[str] = field(default_factory=list)
    """What became of the join that hung."""
    others: list[str] = field(default_factory=list)
    """The ranges that others joined as that number."""

    def before(self, read: Read) -> bool:
        """Hang, if it is the first time; tell whether it was."""
        if read.split.number != self.at:
            return False
        if not self.hangs.is_set():
            self.hangs.set()
            assert self.goes_on.wait(60)
            return True
        self.goes_on.set()
        assert self.is_over.wait(60)
        self.others.append(str(read.split.keys))
        return False


@pytest.fixture
def hang(monkeypatch: pytest.MonkeyPatch) -> Hang:
    """The next one goes on with its own join once that of the thread left behind is over."""
    made, join = Hang(), Resync._join

    def joined(self: Resync, sink: JoinSink, schema: TableSchema, read: Read) -> None:
        is_first = made.before(read)
        try:
            join(self, sink, schema, read)
        except Exception as error:
            made.ended += [type(error).__name__] if is_first else []
            raise
        finally:
            if is_first:
                made.is_over.set()

    monkeypatch.setattr(Resync, "_join", joined)
    monkeypatch.setattr(worker, "_LEAVE_WITHIN_S", 0.5)
    return made


class LeftBehind:
    """Whatever the family of the source."""

    @pytest.mark.parametrize("is_shut", [True, False])
    def test_what_another_thread_has_joined_is_not_taken_for_what_this_one_read(
        self, shop: Shop, hang: Hang, monkeypatch: pytest.MonkeyPatch, *, is_shut: bool
    ) -> None:
        """Two threads cut the table otherwise: the numbers of their splits say nothing."""
        if not is_shut:  # it is not at a server that it hangs
            monkeypatch.setattr(OpenConnections, "shut", lambda _: None)
        fill(shop)
        with streaming(shop) as run:
            asked = ask(shop, run)
            assert hang.hangs.wait(60)
            # the key is not dense any more, so the next split is wider
            shop.at_source("DELETE FROM orders WHERE id >= 20 AND id % 10 > 0")
            run.store.want(run.name, Wanted.RESTART)
            wait_until(lambda: is_done(run, asked))
        assert hang.ended == ["SinkUnreachableError" if is_shut else "StateMovedError"]
        assert len(hang.others) == 1
        synced(shop)
        assert at_sink(shop, "orders") == at_source(shop, "orders")

    @pytest.mark.parametrize("moment", ["it connects", "it reads"])
    def test_a_reader_that_hangs_at_the_source_holds_up_no_table(
        self, shop: Shop, monkeypatch: pytest.MonkeyPatch, moment: str
    ) -> None:
        fill(shop)
        others = [TableId(shop.database, "others")]
        with CuttingProxy(shop.source.port) as proxy, streaming(shop) as run:
            through_proxy(proxy, monkeypatch)
            proxy.fault = Fault(hang=True) if moment == "it connects" else Fault(delay_s=0.05)
            asked = ask(shop, run)
            if moment == "it reads":
                wait_until(lambda: known(run, asked).splits > 1)
                proxy.fault = Fault(hang=True)
            wait_until(lambda: proxy.open_connections > 0)
            began = time.monotonic()
            pause_tables(run, others)
            wait_until(lambda: phases(shop)["others"] is TablePhase.PAUSED)
            resume_tables(run, others)
            wait_until(lambda: phases(shop)["others"] is TablePhase.CONSISTENT)
            took_s = time.monotonic() - began
            print(f"paused and resumed within {took_s:.1f} s")
            assert took_s < SILENCE_S, "the reader was waited for"
            assert known(run, asked).status is RequestStatus.READING
            proxy.fault = Fault()
            wait_until(lambda: is_done(run, asked))
        synced(shop)
        assert at_sink(shop, "orders") == at_source(shop, "orders")


def through_proxy(proxy: CuttingProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have what reads rows again go through a proxy; the stream has its own way."""

    def opened(job: Job, schema: TableSchema, numbers: Sequence[int]) -> list[SplitReader]:
        source = replace(job.servers.source, port=proxy.port)
        beside = replace(job, servers=replace(job.servers, source=source))
        return open_readers(beside, schema, numbers)

    monkeypatch.setattr(resync, "open_readers", opened)


class TestFromMySql(LeftBehind):
    pass


class TestFromMariaDb(LeftBehind):
    @pytest.fixture
    def mysql_server(self, mariadb_server: SqlServer) -> SqlServer:
        return mariadb_server
