"""Chosen rows are read again while their tables flow on, and whoever does it may be killed.

No Spark is needed here, and its master answers nowhere.
"""

from __future__ import annotations

import random
import time
import uuid
from decimal import Decimal

import pytest

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.requests import Request, RequestKind, Scope
from airflow_cdc_provider.core.splits import Chosen, Condition, Interval, KeyList
from tests.servers.patience import wait_until
from tests.spark.driver_streams import started, stopped
from tests.spark.pipelines import Pipeline
from tests.spark.resync import asked, is_done
from tests.spark.stream_jobs import ended
from tests.spark.test_driver_stream import pipeline
from tests.spark.workload import writing

__all__ = ["pipeline"]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
AMOUNTS = Interval("amount", Decimal("-1.0000"), Decimal("1000.0000"))
DAYS = Interval("born", "1999-01-01", "2100-01-01")
NOT_FIVE = Condition("MOD(n, 10) <> 5 AND (t IS NULL OR t > '1990-01-01')")


def ask(pipeline: Pipeline, table: str, chosen: Chosen) -> str:
    scope = Scope((TableId(pipeline.source_database, table),), chosen=chosen)
    now, kind = pipeline.store.now_us(), RequestKind.BACKFILL
    request = Request(pipeline.name, uuid.uuid4().hex[:8], kind, scope, "test", now)
    return pipeline.store.ask(request).request_id


def drift(pipeline: Pipeline) -> None:
    """Make the sink wrong where each row is in the interval on one side at least."""
    for statement in (
        "DELETE FROM orders WHERE id % 5 = 0",
        "UPDATE orders SET note = 'wrong' WHERE id % 7 = 0",
        "UPDATE orders SET amount = 2000 WHERE id % 7 = 1",
        "INSERT INTO orders VALUES (-4, 'extra', 1), (100001, 'extra', 2)",
        "DELETE FROM names WHERE name LIKE '%3'",
        "UPDATE names SET born = '1900-01-01' WHERE name LIKE '%4'",
        "INSERT INTO names VALUES ('AAA extra', '2000-01-01'), ('zzz extra', '2000-01-01')",
        "DELETE FROM parts WHERE n % 10 = 3",
        "UPDATE parts SET t = '1980-01-01' WHERE n % 10 = 6",
        "INSERT INTO parts VALUES (900, 901, NULL), (901, 1, '2026-01-01')",
    ):
        pipeline.sink.execute(statement, database=pipeline.sink_database)


def test_chosen_rows_are_the_sources_again_under_load_whoever_was_killed(
    pipeline: Pipeline,
) -> None:
    # an index finds the days, and none the amounts
    pipeline.source.execute("CREATE INDEX d ON names (born)", database=pipeline.source_database)
    drift(pipeline)
    requests = [
        ask(pipeline, "orders", AMOUNTS),
        ask(pipeline, "names", DAYS),
        ask(pipeline, "parts", NOT_FIVE),
    ]
    seed = random.randrange(1 << 32)
    print(f"seed of the kills: {seed}")
    rng = random.Random(seed)

    def splits() -> int:
        return sum(asked(pipeline, each).splits for each in requests)

    def all_done() -> bool:
        return all(is_done(pipeline, each) for each in requests)

    with writing(pipeline, every_s=0.02):
        for _ in range(3):
            _, process = started(pipeline, request_split_rows=20)
            with ended(pipeline, process):
                before = splits()
                wait_until(lambda: splits() > before or all_done())  # noqa: B023
                time.sleep(rng.random() / 5)
                process.kill()
    _, process = started(pipeline, request_split_rows=20)
    with ended(pipeline, process):
        wait_until(all_done)
        assert stopped(pipeline, process)
    pipeline.assert_equal()
    assert all(asked(pipeline, each).splits > 5 for each in requests)


def test_listed_rows_are_the_sources_again_under_load_whoever_was_killed(
    pipeline: Pipeline,
) -> None:
    drift(pipeline)
    names = [(f"Name {number}",) for number in range(4_001) if number % 10 in {3, 4}]
    listed = KeyList(("name",), (*names, ("AAA extra",), ("zzz extra",)))
    pairs = [(o, n) for o in range(1, 6) for n in range(1_000) if n % 10 in {3, 6}]
    several = KeyList(("o", "n"), (*pairs, (900, 901), (901, 1)))
    requests = [
        ask(pipeline, "orders", Interval("id", -10, 200_000)),
        ask(pipeline, "names", listed),
        ask(pipeline, "parts", several),
    ]

    def all_done() -> bool:
        return all(is_done(pipeline, each) for each in requests)

    with writing(pipeline, every_s=0.02):
        for _ in range(2):
            _, process = started(pipeline, request_split_rows=20)
            with ended(pipeline, process):
                wait_until(lambda: asked(pipeline, requests[0]).splits > 0 or all_done())
                process.kill()
    _, process = started(pipeline)
    with ended(pipeline, process):
        with writing(pipeline, every_s=0.02):
            wait_until(all_done)
        assert stopped(pipeline, process)
    pipeline.assert_equal()
