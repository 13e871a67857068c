"""The pipeline file as pydantic models.

Unknown keys are errors, and so is anything this release does not do: a setting is obeyed or
refused, never ignored. Types are strict: `"8"` is not a number. Secrets are references, by
Airflow connection id or by the name of an environment variable. `source` and `sink` are of the
systems, each with the keys that it has (`sections`).
"""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.jobspec import ANY_PORT, ApplyMode, SourceOptions, StreamMode
from airflow_cdc_provider.core.named_keys import NamedKeys
from airflow_cdc_provider.core.schema_changes import SchemaPolicy
from airflow_cdc_provider.core.split_size import SplitSize
from airflow_cdc_provider.core.stream_starts import StreamStart
from airflow_cdc_provider.core.stream_stops import StopKind, StreamStop
from airflow_cdc_provider.core.table_patterns import TablePattern
from airflow_cdc_provider.core.table_shape import TableShape
from airflow_cdc_provider.core.topology import Topology
from airflow_cdc_provider.core.wrong_value import WrongValueError
from airflow_cdc_provider.pipeline.file.field_types import (
    ConnectionId,
    Duration,
    EnvironmentName,
    MailAddress,
    Name,
    Pattern,
    Ports,
    Start,
    Stop,
    TimeZone,
    place_of,
    seconds_of,
)
from airflow_cdc_provider.pipeline.file.sections import AnySink, AnySource
from airflow_cdc_provider.pipeline.file.snapshot_section import SnapshotSection
from airflow_cdc_provider.pipeline.file.table_choice import keys_in, shape_in
from airflow_cdc_provider.pipeline.file.table_sections import TableSection
from airflow_cdc_provider.pipeline.file.topology_section import TopologyName, TopologySection
from airflow_cdc_provider.systems.sections.base import Reference as Reference
from airflow_cdc_provider.systems.sections.base import Section


class StateSection(Reference):
    """Where progress is remembered: any database that SQLAlchemy knows."""


class MaxBatch(Section):
    """When a batch of changes is committed at the sink: by what comes first."""

    changes: int = Field(
        default=100_000, ge=1, description="Row changes; a larger transaction stays whole."
    )
    seconds: float = Field(
        default=1.0,
        gt=0,
        le=3600,
        description="Seconds of reading while the stream catches up. At the end of the log nothing "
        "is waited for.",
    )


class StreamSection(Section):
    """How the log is followed."""

    start: Start = Field(
        default="after_snapshot",
        description="Where the stream starts. With any other place no rows are read, see "
        '[starts](starts.md): `earliest`, `latest`, `{position: "binlog.000012:4711"}`, '
        '`{gtid: "..."}` or `{timestamp: "2026-01-01T00:00:00Z"}`.',
        examples=["latest"],
    )
    stop: Stop = Field(
        default="never",
        description="Where the stream ends for good, see [ends](ends.md): `consistent`, "
        '`{position: "binlog.000012:4711"}`, `{gtid: "..."}` or '
        '`{timestamp: "2026-01-01T00:00:00Z"}`.',
        examples=["consistent"],
    )
    mode: Literal["continuous", "bounded", "snapshot_only"] = Field(
        default="continuous",
        description="`bounded`: a run catches up to where the log ended at its start, and ends; "
        "with a `stop` this is the default. `snapshot_only`: each split as of its own high "
        "watermark, and no stream, see [ends](ends.md).",
    )
    apply: Literal["transactions", "merged"] = Field(
        default="transactions",
        description="`transactions`: source transactions in source order, atomic. `merged`: the "
        "last change of each key, by parallel writers.",
    )
    writers: int = Field(default=1, ge=1, le=64, description="Parallel writers of `merged`.")
    max_batch: MaxBatch = Field(
        default_factory=MaxBatch, description="When a batch of changes is committed at the sink."
    )
    table_errors: Literal["isolate", "stop"] = Field(
        default="isolate",
        description="`isolate`: a table that cannot go on stops where it stands, and the others "
        "flow on. `stop`: the stream ends for all, so that their rows are of one position.",
    )

    @model_validator(mode="before")
    @classmethod
    def _ends_by_runs(cls, value: Any) -> Any:
        """Take a stream with a stop for bounded, unless the file says otherwise."""
        if isinstance(value, dict) and value.get("stop", "never") != "never":
            return {"mode": "bounded", **value}
        return value

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        """Refuse a stop where no run would end at it."""
        if self.stop != "never" and self.mode != "bounded":
            raise WrongValueError(
                f"a stop does not go with mode: {self.mode}",
                "write mode: bounded, or leave it out: each run goes up to the stop, or to the end "
                "of the log where the stop is not in it yet",
            )
        return self

    @property
    def is_continuous(self) -> bool:
        """Whether something has to run the pipeline all the time."""
        return self.mode == "continuous"

    @property
    def has_stream(self) -> bool:
        """Whether the log is applied at all."""
        return self.mode != "snapshot_only"

    @property
    def starts_at(self) -> StreamStart:
        """Return where the stream starts."""
        return place_of(self.start, StreamStart.at)

    @property
    def stops_at(self) -> StreamStop:
        """Return where the stream ends for good."""
        if not self.has_stream:
            return StreamStop(StopKind.SNAPSHOT_ONLY)
        return place_of(self.stop, StreamStop.at)

    @property
    def stream_mode(self) -> StreamMode:
        return StreamMode.CONTINUOUS if self.is_continuous else StreamMode.BOUNDED

    @property
    def apply_mode(self) -> ApplyMode:
        return ApplyMode(self.apply)


