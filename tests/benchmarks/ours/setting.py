"""A pipeline over the benchmark's servers, without state store or Spark, for single parts."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass

from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.jobspec import ApplyMode
from airflow_cdc_provider.core.keys import KeyRange
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.splits import FinishedSplit, SnapshotSplit
from airflow_cdc_provider.core.stream_split import StreamSplit, hand_off
from airflow_cdc_provider.core.table_schema import TableSchema
from airflow_cdc_provider.core.topology import Topology, default_marker
from airflow_cdc_provider.engine.sink.port import Owner, Sink, SinkSettings
from airflow_cdc_provider.systems.mysql.positions.position import BinlogPosition
from airflow_cdc_provider.systems.mysql.server.connection import connect, query
from airflow_cdc_provider.systems.mysql.server.introspection import read_schema
from airflow_cdc_provider.systems.mysql.source.log_end import MySqlLogEnd
from airflow_cdc_provider.systems.mysql.source.snapshot_reader import SnapshotReader
from airflow_cdc_provider.systems.registry import open_sink
from tests.benchmarks import subject

OWNER = Owner(PipelineName("bench"), 1)


def edge_of(*, guarded: bool) -> Topology:
    """Return the edge that the benchmark's pipeline is, with its conflicts settled or not."""
    winner = "there" if guarded else ""
    return Topology("bench", "here", "there", default_marker("bench"), winner=winner)


@dataclass(frozen=True, slots=True)
class Setting:
    """One table of the source on its way to the sink."""

    source: Endpoint
    sink: Sink
    schema: TableSchema
    plans: tuple[TablePlan, ...]

    @property
    def whole_table(self) -> SnapshotSplit:
        """Return the table as one split."""
        return SnapshotSplit(
            self.schema.table, 0, self.schema.primary_key, self.schema.key_kinds, KeyRange()
        )

    def end_of_log(self) -> BinlogPosition:
        """Ask the source where its log ends."""
        connection = connect(self.source, purpose="benchmark")
        try:
            row = query(connection, "SHOW BINARY LOG STATUS")[0]
        finally:
            connection.close()
        return BinlogPosition.of(str(row[0]), int(row[1]))

    def copied(self) -> StreamSplit:
        """Copy the table to the sink and hand off; what the stream then has to do is left."""
        tables = self.sink.open_tables()
        tables.create_missing(self.plans)
        tables.close()
        ledger = self.sink.open_ledger()
        ledger.take_over(OWNER.generation)
        ledger.start_plan("bench")
        split = self.whole_table
        reader = SnapshotReader(
            self.source,
            {self.schema.table: self.schema},
            server_id=9905,
            max_split_bytes=1 << 32,
        )
        rows, report = reader.read(split)
        splits = self.sink.open_splits()
        splits.publish(split, rows, report)
        splits.close()
        reader.close()
        stream = hand_off([FinishedSplit.of(split, report, backfilled=True)])
        ledger.store_stream(stream)
        ledger.close()
        return stream


def _end_of(given: subject.Arguments, edge: Topology | None) -> LogPosition | None:
    """Return where the sink's log ends, for an edge."""
    if edge is None:
        return None
    with closing(MySqlLogEnd(Endpoint.parse(subject.dsn(given["sink"])), purpose="test")) as end:
        return end.now()


def setting(
    given: subject.Arguments,
    table: str,
    *,
    apply: ApplyMode = ApplyMode.TRANSACTIONS,
    writers: int = 1,
    edge: Topology | None = None,
) -> Setting:
    """Look at the table and name the sink."""
    source = Endpoint.parse(subject.dsn(given["source"]))
    connection = connect(source, purpose="benchmark")
    try:
        schema = read_schema(connection, TableId("bench", table), with_statement=True)
    finally:
        connection.close()
    plan = TablePlan.alike(schema, schema.table, 0)
    sink = open_sink(
        "mysql",
        Endpoint.parse(subject.dsn(given["sink"])),
        OWNER,
        [plan],
        SinkSettings(apply=apply, writers=writers, edge=edge, known=_end_of(given, edge)),
    )
    return Setting(source, sink, schema, (plan,))
