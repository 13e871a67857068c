"""One outage is over once, in whatever rhythm its server goes away and comes back.

Real servers are killed, held up and started again, while rows are written at the source all along.
"""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pymysql
import pytest

from airflow_cdc_provider.core.backoff import BackOff
from airflow_cdc_provider.core.jobspec import JobKind, StreamMode
from airflow_cdc_provider.core.lifecycle import Wanted
from airflow_cdc_provider.engine.stream.follow import run_stream
from airflow_cdc_provider.engine.stream.own_follower import OwnFollower
from tests.servers.patience import wait_until
from tests.servers.throwaway import ThrowawayServer
from tests.spark.pipelines import Pipeline
from tests.spark.stream_jobs import arrived, change
from tests.spark.test_outages import handed_off, job, planned, seen
from tests.spark.test_outages import sink as sink
from tests.spark.test_outages import source as source

pytestmark = pytest.mark.timeout(300)
SIMPLE = pytest.mark.skipif(
    not os.environ.get("CDC_SOAK_SEEDS"), reason="`make soak` takes these, too"
)
SLOW = BackOff(first_s=6.0, longest_s=6.0)
"""A stream that waits longer than a look takes, as one does after some tries."""
Rhythm = Callable[[ThrowawayServer], None]


def killed(server: ThrowawayServer) -> None:
    server.kill()
    time.sleep(4.0)
    server.start()


def held_up(server: ThrowawayServer) -> None:
    os.kill(server.pid, signal.SIGSTOP)
    time.sleep(9.0)
    os.kill(server.pid, signal.SIGCONT)


def held_up_then_killed(server: ThrowawayServer) -> None:
    os.kill(server.pid, signal.SIGSTOP)
    time.sleep(8.0)
    server.kill()
    time.sleep(3.0)
    server.start()


def killed_then_held_up(server: ThrowawayServer) -> None:
    killed(server)
    time.sleep(1.0)  # a look finds it there, and the stream still waits
    held_up(server)


@contextmanager
def writing(pipeline: Pipeline) -> Iterator[Callable[[], int]]:
    """Insert rows one after the other; yields what tells the number of the last one."""
    numbers, over = itertools.count(2), threading.Event()
    last = 1

    def write() -> None:
        nonlocal last
        while not over.wait(0.1):
            with suppress(pymysql.Error, OSError):  # the source may be the one that is away
                number = next(numbers)
                change(pipeline, number)
                last = number

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield lambda: last
    finally:
        over.set()
        thread.join()


@contextmanager
def streaming(pipeline: Pipeline) -> Iterator[None]:
    made = job(pipeline, JobKind.STREAM)
    continuous = replace(made, spec=replace(made.spec, stream_mode=StreamMode.CONTINUOUS))
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run_stream, continuous, OwnFollower, back_off=SLOW)
        try:
            yield
        finally:
            pipeline.store.want(pipeline.name, Wanted.STOP)
            running.result(timeout=60)


def ends(pipeline: Pipeline) -> list[str]:
    """Return what was said of the ends of outages."""
    texts = [event.text for event in pipeline.store.events(pipeline.name)]
    return [text for text in texts if text.startswith("over, after ")]


@pytest.mark.parametrize(
    "rhythm",
    [
        pytest.param(killed, marks=SIMPLE),
        pytest.param(held_up, marks=SIMPLE),
        pytest.param(held_up_then_killed, marks=SIMPLE),
        killed_then_held_up,
    ],
)
@pytest.mark.parametrize("side", ["sink", "source"])
@pytest.mark.sample(3)
def test_one_outage_is_over_once(
    source: ThrowawayServer, sink: ThrowawayServer, tmp_path: Path, side: str, rhythm: Rhythm
) -> None:
    pipeline = handed_off(planned(source, sink, tmp_path))
    server = {"source": source, "sink": sink}[side]
    with streaming(pipeline):
        wait_until(lambda: arrived(pipeline, 1))
        with writing(pipeline) as last:
            wait_until(lambda: arrived(pipeline, 5))
            rhythm(server)
            wait_until(lambda: bool(ends(pipeline)), every_s=0.2)
            assert not seen(pipeline).outages
            written = last() + 10  # what is written after it is said to be over, arrives
            wait_until(lambda: last() >= written and arrived(pipeline, written), seconds=20)
            time.sleep(8.0)  # longer than the stream waits between two tries
        assert len(ends(pipeline)) == 1, ends(pipeline)
    pipeline.assert_equal()
    pipeline.store.close()
