"""The doors between rooms: small protocols, each owned by the room that calls through it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.lifecycle import LEASE_S, Phase, SplitStatus, TablePhase, Wanted
from airflow_cdc_provider.core.records import (
    AnnouncedTable,
    Note,
    NoteKind,
    PipelineEvent,
    PipelineState,
    PlanOrigin,
    Sample,
    SplitState,
    StreamState,
    TablePlan,
    TableState,
)
from airflow_cdc_provider.core.requests import Request, RequestStatus
from airflow_cdc_provider.core.row_counts import NO_COUNTS, TableCounts
from airflow_cdc_provider.core.splits import SnapshotSplit, SplitReport
from airflow_cdc_provider.core.stored_error import NO_ERROR, StoredError
from airflow_cdc_provider.core.stream_split import StreamSplit


class PhaseListener(Protocol):
    """Told at the four moments around the watermarks of a split; silent by default."""

    def before_low(self, split: SnapshotSplit) -> None:
        """L is about to be taken."""

    def after_low(self, split: SnapshotSplit) -> None:
        """L is taken; the rows are about to be read."""

    def before_high(self, split: SnapshotSplit) -> None:
        """The rows are read; H is about to be taken."""

    def after_high(self, split: SnapshotSplit) -> None:
        """H is taken; the log between is about to be replayed."""


class SilentListener:
    """Does nothing at every moment."""

    def before_low(self, split: SnapshotSplit) -> None:
        """Do nothing."""

    def after_low(self, split: SnapshotSplit) -> None:
        """Do nothing."""

    def before_high(self, split: SnapshotSplit) -> None:
        """Do nothing."""

    def after_high(self, split: SnapshotSplit) -> None:
        """Do nothing."""


class StateReader(Protocol):
    """Looks at what is remembered of a pipeline."""

    def pipeline(self, name: PipelineName) -> PipelineState | None: ...

    def origin(self, name: PipelineName) -> PlanOrigin | None:
        """Return what the plan was made from, None if that was not remembered."""

    def not_copied(self, name: PipelineName) -> tuple[TableId, ...]:
        """Return the tables that fit the file but came after the plan, as last seen."""

    def tables(self, name: PipelineName) -> tuple[TableState, ...]: ...

    def splits(
        self, name: PipelineName, table: TableId | None = None
    ) -> tuple[SplitState, ...]: ...

    def split_reports(self, name: PipelineName, table: TableId) -> tuple[SplitReport, ...]:
        """Return the reports of a table's splits, by number."""

    def split_statuses(self, name: PipelineName) -> Mapping[str, SplitStatus]:
        """Return where each split stands, by its id; reading the splits takes longer."""

    def is_handed_off(self, name: PipelineName) -> bool:
        """Tell whether there is a hand-off; `hand_off` of many splits takes seconds to read."""

    def hand_off(self, name: PipelineName) -> StreamSplit | None:
        """Return the stream split as it was handed off."""

    def stream(self, name: PipelineName) -> StreamState | None: ...

    def events(self, name: PipelineName, limit: int = 100) -> tuple[PipelineEvent, ...]:
        """Return the latest events, newest first."""

    def requests(self, name: PipelineName, *, only_open: bool = False) -> tuple[Request, ...]:
        """Return what was asked of the pipeline, oldest first."""

    def to_do(self, name: PipelineName) -> tuple[Request, ...]:
        """Return the requests that a stream carries out, oldest first."""

    def table_requests(self, name: PipelineName) -> tuple[Request, ...]:
        """Return the open requests by which tables come, go or begin again, oldest first."""

    def added_us(self, name: PipelineName) -> int:
        """Return when the rows of a table were last read beside the stream for the first time."""

    def request(self, name: PipelineName, request_id: str) -> Request | None: ...

    def note(self, name: PipelineName, kind: NoteKind) -> Note | None:
        """Return what was noted last, None if nothing was."""

    def samples(self, name: PipelineName, since_us: int) -> tuple[Sample, ...]:
        """Return how the pipeline was since then, oldest first."""


