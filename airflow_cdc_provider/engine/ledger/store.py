"""The port of a ledger's store: it reads parts of the state, and commits what is decided."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol, runtime_checkable

from airflow_cdc_provider.core.hand_off_check import Report
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.lock_waits import LockWait
from airflow_cdc_provider.core.stream_counts import StreamCounts, TableChangeCount
from airflow_cdc_provider.engine.ledger.records import Records
from airflow_cdc_provider.engine.ledger.state import LedgerState, Part


class Hold(Enum):
    """When a store makes sure that the generation stays the one that may commit."""

    ARRIVAL = auto()
    """From before the state is read; the pipeline may be new to the ledger."""
    FIRST = auto()
    """From before the state is read."""
    LAST = auto()
    """Only behind all that is written, so that a newer owner does not wait for the rest."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A decision that a store is to make within one transaction, on behalf of a generation."""

    by: int
    decide: Callable[[LedgerState], Records]
    """May be called again, if the transaction was undone or another writer was first."""
    reads: Part
    """Beside the owner's part, which is always read; what it reads of the slots is held."""
    hold: Hold = Hold.FIRST


@runtime_checkable
class KnowsLockWaits(Protocol):
    """A store at a server that tells which of the owner's statements wait for a lock."""

    def lock_waits(self, *, from_s: int) -> Sequence[LockWait]:
        """Return the owner's writers that have waited for a table's lock for so many seconds."""


@runtime_checkable
class KeepsEdge(Protocol):
    """A store that keeps which edge of a topology its pipeline is, and its rules for conflicts."""

    def edge(self) -> str:
        """Return the text that was last kept, empty if there is none."""

    def keep_edge(self, text: str, *, by: int) -> None:
        """Keep another text, on behalf of a generation; `FencedError` if it may not commit."""


class LedgerStore(Protocol):
    """Keeps one pipeline's ledger in a sink. It decides nothing."""

    def read(self, parts: Part) -> LedgerState:
        """Return these parts as last committed; nothing is locked."""

    def commit(self, ask: Ask) -> LedgerState:
        """Read what the decision needs, decide, and write all of its records or none.

        Returns the state behind them. A commit under a generation that is not the ledger's any more
        is a `FencedError`, also if it was when the decision was made. When the generation is moved,
        what older ones have open is ended once that is committed.
        """

    def finished_ids(self) -> AbstractSet[str]:
        """Return the ids of the current plan's finished splits, without reading their reports."""

    def reports(self, *, but: AbstractSet[str] = frozenset()) -> Sequence[Report]:
        """Return the current plan's finished splits and reports in order, except ids in `but`."""

    def counts(self) -> StreamCounts:
        """Return what the stream has committed since the hand-off, and the lag."""

    def changed_tables(self, *, handed_off: bool = False) -> Mapping[TableId, TableChangeCount]:
        """Return how much each table was changed; `handed_off` adds those that were not since."""

    def close(self) -> None:
        """Close the connection."""
