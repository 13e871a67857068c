"""The port of a writer slot: one session to a sink, the slot's row of the ledger, tables' rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

from airflow_cdc_provider.core.conflicts import Conflict, Values
from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.idle_log import IdleRange
from airflow_cdc_provider.core.known_log import KnownLog
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.row_counts import RowCounts, added
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.engine.sink.row_identity import Weights
from airflow_cdc_provider.engine.sink.selection import FewWork, Selection, TableBatch
from airflow_cdc_provider.engine.sink.session import Session

AnyWork = TypeVar("AnyWork", TableBatch, FewWork)
"""A batch's work, whatever its form: what comes of it has the same."""


@dataclass(frozen=True, slots=True)
class SlotOutcome:
    """What a slot has committed of a batch: its end, its counts and the error that ends it."""

    end: LogPosition
    changes_of: Mapping[TableId, RowCounts] = field(default_factory=dict)
    transactions: int = 0
    committed_us: int = 0
    stopped_by: CdcError | None = None
    """The stream ends here: a statement changed a captured table, or may have."""
    passed_over: IdleRange | None = None
    """The batch, if nothing of it was committed because it holds nothing for the sink."""
    knew: KnownLog | None = None
    """What an edge's source knew there of the sink's log; None: what it knew before."""

    @classmethod
    def of(cls, position: LogPosition, work: TableBatch | FewWork) -> SlotOutcome:
        """Return the outcome of a batch's work: its changes, transactions and commit time."""
        return cls(position, work.changes_of, work.transactions, work.committed_us)

    @property
    def changes(self) -> int:
        """Return the number of row changes in the batch, before changes of one key were merged."""
        return sum(counts.total for counts in self.changes_of.values())

    def plus(self, later: SlotOutcome) -> SlotOutcome:
        """Add the outcome of a later part of a batch; a transaction in both is counted once."""
        twice = 1 if self.transactions and later.transactions else 0
        return replace(
            later,
            changes_of=added(self.changes_of, later.changes_of),
            transactions=self.transactions + later.transactions - twice,
            committed_us=max(self.committed_us, later.committed_us),
        )


@dataclass(frozen=True, slots=True)
class SlotRow:
    """A slot's row of the ledger: its position, and its stream split."""

    position: LogPosition
    name: str
    """The name under which the store keeps the split."""
    stream: StreamSplit
    """The stored split: positions behind it are not yet taken into account."""
    knew: KnownLog | None = None
    """What an edge's source knew of the sink's log at the position; None if nothing was stored."""

    def moved(self, end: LogPosition, knew: KnownLog | None) -> SlotRow:
        """Return the row at another position; `knew` is None if that has not changed."""
        return replace(self, position=end, knew=knew or self.knew)


class LookAtOthers(Protocol):
    """Compares a batch with what others write at the sink, within its transaction."""

    def without_lost(self, work: AnyWork) -> AnyWork | None:
        """Return what is to be written of a batch's work, which was not written yet.

        None if it cannot be told of few changes: they are to be columns.
        """

    def conflicts(self) -> Sequence[Conflict] | None:
        """Return the conflicts to be stored with the rows, which are written; None: keep nothing.

        Nobody but this transaction can change them now.
        """


class SlotStore(Protocol):
    """Keeps one writer slot and the rows that it writes, in transactions of one session."""

    @property
    def session(self) -> Session:
        """Return the session that all of it is done over."""

    def locked_row(self) -> SlotRow:
        """Lock and read the slot's row; `FencedError` under an older generation.

        A slot without a row is a `SnapshotRequiredError`.
        """

    def mark(self, origins: frozenset[str]) -> None:
        """Mark the transaction, before its first row, as written at these nodes of a topology."""

    def write(self, work: TableBatch) -> None:
        """Write the rows of a batch that fall to this slot."""

    def move(self, outcome: SlotOutcome, anew: StreamSplit | None) -> None:
        """Move the slot's row to the outcome's end and count its changes.

        `anew` takes the place of the row's stream split, unless it is None. The generation is
        checked last, and held until the commit.
        """

    def set_savepoint(self) -> None:
        """Begin what `undo_to_savepoint` undoes, within the open transaction."""

    def undo_to_savepoint(self) -> None:
        """Undo what was written since the savepoint; the rows stay locked."""

    def note_conflicts(self, conflicts: Sequence[Conflict]) -> None:
        """Store conflicts in the open transaction, with the rows that were kept."""

    def text_weights(self) -> Weights:
        """Return what asks the server which texts are equal, over the same session."""

    def beaten(self, table: TableId, node: str) -> Sequence[tuple[Values, str]]:
        """Return the last change of each row at the sink that `node` has beaten, in order.

        Each by its row's key and the place of its transaction in the sink's log.
        """

    def commit_at_once(
        self,
        selection: Selection,
        row: SlotRow,
        end: LogPosition,
        *,
        look: LookAtOthers | None = None,
    ) -> SlotOutcome | None:
        """Commit a small batch that follows `row` in fewer round trips; None if nothing was kept.

        Then it is committed step by step. `look` is taken before its rows are written, and when
        they are. A store that has no such way always returns None.
        """


def smallest_end(outcomes: Sequence[SlotOutcome]) -> LogPosition:
    """Return the largest position that all slots have reached."""
    reached = outcomes[0].end
    for outcome in outcomes[1:]:
        reached = reached.meet(outcome.end)
    return reached
