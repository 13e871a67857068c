"""What every step is given: the pipeline file, its servers, the state store, and who runs it.

Steps are functions of a `Run`. Each may be repeated at any time: it looks at what the sink's
ledger says is done and does the rest. A step that writes first takes the pipeline over, which
fences everything that an earlier run may have left behind.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_cdc_provider.core.edge_remedies import for_edge
from airflow_cdc_provider.core.endpoint import Folder
from airflow_cdc_provider.core.errors import (
    NOTHING_STARTED,
    CdcError,
    LeaseHeldError,
    LedgerSetBackError,
)
from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.lifecycle import LEASE_S, Phase
from airflow_cdc_provider.core.owners import is_gone, this_process
from airflow_cdc_provider.core.plurals import counted
from airflow_cdc_provider.core.records import NoteKind, PipelineState
from airflow_cdc_provider.core.salts import keep_salts, proofs
from airflow_cdc_provider.pipeline.connections import Connections, DsnOf, Servers, resolve_servers
from airflow_cdc_provider.pipeline.file.loader import LoadedPipeline
from airflow_cdc_provider.pipeline.file.model import PipelineFile
from airflow_cdc_provider.state.read_only_store import open_read_only
from airflow_cdc_provider.state.store import SqlStateStore, open_store

if TYPE_CHECKING:
    from airflow_cdc_provider.engine.ledger.ledger import Ledger
    from airflow_cdc_provider.engine.sink.port import Copied


def _cannot_open(other: LoadedPipeline) -> Run:
    """Open no other pipeline: this one only looks."""
    raise ValueError(f"a run that only looks opens no other pipeline, as {other.model.name}")


@dataclass(slots=True)
class OwnedRun:
    """What a run owns of its pipeline: its generation, and the tables that it begins again."""

    generation: int = 0
    """Under which it took the pipeline over last; 0 if it did not."""
    begins: frozenset[TableId] = frozenset()
    """Tables of the plan that it begins again, as the file says now."""
    seeded: frozenset[Copied] = frozenset()
    """Tables whose rows at the sink the opposite edge of a topology has read from there."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a pipeline's steps: file, servers, state store, owner; close it at the end."""

    loaded: LoadedPipeline
    servers: Servers
    store: SqlStateStore
    owner: str
    """Who runs the steps, the same for all steps of one run: a lease is shared by name."""
    held: OwnedRun = field(default_factory=OwnedRun)
    connections: Connections | None = field(default=None, repr=False)
    """What the file's references stand for; None if only its servers can be found."""
    open_beside: Callable[[LoadedPipeline], Run] = field(default=_cannot_open, repr=False)
    """Opens another pipeline as this one was opened."""

    @property
    def model(self) -> PipelineFile:
        return self.loaded.model

    @property
    def name(self) -> PipelineName:
        return self.loaded.model.name

    def close(self) -> None:
        """Close the state store."""
        self.store.close()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, _: object, error: BaseException | None, *__: object) -> None:
        """Close it; an error says what can be done on an edge of a topology, if it is one."""
        self.close()
        if isinstance(error, CdcError) and (told := for_edge(error, self.model.edge)) is not error:
            raise told from error


def open_run(
    loaded: LoadedPipeline, dsn_of: DsnOf, *, owner: str = "", in_airflow: bool = False
) -> Run:
    """Open a run: find its servers and open the state store, which is created if needed."""
    servers = _servers(loaded, dsn_of, in_airflow=in_airflow)
    if servers.default_state is not None:
        servers.default_state.parent.mkdir(parents=True, exist_ok=True)
    store = open_store(servers.state_dsn)
    owner = owner or this_process()

    def open_beside(other: LoadedPipeline) -> Run:
        return open_run(other, dsn_of, owner=owner, in_airflow=in_airflow)

    return Run(
        loaded,
        servers,
        store,
        owner,
        connections=_connections(dsn_of),
        open_beside=open_beside,
    )


