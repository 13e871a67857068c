"""Pipelines side by side and one pipeline's tables, as a page shows them: counted, not listed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from airflow_cdc_provider.core.identifiers import PipelineName
from airflow_cdc_provider.core.lifecycle import SplitStatus, TablePhase
from airflow_cdc_provider.core.records import Note, PipelineState, Sample, StreamState
from airflow_cdc_provider.core.requests import RequestStatus
from airflow_cdc_provider.core.stored_error import StoredError


@dataclass(frozen=True, slots=True)
class PipelineOverview:
    """One pipeline's state, stream and counts, for a list of pipelines."""

    state: PipelineState
    stream: StreamState | None = None
    tables: Mapping[TablePhase, int] = field(default_factory=dict)
    """How many there are in each phase."""
    requests: Mapping[RequestStatus, int] = field(default_factory=dict)
    """How many are open, by status."""
    troubles: tuple[tuple[str, StoredError], ...] = ()
    """Tables that are left alone or changed, each with its error."""
    not_copied: tuple[str, ...] = ()
    """Tables that came after the plan."""
    samples: tuple[Sample, ...] = ()
    """Of the last minutes, oldest first."""
    last_try: Note | None = None
    """What the last try to begin ended with."""
    outages: Note | None = None
    """What keeps its job from going forward."""
    conflicts: Note | None = None
    """How many conflicts it has settled, as an edge of a topology."""
    ended: Note | None = None
    """Where it has ended for good."""
    started: Note | None = None
    """Where its stream began, if no snapshot came before it."""
    published: Note | None = None
    """When tables that follow a log of the sink had last all of it."""
    preflight: Note | None = None
    """Preflight's findings, if tables came after the plan."""
    differing: tuple[str, ...] = ()
    """Tables of which the last comparison found other rows at the sink."""

    @property
    def name(self) -> PipelineName:
        return self.state.name


Cells = tuple[Mapping[SplitStatus, int], ...]


@dataclass(frozen=True, slots=True)
class TableOverview:
    """One table of a plan for display; its splits are counted in cells by their numbers."""

    source: str
    sink: str
    phase: TablePhase
    planning_done: bool
    estimated_rows: int
    error: StoredError
    splits: Mapping[SplitStatus, int] = field(default_factory=dict)
    """How many there are, by status; those that were cut are not counted."""
    cells: Cells = ()
    rows: int = 0
    bytes: int = 0
    key: tuple[str, ...] = ()
    """Columns of its primary key."""
    inserts: int | None = None
    """Rows that the stream has inserted since midnight, UTC; None where nothing is known."""
    updates: int | None = None
    deletes: int | None = None
    changed_us: int | None = None
    """When the stream changed a row last; None where it never did."""
