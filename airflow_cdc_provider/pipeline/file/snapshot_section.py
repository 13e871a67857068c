"""The section `snapshot` of the pipeline file: how tables are read, and how fast."""

from __future__ import annotations

from pydantic import Field

from airflow_cdc_provider.core.split_size import SplitSize
from airflow_cdc_provider.core.throttle import ThrottleLimits
from airflow_cdc_provider.pipeline.file.field_types import (
    Duration,
    NoCondition,
    Pattern,
    seconds_of,
)
from airflow_cdc_provider.systems.sections.base import Reference, Section


class SnapshotTable(Section):
    """What is special about one table."""

    key: tuple[str, ...] | None = Field(
        default=None,
        description="Columns to split by; they must be the table's primary key, or the unique key "
        "in its place, in its order.",
        examples=[["id"]],
    )
    where: NoCondition = Field(default=None, description="Not in this release; `null`.")


class ReplicaSection(Reference):
    """A replica of the source whose lag holds up what reads rows."""


class ThrottleSection(Section):
    """How fast rows are read, and under what load of the servers none are."""

    rows_per_second: float | None = Field(
        default=None,
        gt=0,
        description="Rows read a second, all readers together, over a stretch longer than a split.",
        examples=[20_000],
    )
    mb_per_second: float | None = Field(
        default=None,
        gt=0,
        description="Megabytes read a second, all readers together.",
        examples=[20],
    )
    max_threads_running: int | None = Field(
        default=None,
        ge=1,
        description="While more threads run at the source (`Threads_running`, without the "
        "pipeline's own), no split is begun.",
        examples=[50],
    )
    critical_threads_running: int | None = Field(
        default=None,
        ge=1,
        description="From so many on the snapshot, or the request, ends with `CDC-LOA-001`; what "
        "was read stays.",
        examples=[200],
    )
    max_replica_lag: Duration | None = Field(
        default=None,
        description="While one of `replicas` is further behind, or its lag is not known, no split "
        "is begun. A whole number with `s`, `m`, `h` or `d`.",
        examples=["10s"],
    )
    replicas: tuple[ReplicaSection, ...] = Field(
        default=(),
        description="The replicas that `max_replica_lag` is about, each by `conn_id` or `dsn_env`.",
        examples=[[{"dsn_env": "SHOP_REPLICA_DSN"}]],
    )

    @property
    def limits(self) -> ThrottleLimits:
        """Return the limits; none where the section says nothing."""
        lag = self.max_replica_lag
        return ThrottleLimits(
            self.rows_per_second,
            self.mb_per_second,
            self.max_threads_running,
            self.critical_threads_running,
            None if lag is None else float(seconds_of(lag)),
        )


class SnapshotSection(Section):
    """How tables are read."""

    split_rows: int | None = Field(
        default=None,
        ge=1,
        description="Rows of a split, about. Left out: 50000; into a lake with `mode: append` as "
        "many as make a file of some megabytes, at most a million, unless the throttle has a pace.",
        examples=[50_000],
    )
    max_connections: int = Field(
        default=8,
        ge=1,
        le=1000,
        description="Connections to the source, all readers together. One more asks every two "
        "seconds whether it answers.",
    )
    backfill: bool = Field(
        default=True,
        description="Replay the log onto each split in memory, so that it is published as of one "
        "position. `false` lets the stream do it, at least once in between.",
    )
    max_split_mb: int = Field(
        default=64, ge=1, description="A split that holds more megabytes than this is cut in two."
    )
    throttle: ThrottleSection = Field(
        default_factory=ThrottleSection,
        description="How fast rows are read, by the snapshot and by requests, and under what load "
        "of the servers none are. The stream is never held up.",
        examples=[{"rows_per_second": 20_000, "max_threads_running": 50}],
    )
    tables: dict[Pattern, SnapshotTable] = Field(
        default_factory=dict,
        description='Settings of single tables: `"shop.orders": {...}`.',
        examples=[{"shop.orders": {"key": ["id"]}}],
    )

    def split_size(self, suits: int) -> SplitSize:
        """Return how much a split holds; left open, as many bytes as `suits` the sink, 0 for any.

        Under a pace splits are small, for each is waited for as a whole.
        """
        if self.split_rows is not None:
            return SplitSize(self.split_rows)
        limits = self.throttle.limits
        if limits.rows_per_second is not None or limits.bytes_per_second is not None:
            return SplitSize()
        readable = self.max_split_mb * 1024 * 1024 * 3 // 8  # rows read are often longer
        return SplitSize(bytes=min(suits, readable))
