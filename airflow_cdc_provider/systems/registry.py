"""Opens systems. Each is loaded when it is first asked for, and by nobody else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Protocol, cast

from airflow_cdc_provider.columns.source_port import Source
from airflow_cdc_provider.core.endpoint import Endpoint, SinkPlace
from airflow_cdc_provider.core.errors import NOTHING_STARTED, RefusedError
from airflow_cdc_provider.core.jobspec import NO_OPTIONS, SourceOptions
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.server_look import Part, ServerLook
from airflow_cdc_provider.core.table_schema import ColumnType
from airflow_cdc_provider.engine.sink.port import Owner, Sink, SinkSettings
from airflow_cdc_provider.systems.kinds import KINDS


class System(Protocol):
    """The functions that a system's module offers: a source and a sink."""

    def source(self, endpoint: Endpoint, options: SourceOptions) -> Source:
        """Return the source at an endpoint; nothing is connected yet."""

    def sink(
        self, place: SinkPlace, owner: Owner, plans: Sequence[TablePlan], settings: SinkSettings
    ) -> Sink:
        """Return the sink at a place for one generation; nothing is connected yet."""


class ServerSystem(System, Protocol):
    """A system that has servers, which can be tested and need rights."""

    def look(self, endpoint: Endpoint, part: Part) -> ServerLook:
        """Return facts and findings of a server as a source or sink, without tables."""

    def rights(self, endpoint: Endpoint, part: Part, databases: Sequence[str]) -> tuple[str, ...]:
        """Return the GRANT statements that the account needs as a source or sink."""


def system(name: str) -> System:
    """Load the module of the system of that name."""
    if name not in KINDS:
        raise RefusedError(
            f"there is no system {name!r}",
            where="pipeline",
            risk=NOTHING_STARTED,
            remedy=f"use one of {', '.join(KINDS)}",
        )
    return cast(System, import_module(KINDS[name].module))


def type_of_before_kinds(form: Mapping[str, Any]) -> ColumnType:
    """Read a column type that was stored by a release that knew MySQL only."""
    module = import_module("airflow_cdc_provider.systems.mysql.dialect.column_types")
    return cast(ColumnType, module.type_of_before_kinds(form))


def open_source(endpoint: Endpoint, options: SourceOptions = NO_OPTIONS) -> Source:
    """Return the source at an endpoint; nothing is connected yet.

    By its options it reads the definitions of a pipeline's tables.
    """
    return system(endpoint.system).source(endpoint, options)


def look_at(endpoint: Endpoint, part: Part) -> ServerLook:
    """Return facts and findings of a server as a source or sink, without tables."""
    return cast(ServerSystem, system(endpoint.system)).look(endpoint, part)


def rights_at(endpoint: Endpoint, part: Part, databases: Sequence[str]) -> tuple[str, ...]:
    """Return the GRANT statements that the endpoint's account needs as a source or sink."""
    return cast(ServerSystem, system(endpoint.system)).rights(endpoint, part, databases)


def open_sink(
    name: str,
    place: SinkPlace,
    owner: Owner,
    plans: Sequence[TablePlan] = (),
    settings: SinkSettings | None = None,
) -> Sink:
    """Return the sink of a system at a place, for one generation; nothing is connected yet.

    Without a name it is of the system that the server is of.
    """
    name = name or (place.system if isinstance(place, Endpoint) else "")
    return system(name).sink(place, owner, plans, settings or SinkSettings())
