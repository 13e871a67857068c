"""The examples of the pages about reading, run as they are written there."""

from __future__ import annotations

import datetime as dt
import sqlite3
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_cdc_provider.spark.reading import register
from tests.behaviours.sink_world import delete, insert, update, worlds
from tests.docs.pages import DOCS, blocks
from tests.systems.changelog.reads.made_logs import MadeLog
from tests.systems.lake.reads.made_lakes import MadeLake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.timeout(300)]
LEFT = [(3, "C"), (5, "e"), (7, "g")]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The folder that the examples call `/data`, with a log of `shop.orders` and `shop.seats`."""
    log = MadeLog(root=tmp_path / "changes")
    log.begin_both(orders=[(1, "a"), (2, "b")], seats=[(3, 30)])
    log.commit([update((1, "a"), (1, "A")), insert(3, "never seen again")])
    log.truncate()
    log.commit([insert(3, "c"), insert(4, "d")], [update((3, "c"), (3, "C")), delete(4, "d")])
    log.commit([insert(5, "e"), insert(6, "f")], [update((6, "f"), (7, "g"))])
    log.commit([insert(5, 50)], table="seats")
    return tmp_path


def run(page: str, wanted: str, data: Path, names: dict[str, Any]) -> None:
    """Run the example of a page that has these words, and what it began, to its end."""
    (code,) = (block for block in blocks(DOCS / page, "python") if wanted in block)
    exec(compile(code.replace("/data", str(data)), page, "exec"), names)
    for query in names["spark"].streams.active:
        query.awaitTermination(60)


def test_the_table_as_it_is_now_and_a_copy_that_follows_it(spark: SparkSession, data: Path) -> None:
    names: dict[str, Any] = {"spark": spark}
    for example in ("register(spark)", "def current_rows", "def upsert"):
        run("reading.md", example, data, names)
    reader = spark.read.format("cdc").options(table="shop.orders", truncates="rows")
    changes = reader.load(str(data / "changes")).cache()
    assert sorted(map(tuple, names["current_rows"](changes, "id").collect())) == LEFT
    upto = names["current_rows"](changes.where("_commit_version <= 7"), "id").collect()
    assert sorted(map(tuple, upto)) == [(1, "A"), (2, "b"), (3, "never seen again")]
    names["upsert"](changes, 0)  # as after a crash of Spark: it is there already
    with sqlite3.connect(data / "orders.db") as db:
        assert db.execute("SELECT * FROM orders ORDER BY id").fetchall() == LEFT
        assert db.execute("SELECT number FROM batches").fetchall() == [(0,)]


def test_a_lake_is_read_and_copied_by_what_is_written_for_change_logs(
    spark: SparkSession, tmp_path: Path
) -> None:
    names: dict[str, Any] = {"spark": spark}
    for lake in worlds(MadeLake(root=tmp_path / "lake", form="delta")):
        lake.begin((1, "a"), (2, "b"))
        run("reading_lakes.md", "register(spark)", tmp_path, names)
        assert sorted(row.id for row in names["orders"].collect()) == [1, 2]
        assert names["stream"].isStreaming
        lake.commit([update((1, "a"), (1, "A")), insert(3, "gone")])
        lake.truncate()
        lake.commit([insert(3, "c"), insert(5, "e")], [delete(5, "e"), insert(7, "g")])
        reader = spark.read.format("cdc").options(table="shop.orders", truncates="rows")
        changes = reader.load(str(lake.root))
        run("reading.md", "def current_rows", tmp_path, names)
        found = names["current_rows"](changes, "id").collect()
        assert sorted(map(tuple, found)) == [(3, "c"), (7, "g")]


def test_two_streams_are_joined(spark: SparkSession, tmp_path: Path) -> None:
    log = MadeLog(root=tmp_path / "changes")
    log.begin_both(orders=[(3, "c")], seats=[(3, 30)])
    log.commit([insert(5, "e")])
    log.commit([insert(5, 50)], table="seats")
    register(spark)
    names: dict[str, Any] = {"spark": spark}
    run("reading_jobs.md", "def inserted", tmp_path, names)
    writer = names["booked"].writeStream.format("memory").queryName("booked")
    writer = writer.option("checkpointLocation", str(tmp_path / "joined"))
    writer.trigger(availableNow=True).start().awaitTermination(60)
    found = spark.table("booked").orderBy("id").collect()
    assert [tuple(row) for row in found] == [(3, "c", 30), (5, "e", 50)]


def test_the_jobs_of_the_dags_read_what_is_new_and_what_an_interval_holds(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = MadeLog(root=tmp_path / "changes")
    log.begin((1, "a"), (2, "b"))
    log.commit([insert(3, "c")])
    run("reading_jobs.md", "# /jobs/follow.py", tmp_path, {"spark": spark})
    assert spark.read.parquet(str(tmp_path / "orders")).count() == 3
    now = dt.datetime.now(dt.UTC)
    monkeypatch.setattr(sys, "argv", ["interval.py", str(now - dt.timedelta(hours=1)), str(now)])
    run("reading_jobs.md", "# /jobs/interval.py", tmp_path, {"spark": spark})
    assert spark.read.parquet(str(tmp_path / "orders_by_hour")).count() == 3
