"""What the shape of a pipeline file does not show: values that do not go together.

Only what the file itself can tell is looked at here. What needs the server, such as tables that
do not exist, is checked by preflight, and named with the same lines (`expansion`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.shards import Routed, clashes
from airflow_cdc_provider.core.table_patterns import TablePattern, sink_table
from airflow_cdc_provider.pipeline.file.model import PipelineFile
from airflow_cdc_provider.pipeline.file.problems import Path
from airflow_cdc_provider.pipeline.file.start_rules import check_start
from airflow_cdc_provider.pipeline.file.topology_rules import check_topology

Found = tuple[Path, str, str]
"""Where, what, fix."""


def check_file(file: PipelineFile) -> Iterator[Found]:
    """Yield the problems of values in the file that are valid alone but not together."""
    yield from _source(file)
    yield from _excluded(file)
    yield from _one_target_each(file)
    yield from _not_onto_itself(file)
    yield from _exactly_once(file)
    yield from _table_settings(file)
    yield from _backfills(file)
    yield from _nothing_shown(file)
    yield from _types(file)
    yield from _marks(file)
    yield from _layouts(file)
    yield from _shards(file)
    yield from _throttle(file)
    yield from _spark_settings(file)
    yield from _ends(file)
    yield from check_start(file)
    yield from check_topology(file)
    if file.stream.writers > 1 and file.stream.apply != "merged" and file.topology is None:
        yield (
            ("stream", "writers"),
            "only apply: merged has parallel writers",
            "write apply: merged, or leave writers out",
        )


def _source(file: PipelineFile) -> Iterator[Found]:
    """Yield what the source's own kind finds wrong in its section."""
    for key, what, fix in file.source.wrong_together(file.snapshot.max_connections):
        yield ("source", key), what, fix


def _exact(file: PipelineFile) -> list[tuple[int, TableId]]:
    """Return the tables that the file names exactly, with their numbers in the list."""
    patterns = enumerate(file.source.patterns)
    return [(number, table) for number, p in patterns if (table := p.exact) is not None]


def _excluded(file: PipelineFile) -> Iterator[Found]:
    """Yield tables that the file both names and excludes."""
    for number, table in _exact(file):
        if any(pattern.matches(table) for pattern in file.source.excluded):
            yield (
                ("source", "tables", number),
                f"{table} is also excluded",
                "remove it from tables or from exclude",
            )


def _one_target_each(file: PipelineFile) -> Iterator[Found]:
    """Yield tables that go to the sink table of another without being a shard of it."""
    numbers = {table: number for number, table in reversed(_exact(file))}
    routed = (
        Routed(table, sink_table(table, file.sink.routes), file.shape_of(table))
        for _, table in _exact(file)
    )
    for clash in clashes(routed):
        yield ("source", "tables", numbers[clash.table]), clash.what, clash.fix


def _not_onto_itself(file: PipelineFile) -> Iterator[Found]:
    """Yield a problem if a table would be copied onto itself."""
    source, sink = file.source, file.sink.reference
    if sink is None or (source.conn_id, source.dsn_env) != (sink.conn_id, sink.dsn_env):
        return
    routes = file.sink.routes
    if not routes or any(sink_table(table, routes) == table for _, table in _exact(file)):
        yield (
            ("sink",),
            "source and sink are the same server, and a table would be copied onto itself",
            "name another server, or route every table to another name",
        )


def _exactly_once(file: PipelineFile) -> Iterator[Found]:
    """Yield settings of a sink that keeps all it is given, and so cannot take a change twice."""
    abilities, kind = file.sink.abilities, file.sink.type
    if not abilities.upserts and file.stream.apply == "merged":
        yield (
            ("stream", "apply"),
            f"a {kind} holds every change, and merged keeps the last of each key only",
            "write apply: transactions, or leave it out",
        )
    if abilities.needs_exact_filter and not file.snapshot.backfill:
        yield (
            ("snapshot", "backfill"),
            f"without it changes are brought twice, and a {kind} would hold them twice",
            "write backfill: true, or leave it out",
        )


def _table_settings(file: PipelineFile) -> Iterator[Found]:
    """Yield table settings whose table is not among the pipeline's."""
    yield from _not_picked(file, file.snapshot.tables, ("snapshot", "tables"))
    yield from _not_picked(file, file.backfill, ("backfill",))
    names = [name for name in file.tables if TablePattern.parse(name).is_exact]
    yield from _not_picked(file, names, ("tables",))


def _nothing_shown(file: PipelineFile) -> Iterator[Found]:
    """Yield tables of which a statement's text would show what the sink is not to have."""
    for name, table in file.tables.items():
        if file.sink.tells_statements and not table.is_identity:
            yield (
                ("tables", name),
                "the sink gets the texts of statements too, with the values that are left out here",
                "leave include_query out, or copy the table as it is",
            )


def _types(file: PipelineFile) -> Iterator[Found]:
    """Yield types that are named for columns of a sink whose columns have none."""
    for name, table in file.tables.items():
        if table.columns.type and not file.sink.abilities.has_column_types:
            yield (
                ("tables", name, "columns", "type"),
                f"the columns of a sink of type {file.sink.type} have no types to name",
                "remove it: the values are written as the source's server prints them",
            )


