"""`spark.read` and `spark.readStream` of a change log, on a real Spark."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from airflow_cdc_provider.spark.reading import register
from tests.behaviours.sink_world import delete, insert, update
from tests.servers.given import SqlServer
from tests.servers.s3 import S3Server
from tests.systems.changelog.reads.made_logs import ORDERS, MadeLog, commits_of, exact_rows, way_in
from tests.systems.changelog.reads.typed_logs import TypedLog, as_spark_has_it
from tests.systems.mysql.wire.selected_rows import differences, fill_every_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = [pytest.mark.timeout(300)]
Load = Callable[..., "DataFrame"]
TYPES = {
    "c_tinyint": "tinyint",
    "c_tinyint_u": "smallint",
    "c_int_u": "bigint",
    "c_bigint": "bigint",
    "c_bigint_u": "decimal(20,0)",
    "c_bit1": "boolean",
    "c_bit64": "binary",
    "c_year": "int",
    "c_float": "float",
    "c_double": "double",
    "c_decimal": "decimal(15,2)",
    "c_decimal_65": "string",
    "c_date": "date",
    "c_datetime6": "timestamp_ntz",
    "c_timestamp6": "timestamp",
    "c_time6": "bigint",
    "c_char": "string",
    "c_enum": "string",
    "c_json": "string",
    "c_binary": "binary",
    "c_geometry": "struct<wkb:binary,srid:int>",
}


def test_workers_of_a_local_session_run_this_python_unless_another_one_is_named(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    for named, run in (("python3", sys.executable), ("/opt/python", "/opt/python")):
        monkeypatch.setattr(spark.sparkContext, "pythonExec", named)
        register(spark)
        assert spark.sparkContext.pythonExec == run


@pytest.fixture
def load(spark: SparkSession) -> Load:
    """Read a table of a log with options."""
    register(spark)

    def loaded(root: Path | str, table: str = ORDERS, **options: Any) -> DataFrame:
        return spark.read.format("cdc").options(table=table, **options).load(str(root))

    return loaded


@pytest.fixture
def log(tmp_path: Path) -> MadeLog:
    log = MadeLog(root=tmp_path / "log")
    log.begin((1, "a"), (2, None))
    log.commit([update((1, "a"), (1, "A"))], [insert(3, "c")])
    log.commit([delete(2, None)])
    return log


@pytest.mark.parametrize("kind", ["mysql", "mariadb"])
def test_rows_and_types_are_what_select_gives_for_every_type(
    kind: str, request: pytest.FixtureRequest, fresh_database: Any, tmp_path: Path, load: Load
) -> None:
    server: SqlServer = request.getfixturevalue(f"{kind}_server")
    table = fill_every_type(server, fresh_database(server), kind)
    log = TypedLog(server, table, tmp_path / "log")
    selected = [as_spark_has_it(row, log.schema) for row in log.selected().to_pylist()]
    server.execute(f"UPDATE {table} SET id = id + 1000")
    server.execute(f"DELETE FROM {table} WHERE id >= 1000")
    log.follow()
    found = load(log.root, str(table))
    assert dict(found.dtypes).items() >= TYPES.items()
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in found.orderBy("_commit_version", "id", "_commit_order").toArrow().to_pylist():
        own = {name: value for name, value in row.items() if not name.startswith("_")}
        rows.setdefault(row["_change_type"], []).append(own)
    count = len(selected)
    moved = [{**row, "id": row["id"] + 1000} for row in selected]
    assert differences(rows["insert"][:count], selected) == []
    assert differences(sorted(rows["insert"][count:], key=lambda row: row["id"]), moved) == []
    gone = sorted(rows["delete"], key=lambda row: row["id"])
    assert differences(gone, [*selected, *moved]) == []


def test_a_range_is_read_and_only_the_wanted_columns(log: MadeLog, load: Load) -> None:
    versions = [each.version for each in commits_of(log.root).files]
    found = load(log.root, startingVersion=versions[1], endingVersion=versions[1], columns="name")
    assert found.columns == [
        "name",
        "_change_type",
        "_commit_version",
        "_commit_timestamp",
        "_commit_position",
        "_commit_order",
    ]
    types = ["update_preimage", "update_postimage", "insert"]
    assert [(row.name, row["_change_type"]) for row in found.collect()] == list(
        zip(["a", "A", "c"], types, strict=True)
    )


def test_a_range_without_changes_has_no_rows_and_the_columns(log: MadeLog, load: Load) -> None:
    found = load(log.root, startingVersion="latest")
    assert {"id", "name", "_commit_version"} <= {*found.columns}
    assert found.count() == 0
    assert found.collect() == []
    assert found.toArrow().num_rows == 0


def test_an_error_says_what_to_do(log: MadeLog, load: Load, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match="no option 'endingversions'; did you mean"):
        load(log.root, endingVersions=3)
    with pytest.raises(PySparkException, match=r"nothing was written of shop\.seats yet"):
        load(log.root, "shop.seats")
    log.truncate()
    with pytest.raises(PySparkException, match="emptied by TRUNCATE in version"):
        load(log.root).collect()


def test_other_types_than_the_log_s_are_refused(
    log: MadeLog, load: Load, spark: SparkSession
) -> None:
    reader = spark.read.format("cdc").option("table", ORDERS)
    assert reader.schema("name string, id int").load(str(log.root)).count() == 6
    with pytest.raises(PySparkException, match="column id is int in the log, and bigint here"):
        reader.schema("id bigint").load(str(log.root)).collect()


class Stream:
    """A query over a log that notes each micro-batch's rows."""

    def __init__(self, spark: SparkSession, log: MadeLog, checkpoint: Path) -> None:
        self._spark, self._log, self._checkpoint = spark, log, checkpoint
        self.batches: list[list[tuple[Any, ...]]] = []

    def start(self, *, available_now: bool = True, **options: Any) -> StreamingQuery:
        reader = self._spark.readStream.format("cdc").options(table=ORDERS, **options)
        changes = reader.load(self._log.place.path)
        writer = changes.writeStream.option("checkpointLocation", str(self._checkpoint))
        if available_now:
            writer = writer.trigger(availableNow=True)
        return writer.foreachBatch(self._note).start()

    def run(self, **options: Any) -> list[list[tuple[Any, ...]]]:
        """Read what is there, and return the micro-batches of this run."""
        first = len(self.batches)
        query = self.start(**options)
        query.awaitTermination(60)
        return self.batches[first:]

    def _note(self, batch: DataFrame, number: int) -> None:
        wanted = ("_commit_version", "_commit_order", "_change_type", "id", "name")
        self.batches.append([tuple(row) for row in batch.select(*wanted).collect()])


