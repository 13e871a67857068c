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
    """Called at the four moments around the watermarks of a split; does nothing by default."""

    def before_low(self, split: SnapshotSplit) -> None:
        """Called before L, the low watermark, is taken."""

    def after_low(self, split: SnapshotSplit) -> None:
        """Called after L is taken, before the rows are read."""

    def before_high(self, split: SnapshotSplit) -> None:
        """Called after the rows are read, before H, the high watermark, is taken."""

    def after_high(self, split: SnapshotSplit) -> None:
        """Called after H is taken, before the log between L and H is replayed."""


class SilentListener:
    """A `PhaseListener` that does nothing."""

    def before_low(self, split: SnapshotSplit) -> None:
        """Do nothing."""

    def after_low(self, split: SnapshotSplit) -> None:
        """Do nothing."""

    def before_high(self, split: SnapshotSplit) -> None:
        """Do nothing."""

    def after_high(self, split: SnapshotSplit) -> None:
        """Do nothing."""


class StateReader(Protocol):
    """Reads what the state store has of a pipeline."""

    def pipeline(self, name: PipelineName) -> PipelineState | None: ...

    def origin(self, name: PipelineName) -> PlanOrigin | None:
        """Return what the plan was made from, None if that was not stored."""

    def not_copied(self, name: PipelineName) -> tuple[TableId, ...]:
        """Return the tables that the file picks but the plan lacks, as they were last seen."""

    def tables(self, name: PipelineName) -> tuple[TableState, ...]: ...

    def splits(
        self, name: PipelineName, table: TableId | None = None
    ) -> tuple[SplitState, ...]: ...

    def split_reports(self, name: PipelineName, table: TableId) -> tuple[SplitReport, ...]:
        """Return the reports of a table's splits, by number."""

    def split_statuses(self, name: PipelineName) -> Mapping[str, SplitStatus]:
        """Return each split's status by the split's id; faster than reading the splits."""

    def is_handed_off(self, name: PipelineName) -> bool:
        """Tell whether a hand-off is stored; reading a large `hand_off` takes seconds."""

    def hand_off(self, name: PipelineName) -> StreamSplit | None:
        """Return the stream split as it was stored at hand-off."""

    def stream(self, name: PipelineName) -> StreamState | None: ...

    def events(self, name: PipelineName, limit: int = 100) -> tuple[PipelineEvent, ...]:
        """Return the latest events of a pipeline, newest first."""

    def requests(self, name: PipelineName, *, only_open: bool = False) -> tuple[Request, ...]:
        """Return the requests on a pipeline, oldest first."""

    def to_do(self, name: PipelineName) -> tuple[Request, ...]:
        """Return the open requests that a running stream carries out, oldest first."""

    def table_requests(self, name: PipelineName) -> tuple[Request, ...]:
        """Return the open requests that add, remove or restart tables, oldest first."""

    def added_us(self, name: PipelineName) -> int:
        """Return when a request to add a table was last done, 0 if none was."""

    def request(self, name: PipelineName, request_id: str) -> Request | None: ...

    def note(self, name: PipelineName, kind: NoteKind) -> Note | None:
        """Return the last note of a kind, None if there is none."""

    def samples(self, name: PipelineName, since_us: int) -> tuple[Sample, ...]:
        """Return the pipeline's samples of lag and row counts since a time, oldest first."""


