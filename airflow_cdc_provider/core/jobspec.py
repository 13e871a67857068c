"""What the Airflow side tells a Spark job: one JSON value without a secret in it.

Connections are named, not carried: `*_env` is the environment variable in which the driver finds
a DSN. The plan, the splits and the hand-off are in the state store under the pipeline's name.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from airflow_cdc_provider.core.identifiers import PipelineName
from airflow_cdc_provider.core.schema_changes import SchemaPolicy
from airflow_cdc_provider.core.stream_stops import StreamStop
from airflow_cdc_provider.core.table_picks import NO_PICKS, TablePicks
from airflow_cdc_provider.core.throttle import NO_LIMITS, ThrottleLimits
from airflow_cdc_provider.core.topology import Topology

SOURCE_DSN_ENV = "AIRFLOW_CDC_SOURCE_DSN"
SINK_DSN_ENV = "AIRFLOW_CDC_SINK_DSN"
STATE_DSN_ENV = "AIRFLOW_CDC_STATE_DSN"
REPLICA_DSN_ENV = "AIRFLOW_CDC_REPLICA_{number}_DSN"
"""Of the replicas whose lag holds the snapshot up, numbered from 1."""
SALT_ENV = "AIRFLOW_CDC_SALT_{name}"
"""Of the salts of masks, by their names with `_` in place of the blank."""
ANY_PORT = range(1)
"""Port 0: whichever is free."""
SourceOptions = Mapping[str, Any]
"""What the file says of its source that this kind of source alone has, as JSON holds it."""
NO_OPTIONS: SourceOptions = MappingProxyType({})
ENCODED = "base64:"
"""Before a spec on the command line of a cluster: YARN takes doubled braces for its own."""


class JobKind(StrEnum):
    """The kinds of job: snapshot and stream."""

    SNAPSHOT = "snapshot"
    STREAM = "stream"


class StreamMode(StrEnum):
    """When a stream job ends: on request, or at the end that the log had at its start."""

    CONTINUOUS = "continuous"
    """When it is asked to."""
    BOUNDED = "bounded"
    """When everything that was in the source's log at the job's start is in the sink."""


class ApplyMode(StrEnum):
    """How changes are applied at the sink: by source transactions, or merged by key."""

    TRANSACTIONS = "transactions"
    """Whole source transactions in source order, one sink transaction for each batch of them."""
    MERGED = "merged"
    """The last change of each key, spread over parallel writers."""


@dataclass(frozen=True, slots=True)
class JobSpec:
    """The settings of one job of a pipeline, as Airflow hands them to its driver."""

    pipeline: PipelineName
    generation: int
    """The generation the job runs under; it stops when a newer one has taken over."""
    kind: JobKind
    source_env: str = SOURCE_DSN_ENV
    sink_env: str = SINK_DSN_ENV
    state_env: str = STATE_DSN_ENV
    sink_type: str = ""
    """The system of the sink; empty: the one its DSN names."""
    max_connections: int = 8
    """On the source, all of the job's tasks together."""
    split_rows: int = 50_000
    """Rows that a planned split holds about."""
    split_bytes: int = 0
    """As `SplitSize` has it."""
    backfill: bool = True
    max_split_bytes: int = 64 * 1024 * 1024
    """A split that holds more is cut in two."""
    request_split_rows: int = 10_000
    """Rows of a split that is read again while the stream flows, about: the stream waits while one
    is written."""
    stream_mode: StreamMode = StreamMode.CONTINUOUS
    stop: str = ""
    """Where the stream ends for good, as `StreamStop` has it in text; empty: it does not."""
    apply: ApplyMode = ApplyMode.TRANSACTIONS
    writers: int = 1
    """Parallel writers of `merged`."""
    max_batch_changes: int = 100_000
    max_batch_s: float = 1.0
    assigner_port_first: int = ANY_PORT.start
    assigner_port_last: int = ANY_PORT.stop - 1
    """Where the driver listens for its readers: the first of these that is free."""
    work_dir: str = ""
    """The folder of Spark's checkpoint in jobs of an earlier release; nothing is kept there now."""
    driver_log_bytes: int = 0
    """A continuous stream is followed by its driver itself while no more log waits."""
    schema_changes: SchemaPolicy = field(default_factory=SchemaPolicy)
    """What is done when a captured table's definition changes."""
    isolates_tables: bool = True
    """A table that cannot go on is left alone, and the others flow on."""
    picks: TablePicks = NO_PICKS
    """Tables that the file picks: the stream tells of those that come."""
    source_options: SourceOptions = field(default_factory=dict, hash=False)
    edge: Topology | None = None
    """The edge of a topology that the pipeline is."""
    throttle: ThrottleLimits = NO_LIMITS
    """How fast splits are handed out, and under what load none is."""
    replica_envs: tuple[str, ...] = ()
    """The environment variables with the DSNs of the replicas that the throttle looks at."""
    salts: tuple[str, ...] = ()
    """The names of the salts by which columns are masked."""

    @property
    def salt_envs(self) -> tuple[str, ...]:
        """Return the environment variables with the salts, in the order of their names."""
        return tuple(map(salt_variable, self.salts))

    @property
    def secret_envs(self) -> tuple[str, ...]:
        """Return all environment variables from which the driver takes DSNs and salts."""
        servers = self.source_env, self.sink_env, self.state_env
        return (*servers, *self.replica_envs, *self.salt_envs)

    @property
    def assigner_ports(self) -> range:
        """Return the ports among which the driver listens for its readers."""
        return range(self.assigner_port_first, self.assigner_port_last + 1)

    @property
    def stops_at(self) -> StreamStop:
        """Return where the stream ends for good."""
        return StreamStop.parse(self.stop)

    @property
    def may_need_no_spark(self) -> bool:
        """Tell whether the job starts without Spark, and uses it only when much log waits."""
        is_stream = self.kind is JobKind.STREAM and self.stream_mode is StreamMode.CONTINUOUS
        return is_stream and self.driver_log_bytes > 0

    def to_json(self) -> str:
        """Return the spec as JSON; `from_json` reads it back equal."""
        form = {
            **dataclasses.asdict(self),
            "pipeline": str(self.pipeline),
            "edge": None if self.edge is None else self.edge.to_json(),
        }
        return json.dumps(form, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> JobSpec:
        """Read a spec from JSON; `ValueError` names fields that a later release added."""
        form = _with_options(json.loads(text))
        known = {field.name for field in dataclasses.fields(cls)}
        unknown = sorted(form.keys() - known)
        if unknown:
            raise ValueError(f"job spec has unknown fields {unknown}: older code reads a newer job")
        return cls(
            **{
                **form,
                "pipeline": PipelineName(form["pipeline"]),
                "kind": JobKind(form["kind"]),
                "stream_mode": StreamMode(form["stream_mode"]),
                "apply": ApplyMode(form["apply"]),
                "picks": TablePicks.from_json(form.get("picks", {})),
                "schema_changes": SchemaPolicy.from_json(form.get("schema_changes", {})),
                "throttle": ThrottleLimits.from_json(form.get("throttle", {})),
                "replica_envs": tuple(form.get("replica_envs", ())),
                "salts": tuple(form.get("salts", ())),
                "edge": None if form.get("edge") is None else Topology.from_json(form["edge"]),
            }
        )


def salt_variable(name: str) -> str:
    """Return the environment variable that holds the salt of a name, such as `conn_id shop`."""
    return SALT_ENV.format(name=name.replace(" ", "_"))


def _with_options(form: dict[str, Any]) -> dict[str, Any]:
    """Return a spec's JSON with the source's options in one place, as earlier releases had not."""
    if "server_id_first" not in form:
        return form
    ids = [form.pop("server_id_first"), form.pop("server_id_last")]
    options = {"server_ids": ids, "zero_dates": form.pop("zero_dates", "fail")}
    return {**form, "source_options": options}