@pytest.fixture
def stream(spark: SparkSession, log: MadeLog, tmp_path: Path) -> Stream:
    register(spark)
    return Stream(spark, log, tmp_path / "checkpoint")


def test_a_stream_reads_each_commit_once_over_restarts_and_nothing_of_another_log(
    log: MadeLog, stream: Stream
) -> None:
    assert [len(rows) for rows in stream.run(maxFilesPerTrigger=1)] == [2, 3, 1]
    assert stream.run() == []
    log.commit([insert(4, "d")])
    log.commit([insert(5, "e")])
    assert [len(rows) for rows in stream.run(maxFilesPerTrigger=5)] == [2]
    assert [row for rows in stream.batches for row in rows] == exact_rows(log.root)
    log.begin_plan("two")
    log.begin((1, "another"))
    with pytest.raises(PySparkException, match="not there any more: it was begun anew"):
        stream.run()
    assert len(stream.batches) == 4


def test_a_stream_that_runs_on_sees_commits_as_they_come(log: MadeLog, stream: Stream) -> None:
    query = stream.start(available_now=False, startingPosition="binlog.000001:110")
    try:
        query.processAllAvailable()
        log.commit([insert(4, "d")], [delete(4, "d")])
        query.processAllAvailable()
        progress = query.lastProgress
    finally:
        query.stop()
    rows = [row for rows in stream.batches for row in rows]
    assert rows == exact_rows(log.root, startingPosition="binlog.000001:110")
    assert rows[0][2:] == ("insert", 3, "c")  # the second transaction of its commit
    assert progress is not None
    assert '"files": 4' in progress.sources[0].latestOffset


def test_a_log_in_a_bucket_is_read_once_and_as_a_stream(
    s3_server: S3Server, spark: SparkSession, load: Load, tmp_path: Path
) -> None:
    bucket = s3_server.folder(s3_server.fresh_bucket(), form="parquet")
    log, options = MadeLog(root=tmp_path / "log", bucket=bucket), way_in(s3_server)
    log.begin((1, "a"))
    log.commit([update((1, "a"), (1, "A"))])
    rows = load(bucket.path, **options).collect()
    assert [row.name for row in rows] == ["a", "a", "A"]
    stream = Stream(spark, log, tmp_path / "checkpoint")
    assert [len(each) for each in stream.run(**options)] == [3]
    log.commit([insert(2, "b")])
    assert [each[-1][-1] for each in stream.run(**options)] == ["b"]
