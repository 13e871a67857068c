"""The records that readers, assigner and stream exchange.

Named after what SeaTunnel and Flink CDC call them, so that anyone who knows those finds their
way: a split is planned, read and reported, and lives on as a finished split until its table is
pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from airflow_cdc_provider.core.errors import IntegrityError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.keys import Key, KeyKinds, KeyPart, KeyRange, comparable, shown_key
from airflow_cdc_provider.core.positions import LogPosition

_SHOWN_KEYS = 3


@dataclass(frozen=True, slots=True)
class Interval:
    """A range of one column's values from `start` up to, not including, `end`; None is open.

    NULL is in none.
    """

    column: str
    start: KeyPart | None
    end: KeyPart | None

    def __post_init__(self) -> None:
        if self.start is None and self.end is None:
            raise ValueError("an interval has an end on one side at least")

    @property
    def values(self) -> KeyRange:
        """Return the interval as a range of keys that have one column."""
        return KeyRange(
            None if self.start is None else (self.start,),
            None if self.end is None else (self.end,),
        )

    def __str__(self) -> str:
        return f"{self.column} in {self.values}"


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition in the source's SQL that chooses rows."""

    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class KeyList:
    """A list of keys that chooses rows, compared as the server compares them."""

    columns: tuple[str, ...]
    keys: tuple[Key, ...]

    def __str__(self) -> str:
        shown = ", ".join(map(shown_key, self.keys[:_SHOWN_KEYS]))
        more = len(self.keys) - _SHOWN_KEYS
        return f"the key is {shown}" + (f" or one of {more:,} others" if more > 0 else "")


Chosen = Interval | Condition | KeyList
"""Which rows of a table are meant, by their values."""


def split_id(table: str, number: int | str) -> str:
    """Return a split's id, as logs print it."""
    return f"{table}#{number}"


@dataclass(frozen=True, slots=True)
class SnapshotSplit:
    """A half-open range of one table's key, read by one task.

    `number` counts from 0 in a table's plan. A split that grew too big is cut in two, and the
    new halves get numbers of their own; numbers are never used again. What is read beside the
    stream may be a part of a range: rows that are `chosen` by their values, or whose keys
    are `listed`.
    """

    table: TableId
    number: int
    key_columns: tuple[str, ...]
    key_kinds: KeyKinds
    keys: KeyRange
    chosen: Chosen | None = None
    listed: bool = False

    @property
    def is_whole_range(self) -> bool:
        """Tell whether the split is its whole key range, with no condition and no listed keys."""
        return self.chosen is None and not self.listed

    @property
    def split_id(self) -> str:
        return split_id(str(self.table), self.number)

    def is_backfilled(self, *, wanted: bool) -> bool:
        """Tell whether the reader replays the log in (L, H] onto this split's rows.

        Only where keys, compared in code, tell whether a change is its own; else the stream
        replays from L (law 6).
        """
        return wanted and self.is_whole_range and comparable(self.key_kinds)


@dataclass(frozen=True, slots=True)
class SplitReport:
    """What a reader reports of a published split: L, H, counts, schema fingerprint."""

    split_id: str
    low: LogPosition
    high: LogPosition
    rows: int
    bytes: int
    fingerprint: str
    """The table schema's, taken with L and unchanged after the read."""
    attempt: int
    changes: int = 0
    """Row changes of (L, H] replayed onto the rows."""
    read_s: float = 0.0
    publish_s: float = 0.0

    def require_rows(self, rows: int, *, where: str) -> None:
        """Raise `IntegrityError` if `rows` is not the number of rows that were read."""
        if rows != self.rows:
            raise IntegrityError(
                f"split {self.split_id} has {rows} rows, its report says {self.rows}",
                where=f"publishing to {where}",
                risk="rows could be missing; nothing was written",
                remedy="read the split again; if it stays, report this",
            )


@dataclass(frozen=True, slots=True)
class FinishedSplit:
    """A published split as the stream sees it: its range, and the H up to which it is settled.

    Without backfill `watermark` is the split's L: what came after L is the stream's to apply.
    `consistent_at` is always the H.
    """

    split: SnapshotSplit
    watermark: LogPosition
    consistent_at: LogPosition

    @classmethod
    def of(cls, split: SnapshotSplit, report: SplitReport, *, backfilled: bool) -> FinishedSplit:
        """Make the finished split from a split and its report."""
        settled = report.high if backfilled else report.low
        return cls(split=split, watermark=settled, consistent_at=report.high)
