"""What the threads of a stream job tell each other."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from airflow_cdc_provider.core.codec import idle_range_from_json
from airflow_cdc_provider.core.errors import CdcError, FencedError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.idle_log import IdleRange
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.stopped_tables import StoppedTable
from airflow_cdc_provider.core.stream_counts import StreamCounts
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.engine.stream.idle_commits import IdleCommits

ERROR = "error"
"""The kind of a row that tells why a micro-batch of Spark's failed."""


@dataclass(slots=True)
class Following:
    """The state that the threads of a stream job share: stop signal, bound, tables, errors."""

    tables: frozenset[TableId] = frozenset()
    """Those that the stream owns, by the sink's ledger."""
    bound: LogPosition | None = None
    """Where a bounded run ends."""
    bound_us: int | None = None
    """When the log was asked for its end, which is the bound; a time since 1970."""
    is_last: bool = False
    """The stream ends there for good."""
    ending: threading.Event = field(default_factory=threading.Event)
    """Set when asked to stop, to begin again, or when fenced."""
    begins_again: bool = False
    """To begin again, from the ledger and with what the state store then knows of the tables."""
    changing: threading.RLock = field(default_factory=threading.RLock)
    """Held while a table's definition is changed, and while rows that were read again join."""
    passed_over: IdleCommits = field(default_factory=IdleCommits)
    error: CdcError | None = None
    """Of the micro-batch that failed last, or the fencing."""
    carries_out: bool = False
    """A bounded run ends once what was asked of the pipeline is done."""
    coming_back: frozenset[TableId] = frozenset()
    """Stopped tables that are read beside the stream, to come back."""
    caught_up: frozenset[TableId] = frozenset()
    """Those of them that have come to the end of the log."""
    stopped: tuple[StoppedTable, ...] = ()
    """Tables that the stream leaves alone, when the ledger was last read."""
    left_behind: bool = False
    """A table that follows the sink's log could not be committed to when the stream ended."""
    on_new_tables: Callable[[Sequence[TableId]], None] = lambda _: None
    """Hears the names of tables that came at the source, captured ones too."""
    before: StreamCounts | None = None
    """What earlier runs had committed; None until this one has begun."""
    committed: tuple[StreamSplit, StreamCounts] | None = None
    """What the ledger had when it was last read, by the stream or by its heartbeat."""
    began_s: float | None = None
    """When the try that is under way began, by the monotonic clock; None while none is."""

    def end(self, fenced: FencedError | None) -> None:
        """Ask the stream to end; `fenced` if a newer owner has taken over."""
        self.error = fenced or self.error
        self.ending.set()

    def begin_again(self) -> None:
        """Ask the stream to end and to be opened again."""
        self.begins_again = True
        self.ending.set()

    def again(self) -> Following:
        """Return a new control for the stream's next reading of the log, after one that ended."""
        return Following(
            bound=self.bound,
            bound_us=self.bound_us,
            is_last=self.is_last,
            carries_out=self.carries_out,
            coming_back=self.coming_back,
            caught_up=self.caught_up,
            before=self.before,
        )

    def note_committed(self, split: StreamSplit, counts: StreamCounts) -> None:
        """Take in what the heartbeat read from the ledger, unless more is known by now."""
        if self.committed is None or counts.batches >= self.committed[1].batches:
            self.committed = split, counts

    @property
    def try_s(self) -> float | None:
        """Return how long the current try has run, None while none is under way."""
        began_s = self.began_s
        return None if began_s is None else time.monotonic() - began_s

    @property
    def has_end(self) -> bool:
        """Tell whether the run ends by itself, at a bound that is known or will be."""
        return self.carries_out or self.bound is not None

    @property
    def fenced(self) -> FencedError | None:
        """Return the error by which a newer owner fenced this job, or None."""
        return self.error if isinstance(self.error, FencedError) else None

    def note(self, applied: Iterable[tuple[str, str]]) -> int:
        """Take in what Spark's workers reported of a micro-batch; raise its error.

        Returns how many changes were applied.
        """
        changes = 0
        for kind, body in applied:
            form = json.loads(body)
            if kind == ERROR:
                self.error = CdcError.from_json(form)
                raise self.error
            self.note_applied(
                idle_range_from_json(form["quiet"]), tuple(map(TableId.parse, form["coming"]))
            )
            changes += form["changes"]
        return changes

    def note_applied(self, idle: IdleRange | None, created: Sequence[TableId]) -> None:
        """Note the idle log after the last commit, and tables that were created in the log."""
        self.passed_over.log = idle
        if created:
            self.on_new_tables(created)
