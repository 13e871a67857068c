"""A server that is away while a job begins or ends is waited for, as it is in the middle.

The jobs run in this process, without a Spark. Servers are stopped, or cannot be reached.
"""

from __future__ import annotations

import itertools
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from airflow_cdc_provider.core.backoff import BackOff
from airflow_cdc_provider.core.errors import (
    FencedError,
    SinkUnreachableError,
    SourceUnreachableError,
)
from airflow_cdc_provider.core.identifiers import PipelineName
from airflow_cdc_provider.core.jobspec import JobKind, StreamMode
from airflow_cdc_provider.core.lifecycle import Phase, Wanted
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.records import StreamState
from airflow_cdc_provider.engine.in_process import OwnReader
from airflow_cdc_provider.engine.job import Job
from airflow_cdc_provider.engine.job_result import JobResult, Outcome
from airflow_cdc_provider.engine.snapshot.snapshot_run import run_snapshot
from airflow_cdc_provider.engine.stream.follow import OpenFollower, run_stream
from airflow_cdc_provider.engine.stream.own_follower import OwnFollower
from airflow_cdc_provider.systems import registry
from airflow_cdc_provider.views.health import problems
from airflow_cdc_provider.views.overview import Shown, overview_lines
from airflow_cdc_provider.views.page import list_row
from airflow_cdc_provider.views.progress import progress_line
from airflow_cdc_provider.views.reports import status_lines
from airflow_cdc_provider.views.status import PipelineStatus, status
from tests.servers.given import SqlServer
from tests.servers.patience import wait_until
from tests.servers.proxy import NONE, CuttingProxy, Fault
from tests.servers.throwaway import MySqlServer, ThrowawayServer
from tests.spark.pipelines import Pipeline
from tests.spark.stream_jobs import applied, arrived, change
from tests.spark.workload import TABLES, fill

pytestmark = pytest.mark.timeout(300)
TRIED_AGAIN = "is tried again"
QUICK = BackOff(first_s=0.1, longest_s=0.5)
SLOW = BackOff(first_s=60.0, longest_s=60.0)
NEVER = BackOff(first_s=0.1, give_up_s=0.0)
_numbers = itertools.count()


@pytest.fixture(scope="module")
def source() -> Iterator[ThrowawayServer]:
    """A source that these tests may stop."""
    with MySqlServer() as server:
        yield server


@pytest.fixture(scope="module")
def sink() -> Iterator[ThrowawayServer]:
    """A sink that these tests may stop."""
    with MySqlServer() as server:
        yield server


@dataclass
class Outages:
    """A planned pipeline, and the ways to its servers."""

    pipeline: Pipeline
    ways: dict[str, CuttingProxy]

    @contextmanager
    def away(self, side: str) -> Iterator[None]:
        self.gone(side)
        try:
            yield
        finally:
            self.back(side)

    def gone(self, side: str) -> None:
        self.ways[side].fault = Fault(refuse=True)
        self.ways[side].cut()

    def back(self, side: str) -> None:
        self.ways[side].fault = NONE


def planned(source: SqlServer, sink: SqlServer, folder: Path, **options: Any) -> Pipeline:
    name = f"outage_{next(_numbers)}"
    for server in (source, sink):
        server.execute(f"CREATE DATABASE {name}")
    made = Pipeline(PipelineName(name), source, sink, name, name, folder, **options)
    fill(made, 100)
    made.plan(TABLES)
    return made


@pytest.fixture
def outages(source: ThrowawayServer, sink: ThrowawayServer, tmp_path: Path) -> Iterator[Outages]:
    with CuttingProxy(source.port) as to_source, CuttingProxy(sink.port) as to_sink:
        pipeline = planned(
            source,
            sink,
            tmp_path,
            source_dsn=source.dsn().replace(f":{source.port}", f":{to_source.port}"),
            sink_dsn=sink.dsn().replace(f":{sink.port}", f":{to_sink.port}"),
        )
        yield Outages(pipeline, {"source": to_source, "sink": to_sink})
        pipeline.store.close()


def job(pipeline: Pipeline, kind: JobKind) -> Job:
    spec = pipeline.spec(kind, pipeline.take_over(), stream_mode=StreamMode.BOUNDED)
    return Job(spec, pipeline.servers(), pipeline.store, registry)


def read(pipeline: Pipeline, back_off: BackOff = QUICK) -> JobResult:
    return run_snapshot(job(pipeline, JobKind.SNAPSHOT), OwnReader(), back_off=back_off)


def handed_off(pipeline: Pipeline) -> Pipeline:
    """Bring it to where the stream starts, with one change to bring."""
    read(pipeline)
    pipeline.hand_off()
    change(pipeline, 1)
    return pipeline