class StateStore(StateReader, Protocol):
    """Remembers a pipeline. Every write names the generation it is made under.

    A write under an old generation raises `FencedError`; a move from a phase that is no longer
    there raises `StateMovedError`.
    """

    def ensure(self, name: PipelineName) -> PipelineState:
        """Return the pipeline, new if it was unknown."""

    def take_over(
        self, name: PipelineName, owner: str, *, at_least: int = 0, lease_s: float = LEASE_S
    ) -> PipelineState:
        """Become the owner under a new generation, larger than any before and than `at_least`."""

    def renew_lease(
        self, name: PipelineName, generation: int, lease_s: float = LEASE_S
    ) -> PipelineState:
        """Prolong the lease and return what is wanted now."""

    def release_lease(self, name: PipelineName, generation: int) -> None:
        """Give the lease back, so that the next owner need not wait for its end."""

    def begun_again(self, name: PipelineName, generation: int) -> None:
        """Tell that a restart was heeded; what was wanted since then stays wanted."""

    def want(self, name: PipelineName, wanted: Wanted) -> None:
        """Ask the pipeline's owner to run or to stop."""

    def move(
        self,
        name: PipelineName,
        generation: int,
        *,
        expected: Phase,
        to: Phase,
        error: StoredError = NO_ERROR,
    ) -> PipelineState:
        """Move on from `expected`, or raise `StateMovedError` if someone already has."""

    def start_plan(
        self,
        name: PipelineName,
        generation: int,
        plan_id: str,
        tables: Sequence[TablePlan],
        *,
        origin: PlanOrigin | None = None,
    ) -> None:
        """Store a new plan, made from `origin`; the splits of an older one are forgotten."""

    def change_plan(
        self,
        name: PipelineName,
        generation: int,
        *,
        added: Sequence[TablePlan] = (),
        changed: Sequence[TablePlan] = (),
        removed: Iterable[TableId] = (),
        origin: PlanOrigin | None = None,
    ) -> None:
        """Add tables to the plan, which are read beside the stream, or take some out.

        `changed` go on under another definition, and what was read of them stays.
        """

    def keep_origin(
        self,
        name: PipelineName,
        generation: int,
        origin: PlanOrigin,
        not_copied: Iterable[TableId] = (),
    ) -> None:
        """Store what the plan stands on now, and which tables came after it."""

    def add_splits(
        self, name: PipelineName, generation: int, splits: Iterable[SnapshotSplit]
    ) -> None:
        """Store planned splits; storing one twice is harmless."""

    def finish_planning(self, name: PipelineName, generation: int, table: TableId) -> None:
        """Tell that no more splits of this table will be planned."""

    def mark_split(
        self,
        name: PipelineName,
        generation: int,
        split: SnapshotSplit,
        status: SplitStatus,
        *,
        report: SplitReport | None = None,
        error: StoredError = NO_ERROR,
    ) -> None:
        """Store where a split stands; READING counts an attempt."""

    def finish_splits(
        self,
        name: PipelineName,
        generation: int,
        reports: Iterable[tuple[SnapshotSplit, SplitReport]],
    ) -> None:
        """Store that many splits are finished."""

    def mark_table(
        self,
        name: PipelineName,
        generation: int,
        table: TableId,
        phase: TablePhase,
        error: StoredError = NO_ERROR,
    ) -> None:
        """Store where a table stands."""

    def store_hand_off(self, name: PipelineName, generation: int, stream: StreamSplit) -> None:
        """Store the stream split."""

    def beat(
        self,
        name: PipelineName,
        generation: int,
        stream: StreamState,
        *,
        counts: Mapping[TableId, TableCounts] = NO_COUNTS,
        is_last: bool = False,
    ) -> None:
        """Store the stream's progress and heartbeat, and the counts of tables that were looked at.

        Of the last heartbeat there is a sample in any case.
        """

    def tell(self, name: PipelineName, text: str, *, level: str = "info") -> None:
        """Add an event."""

    def keep_note(self, name: PipelineName, kind: NoteKind, form: Mapping[str, Any]) -> None:
        """Note something in the place of what was noted before; whoever it is that does."""

    def told(self, name: PipelineName) -> Mapping[TableId, AnnouncedTable]:
        """Return what others were last told of each table."""

    def last_told_us(self, name: PipelineName) -> int:
        """Return when something was last told, 0 if nothing was."""

    def move_note(
        self,
        name: PipelineName,
        kind: NoteKind,
        form: Mapping[str, Any],
        *,
        expected: Note | None,
    ) -> bool:
        """Note something in the place of `expected`; False if another note is there by now."""

    def note_told(self, name: PipelineName, tables: Iterable[AnnouncedTable]) -> None:
        """Remember what others are told, in the place of what was told before."""

    def now_us(self) -> int:
        """Return the time that requests are stamped with."""

    def ask(self, request: Request) -> Request:
        """Store a request that is new; one of the same id and arguments is returned as it is.

        The same id with other arguments is refused.
        """

    def approve_request(self, name: PipelineName, request_id: str) -> Request:
        """Let a request begin that waits for it; one that need not wait is returned as it is."""

    def cancel_request(self, name: PipelineName, request_id: str) -> Request:
        """Ask the owner to give a request up; one that nobody began is cancelled at once."""

    def move_request(
        self,
        name: PipelineName,
        generation: int,
        request_id: str,
        *,
        expected: RequestStatus,
        to: RequestStatus,
        error: StoredError = NO_ERROR,
    ) -> Request:
        """Move a request on from `expected`, or raise `StateMovedError` if someone already has."""

    def note_request(self, generation: int, request: Request) -> Request:
        """Store the counts, position and error of a request; return it as it is wanted now."""
