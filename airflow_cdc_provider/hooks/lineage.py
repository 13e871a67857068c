"""Operators and sensors tell OpenLineage of their tables, where its provider is installed.

The provider's listener asks a task when it begins and when it has ended, usually in a process that
it forks for that, and sends what it is told. What a task knows by then it remembers; the rest is
read from the state store. Where the provider is not installed nobody asks, nothing is imported
and nothing is read.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_cdc_provider.core.endpoint import Endpoint, SinkPlace
from airflow_cdc_provider.core.errors import CdcError, RetryableError
from airflow_cdc_provider.core.identifiers import PipelineName
from airflow_cdc_provider.hooks.dsn import AirflowDsns
from airflow_cdc_provider.pipeline.connections import Servers, resolve_servers
from airflow_cdc_provider.pipeline.file.loader import load_pipeline
from airflow_cdc_provider.systems.kinds import naming_of
from airflow_cdc_provider.views.lineage import Lineage, LineageSide, LineageWork, lineage

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage

    from airflow_cdc_provider.hooks.steps import CdcSteps

    Told = OperatorLineage[Any, Any] | None

log = logging.getLogger(__name__)
PATIENCE_S = 5.0
"""For how long the state store may be asked; the listener itself ends after 10 seconds."""


@dataclass(frozen=True, slots=True)
class SeenPipeline:
    """What a task's lineage needs to know of its pipeline: name, sink type, servers."""

    name: PipelineName
    sink_type: str
    servers: Servers

    @classmethod
    def of(cls, steps: CdcSteps) -> SeenPipeline:
        """Make the record of the pipeline that a task has open."""
        return cls(steps.run.name, steps.run.model.sink.type, steps.run.servers)

    @classmethod
    def find(cls, path: str) -> SeenPipeline:
        """Make the record from a pipeline's file and connections; no server is queried."""
        loaded = load_pipeline(path)
        servers = resolve_servers(loaded, AirflowDsns(), in_airflow=True)
        return cls(loaded.model.name, loaded.model.sink.type, servers)

    def lineage(self, work: LineageWork) -> Lineage:
        """Return the lineage of a task's tables, read from the state store.

        Empty without a plan.
        """
        from airflow_cdc_provider.state.read_only_store import (  # noqa: PLC0415 - SQLAlchemy
            open_present,
            store_exists,
        )

        if not store_exists(self.servers.state_dsn):
            return Lineage()
        store = open_present(self.servers.state_dsn)
        try:
            return lineage(
                store.tables(self.name),
                store.stream(self.name),
                source=_side(self.servers.source),
                sink=_side(self.servers.sink, self.sink_type),
                work=work,
            )
        finally:
            store.close()


class LineageMixin:
    """Mixin of operators that report their tables to OpenLineage."""

    pipeline: str
    _seen_pipeline: SeenPipeline | None = None

    def see(self, steps: CdcSteps) -> None:
        """Remember the pipeline, so that its file need not be read when the task ends."""
        self._seen_pipeline = SeenPipeline.of(steps)

    def lineage_work(self) -> LineageWork | None:
        """Return the task's tables and what it did with each so far; None for no lineage.

        Called before the task does anything, too.
        """
        return None

    def get_openlineage_facets_on_start(self) -> Told:
        """Return the task's tables for OpenLineage's start event."""
        return self._tell_lineage()

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Told:  # noqa: ARG002
        """Return what the task did with its tables for OpenLineage's complete event."""
        return self._tell_lineage()

    def get_openlineage_facets_on_failure(self, task_instance: Any) -> Told:  # noqa: ARG002
        """Return what the task did before it failed, for OpenLineage's fail event."""
        return self._tell_lineage()

    def _tell_lineage(self) -> Told:
        """Return the task's lineage in OpenLineage's classes; None if it cannot be found."""
        # only whoever has it installed asks
        from airflow_cdc_provider.hooks.openlineage import operator_lineage  # noqa: PLC0415

        try:
            found = self._find_lineage()
        except CdcError as error:
            log.warning(
                "OpenLineage is not told of this task's tables, and the task goes on: %s",
                error.what,
            )
            return None
        if found.cut:
            log.info("OpenLineage: %s", found.cut)
        return operator_lineage(found)

    def _find_lineage(self) -> Lineage:
        """Find the task's lineage, within a time limit."""
        is_refused = getattr(self, "refused", "")  # which sensors never are
        work = None if is_refused else self.lineage_work()
        if work is None:
            return Lineage()
        # not in the thread: it may be left alone while it asks Airflow for a connection
        seen = self._seen_pipeline or SeenPipeline.find(self.pipeline)
        return _in_time(lambda: seen.lineage(work))


def _side(place: SinkPlace, system: str = "") -> LineageSide:
    """Return how tables are named in lineage: by the server's kind, else the sink's."""
    return LineageSide(place, naming_of(place.system if isinstance(place, Endpoint) else system))


def _in_time(work: Callable[[], Lineage]) -> Lineage:
    """Return what `work` returns; raise if it takes too long."""
    came: list[Lineage | Exception] = []

    def do() -> None:
        try:
            came.append(work())
        except Exception as error:  # noqa: BLE001 - it is raised again below
            came.append(error)

    thread = threading.Thread(target=do, name="cdc-lineage", daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    if not came:
        raise RetryableError(
            f"the state store did not answer within {PATIENCE_S:.0f} s",
            where="state",
            risk="none: lineage alone is missing",
            remedy="look why the state database is slow",
        )
    if isinstance(came[0], Exception):
        raise came[0]
    return came[0]