ApplyOrStop = Literal["apply", "stop"]
AnyPolicy = Literal["apply", "ignore", "stop"]


class SchemaChangesSection(Section):
    """What is done when a table that is copied gets another definition at the source."""

    add_column: AnyPolicy = Field(
        default="apply",
        description="The sink's table gets the column, too. `ignore`: it stays without the column, "
        "whose values are not copied.",
    )
    drop_column: AnyPolicy = Field(
        default="ignore",
        description="`ignore`: the sink keeps the column and what is in it; new rows have NULL.",
    )
    rename_column: ApplyOrStop = Field(
        default="apply", description="The sink's column gets the new name."
    )
    modify_column: ApplyOrStop = Field(
        default="apply",
        description="Another type, or NULL allowed or not. Where values may have been converted, "
        "the table's rows are read again.",
    )
    index: ApplyOrStop = Field(
        default="apply", description="A unique key comes or goes; other indexes concern nobody."
    )
    truncate: AnyPolicy = Field(default="apply", description="TRUNCATE TABLE.")
    rows: AnyPolicy = Field(
        default="apply",
        description="Rows come or go without being logged: partitions are dropped or exchanged, "
        "another table is renamed into its place. The table's rows are read again.",
    )
    drop_table: AnyPolicy = Field(
        default="ignore",
        description="The table is dropped, and none takes its name within five seconds: it is not "
        "copied any more. `ignore`: its rows at the sink stay; `apply`: they are dropped with the "
        "sink's table.",
    )
    rename_table: ApplyOrStop = Field(
        default="apply",
        description="The table gets another name, and none takes its own: it is not copied any "
        "more, and what becomes of its rows at the sink is what `drop_table` says. Under its new "
        "name it is a new table, see `source.new_tables`.",
    )
    from_node: TopologyName | None = Field(
        default=None,
        description="In a [topology](two_nodes.md#change-a-table): the node of this edge where "
        "definitions are changed. The other node gets its new columns and wider types; without it "
        "a person makes each change at both.",
        examples=["berlin"],
    )


class RequestsSection(Section):
    """What is asked of the pipeline while it lives: resync, backfill, repair."""

    approve_above_rows: int | None = Field(
        default=None,
        ge=0,
        description="A request that is about more rows than this, at the source or at the sink, "
        "waits until somebody approves it; so does one whose rows are not counted. Without it "
        "none waits.",
        examples=[1_000_000],
    )


class FreshnessSection(Section):
    """How old the copy may be."""

    target: Duration | None = Field(
        default=None,
        description="The copy may be as old as this: the stream's lag, and between runs the time "
        "since the last one reached the end of the log, too. Older is a problem: `status`, the CDC "
        "page, the notifier and the health task say so. A whole number with `s`, `m`, `h` or `d`. "
        "Without it no age is judged.",
        examples=["15m"],
    )

    @property
    def target_s(self) -> int | None:
        return None if self.target is None else seconds_of(self.target)


class UrlReference(Section):
    """A URL, by the connection or the environment variable that holds it."""

    conn_id: ConnectionId | None = Field(
        default=None, description="Airflow connection with the URL.", examples=["ops_webhook"]
    )
    url_env: EnvironmentName | None = Field(
        default=None,
        description="Environment variable that holds the whole URL.",
        examples=["OPS_WEBHOOK_URL"],
    )

    @model_validator(mode="after")
    def _is_named(self) -> Self:
        """Require exactly one of `conn_id` and `url_env`."""
        if (self.conn_id is None) == (self.url_env is None):
            both = "both are" if self.conn_id else "neither is"
            raise WrongValueError(
                f"wanted one of conn_id and url_env, {both} there",
                "write conn_id: <Airflow connection>, or url_env: <environment variable>",
            )
        return self


class WebhookSection(UrlReference):
    """A URL that gets each notification as JSON, by POST."""


