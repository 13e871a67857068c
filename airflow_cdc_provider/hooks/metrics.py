"""What a pipeline does, as metrics of Airflow's own: sent where `[metrics]` says.

The pipeline's name is part of each metric's, for plain StatsD knows no tags; it is a tag as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from airflow.sdk.observability import stats

from airflow_cdc_provider.core.lifecycle import Phase
from airflow_cdc_provider.core.records import Outage, StreamState
from airflow_cdc_provider.views.status import SILENT_S, PipelineStatus

_US = 1_000_000
_TELLS_ITS_LAG = frozenset({Phase.STREAMING, Phase.STOPPED})
"""A job that has just begun, or failed, has an earlier one's."""


def send_metrics(status: PipelineStatus) -> None:
    """Send a pipeline's progress as Airflow metrics."""
    counts: dict[str, float] = {
        "snapshot.rows": status.rows,
        "snapshot.splits_finished": status.splits_finished,
        "snapshot.splits_planned": status.splits_planned,
        "throttle.closed": int(status.is_throttled),
        "throttle.throttled_seconds": 0.0
        if status.throttle is None
        else status.throttle.throttled_s,
        "requests.open": len(status.requests),
        "requests.rows": sum(request.rows for request in status.requests),
    }
    _send(str(status.state.name), counts)
    stream = status.stream
    if stream is not None and status.state.phase not in _TELLS_ITS_LAG:
        stream = replace(stream, lag_us=None)
    send_stream_metrics(
        str(status.state.name),
        stream,
        now_us=status.at_us,
        outages=status.outages,
        published_us=status.published_us,
    )


def send_stream_metrics(
    pipeline: str,
    stream: StreamState | None,
    *,
    now_us: int,
    outages: Sequence[Outage] = (),
    published_us: int | None = None,
    is_gone: bool = False,
) -> None:
    """Send a stream's progress as Airflow metrics; its lag only while that is known.

    That of a stream which was not heard of for some time, or whose process `is_gone`, is not.
    `published_us`: when tables that follow a log at the sink had last all of it.
    """
    if stream is None:
        return
    since_us = min((outage.since_us for outage in outages), default=now_us)
    counts: dict[str, float] = {
        "stream.outage_seconds": max(0, now_us - since_us) / _US,
        "stream.outage_tries": max((outage.tries for outage in outages), default=0),
        "stream.changes": stream.changes,
        "stream.transactions": stream.transactions,
        "stream.tables_inconsistent": len(stream.inconsistent),
    }
    if published_us is not None:
        counts["stream.tables_age_seconds"] = max(0, now_us - published_us) / _US
    if stream.heartbeat_us:
        counts["stream.heartbeat_age_seconds"] = max(0, now_us - stream.heartbeat_us) / _US
    is_heard = not is_gone and now_us - stream.heartbeat_us <= SILENT_S * _US
    if stream.lag_us is not None and is_heard:
        counts["stream.lag_seconds"] = stream.lag_us / _US
    _send(pipeline, counts)


def _send(pipeline: str, counts: Mapping[str, float]) -> None:
    """Send gauges of a pipeline."""
    for name, value in counts.items():
        stats.gauge(f"cdc.{name}.{pipeline}", value, tags={"pipeline": pipeline})
