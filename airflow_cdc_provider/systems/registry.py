"""Opens systems. Each is loaded when it is first asked for, and by nobody else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Protocol, cast

from airflow_cdc_provider.columns.sink_port import Owner, Sink, SinkSettings
from airflow_cdc_provider.columns.source_port import Source
from airflow_cdc_provider.core.endpoint import Endpoint, SinkPlace
from airflow_cdc_provider.core.errors import NOTHING_STARTED, RefusedError
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.server_look import Part, ServerLook
from airflow_cdc_provider.core.table_schema import ColumnType
from airflow_cdc_provider.systems.kinds import KINDS


class System(Protocol):
    """What a system's folder offers."""

    def source(self, endpoint: Endpoint) -> Source:
        """Return a source; nothing is connected yet."""

    def sink(
        self, place: SinkPlace, owner: Owner, plans: Sequence[TablePlan], settings: SinkSettings
    ) -> Sink:
        """Return a sink under one generation; nothing is connected yet."""


class ServerSystem(System, Protocol):
    """A system that has servers."""

    def look(self, endpoint: Endpoint, part: Part) -> ServerLook:
        """Look at a server for the part it is to play, whatever its tables are."""

    def rights(self, endpoint: Endpoint, part: Part, databases: Sequence[str]) -> tuple[str, ...]:
        """Return the statements that give the account all that its part needs."""


def system(name: str) -> System:
    """Load the system of that name."""
    if name not in KINDS:
        raise RefusedError(
            f"there is no system {name!r}",
            where="pipeline",
            risk=NOTHING_STARTED,
            remedy=f"use one of {', '.join(KINDS)}",
        )
    return cast(System, import_module(KINDS[name].module))


def type_of_before_kinds(form: Mapping[str, Any]) -> ColumnType:
    """Read a column type that was stored when there was MySQL only, by the name of its type."""
    module = import_module("airflow_cdc_provider.systems.mysql.dialect.column_types")
    return cast(ColumnType, module.type_of_before_kinds(form))


def open_source(endpoint: Endpoint) -> Source:
    """Return the source at an endpoint; nothing is connected yet."""
    return system(endpoint.system).source(endpoint)


def look_at(endpoint: Endpoint, part: Part) -> ServerLook:
    """Look at a server for the part it is to play, whatever its tables are."""
    return cast(ServerSystem, system(endpoint.system)).look(endpoint, part)


def rights_at(endpoint: Endpoint, part: Part, databases: Sequence[str]) -> tuple[str, ...]:
    """Return the statements that give the endpoint's account all that its part needs."""
    return cast(ServerSystem, system(endpoint.system)).rights(endpoint, part, databases)


def open_sink(
    name: str,
    place: SinkPlace,
    owner: Owner,
    plans: Sequence[TablePlan] = (),
    settings: SinkSettings | None = None,
) -> Sink:
    """Return the sink of a system under one generation; nothing is connected yet.

    Without a name it is of the system that the server is of.
    """
    name = name or (place.system if isinstance(place, Endpoint) else "")
    return system(name).sink(place, owner, plans, settings or SinkSettings())