def stream(
    pipeline: Pipeline, follower: OpenFollower = OwnFollower, back_off: BackOff = QUICK
) -> JobResult:
    return run_stream(job(pipeline, JobKind.STREAM), follower, back_off=back_off)


def assert_finished(pipeline: Pipeline, running: Future[JobResult]) -> None:
    result = running.result(timeout=60)
    assert (result.outcome, result.changes) == (Outcome.FINISHED, 1)
    assert phase_of(pipeline) is Phase.STOPPED
    pipeline.assert_equal()


def phase_of(pipeline: Pipeline) -> Phase:
    return pipeline.store.ensure(pipeline.name).phase


def under_way(call: Callable[[], JobResult], caplog: pytest.LogCaptureFixture) -> Future[JobResult]:
    """Run a job in a thread; returns when it has failed and waits to try again."""
    caplog.set_level(logging.WARNING)
    pool = ThreadPoolExecutor(1)
    running = pool.submit(call)
    pool.shutdown(wait=False)
    deadline = time.monotonic() + 60
    while TRIED_AGAIN not in caplog.text and not running.done():
        assert time.monotonic() < deadline, "it neither waits nor ends"
        time.sleep(0.05)
    return running


def test_a_stream_waits_for_servers_that_are_down_when_it_starts(
    source: ThrowawayServer,
    sink: ThrowawayServer,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    pipeline = handed_off(planned(source, sink, tmp_path))
    source.stop()
    sink.stop()
    running = under_way(lambda: stream(pipeline), caplog)
    sink.start()
    source.start()
    assert_finished(pipeline, running)
    assert any(TRIED_AGAIN in event.text for event in pipeline.store.events(pipeline.name))
    pipeline.store.close()


@pytest.mark.parametrize("side", ["source", "sink"])
def test_a_stream_waits_for_a_server_that_is_away_when_it_starts(
    outages: Outages, side: str, caplog: pytest.LogCaptureFixture
) -> None:
    handed_off(outages.pipeline)
    with outages.away(side):
        running = under_way(lambda: stream(outages.pipeline), caplog)
    assert_finished(outages.pipeline, running)


def test_a_stream_waits_for_a_mariadb_that_is_away_when_it_starts(
    mariadb_server: SqlServer,
    sink: ThrowawayServer,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with CuttingProxy(mariadb_server.port) as way:
        dsn = mariadb_server.dsn().replace(f":{mariadb_server.port}", f":{way.port}")
        pipeline = handed_off(planned(mariadb_server, sink, tmp_path, source_dsn=dsn))
        outages = Outages(pipeline, {"source": way})
        with outages.away("source"):
            running = under_way(lambda: stream(pipeline), caplog)
        assert_finished(pipeline, running)
        pipeline.store.close()
    mariadb_server.execute(f"DROP DATABASE {pipeline.source_database}")


def sink_lost_at_the_end(outages: Outages) -> OpenFollower:
    """Follow to the bound; then the sink is away."""

    class Lost(OwnFollower):
        def follow(self, start: LogPosition) -> bool:
            is_over = super().follow(start)
            outages.gone("sink")
            return is_over

    return Lost


def test_a_stream_waits_for_a_sink_that_goes_away_at_its_end(
    outages: Outages, caplog: pytest.LogCaptureFixture
) -> None:
    handed_off(outages.pipeline)
    follower = sink_lost_at_the_end(outages)
    running = under_way(lambda: stream(outages.pipeline, follower), caplog)
    outages.back("sink")
    assert_finished(outages.pipeline, running)


@pytest.mark.parametrize("moment", ["start", "end"])
def test_a_stream_that_waits_for_its_sink_stops_when_asked_to(
    outages: Outages, moment: str, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = handed_off(outages.pipeline)
    before = phase_of(pipeline)
    follower: OpenFollower = OwnFollower
    if moment == "end":
        follower = sink_lost_at_the_end(outages)
    else:
        outages.gone("sink")
    running = under_way(lambda: stream(pipeline, follower, SLOW), caplog)
    pipeline.store.want(pipeline.name, Wanted.STOP)
    assert running.result(timeout=30).outcome is Outcome.STOPPED
    assert phase_of(pipeline) is (before if moment == "start" else Phase.STOPPED)


def test_a_stream_that_waits_for_its_sink_stops_when_it_is_signalled(
    outages: Outages, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline, stop = handed_off(outages.pipeline), threading.Event()
    made = replace(job(pipeline, JobKind.STREAM), stop=stop)
    outages.gone("sink")
    running = under_way(lambda: run_stream(made, OwnFollower, back_off=SLOW), caplog)
    stop.set()
    assert running.result(timeout=30).outcome is Outcome.STOPPED


def test_a_job_that_never_connects_ends_with_what_it_met(outages: Outages) -> None:
    with outages.away("sink"), pytest.raises(SinkUnreachableError):
        read(outages.pipeline, NEVER)
    handed_off(outages.pipeline)
    with outages.away("sink"), pytest.raises(SinkUnreachableError):
        stream(outages.pipeline, back_off=NEVER)
    with outages.away("source"), pytest.raises(SourceUnreachableError):
        stream(outages.pipeline, back_off=NEVER)


@pytest.mark.parametrize("side", ["source", "sink"])
def test_a_snapshot_waits_for_a_server_that_is_away_when_it_starts(
    outages: Outages, side: str, caplog: pytest.LogCaptureFixture
) -> None:
    with outages.away(side):
        running = under_way(lambda: read(outages.pipeline), caplog)
    assert running.result(timeout=60).outcome is Outcome.FINISHED
    outages.pipeline.assert_equal()


def test_a_snapshot_that_waits_for_its_sink_stops_when_asked_to(
    outages: Outages, caplog: pytest.LogCaptureFixture
) -> None:
    outages.gone("sink")
    running = under_way(lambda: read(outages.pipeline, SLOW), caplog)
    outages.pipeline.store.want(outages.pipeline.name, Wanted.STOP)
    assert running.result(timeout=30).outcome is Outcome.STOPPED


def waits_for_lock(pipeline: Pipeline) -> bool:
    time.sleep(0.2)  # who asks more often than every 0.1 s always gets the same answer
    waiting = pipeline.sink.execute(
        "SELECT trx_query FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"
    )
    return any(pipeline.sink_database in str(row[0]) for row in waiting)


def test_a_stream_cut_off_by_a_newer_owner_says_so_and_blames_no_server(
    outages: Outages,
) -> None:
    pipeline = handed_off(outages.pipeline)
    made = job(pipeline, JobKind.STREAM)
    continuous = replace(made, spec=replace(made.spec, stream_mode=StreamMode.CONTINUOUS))
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run_stream, continuous, OwnFollower, back_off=QUICK)
        wait_until(lambda: arrived(pipeline, 1))
        with closing(pipeline.sink.connect(pipeline.sink_database, autocommit=False)) as other:
            other.cursor().execute("INSERT INTO orders VALUES (1000002, 'in the way', 1)")
            change(pipeline, 2)
            wait_until(lambda: waits_for_lock(pipeline))
            generation = pipeline.take_over()
            with closing(pipeline.open(generation).open_ledger()) as ledger:
                ledger.take_over(generation)
            other.rollback()
        with pytest.raises(FencedError):
            running.result(timeout=60)
    told = [event.text for event in pipeline.store.events(pipeline.name)]
    assert not [text for text in told if "the server runs" in text]


def seen(pipeline: Pipeline) -> PipelineStatus:
    return status(pipeline.store, pipeline.name, now_us=pipeline.store.now_us())


def row_of(pipeline: Pipeline) -> dict[str, Any]:
    """Return the row of the page's list."""
    now_us = pipeline.store.now_us()
    (found,) = pipeline.store.overviews([pipeline.name], now_us)
    return list_row(str(pipeline.name), found, now_us)


@contextmanager
def streaming(pipeline: Pipeline) -> Iterator[Future[JobResult]]:
    """Stream without an end; at the end it is asked to stop, and has."""
    made = job(pipeline, JobKind.STREAM)
    continuous = replace(made, spec=replace(made.spec, stream_mode=StreamMode.CONTINUOUS))
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run_stream, continuous, OwnFollower, back_off=QUICK)
        try:
            yield running
        finally:
            pipeline.store.want(pipeline.name, Wanted.STOP)
            running.result(timeout=60)


CODES = {"source": "CDC-SRC-001", "sink": "CDC-SNK-001"}


def test_a_stream_that_begins_behind_is_behind_since_the_last_one_was_heard_of(
    outages: Outages,
) -> None:
    pipeline = handed_off(outages.pipeline)
    with streaming(pipeline):
        wait_until(lambda: arrived(pipeline, 1) and seen(pipeline).lag_s == 0)
    last = pipeline.store.stream(pipeline.name)
    assert last is not None
    change(pipeline, 2)
    time.sleep(3)
    with closing(pipeline.sink.connect(pipeline.sink_database, autocommit=False)) as other:
        other.cursor().execute("INSERT INTO orders VALUES (1000002, 'holds the key', 1)")
        pipeline.store.want(pipeline.name, Wanted.RUN)
        with streaming(pipeline):
            told: list[StreamState] = []
            wait_until(lambda: is_told_since(pipeline, last, told))
            for each in told:
                assert (each.lag_us or 0) >= each.heartbeat_us - last.heartbeat_us
            other.rollback()
            wait_until(lambda: arrived(pipeline, 2) and seen(pipeline).lag_s == 0)


def is_told_since(pipeline: Pipeline, last: StreamState, told: list[StreamState]) -> bool:
    """Collect three words of the stream that came after the last one."""
    now = pipeline.store.stream(pipeline.name)
    if now is not None and now.generation > last.generation and now not in told:
        told.append(now)
    return len(told) >= 3


@pytest.mark.parametrize("how", [Fault(refuse=True), Fault(hang=True)], ids=["gone", "hangs"])
@pytest.mark.parametrize("side", ["source", "sink"])
@pytest.mark.sample(2)
def test_an_outage_is_told_as_one_with_a_lag_that_grows_until_it_is_over(
    outages: Outages, side: str, how: Fault
) -> None:
    pipeline, way = handed_off(outages.pipeline), outages.ways[side]
    with streaming(pipeline):
        wait_until(lambda: arrived(pipeline, 1))
        wait_until(lambda: seen(pipeline).lag_s == 0)
        assert (seen(pipeline).outages, row_of(pipeline)["problems"]) == ((), [])
        way.fault = how
        if how.refuse:
            way.cut()
        change(pipeline, 2)
        began = time.monotonic()
        wait_until(lambda: [each.error.code for each in seen(pipeline).outages] == [CODES[side]])
        wait_until(lambda: (seen(pipeline).lag_s or 0) > 6)
        assert time.monotonic() - began < 20
        assert_told(pipeline, CODES[side])
        server = pipeline.source if side == "source" else pipeline.sink
        (outage,) = seen(pipeline).outages
        assert server.host in outage.error.where
        way.fault = NONE
        way.cut()
        wait_until(lambda: arrived(pipeline, 2))
        wait_until(lambda: not seen(pipeline).outages and seen(pipeline).lag_s == 0)
        assert row_of(pipeline)["problems"] == []
    events = [event.text for event in pipeline.store.events(pipeline.name)]
    assert any(text.startswith("over, after ") for text in events), events
    assert not seen(pipeline).outages
    pipeline.assert_equal()


@pytest.mark.parametrize("how", [Fault(refuse=True), Fault(hang=True)], ids=["gone", "hangs"])
@pytest.mark.parametrize("side", ["source", "sink"])
@pytest.mark.sample(2)
def test_an_outage_while_a_snapshot_reads_is_told_until_it_is_over(
    outages: Outages, side: str, how: Fault
) -> None:
    pipeline, way = outages.pipeline, outages.ways[side]
    way.fault = how
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(read, pipeline)
        try:
            wait_until(lambda: CODES[side] in {each.error.code for each in seen(pipeline).outages})
            found, row = seen(pipeline), row_of(pipeline)
        finally:
            way.fault = NONE
            way.cut()
        running.result(timeout=60)
    assert found.summary.endswith(", held up")
    assert row["held_up"]
    assert CODES[side] in {problem.get("code") for problem in row["problems"]}
    assert (seen(pipeline).outages, row_of(pipeline)["problems"]) == ((), [])


@pytest.mark.parametrize("how", ["asked", "signalled"])
def test_a_stream_that_stops_without_its_sink_says_what_was_committed_last(
    outages: Outages, how: str
) -> None:
    pipeline, stop = handed_off(outages.pipeline), threading.Event()
    made = replace(job(pipeline, JobKind.STREAM), stop=stop)
    continuous = replace(made, spec=replace(made.spec, stream_mode=StreamMode.CONTINUOUS))
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run_stream, continuous, OwnFollower, back_off=QUICK)
        for number in (2, 3, 4):
            change(pipeline, number)
            wait_until(partial(arrived, pipeline, number))
        wait_until(lambda: applied(pipeline) == 4)
        outages.gone("sink")
        wait_until(lambda: bool(seen(pipeline).outages))
        stop.set() if how == "signalled" else pipeline.store.want(pipeline.name, Wanted.STOP)
        result = running.result(timeout=60)
    stored = pipeline.store.stream(pipeline.name)
    assert stored is not None
    assert (result.outcome, result.changes) == (Outcome.STOPPED, 4)
    assert result.position == str(stored.position)


def assert_told(pipeline: Pipeline, code: str) -> None:
    """Check what each of those says that people look at."""
    found, row = seen(pipeline), row_of(pipeline)
    assert (found.heartbeat_age_s or 0) < 5
    assert found.summary == "streaming, held up"
    assert code in progress_line(found)
    assert any(code in text for text in problems(found)), problems(found)
    assert any(code in line for line in status_lines(found))
    (outage,) = json.loads(json.dumps(found.to_json()))["outages"]
    assert outage["error"]["code"] == code
    assert (row["held_up"], row["stale"]) == (True, False)
    assert row["lag_s"] > 6
    first = row["problems"][0]
    assert (first["code"], first["level"]) == (code, "error")
    assert "since" in first["what"]
    (shown,) = [line for line in overview_lines([Shown("a", "b", found)]) if "problem" in line]
    assert code in shown
