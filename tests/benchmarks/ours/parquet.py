"""lineitem to Parquet by our split readers in Spark tasks, local[2], a warm session.

The product has no Parquet sink yet; this measures its reading side, planning, watermarks and all,
with pyarrow's writer behind it in the same task. As in the snapshot job, readers pull splits from
the driver's assigner while it still plans.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from airflow_cdc_provider.columns.arrow_arrays import numbers_of
from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.lifecycle import TablePhase
from airflow_cdc_provider.core.splits import SnapshotSplit
from airflow_cdc_provider.core.table_schema import TableSchema
from airflow_cdc_provider.engine.snapshot.assigner import SplitAssigner
from airflow_cdc_provider.engine.snapshot.assigner_protocol import AssignerAddress
from airflow_cdc_provider.engine.snapshot.assigner_server import AssignerServer, DriverPlace
from airflow_cdc_provider.engine.snapshot.planner import Planner
from airflow_cdc_provider.engine.snapshot.remote_assigner import RemoteAssigner
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.spark.session import close_session, open_session
from airflow_cdc_provider.systems.mysql.source.snapshot_reader import SnapshotReader
from airflow_cdc_provider.systems.registry import open_source
from tests.benchmarks import subject
from tests.benchmarks.ours.copy import planned_run, warm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_READERS = 2
_SAMPLE_ROWS = 16_000
_FEW = 0.2
"""Distinct values a row of a column that is worth a dictionary."""


def main() -> None:
    given = subject.arguments()
    folder = Path(given["out"])
    folder.mkdir(parents=True, exist_ok=True)
    with planned_run(given) as run:
        spark = open_session("benchmark", master=f"local[{_READERS}]")
        spark.range(0, 4, 1, 4).mapInArrow(warm, "id long").collect()
        schema = run.store.tables(run.name)[0].plan.schema
        # Spark compiles a query's plan the first time it sees one
        _read(spark, None, run.servers.source, schema, folder)
        subject.work(lambda: _snapshot(run, spark, folder))
        close_session()


def _snapshot(run: Run, spark: SparkSession, folder: Path) -> int:
    """Plan and read at the same time, as the snapshot job does."""
    source, split_rows = run.servers.source, run.model.split_size.rows
    generation = run.store.ensure(run.name).generation
    (table,) = run.store.tables(run.name)
    run.store.mark_table(run.name, generation, table.table, TablePhase.SNAPSHOT)
    assigner = SplitAssigner(run.store, run.name, generation)
    planner = Planner(
        assigner,
        [table],
        lambda _: open_source(source).boundaries(split_rows),
        stored=lambda planned: run.store.splits(run.name, planned.table),
    )
    with planner, AssignerServer(assigner, DriverPlace("127.0.0.1")) as server:
        return _read(spark, server.address, source, table.plan.schema, folder)


def _read(
    spark: SparkSession,
    assigner: AssignerAddress | None,
    source: Endpoint,
    schema: TableSchema,
    folder: Path,
) -> int:
    """Run the readers; without an assigner they have nothing to do. Returns the rows read."""

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for reader in batch.column(0).to_pylist():
                if assigner is not None:
                    yield from _write_splits(assigner, source, schema, folder, reader)

    readers = spark.range(0, _READERS, 1, _READERS)  # one row a partition, so one reader a task
    return sum(row["rows"] for row in readers.mapInArrow(write, "rows long").collect())


def _write_splits(
    address: AssignerAddress, source: Endpoint, schema: TableSchema, folder: Path, number: int
) -> Iterator[pa.RecordBatch]:
    reader = SnapshotReader(source, {schema.table: schema}, server_id=9920 + number)
    repeating: list[str] | None = None
    with closing(RemoteAssigner(address)) as assigner, closing(reader):
        while (split := assigner.claim()) is not None:
            rows, report = reader.read(split)
            table = pa.Table.from_batches(rows.batches(), rows.schema)
            if repeating is None:
                repeating = _repeating(table)
            _write(table, split, repeating, folder)
            assigner.report(report)
            yield pa.RecordBatch.from_arrays([numbers_of([rows.rows])], ["rows"])


def _write(table: pa.Table, split: SnapshotSplit, repeating: list[str], folder: Path) -> None:
    # One row group a split: a group costs the writer as much as 3,000 rows.
    pq.write_table(
        table,
        folder / f"{split.number}.parquet",
        compression="zstd",
        use_dictionary=repeating,
        store_decimal_as_integer=True,
    )


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