class SlackSection(UrlReference):
    """An incoming webhook of Slack, or of what takes the same: `{"text": ...}`."""


class EmailSection(Reference):
    """A mail server, and who gets mail."""

    to: tuple[MailAddress, ...] = Field(
        description="Who gets each notification.", min_length=1, examples=[["ops@example.com"]]
    )
    sender: MailAddress | None = Field(
        default=None,
        description="Whom the mail is from; without it `from_email` of the connection.",
        examples=["cdc@example.com"],
    )


class NotifySection(Section):
    """Who is notified of a problem, and once more when it is over."""

    webhook: WebhookSection | None = Field(
        default=None,
        description="Gets JSON.",
        examples=[{"url_env": "OPS_WEBHOOK_URL"}],
    )
    slack: SlackSection | None = Field(
        default=None,
        description="Gets a short text.",
        examples=[{"conn_id": "slack_ops"}],
    )
    email: EmailSection | None = Field(
        default=None,
        description="Get a short text by mail.",
        examples=[{"conn_id": "smtp_default", "to": ["ops@example.com"]}],
    )
    after: Duration = Field(
        default="60s",
        description="An outage is notified when it has lasted as long, and so is a failure that "
        "trying again may mend. A whole number with `s`, `m`, `h` or `d`.",
        examples=["5m"],
    )

    @model_validator(mode="after")
    def _has_a_receiver(self) -> Self:
        """Require a webhook, a Slack URL or a mail server."""
        if self.webhook is None and self.slack is None and self.email is None:
            raise WrongValueError(
                "nobody is named who is to be notified", "write webhook, slack or email"
            )
        return self

    @property
    def after_s(self) -> int:
        return seconds_of(self.after)


class BackfillTable(Section):
    """How the windows of `<pipeline>__backfill` find a table's rows."""

    column: str = Field(
        min_length=1,
        description="The column whose values lie in a window: a TIMESTAMP, DATETIME or DATE, or a "
        "whole number.",
        examples=["created_at"],
    )
    timezone: TimeZone | None = Field(
        default=None,
        description="Of a DATETIME or DATE: the time zone in which its values are written, as "
        "`Europe/Berlin` or `UTC`. A TIMESTAMP has none: it is a moment.",
        examples=["Europe/Berlin"],
    )
    epoch: Literal["seconds", "milliseconds", "microseconds"] | None = Field(
        default=None,
        description="Of a whole number: what it counts since 1970-01-01 00:00:00 UTC.",
    )

    @model_validator(mode="after")
    def _tells_time_one_way(self) -> Self:
        """Refuse both a time zone and an epoch."""
        if self.timezone is not None and self.epoch is not None:
            raise WrongValueError(
                "a column is in a time zone, or counts since 1970, not both",
                "write timezone for a DATETIME or DATE, epoch for a whole number",
            )
        return self


class SparkSection(Section):
    """Where the work is done."""

    conn_id: ConnectionId | None = Field(
        default=None,
        description="Airflow connection of the Spark master; `local[*]` without one.",
        examples=["spark_default"],
    )
    conf: dict[str, str | int | float | bool] = Field(
        default_factory=dict,
        description="Spark configuration.",
        examples=[{"spark.driver.memory": "2g"}],
    )
    always: bool = Field(
        default=False,
        description="Have Spark do little work too; without, the process that runs the pipeline "
        "does it itself, and a continuous stream's driver: up to 64 MB of log, or 200,000 rows of "
        "at most 50 tables.",
    )
    assigner_port: Ports | None = Field(
        default=None,
        description="Where a cluster's readers reach the driver to be given splits: a port, or "
        "`first-last`, of which the first free one is taken; without it any free port.",
        examples=["47000-47019"],
    )

    @property
    def assigner_ports(self) -> range:
        """Return the ports where the driver may listen for its readers."""
        if self.assigner_port is None:
            return ANY_PORT
        first, _, last = self.assigner_port.partition("-")
        return range(int(first), int(last) + 1)


