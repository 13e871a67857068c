"""What every job has in its driver: the spec, the servers and the state store."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from airflow_cdc_provider.columns.sink_port import Owner, Sink, SinkSettings
from airflow_cdc_provider.columns.source_port import Source
from airflow_cdc_provider.core.endpoint import Endpoint, SinkPlace, parse_sink
from airflow_cdc_provider.core.errors import (
    NOTHING_STARTED,
    CdcError,
    FencedError,
    RefusedError,
    StateMovedError,
)
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.jobspec import JobSpec
from airflow_cdc_provider.core.lifecycle import Phase
from airflow_cdc_provider.core.ports import StateStore
from airflow_cdc_provider.core.records import PipelineState, TablePlan
from airflow_cdc_provider.core.requests import Request, RequestStatus
from airflow_cdc_provider.core.stored_error import NO_ERROR, StoredError
from airflow_cdc_provider.core.table_schema import TableSchema
from airflow_cdc_provider.engine.scrubbing import Secrets

Place = TypeVar("Place")


@dataclass(frozen=True, slots=True)
class JobServers:
    """The servers of a job, with the secrets that its spec only names."""

    source: Endpoint
    sink: SinkPlace
    state_dsn: str = field(repr=False)
    secrets: Secrets = field(default_factory=Secrets)

    @classmethod
    def from_environment(cls, spec: JobSpec, environ: Mapping[str, str] = os.environ) -> JobServers:
        """Read the DSNs that the spec names."""
        source, sink, state = (
            _dsn(environ, name, what)
            for name, what in (
                (spec.source_env, "source"),
                (spec.sink_env, "sink"),
                (spec.state_env, "state"),
            )
        )
        return cls(
            _place(Endpoint.parse, source, spec.source_env),
            _place(parse_sink, sink, spec.sink_env),
            state,
            Secrets.of_dsns(source, sink, state),
        )


class Systems(Protocol):
    """Opens a source and a sink, of whatever system."""

    def open_source(self, endpoint: Endpoint, /) -> Source:
        """Return the source; nothing is connected yet."""

    def open_sink(
        self,
        name: str,
        place: SinkPlace,
        owner: Owner,
        plans: Sequence[TablePlan],
        settings: SinkSettings,
        /,
    ) -> Sink:
        """Return the sink under a generation; nothing is connected yet."""


@dataclass(frozen=True, slots=True)
class Job:
    """One job in its driver."""

    spec: JobSpec
    servers: JobServers
    store: StateStore
    systems: Systems
    stop: threading.Event = field(default_factory=threading.Event)
    """Set when this process is asked to end."""

    def source(self) -> Source:
        """Return the source; nothing is connected yet."""
        return self.systems.open_source(self.servers.source)

    def sink(self) -> Sink:
        """Return the sink under this job's generation; nothing is connected yet."""
        spec = self.spec
        return self.systems.open_sink(
            spec.sink_type,
            self.servers.sink,
            Owner(spec.pipeline, spec.generation),
            self.plans(),
            SinkSettings(apply=spec.apply, writers=spec.writers, zero_dates=spec.zero_dates),
        )

    def pipeline(self) -> PipelineState:
        """Return the pipeline, which must be planned."""
        state = self.store.pipeline(self.spec.pipeline)
        if state is None or not state.plan_id:
            raise RefusedError(
                f"pipeline {self.spec.pipeline} has no plan",
                where="state store",
                risk=NOTHING_STARTED,
                remedy="`run` the pipeline, against the same state store",
            )
        return state

    def plans(self) -> tuple[TablePlan, ...]:
        """Return the plans of the pipeline's tables."""
        return tuple(table.plan for table in self.store.tables(self.spec.pipeline))

    def schemas(self) -> Mapping[TableId, TableSchema]:
        """Return the definitions of the pipeline's tables, as they were planned."""
        return {plan.schema.table: plan.schema for plan in self.plans()}

    def move_request(
        self, request: Request, to: RequestStatus, error: StoredError = NO_ERROR
    ) -> Request:
        """Move a request on from where it was read to be, as the pipeline's owner."""
        return self.store.move_request(
            self.spec.pipeline,
            self.spec.generation,
            request.request_id,
            expected=request.status,
            to=to,
            error=error,
        )

    def enter(self, phase: Phase, *, from_: frozenset[Phase]) -> None:
        """Move the pipeline to `phase`; harmless if it is there already."""
        state = self.pipeline()
        if state.phase is phase:
            return
        if state.phase not in from_:
            raise StateMovedError(
                f"the pipeline is in phase {state.phase.value}, so no {self.spec.kind.value} job "
                "may start",
                where=f"state of {self.spec.pipeline}",
                risk=NOTHING_STARTED,
                remedy="look at the pipeline's status; the step before this one is not done",
            )
        self.store.move(self.spec.pipeline, self.spec.generation, expected=state.phase, to=phase)


@contextmanager
def remembered_failure(job: Job) -> Iterator[None]:
    """Put a failure where people look for it; the failure itself goes on."""
    try:
        yield
    except (FencedError, StateMovedError):
        raise  # the pipeline is someone else's, and so is its state
    except CdcError as error:
        _remember(job, error.rewritten(job.servers.secrets.scrub))
        raise


def _remember(job: Job, error: CdcError) -> None:
    spec = job.spec
    with suppress(CdcError):
        state = job.store.pipeline(spec.pipeline)
        if state is not None:
            stored = StoredError.of(error)
            job.store.move(
                spec.pipeline, spec.generation, expected=state.phase, to=Phase.FAILED, error=stored
            )
        job.store.tell(spec.pipeline, f"{spec.kind.value} failed: {error}", level="error")


def _dsn(environ: Mapping[str, str], name: str, what: str) -> str:
    dsn = environ.get(name, "")
    if not dsn:
        raise RefusedError(
            f"the environment variable {name} with the {what}'s DSN is not set",
            where="environment of the Spark driver",
            risk=NOTHING_STARTED,
            remedy=f"set {name} for the driver's process, never on its command line",
        )
    return dsn


def _place(parse: Callable[[str], Place], dsn: str, name: str) -> Place:
    try:
        return parse(dsn)
    except ValueError as error:
        raise RefusedError(str(error), where=f"${name}", remedy=f"correct {name}") from None