def _marks(file: PipelineFile) -> Iterator[Found]:
    """Yield marks of rows for a sink that holds each change, with what they would say."""
    for name, table in file.tables.items():
        if not table.shape.marks or file.sink.abilities.marks_rows:
            continue
        what, fix = file.sink.marks_instead
        yield ("tables", name, "deletes" if table.deletes == "soft" else "metadata"), what, fix


def _layouts(file: PipelineFile) -> Iterator[Found]:
    """Yield partitions and orders of rows for a sink whose tables are no files of their own."""
    for name, table in file.tables.items():
        if file.sink.abilities.lays_out_files or not table.shape.layout.columns:
            continue
        key = "partition_by" if table.partition_by else "sort_by"
        what = f"a sink of type {file.sink.type} has no files of a table to lay out"
        yield ("tables", name, key), what, "remove it, or write to a lake (iceberg, delta)"


def _shards(file: PipelineFile) -> Iterator[Found]:
    """Yield shards of a sink that has no tables of rows to share."""
    for name, table in file.tables.items():
        if table.shard is not None and not file.sink.abilities.shares_tables:
            yield (
                ("tables", name, "shard"),
                f"a sink of type {file.sink.type} holds changes, each with the name of its table",
                "remove it: what it would say is in each event; and route each table to a name of "
                "its own",
            )


def _not_picked(file: PipelineFile, names: Iterable[str], path: Path) -> Iterator[Found]:
    """Yield names that are not among the pipeline's tables."""
    for name in names:
        table = TablePattern.parse(name).exact
        if table is None or not file.picks(table):
            yield (
                (*path, name),
                f"{name} is not among the pipeline's tables",
                "name one table of source.tables, without * or a regular expression",
            )


def _backfills(file: PipelineFile) -> Iterator[Found]:
    """Yield a problem if the sink cannot take the backfills of the file."""
    if file.backfill and not file.sink.abilities.replaces_rows:
        yield (
            ("backfill",),
            f"a sink of type {file.sink.type} takes no rows again: it keeps what it was given",
            "remove it",
        )


def _throttle(file: PipelineFile) -> Iterator[Found]:
    """Yield limits of the throttle that do not go together."""
    throttle = file.snapshot.throttle
    wrong = throttle.limits.wrong(has_replicas=bool(throttle.replicas))
    if wrong is not None:
        key, what, fix = wrong
        yield ("snapshot", "throttle", key), what, fix
    if throttle.replicas and throttle.max_replica_lag is None:
        yield (
            ("snapshot", "throttle", "replicas"),
            "nothing says how far they may be behind, so nobody would look at them",
            "write max_replica_lag: 10s, or leave replicas out",
        )


def _ends(file: PipelineFile) -> Iterator[Found]:
    """Yield what does not go together with a stream that ends, or with none."""
    stream = file.stream
    if not stream.stops_at:
        return
    key = "stop" if stream.has_stream else "mode"
    what = "the stream ends at a stop" if stream.has_stream else "there is no stream"
    if file.topology is not None:
        yield (
            ("stream", key),
            "an edge of a topology does not end: the nodes would differ from then on",
            "write stop: never and mode: continuous or bounded, or remove topology",
        )
    if file.verify == "always":
        yield (
            ("verify",),
            f"{what} and the source goes on, so a comparison would show what changed since",
            "write never, or leave it out",
        )
    if file.backfill:
        yield (
            ("backfill",),
            f"{what}, and rows that are read again need one that goes on",
            "remove it",
        )
    if "new_tables" in file.source.model_fields_set and file.source.new_tables == "add":
        yield (
            ("source", "new_tables"),
            f"{what}, and a table that comes later would be of a later position",
            "write tell, or leave it out: with a stop that is tell",
        )
    if "table_errors" in stream.model_fields_set and stream.table_errors == "isolate":
        yield (
            ("stream", "table_errors"),
            f"{what}, and a table that is left alone would not be of the others' position",
            "write stop, or leave it out: with a stop that is stop",
        )
    if not (stream.has_stream or file.snapshot.backfill):
        yield (
            ("snapshot", "backfill"),
            "without it and without a stream the rows of a split are of no one position",
            "write backfill: true, or leave it out",
        )


def _spark_settings(file: PipelineFile) -> Iterator[Found]:
    """Yield Spark settings that would be ignored or do harm."""
    conf = file.spark.conf
    if str(conf.get("spark.speculation", "")).lower() == "true":
        yield (
            ("spark", "conf", "spark.speculation"),
            "with speculation on, a second copy of a reader would load the source for nothing and "
            "be fenced off",
            "remove it, or write spark.speculation: false",
        )
    if file.spark.conn_id is not None and "spark.master" in conf:
        yield (
            ("spark", "conf", "spark.master"),
            f"the master is that of the connection {file.spark.conn_id}, so this would be ignored",
            "remove it, or leave spark.conn_id out",
        )
    for name in conf:
        if not name.startswith("spark."):
            yield (
                ("spark", "conf", name),
                f"{name!r} is no setting of Spark's, which ignores it",
                f"write spark.{name} if that is meant, or remove it",
            )