class PipelineFile(Section):
    """One pipeline: one source, one sink, a set of tables, and how they are kept in step."""

    pipeline: Name = Field(
        description="Name: a letter, then up to 62 letters, digits or underscores.",
        examples=["shop_to_dr"],
    )
    source: AnySource = Field(
        description="Where the tables come from.",
        examples=[{"dsn_env": "SHOP_DSN", "tables": ["shop.*"]}],
    )
    sink: AnySink = Field(description="Where the tables go.", examples=[{"dsn_env": "DR_DSN"}])
    state: StateSection | None = Field(
        default=None,
        description="Where progress is remembered; may be left out where all runs on one machine: "
        "then it is a SQLite file, `$AIRFLOW_HOME/cdc/<pipeline>.state.db` if Airflow runs the "
        "pipeline, or beside this file on the command line; either first uses the one that is "
        "there.",
    )
    snapshot: SnapshotSection = Field(
        default_factory=SnapshotSection, description="How tables are read."
    )
    stream: StreamSection = Field(
        default_factory=StreamSection, description="How the log is followed."
    )
    schema_changes: SchemaChangesSection = Field(
        default_factory=SchemaChangesSection,
        description="What is done when a copied table's definition changes: `apply` it at the "
        "sink, `ignore` it there, or `stop` the stream for a person.",
    )
    requests: RequestsSection = Field(
        default_factory=RequestsSection, description="What is asked of the pipeline while it lives."
    )
    freshness: FreshnessSection = Field(
        default_factory=FreshnessSection, description="How old the copy may be."
    )
    notify: NotifySection | None = Field(
        default=None,
        description="Who is notified of outages, failures, tables that stop, lag over "
        "`freshness.target` and requests that wait for approval, and when each is over.",
        examples=[{"webhook": {"url_env": "OPS_WEBHOOK_URL"}}],
    )
    backfill: dict[Pattern, BackfillTable] = Field(
        default_factory=dict,
        description="Tables that `<pipeline>__backfill` reads again, a window of time each run: "
        '`"shop.orders": {column: created_at}`.',
        examples=[{"shop.orders": {"column": "created_at"}}],
    )
    tables: dict[Pattern, TableSection] = Field(
        default_factory=dict,
        description="How tables look at the sink where they are not as at the source, by name or "
        'pattern: `"shop.users": {columns: {exclude: [card_no]}}`.',
        examples=[{"shop.users": {"columns": {"exclude": ["card_no"]}}}],
    )
    verify: Literal["after_snapshot", "always", "never"] = Field(
        default="after_snapshot",
        description="When a run of `<pipeline>__sync` compares the rows of source and sink, all of "
        "a table's on both servers: `after_snapshot`, those of tables that were read as a whole, "
        "by a snapshot or a request, or got another definition, since they were last found equal; "
        "`always`, of all tables in each run; `never`.",
    )
    topology: TopologySection | None = Field(
        default=None,
        description="Two-way sync: which two nodes this pipeline joins, see "
        "[topologies](topologies.md). Without it the copy is one-way.",
        examples=[{"name": "shops", "src_node": "berlin", "dst_node": "paris"}],
    )
    spark: SparkSection = Field(default_factory=SparkSection, description="Where the work is done.")

    @property
    def name(self) -> PipelineName:
        return PipelineName(self.pipeline)

    @property
    def isolates_tables(self) -> bool:
        """Whether a table that cannot go on is left alone, and the others flow on."""
        return self.stream.table_errors == "isolate" and not self.stream.stops_at

    @property
    def split_size(self) -> SplitSize:
        """Return how much a split holds; where the file leaves it open, what suits the sink."""
        return self.snapshot.split_size(self.sink.abilities.split_bytes)

    @property
    def edge(self) -> Topology | None:
        """Return which edge of a topology the pipeline is, None if it is in none."""
        return None if self.topology is None else self.topology.edge

    @property
    def schema_policy(self) -> SchemaPolicy:
        """Return the policy for each kind of schema change, with the defaults of the file."""
        written = SchemaPolicy.from_json(self.schema_changes.model_dump())
        return written if self.topology is None else written.on_edge(self.topology.src_node)

    @property
    def source_options(self) -> SourceOptions:
        """Return what jobs are told of the source that this kind of source alone has."""
        options = self.source.options(self.pipeline, self.snapshot.max_connections)
        return {**options, "keys": self.named_keys.to_json()} if self.named_keys else options

    @property
    def named_keys(self) -> NamedKeys:
        """Return the unique keys that the file names for its tables."""
        return keys_in(self.tables)

    @property
    def server_ids_needed(self) -> int:
        """Return how many ids the pipeline's readers use at once."""
        return self.source.reader_ids_needed(self.snapshot.max_connections)

    @property
    def server_ids(self) -> range:
        """Return the ids of the pipeline's readers, by the file or else derived from its name."""
        return self.source.reader_ids(self.pipeline, self.snapshot.max_connections)

    def shape_of(self, table: TableId, *, ignore_case: bool = False) -> TableShape:
        """Return how a table differs at the sink, apart from its name."""
        return shape_in(self.tables, table, ignore_case=ignore_case)

    def picks(self, table: TableId, *, ignore_case: bool = False) -> bool:
        """Tell whether the file picks `table` to be copied."""

        def any_of(patterns: tuple[TablePattern, ...]) -> bool:
            return any(pattern.matches(table, ignore_case=ignore_case) for pattern in patterns)

        return any_of(self.source.patterns) and not any_of(self.source.excluded)
