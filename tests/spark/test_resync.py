"""Rows are read again while their tables flow on: a real stream, a real load, both families.

No Spark is needed here, and its master answers nowhere.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

import pytest

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.jobspec import JobKind
from airflow_cdc_provider.core.keys import KeyRange
from airflow_cdc_provider.core.lifecycle import Wanted
from airflow_cdc_provider.core.requests import Request, RequestKind, RequestStatus, Scope
from airflow_cdc_provider.engine.in_process import run_in_process
from airflow_cdc_provider.engine.job import Job
from airflow_cdc_provider.engine.job_result import JobResult, Outcome
from airflow_cdc_provider.systems import registry
from tests.beside import beside
from tests.servers.patience import wait_until
from tests.spark.driver_streams import started, stopped
from tests.spark.pipelines import Pipeline
from tests.spark.resync import asked, is_done
from tests.spark.stream_jobs import change, ended
from tests.spark.test_driver_stream import pipeline
from tests.spark.workload import TABLES, writing

__all__ = ["pipeline"]
NOT_YET = "SELECT 1 FROM parts WHERE t IS NULL LIMIT 1"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def drift(pipeline: Pipeline) -> None:
    """Make the sink wrong: rows that are missing, altered, or should not be there."""
    for statement in (
        "DELETE FROM orders WHERE id % 5 = 0",
        "UPDATE orders SET note = 'wrong' WHERE id % 7 = 0",
        "INSERT INTO orders VALUES (-4, 'extra', 1), (100001, 'extra', 2)",
        "DELETE FROM names WHERE name LIKE '%3'",
        "UPDATE names SET born = '1900-01-01' WHERE name LIKE '%4'",
        "INSERT INTO names VALUES ('AAA extra', NULL), ('zzz extra', NULL)",
        "DELETE FROM parts WHERE n % 3 = 0",
        "INSERT INTO parts VALUES (900, 900, NULL)",
    ):
        pipeline.sink.execute(statement, database=pipeline.sink_database)


def ask(pipeline: Pipeline, *tables: str, keys: KeyRange | None = None) -> str:
    """Ask for a resync; returns its id."""
    scope = Scope(
        tuple(TableId(pipeline.source_database, table) for table in tables),
        () if keys is None else (keys,),
    )
    request = Request(
        pipeline.name,
        uuid.uuid4().hex[:8],
        RequestKind.RESYNC,
        scope,
        "test",
        pipeline.store.now_us(),
    )
    return pipeline.store.ask(request).request_id


def carried_out(pipeline: Pipeline, **settings: object) -> JobResult:
    """Do what is asked where nobody streams, in this process."""
    spec = pipeline.spec(JobKind.STREAM, pipeline.take_over(), **settings)
    job = Job(spec, pipeline.servers(), pipeline.store, registry)
    return run_in_process(job, carries_out=True)


def test_rows_that_had_drifted_are_the_sources_again_under_load(pipeline: Pipeline) -> None:
    drift(pipeline)
    _, process = started(pipeline, request_split_rows=40)
    with ended(pipeline, process):
        with writing(pipeline):
            request = ask(pipeline, *TABLES)
            wait_until(lambda: is_done(pipeline, request))
        assert stopped(pipeline, process)
    pipeline.assert_equal()
    found = asked(pipeline, request)
    assert (found.tables_done, found.splits > 10, found.rows > 800) == (3, True, True)


def test_a_range_of_keys_is_read_again_and_nothing_else(pipeline: Pipeline) -> None:
    pipeline.sink.execute("UPDATE orders SET note = 'wrong'", database=pipeline.sink_database)
    request = ask(pipeline, "orders", keys=KeyRange((100,), (300,)))
    result = carried_out(pipeline, request_split_rows=20)
    assert (result.outcome, is_done(pipeline, request)) == (Outcome.FINISHED, True)
    ours = pipeline.rows(pipeline.source, pipeline.source_database, "orders")
    theirs = pipeline.rows(pipeline.sink, pipeline.sink_database, "orders")
    right = [
        theirs_row[0] for row, theirs_row in zip(ours, theirs, strict=True) if row == theirs_row
    ]
    assert right == [row[0] for row in ours if 100 <= row[0] < 300]


def test_an_owner_that_is_killed_again_and_again_is_followed_by_one_that_goes_on(
    pipeline: Pipeline,
) -> None:
    drift(pipeline)
    request = ask(pipeline, *TABLES)
    seed = random.randrange(1 << 32)
    print(f"seed of the kills: {seed}")
    rng = random.Random(seed)
    with writing(pipeline, every_s=0.02):
        for _ in range(4):
            _, process = started(pipeline, request_split_rows=20)
            with ended(pipeline, process):
                before = asked(pipeline, request).splits
                wait_until(
                    lambda: (
                        asked(pipeline, request).splits != before  # noqa: B023
                        or is_done(pipeline, request)
                    )
                )
                time.sleep(rng.random() / 5)
                process.kill()
    _, process = started(pipeline)
    with ended(pipeline, process):
        wait_until(lambda: is_done(pipeline, request))
        assert stopped(pipeline, process)
    pipeline.assert_equal()


def test_a_cancelled_request_leaves_what_is_joined_and_stops(pipeline: Pipeline) -> None:
    drift(pipeline)
    _, process = started(pipeline, request_split_rows=1)
    with ended(pipeline, process):
        request = ask(pipeline, "orders")
        wait_until(lambda: asked(pipeline, request).splits > 3)
        pipeline.store.cancel_request(pipeline.name, request)
        wait_until(lambda: not asked(pipeline, request).status.is_open)
        change(pipeline, 1)  # so that there is a lag to be told
        assert stopped(pipeline, process)
    found = asked(pipeline, request)
    assert (found.status, 3 < found.splits < 300) == (RequestStatus.CANCELLED, True)
    again = ask(pipeline, *TABLES)
    pipeline.store.want(pipeline.name, Wanted.RUN)
    carried_out(pipeline)
    assert is_done(pipeline, again)
    pipeline.assert_equal()


def test_nobody_sees_an_older_state_of_a_row_while_it_is_read_again(pipeline: Pipeline) -> None:
    with pipeline.source.connect(pipeline.source_database) as connection:
        connection.cursor().execute("UPDATE parts SET t = '2000-01-01 00:00:00.000'")
    _, process = started(pipeline, request_split_rows=30)
    with ended(pipeline, process):
        with growing(pipeline):
            wait_until(lambda: not at_sink(pipeline, NOT_YET))
            read_again(pipeline)
        assert stopped(pipeline, process)


def read_again(pipeline: Pipeline) -> None:
    """Ask for a table three times, and look at the sink meanwhile."""
    with watched(pipeline):
        for _ in range(3):
            request = ask(pipeline, "parts")
            wait_until(lambda: is_done(pipeline, request))  # noqa: B023


def at_sink(pipeline: Pipeline, query: str) -> list[tuple[object, ...]]:
    return list(pipeline.sink.execute(query, database=pipeline.sink_database))


@contextmanager
def growing(pipeline: Pipeline) -> Iterator[None]:
    """Let rows change all the while, each time to a later value."""
    statement = "UPDATE parts SET t = t + INTERVAL 1 SECOND WHERE n %% 10 = %s"
    numbers = count()

    def grow() -> None:
        pipeline.source.execute(statement % (next(numbers) % 10), database=pipeline.source_database)

    with beside(grow, every_s=0.005):
        yield


@contextmanager
def watched(pipeline: Pipeline) -> Iterator[None]:
    """Look at the sink all the while: no row may go back, and none may vanish."""
    seen: dict[tuple[int, int], object] = {}
    gone_back: list[object] = []
    looks = [0]

    def look() -> None:
        looks[0] += 1
        rows = pipeline.sink.execute("SELECT o, n, t FROM parts", database=pipeline.sink_database)
        found = {(row[0], row[1]): row[2] for row in rows}
        gone_back.extend(key for key in seen if key not in found or found[key] < seen[key])
        seen.update(found)

    with beside(look, every_s=0.005):
        yield
    assert looks[0] > 20
    assert not gone_back
