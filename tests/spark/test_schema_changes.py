"""Definitions change while a real stream flows under a real load, and is killed: nothing is lost.

No Spark is needed here, and its master answers nowhere.
"""

from __future__ import annotations

import random
import time

import pytest

from airflow_cdc_provider.core.requests import RequestStatus
from tests.servers.patience import wait_until
from tests.spark.driver_streams import started, stopped
from tests.spark.pipelines import Pipeline
from tests.spark.stream_jobs import ended, lag_of
from tests.spark.test_driver_stream import pipeline
from tests.spark.workload import TABLES, writing

__all__ = ["pipeline"]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
STEPS = (
    ("ALTER TABLE orders ADD COLUMN more INT NOT NULL DEFAULT 5",),
    ("ALTER TABLE orders MODIFY note VARCHAR(80), MODIFY amount DECIMAL(24,6)",),
    ("ALTER TABLE names ADD COLUMN at DATETIME(6) DEFAULT CURRENT_TIMESTAMP(6)",),
    ("TRUNCATE TABLE parts", "DROP TABLE spare"),
    ("ALTER TABLE parts ADD COLUMN one INT", "ALTER TABLE parts ADD COLUMN two INT DEFAULT 2"),
    ("ALTER TABLE orders MODIFY amount DOUBLE",),
    ("ALTER TABLE names RENAME COLUMN at TO seen", "TRUNCATE TABLE names"),
    (
        "CREATE TABLE parts_new LIKE parts",
        "ALTER TABLE parts_new ADD COLUMN three INT DEFAULT 3, ADD KEY (t)",
        "INSERT INTO parts_new SELECT *, 4 FROM parts",
        "RENAME TABLE parts TO parts_old, parts_new TO parts",
    ),
)


def test_tables_change_under_load_and_the_driver_is_killed_in_the_middle(
    pipeline: Pipeline,
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed of the kills: {seed}")
    rng = random.Random(seed)
    steps = list(STEPS)
    with writing(pipeline, every_s=0.01):
        while steps:
            _, process = started(pipeline, request_split_rows=100)
            with ended(pipeline, process):
                for _ in range(rng.randrange(1, 4)):
                    for statement in steps.pop(0) if steps else ():
                        pipeline.source.execute(statement, database=pipeline.source_database)
                    time.sleep(rng.random())
                process.kill()
    _, process = started(pipeline)
    with ended(pipeline, process):
        wait_until(lambda: lag_of(pipeline) == 0)  # then all changes of definitions are met
        wait_until(lambda: not pipeline.store.requests(pipeline.name, only_open=True))
        assert stopped(pipeline, process)
    for table in TABLES:
        assert_same_rows(pipeline, table)
    assert {state.table.table for state in pipeline.store.tables(pipeline.name)} == {*TABLES}
    rows = "SELECT COUNT(*) FROM spare"  # they stay
    assert pipeline.sink.execute(rows, database=pipeline.sink_database) == [(300,)]
    requests = pipeline.store.requests(pipeline.name)
    assert {request.status for request in requests} <= {
        RequestStatus.DONE,
        RequestStatus.CANCELLED,  # the table was changed once more
    }


def assert_same_rows(pipeline: Pipeline, table: str) -> None:
    """The sink holds the source's rows, in all columns that the source has."""
    columns = pipeline.source.execute(
        f"SHOW COLUMNS FROM {table}", database=pipeline.source_database
    )
    query = f"SELECT {', '.join(f'`{row[0]}`' for row in columns)} FROM {table} ORDER BY 1, 2"
    ours = pipeline.source.execute(query, database=pipeline.source_database)
    theirs = pipeline.sink.execute(query, database=pipeline.sink_database)
    missing, extra = set(ours) - set(theirs), set(theirs) - set(ours)
    assert ours == theirs, f"{table}: missing {sorted(missing)[:3]}, extra {sorted(extra)[:3]}"
