"""How much a stream has applied: of all tables together, and of each."""

from __future__ import annotations

from dataclasses import dataclass, field

from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.row_counts import NO_ROWS, RowCounts


@dataclass(frozen=True, slots=True)
class StreamCounts:
    """The stream's commits since the hand-off: counts, and how old the newest change is."""

    batches: int = 0
    changes: int = 0
    transactions: int = 0
    age_us: int | None = None
    """For how long the newest change that is applied had been committed at the source, when asked.

    By the clocks of source and sink; None before the first change.
    """


@dataclass(frozen=True, slots=True)
class TableChangeCount:
    """How many changes of one table the sink has applied since its plan began.

    A batch that a crash has put to its writers again may count twice, and none is left out.
    """

    changes: int
    """Row changes of the stream, rows that joined it, and changes of the table's definition."""
    position: LogPosition
    """Where in the log the last of them was, or is about to be, committed."""
    rows: RowCounts = NO_ROWS
    """Row changes of the stream alone, before they were merged."""
    changed_us: int = field(default=0, compare=False)
    """When the last of them was committed at the source, or joined; 0 before the first."""