def open_to_look(loaded: LoadedPipeline, dsn_of: DsnOf, *, in_airflow: bool = False) -> Run:
    """Open a run that only reads; a state store that does not exist reads as empty."""
    servers = _servers(loaded, dsn_of, in_airflow=in_airflow)
    store = open_read_only(servers.state_dsn)
    return Run(loaded, servers, store, this_process(), connections=_connections(dsn_of))


def _servers(loaded: LoadedPipeline, dsn_of: DsnOf, *, in_airflow: bool) -> Servers:
    """Find the servers of a pipeline, and make the salts of its masks known to this process."""
    servers = resolve_servers(loaded, dsn_of, in_airflow=in_airflow)
    keep_salts(servers.salts)
    return servers


def _connections(dsn_of: DsnOf) -> Connections | None:
    """Return the finder of DSNs if it can also read whole Airflow connections, else None."""
    return dsn_of if isinstance(dsn_of, Connections) else None


def take_over(run: Run, ledger: Ledger, *, may_be_anew: bool = False) -> PipelineState:
    """Become the owner in the state store and the ledger; older writers are fenced from now.

    `may_be_anew`: a folder's ledger that is gone is begun anew, else it is waited for.

    A live lease of another owner is respected, because its run is active. An owner that ends gives
    its lease back. A killed one cannot: its lease runs out a minute after the last renewal, or
    counts for nothing at once if the owner was a process of this machine.
    """
    state = run.store.ensure(run.name)
    if state.owner != run.owner and lease_is_live(run, state):
        raise LeaseHeldError(
            f"{state.owner} runs the pipeline {run.name}",
            where=f"state of {run.name}, generation {state.generation}",
            risk=NOTHING_STARTED,
            remedy="let it end, or pause it and try again; if it was killed, its lease ends in "
            f"{lease_left_s(run, state)} s",
        )
    if not may_be_anew:
        require_folder(run, ledger)
    taken = run.store.take_over(run.name, run.owner, at_least=ledger.generation(), lease_s=LEASE_S)
    run.held.generation = taken.generation
    ledger.take_over(taken.generation)
    if run.servers.salts:
        run.store.keep_note(run.name, NoteKind.SALTS, proofs(run.servers.salts))
    return taken


def require_folder(run: Run, ledger: Ledger) -> None:
    """Refuse a folder without any ledger, if the pipeline has copied rows to it.

    A folder has no server that could say that it is another one: one that is not mounted is empty.
    Whoever commits there begins a new log.
    """
    if not isinstance(run.servers.sink, Folder) or ledger.generation():
        return
    tables = run.store.tables(run.name)
    copied = [table for table in tables if table.splits_finished]
    if not copied and not run.store.is_handed_off(run.name):
        return
    raise LedgerSetBackError(
        f"the sink's folder has nothing of {run.name}, which has copied "
        f"{counted(len(copied or tables), 'table')} to it: it is not mounted, or was moved or "
        "deleted",
        where=str(run.servers.sink),
        risk="another log would be begun there, and all rows would be read again; nothing was "
        "started",
        remedy="mount the folder or put it back, then run again; if it was deleted on purpose, "
        "`reset` the pipeline: its next run reads all tables again",
    )


def give_back(run: Run) -> None:
    """Give back the lease that this run took, at its end.

    One that a newer owner took is that owner's: the generation guards it. What cannot be given
    back, because the state store does not answer, runs out.
    """
    if run.held.generation:
        with suppress(CdcError):
            run.store.release_lease(run.name, run.held.generation)


def lease_left_s(run: Run, state: PipelineState) -> int:
    """Return in how many seconds a lease runs out, if it is not renewed."""
    return max(0, (state.lease_until_us - run.store.now_us()) // 1_000_000)


def is_streamed(run: Run) -> bool:
    """Tell whether another process streams now; a step with nothing to do takes nothing over."""
    state = run.store.ensure(run.name)
    return state.phase is Phase.STREAMING and lease_is_live(run, state)


def lease_is_live(run: Run, state: PipelineState) -> bool:
    """Tell whether a living owner has the pipeline's lease now."""
    return state.lease_until_us > run.store.now_us() and not is_gone(state.owner)
