"""What every job has in its driver: the spec, the servers and the state store."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from airflow_cdc_provider.columns.source_port import Source
from airflow_cdc_provider.core.codec import position_from_json
from airflow_cdc_provider.core.edge_remedies import for_edge
from airflow_cdc_provider.core.endpoint import Endpoint, SinkPlace, parse_sink
from airflow_cdc_provider.core.errors import (
    NOTHING_STARTED,
    CdcError,
    FencedError,
    RefusedError,
    StateMovedError,
)
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.jobspec import JobSpec, SourceOptions
from airflow_cdc_provider.core.lifecycle import Phase
from airflow_cdc_provider.core.ports import StateStore
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.records import NoteKind, PipelineState, TablePlan
from airflow_cdc_provider.core.requests import Request, RequestStatus
from airflow_cdc_provider.core.salts import Salt, keep_salts
from airflow_cdc_provider.core.stored_error import NO_ERROR, StoredError
from airflow_cdc_provider.core.table_schema import TableSchema
from airflow_cdc_provider.engine.scrubbing import Secrets
from airflow_cdc_provider.engine.sink.port import Owner, Sink, SinkSettings
from airflow_cdc_provider.engine.stream.isolation import mark_drifted

Place = TypeVar("Place")


@dataclass(frozen=True, slots=True)
class JobServers:
    """The endpoints of a job's source, sink and state store, and the secrets in them."""

    source: Endpoint
    sink: SinkPlace
    state_dsn: str = field(repr=False)
    secrets: Secrets = field(default_factory=Secrets)
    replicas: tuple[Endpoint, ...] = ()
    """Those whose lag holds up what reads splits."""
    salts: tuple[Salt, ...] = ()
    """Those by which columns are masked."""

    @classmethod
    def from_environment(cls, spec: JobSpec, environ: Mapping[str, str] = os.environ) -> JobServers:
        """Read DSNs and salts from the environment variables that the spec names."""
        source, sink, state = (
            _dsn(environ, name, what)
            for name, what in (
                (spec.source_env, "source"),
                (spec.sink_env, "sink"),
                (spec.state_env, "state"),
            )
        )
        replicas = [_dsn(environ, name, "replica") for name in spec.replica_envs]
        salts = tuple(
            Salt(name, _dsn(environ, variable, name))
            for name, variable in zip(spec.salts, spec.salt_envs, strict=True)
        )
        keep_salts(salts)
        secrets = Secrets.of_dsns(source, sink, state, *replicas)
        return cls(
            _place(Endpoint.parse, source, spec.source_env),
            _place(parse_sink, sink, spec.sink_env),
            state,
            secrets.with_texts(*(salt.text for salt in salts)),
            tuple(
                _place(Endpoint.parse, dsn, name)
                for name, dsn in zip(spec.replica_envs, replicas, strict=True)
            ),
            salts,
        )


class Systems(Protocol):
    """Opens the source and the sink of a job, for any kind of system."""

    def open_source(self, endpoint: Endpoint, options: SourceOptions = ..., /) -> Source:
        """Return the source; no connection is opened yet."""

    def open_sink(
        self,
        name: str,
        place: SinkPlace,
        owner: Owner,
        plans: Sequence[TablePlan],
        settings: SinkSettings,
        /,
    ) -> Sink:
        """Return the sink, for writing under a generation; no connection is opened yet."""


@dataclass(frozen=True, slots=True)
class Job:
    """A job as its driver has it: spec, servers, state store and stop signal."""

    spec: JobSpec
    servers: JobServers
    store: StateStore
    systems: Systems
    stop: threading.Event = field(default_factory=threading.Event)
    """Set when this process is asked to end."""

    def source(self) -> Source:
        """Return the source; no connection is opened yet."""
        return self.systems.open_source(self.servers.source, self.spec.source_options)

    def sink(self) -> Sink:
        """Return the sink, for writing under this job's generation; no connection is opened yet."""
        spec = self.spec
        return self.systems.open_sink(
            spec.sink_type,
            self.servers.sink,
            Owner(spec.pipeline, spec.generation),
            self.plans(),
            SinkSettings(
                spec.apply, spec.writers, spec.source_options, spec.edge, self._known_at_first()
            ),
        )

    def _known_at_first(self) -> LogPosition | None:
        """Return what an edge's source knew of the sink's log at first, None if nothing is kept."""
        edge, name = self.spec.edge, self.spec.pipeline
        if edge is None or not edge.is_guarded:
            return None
        note = self.store.note(name, NoteKind.KNOWN) or self.store.note(name, NoteKind.SEED)
        return None if note is None else position_from_json(note.form["position"])

    def pipeline(self) -> PipelineState:
        """Return the pipeline's state; `RefusedError` if the pipeline has no plan."""
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
        """Move a request to another status, from the one that it was read with, as the owner."""
        return self.store.move_request(
            self.spec.pipeline,
            self.spec.generation,
            request.request_id,
            expected=request.status,
            to=to,
            error=error,
        )

    def enter(self, phase: Phase, *, from_: frozenset[Phase]) -> None:
        """Move the pipeline from a phase in `from_` to `phase`; nothing is done if it is there."""
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
    """Store an error that ends the job as the pipeline's error, and raise it again."""
    try:
        yield
    except (FencedError, StateMovedError):
        raise  # the pipeline is someone else's, and so is its state
    except CdcError as error:
        told = for_edge(error, job.spec.edge)
        _remember(job, told.rewritten(job.servers.secrets.scrub))
        if told is error:
            raise
        raise told from error


def _remember(job: Job, error: CdcError) -> None:
    """Mark the pipeline as failed and record the error among its events."""
    spec = job.spec
    with suppress(CdcError):
        state = job.store.pipeline(spec.pipeline)
        if state is not None:
            stored = StoredError.of(error)
            job.store.move(
                spec.pipeline, spec.generation, expected=state.phase, to=Phase.FAILED, error=stored
            )
            mark_drifted(job.store, spec.pipeline, spec.generation, error)
        job.store.tell(spec.pipeline, f"{spec.kind.value} failed: {error}", level="error")


def _dsn(environ: Mapping[str, str], name: str, what: str) -> str:
    """Return the DSN in an environment variable; `RefusedError` if the variable is not set."""
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
    """Parse a DSN; a wrong one is refused by the name of its environment variable."""
    try:
        return parse(dsn)
    except ValueError as error:
        raise RefusedError(str(error), where=f"${name}", remedy=f"correct {name}") from None
