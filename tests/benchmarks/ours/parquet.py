"""lineitem to Parquet by our split reader in Spark tasks, local[2], a warm session.

The product has no Parquet sink yet; this measures its reading side, watermarks and all, with
pyarrow's writer behind it in the same task.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.split_planner import splits_between
from airflow_cdc_provider.core.splits import SnapshotSplit
from airflow_cdc_provider.core.table_schema import TableSchema
from airflow_cdc_provider.mysql.connection import connect
from airflow_cdc_provider.mysql.key_bounds import boundaries
from airflow_cdc_provider.mysql.snapshot_reader import SnapshotReader
from airflow_cdc_provider.spark.session import close_session, open_session
from tests.benchmarks import subject
from tests.benchmarks.ours.copy import warm
from tests.benchmarks.ours.setting import setting

_LANES = 2
_SAMPLE_ROWS = 16_000
_FEW = 0.2
"""Distinct values a row of a column that is worth a dictionary."""


def main() -> None:
    given = subject.arguments()
    bench = setting(given, "lineitem")
    schema, source, folder = bench.schema, bench.source, Path(given["out"])
    folder.mkdir(parents=True, exist_ok=True)
    spark = open_session("benchmark", master="local[2]")
    spark.range(0, 4, 1, 4).mapInArrow(warm, "id long").collect()

    def written(splits: list[SnapshotSplit]) -> int:
        def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for lane in batch.column(0).to_pylist():
                    yield from _write_splits(splits[lane::_LANES], source, schema, folder, lane)

        lanes = spark.range(0, _LANES, 1, _LANES)  # one row a partition, so one lane a task
        return sum(row["rows"] for row in lanes.mapInArrow(write, "rows long").collect())

    def run() -> int:
        connection = connect(source, purpose="planning")
        bounds = list(boundaries(connection, schema, 50_000))
        connection.close()
        return written(
            list(splits_between(schema.table, schema.primary_key, schema.key_kinds, bounds))
        )

    written([])  # Spark compiles a query's plan the first time it sees one
    subject.work(run)
    close_session()


def _write_splits(
    splits: Iterable[SnapshotSplit],
    source: Endpoint,
    schema: TableSchema,
    folder: Path,
    lane: int,
) -> Iterator[pa.RecordBatch]:
    reader = SnapshotReader(source, {schema.table: schema}, server_id=9920 + lane)
    repeating: list[str] | None = None
    for split in splits:
        rows, _ = reader.read(split)
        table = pa.Table.from_batches(rows.batches(), rows.schema)
        if repeating is None:
            repeating = _repeating(table)
        # One row group a split: a group costs the writer as much as 3,000 rows.
        pq.write_table(
            table,
            folder / f"{split.number}.parquet",
            compression="zstd",
            use_dictionary=repeating,
            store_decimal_as_integer=True,
        )
        yield pa.RecordBatch.from_pylist([{"rows": rows.rows}])
    reader.close()


def _repeating(table: pa.Table) -> list[str]:
    """Name the columns in which values come often; a dictionary of others is built for nothing."""
    sample = table.slice(0, _SAMPLE_ROWS)
    return [
        name
        for name in sample.column_names
        if pc.count_distinct(sample[name]).as_py() < _FEW * len(sample)
    ]


if __name__ == "__main__":
    main()
