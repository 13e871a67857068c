"""Which systems there are. Each is loaded when it is first asked for, and by nobody else."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Protocol, cast

from airflow_cdc_provider.columns.sink_port import Owner, Sink, SinkSettings
from airflow_cdc_provider.columns.source_port import Source
from airflow_cdc_provider.core.endpoint import Endpoint, SinkPlace
from airflow_cdc_provider.core.errors import RefusedError
from airflow_cdc_provider.core.records import TablePlan

_SYSTEMS = {
    "changelog": "airflow_cdc_provider.systems.changelog.system",
    "mysql": "airflow_cdc_provider.systems.mysql.system",
}
"""`mysql` is whatever speaks its protocol; MariaDB too."""


class System(Protocol):
    """What a system's folder offers."""

    def source(self, endpoint: Endpoint) -> Source:
        """Return a source; nothing is connected yet."""

    def sink(
        self, place: SinkPlace, owner: Owner, plans: Sequence[TablePlan], settings: SinkSettings
    ) -> Sink:
        """Return a sink under one generation; nothing is connected yet."""


def system(name: str) -> System:
    """Load the system of that name."""
    if name not in _SYSTEMS:
        raise RefusedError(
            f"there is no system {name!r}",
            where="pipeline",
            risk="none: nothing was started",
            remedy=f"use one of {', '.join(_SYSTEMS)}",
        )
    return cast(System, import_module(_SYSTEMS[name]))


def open_source(endpoint: Endpoint) -> Source:
    """Return the source at an endpoint; nothing is connected yet."""
    return system("mysql").source(endpoint)


def open_sink(
    name: str,
    place: SinkPlace,
    owner: Owner,
    plans: Sequence[TablePlan] = (),
    settings: SinkSettings | None = None,
) -> Sink:
    """Return the sink of a system under one generation; nothing is connected yet."""
    return system(name).sink(place, owner, plans, settings or SinkSettings())
