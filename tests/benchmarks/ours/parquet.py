"""lineitem to Parquet by our split reader in Spark tasks, local[2], a warm session.

The product has no Parquet sink yet; this measures its reading side, watermarks and all, with
pyarrow's writer behind it in the same task.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_cdc_provider.core.codec import split_from_json, split_to_json
from airflow_cdc_provider.core.split_planner import splits_between
from airflow_cdc_provider.mysql.connection import connect
from airflow_cdc_provider.mysql.key_bounds import boundaries
from airflow_cdc_provider.mysql.snapshot_reader import SnapshotReader
from airflow_cdc_provider.spark.session import close_session, open_session
from tests.benchmarks import subject
from tests.benchmarks.ours.copy import warm
from tests.benchmarks.ours.setting import setting


def main() -> None:
    given = subject.arguments()
    bench = setting(given, "lineitem")
    schema, source, folder = bench.schema, bench.source, Path(given["out"])
    folder.mkdir(parents=True, exist_ok=True)
    spark = open_session("benchmark", master="local[2]")
    spark.range(0, 4, 1, 4).mapInArrow(warm, "id long").collect()

    def written(splits: list[list[object]]) -> int:
        lanes = [(json.dumps([lane, forms]),) for lane, forms in enumerate(splits)]
        frame = spark.createDataFrame(lanes, "lane string").repartition(2, "lane")
        counts = frame.mapInArrow(write, "rows long").collect()
        return sum(row["rows"] for row in counts)

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reader: SnapshotReader | None = None
        for batch in batches:
            for text in batch.column(0).to_pylist():
                lane, forms = json.loads(text)
                reader = reader or SnapshotReader(
                    source, {schema.table: schema}, server_id=9920 + lane
                )
                for form in forms:
                    split = split_from_json(form)
                    rows, _ = reader.read(split)
                    with pq.ParquetWriter(
                        folder / f"{split.number}.parquet", rows.schema, compression="zstd"
                    ) as file:
                        for part in rows.batches():
                            file.write_batch(part)
                    yield pa.RecordBatch.from_pylist([{"rows": rows.rows}])
        if reader is not None:
            reader.close()

    def run() -> int:
        connection = connect(source, purpose="planning")
        bounds = list(boundaries(connection, schema, 50_000))
        connection.close()
        splits = [
            split_to_json(split)
            for split in splits_between(schema.table, schema.primary_key, schema.key_kinds, bounds)
        ]
        return written([splits[0::2], splits[1::2]])

    written([[], []])  # Spark compiles a query's plan the first time it sees one
    subject.work(run)
    close_session()


if __name__ == "__main__":
    main()
