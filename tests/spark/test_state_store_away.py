"""A stream whose state store is away goes on from the sink's ledger alone, whatever else fails."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field

import pytest

from airflow_cdc_provider.core.backoff import BackOff
from airflow_cdc_provider.core.errors import FencedError, StateUnreachableError
from airflow_cdc_provider.core.jobspec import JobKind, StreamMode
from airflow_cdc_provider.core.lifecycle import Wanted
from airflow_cdc_provider.engine.in_process import run_in_process
from airflow_cdc_provider.engine.job import Job
from airflow_cdc_provider.engine.job_result import JobResult, Outcome
from airflow_cdc_provider.engine.stream.follow import run_stream
from airflow_cdc_provider.engine.stream.own_follower import OwnFollower
from airflow_cdc_provider.state.store import SqlStateStore, open_store
from airflow_cdc_provider.systems import registry
from tests.servers.given import SqlServer
from tests.servers.patience import wait_until
from tests.servers.proxy import NONE, CuttingProxy, Fault
from tests.spark.conftest import MakePipeline
from tests.spark.pipelines import Pipeline
from tests.spark.stream_jobs import arrived, change
from tests.spark.workload import TABLES, fill

pytestmark = pytest.mark.timeout(300)
QUICK = BackOff(first_s=0.1, longest_s=0.5)
GONE, HANGS = Fault(refuse=True), Fault(hang=True)


def through(server: SqlServer, way: CuttingProxy) -> str:
    """Return a server's DSN, by way of a proxy."""
    return server.dsn().replace(f":{server.port}", f":{way.port}")


@dataclass
class Streams:
    """A pipeline that was handed off, whose source and state store are behind proxies."""

    pipeline: Pipeline
    to_source: CuttingProxy
    to_store: CuttingProxy
    store: SqlStateStore
    """Over the proxy, as the job has it."""
    stop: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def streaming(self) -> Iterator[Future[JobResult]]:
        """Stream without an end; the state store is back and the stream stops at the end."""
        pipeline = self.pipeline
        spec = pipeline.spec(
            JobKind.STREAM, pipeline.take_over(), stream_mode=StreamMode.CONTINUOUS
        )
        made = Job(spec, pipeline.servers(), self.store, registry, self.stop)
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(run_stream, made, OwnFollower, back_off=QUICK)
            try:
                change(pipeline, 1)
                wait_until(lambda: running.done() or arrived(pipeline, 1), seconds=60)
                assert not running.done(), running.result()
                yield running
            finally:
                self.to_store.fault = NONE
                self.to_store.cut()
                pipeline.store.want(pipeline.name, Wanted.STOP)

    def lose(self, way: CuttingProxy, fault: Fault) -> None:
        way.fault = fault
        if fault.refuse:
            way.cut()


@pytest.fixture
def streams(
    make_pipeline: MakePipeline,
    mysql_server: SqlServer,
    mysql_sink: SqlServer,
    fresh_database: Callable[[SqlServer], str],
) -> Iterator[Streams]:
    with ExitStack() as stack:
        to_source = stack.enter_context(CuttingProxy(mysql_server.port))
        to_store = stack.enter_context(CuttingProxy(mysql_sink.port))
        pipeline = make_pipeline(source_dsn=through(mysql_server, to_source))
        state = fresh_database(mysql_sink)
        pipeline.store.close()
        pipeline.store = open_store(f"{mysql_sink.dsn().rstrip('/')}/{state}")
        store = open_store(f"{through(mysql_sink, to_store).rstrip('/')}/{state}")
        stack.enter_context(closing(store))
        fill(pipeline, 100)
        pipeline.plan(TABLES)
        spec = pipeline.spec(JobKind.SNAPSHOT, pipeline.take_over())
        run_in_process(Job(spec, pipeline.servers(), pipeline.store, registry))
        pipeline.hand_off()
        yield Streams(pipeline, to_source, to_store, store)


@pytest.mark.parametrize("how", [GONE, HANGS], ids=["gone", "hangs"])
def test_a_lost_connection_to_the_source_stops_no_stream_without_its_state_store(
    streams: Streams, how: Fault
) -> None:
    pipeline = streams.pipeline
    with streams.streaming() as running:
        streams.lose(streams.to_store, how)
        for number in (2, 3):
            streams.to_source.cut()
            change(pipeline, number)
            wait_until(lambda: arrived(pipeline, number), seconds=20)  # noqa: B023
    assert running.result(timeout=90).outcome is Outcome.STOPPED
    pipeline.assert_equal()


def test_without_its_state_store_a_stream_is_fenced_by_the_ledger_when_it_restarts(
    streams: Streams,
) -> None:
    pipeline = streams.pipeline
    with streams.streaming() as running:
        streams.lose(streams.to_store, GONE)
        generation = pipeline.take_over()
        with closing(pipeline.open(generation).open_ledger()) as ledger:
            ledger.take_over(generation)
        streams.to_source.cut()  # nothing is written that a commit could be refused for
        wait_until(running.done, seconds=20)
    with pytest.raises(FencedError):
        running.result()


def test_a_changed_table_waits_for_the_state_store_and_then_flows_on(
    streams: Streams, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = streams.pipeline
    with streams.streaming() as running:
        streams.lose(streams.to_store, GONE)
        pipeline.source.execute(
            "ALTER TABLE orders ADD COLUMN later INT", database=pipeline.source_database
        )
        pipeline.source.execute(
            "INSERT INTO orders VALUES (1000002, 'new', 1, 7)", database=pipeline.source_database
        )
        wait_until(lambda: "is tried again: CDC-STA-001" in caplog.text, seconds=30)
        assert not running.done()
        streams.lose(streams.to_store, NONE)
        wait_until(lambda: running.done() or arrived(pipeline, 2), seconds=60)
    assert running.result(timeout=90).outcome is Outcome.STOPPED
    pipeline.assert_equal()


def test_a_stream_that_is_signalled_ends_without_its_state_store(streams: Streams) -> None:
    with streams.streaming() as running:
        streams.lose(streams.to_store, GONE)
        streams.stop.set()
        wait_until(running.done, seconds=30)
        with pytest.raises(StateUnreachableError):
            running.result()
