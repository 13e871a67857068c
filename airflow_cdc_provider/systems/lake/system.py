"""Tables in a lake, as the registry hands them out."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_cdc_provider.columns.source_port import Source
from airflow_cdc_provider.core.endpoint import Endpoint, Folder, SinkPlace
from airflow_cdc_provider.core.errors import NOTHING_STARTED, RefusedError
from airflow_cdc_provider.core.jobspec import SourceOptions
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.engine.sink.port import Owner, SinkSettings
from airflow_cdc_provider.systems.lake.lake_sink import LakeSink


def source(endpoint: Endpoint, options: SourceOptions) -> Source:  # noqa: ARG001 - it is none
    """Refuse: a lake is written, never read from."""
    raise RefusedError(
        "a lake is no source",
        where=str(endpoint),
        risk=NOTHING_STARTED,
        remedy="name a server as the source",
    )


def sink(
    place: SinkPlace,
    owner: Owner,
    plans: Sequence[TablePlan],
    settings: SinkSettings,  # noqa: ARG001 - a lake has none of them
) -> LakeSink:
    """Return tables in a lake as a sink for one generation; nothing is written yet."""
    if not isinstance(place, Folder):
        raise RefusedError(
            "tables in a lake need a folder",
            where=str(place),
            risk=NOTHING_STARTED,
            remedy="name the folder as the sink's path",
        )
    return LakeSink(place, owner, tuple(plans))
