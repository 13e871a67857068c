"""`spark.read` and `spark.readStream` of the tables of a lake, on a real Spark."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from airflow_cdc_provider.spark.change_source import ChangesReader
from airflow_cdc_provider.spark.change_stream import change_stream
from airflow_cdc_provider.spark.reading import register
from airflow_cdc_provider.systems.changelog.reads.options import ReadOptions
from airflow_cdc_provider.systems.lake import compacting
from tests.behaviours.sink_world import delete, insert, update, worlds
from tests.servers.s3 import S3Server
from tests.systems.changelog.reads.made_logs import way_in
from tests.systems.lake.reads.made_lakes import ORDERS, MadeLake, in_order
from tests.systems.lake.steps import again_by
from tests.systems.lake.world import FORMATS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.timeout(300)]
Load = Callable[..., "DataFrame"]


@pytest.fixture(params=FORMATS)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MadeLake]:
    yield from worlds(MadeLake(root=tmp_path / "lake", form=request.param))


@pytest.fixture
def load(spark: SparkSession) -> Load:
    """Read a table of a lake with options."""
    register(spark)

    def loaded(root: Path | str, table: str = ORDERS, **options: Any) -> DataFrame:
        return spark.read.format("cdc").options(table=table, **options).load(str(root))

    return loaded


def rows(found: DataFrame) -> list[dict[str, Any]]:
    return in_order(found.toArrow().to_pylist())


class Stream:
    """A query over a lake's table that notes each micro-batch's rows."""

    def __init__(self, spark: SparkSession, lake: MadeLake, checkpoint: Path) -> None:
        register(spark)
        self._spark, self._lake, self._checkpoint = spark, lake, checkpoint
        self.batches: list[list[dict[str, Any]]] = []

    @property
    def rows(self) -> list[dict[str, Any]]:
        """All rows of all micro-batches, as they came."""
        return [row for batch in self.batches for row in batch]

    def run(self, **options: Any) -> list[list[dict[str, Any]]]:
        """Read what is there, and return the micro-batches of this run."""
        first, named = len(self.batches), {"truncates": "rows", **options}
        reader = self._spark.readStream.format("cdc").options(table=ORDERS, **named)
        writer = reader.load(self._lake.place.path).writeStream.trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(self._checkpoint))
        writer.foreachBatch(self._note).start().awaitTermination(60)
        return self.batches[first:]

    def _note(self, batch: DataFrame, number: int) -> None:
        self.batches.append(rows(batch))


@pytest.fixture
def stream(spark: SparkSession, lake: MadeLake, tmp_path: Path) -> Stream:
    return Stream(spark, lake, tmp_path / "checkpoint")


def test_a_read_has_all_rows_of_the_table_or_those_of_a_range(lake: MadeLake, load: Load) -> None:
    lake.begin((1, "a"), (12, "b"))
    lake.commit([update((1, "a"), (1, "A"))], [insert(3, None), delete(12, "b")])
    assert rows(load(lake.root)) == lake.expected()
    some = load(lake.root, startingVersion=1, endingVersion=1, columns="name")
    assert dict(some.dtypes) == {
        "name": "string",
        "_change_type": "string",
        "_commit_version": "bigint",
        "_commit_timestamp": "timestamp",
        "_commit_position": "string",
        "_commit_order": "bigint",
    }
    assert [(row.name, row["_commit_version"]) for row in some.collect()] == [(None, 1)]
    assert load(lake.root).where("_change_type = 'insert'").select("id").count() == 3
    assert load(lake.root, startingVersion="latest").count() == 0


@pytest.mark.parametrize("lake", ["iceberg"], indirect=True)
def test_a_stream_reads_each_row_once_over_restarts_and_whatever_becomes_of_the_table(
    lake: MadeLake, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.begin((1, "a"), (12, "b"))
    stream.run()
    lake.commit([insert(3, "c")], [update((12, "b"), (12, "B"))])
    stream.run()
    lake.resync((12, "other"), (14, "new"))
    lake.truncate()
    stream.run()
    monkeypatch.setattr(compacting, "_MOST", 2)
    lake.begin_again((2, "b"), (13, "m"))
    lake.commit([insert(5, "e")], table="orders")
    stream.run()
    assert stream.rows == lake.expected()
    assert stream.run() == []
    assert len(stream.batches) == 4


@pytest.mark.parametrize("lake", ["delta"], indirect=True)
def test_a_micro_batch_that_is_repeated_behind_a_compaction_has_the_same_rows(
    lake: MadeLake, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.begin((1, "a"))
    for key in range(10, 13):
        lake.commit([insert(key, "x")])
    failed: list[list[dict[str, Any]]] = []
    note = Stream._note

    def fails(self: Stream, batch: DataFrame, number: int) -> None:
        failed.append(rows(batch))
        raise ValueError("the target is away")

    monkeypatch.setattr(Stream, "_note", fails)
    with pytest.raises(PySparkException, match="the target is away"):
        stream.run()
    monkeypatch.setattr(Stream, "_note", note)
    monkeypatch.setattr(compacting, "_MOST", 2)
    lake.commit([insert(20, "y")])
    assert len(lake.reading()._now().files) == 1
    first, second = stream.run()
    assert [first] == failed
    assert [row["id"] for row in second] == [20]


@pytest.mark.parametrize("lake", ["delta"], indirect=True)
def test_a_micro_batch_has_at_most_so_many_files(lake: MadeLake, stream: Stream) -> None:
    lake.begin((1, "a"), (2, "b"))
    for key in range(10, 15):
        lake.commit([insert(key, "x")])
    found = stream.run(maxFilesPerTrigger=2)
    assert [[row["id"] for row in batch] for batch in found] == [[1, 2, 10], [11, 12], [13, 14]]


@pytest.mark.parametrize("lake", ["delta"], indirect=True)
def test_a_table_that_another_log_has_ends_the_query(lake: MadeLake, stream: Stream) -> None:
    lake.begin((1, "a"))
    stream.run()
    again_by(lake, 2, (5, "e"))
    lake.under(2).publish_tables()
    with pytest.raises(PySparkException, match="not there any more: it was begun anew"):
        stream.run()
    assert [row["id"] for row in stream.rows] == [1]


def test_executors_are_not_told_how_to_get_into_a_catalog() -> None:
    dsn = "postgresql://lake:secret-word@db.example/lake"
    given = {"path": "/data/lake", "table": ORDERS, "catalogType": "sql", "catalogDsn": dsn}
    options = ReadOptions.parse(given)
    for reader in (ChangesReader(options, StructType()), change_stream(options, StructType())):
        assert b"secret-word" not in pickle.dumps(reader)


def test_a_mirror_is_refused(tmp_path: Path, load: Load) -> None:
    for world in worlds(MadeLake(root=tmp_path / "lake", form="delta", mirror_mb=512)):
        world.begin((1, "a"))
        with pytest.raises(PySparkException, match=r"hold the current rows \(mode: mirror\)"):
            load(world.root)


def test_a_lake_in_a_bucket_is_read(s3_server: S3Server, load: Load, tmp_path: Path) -> None:
    bucket = s3_server.folder(s3_server.fresh_bucket(), form="delta")
    made = MadeLake(root=tmp_path / "lake", form="delta", bucket=bucket)
    for lake in worlds(made):
        lake.begin((1, "a"))
        lake.commit([update((1, "a"), (1, "A"))])
        options = way_in(s3_server)
        assert [row["name"] for row in rows(load(bucket.path, **options))] == ["a", "A"]