class StateStore(StateReader, Protocol):
    """Stores a pipeline's state. An owner's writes name its generation, to be fenced by.

    A write under an old generation raises `FencedError`; a move from a phase that is no longer
    there raises `StateMovedError`.
    """

    def ensure(self, name: PipelineName) -> PipelineState:
        """Return the pipeline's state; a pipeline that is not known is created."""

    def take_over(
        self, name: PipelineName, owner: str, *, at_least: int = 0, lease_s: float = LEASE_S
    ) -> PipelineState:
        """Become the owner under a new generation, larger than any before and than `at_least`."""

    def renew_lease(
        self, name: PipelineName, generation: int, lease_s: float = LEASE_S
    ) -> PipelineState:
        """Prolong the owner's lease, and return the state with what is wanted now."""

    def release_lease(self, name: PipelineName, generation: int) -> None:
        """End the owner's lease at once, so that the next owner need not wait."""

    def begun_again(self, name: PipelineName, generation: int) -> None:
        """Note that the owner has begun again after a restart was wanted.

        What was wanted since then stays wanted.
        """

    def want(self, name: PipelineName, wanted: Wanted) -> None:
        """Store what a person wants of the pipeline: run, stop or restart."""

    def move(
        self,
        name: PipelineName,
        generation: int,
        *,
        expected: Phase,
        to: Phase,
        error: StoredError = NO_ERROR,
    ) -> PipelineState:
        """Move to another phase from `expected`; `StateMovedError` if the phase is another."""

    def start_plan(
        self,
        name: PipelineName,
        generation: int,
        plan_id: str,
        tables: Sequence[TablePlan],
        *,
        origin: PlanOrigin | None = None,
    ) -> None:
        """Store a new plan, made from `origin`; the splits of an older plan are deleted."""

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
        """Add tables to the stored plan, change their definitions, or remove them.

        Added tables are read beside the stream. `changed` go on under another definition, and what
        was read of them stays.
        """

    def keep_origin(
        self,
        name: PipelineName,
        generation: int,
        origin: PlanOrigin,
        not_copied: Iterable[TableId] = (),
    ) -> None:
        """Store what the plan is made from now, and which tables came after it."""

    def add_splits(
        self, name: PipelineName, generation: int, splits: Iterable[SnapshotSplit]
    ) -> None:
        """Store planned splits; storing one twice is harmless."""

    def finish_planning(self, name: PipelineName, generation: int, table: TableId) -> None:
        """Note that no more splits of this table will be planned."""

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
        """Store a split's status; the status READING adds one to its attempts."""

    def finish_splits(
        self,
        name: PipelineName,
        generation: int,
        reports: Iterable[tuple[SnapshotSplit, SplitReport]],
    ) -> None:
        """Store many splits as finished, with their reports."""

    def mark_table(
        self,
        name: PipelineName,
        generation: int,
        table: TableId,
        phase: TablePhase,
        error: StoredError = NO_ERROR,
    ) -> None:
        """Store a table's phase and error."""

    def store_hand_off(self, name: PipelineName, generation: int, stream: StreamSplit) -> None:
        """Store the stream split at hand-off."""

    def beat(
        self,
        name: PipelineName,
        generation: int,
        stream: StreamState,
        *,
        counts: Mapping[TableId, TableCounts] = NO_COUNTS,
        is_last: bool = False,
    ) -> None:
        """Store the stream's progress and heartbeat, and the counts of changes of its tables.

        With `is_last` a sample is stored in any case.
        """

    def tell(self, name: PipelineName, text: str, *, level: str = "info") -> None:
        """Add an event to the pipeline's history."""

    def keep_note(self, name: PipelineName, kind: NoteKind, form: Mapping[str, Any]) -> None:
        """Store a note in place of the last one of its kind; any process may, owner or not."""

    def told(self, name: PipelineName) -> Mapping[TableId, AnnouncedTable]:
        """Return what was last announced of each table's changes."""

    def last_told_us(self, name: PipelineName) -> int:
        """Return when a table's changes were last announced, 0 if they never were."""

    def move_note(
        self,
        name: PipelineName,
        kind: NoteKind,
        form: Mapping[str, Any],
        *,
        expected: Note | None,
    ) -> bool:
        """Store a note in place of `expected`; False if another note is there by now."""

    def store_announced(self, name: PipelineName, tables: Iterable[AnnouncedTable]) -> None:
        """Store what is announced of tables' changes, in place of what was announced before."""

    def now_us(self) -> int:
        """Return the current time by the store's clock, in microseconds."""

    def ask(self, request: Request) -> Request:
        """Store a new request; one of the same id and arguments is returned as it is.

        The same id with other arguments is refused.
        """

    def approve_request(self, name: PipelineName, request_id: str) -> Request:
        """Let a request begin that waits for approval; any other is returned as it is."""

    def cancel_request(self, name: PipelineName, request_id: str) -> Request:
        """Ask the owner to cancel a request; one that has not begun is cancelled at once."""

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
        """Move a request from `expected` to another status; `StateMovedError` if it has another."""

    def note_request(self, generation: int, request: Request) -> Request:
        """Store a request's counts, position and error; return the request as it is stored then."""
