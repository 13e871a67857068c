"""Hand-off: turning all reports into the one stream split.

The stream starts at the smallest watermark of any finished split (GTID sets: the intersection),
so nothing after any split's H can be missed. Each table carries its own progress: "applied
through" plus its finished splits. Three rules follow for one change of one table:

- contained in the table's `applied_through`: already there, skip;
- the table still has finished splits: apply if and only if the watermark of the key's split
  does not contain it (law 5);
- otherwise the table is pure: apply.

A table whose keys cannot be compared in code has no split details here: it is replayed from its
smallest watermark without filtering, and is consistent once its largest H has passed (law 6).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise

from airflow_cdc_provider.core.errors import IntegrityError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.keys import Key, comparable
from airflow_cdc_provider.core.positions import LogPosition, TransactionPoint
from airflow_cdc_provider.core.splits import FinishedSplit
from airflow_cdc_provider.core.stream_starts import Beginning


@dataclass(frozen=True, slots=True)
class TableProgress:
    """How far the stream is with one table: applied position, finished splits, H to pass.

    `finished` is sorted by range, covers every key exactly once, and is empty when the table is
    pure or is replayed without filtering. `consistent_at` holds the H values still to pass;
    empty means that the table is consistent.
    """

    table: TableId
    applied_through: LogPosition
    finished: tuple[FinishedSplit, ...] = ()
    consistent_at: tuple[LogPosition, ...] = ()
    is_unread: bool = False
    """It was added while the stream flowed, and not all of its rows are in the sink yet.

    Its changes are applied all the same.
    """

    def owns(self, key: Key, point: TransactionPoint) -> bool:
        """Tell whether the stream applies this change: it came after its split was settled."""
        if self.applied_through.contains(point):
            return False
        if not self.finished:
            return True
        return not self.split_of(key).watermark.contains(point)

    def split_of(self, key: Key) -> FinishedSplit:
        """Return the finished split whose range contains `key`."""
        for finished in self.finished:
            if finished.split.keys.contains(key):
                return finished
        raise IntegrityError(
            f"key {key!r} lies in no split of {self.table}",
            where=f"table {self.table}, {len(self.finished)} finished splits",
            risk="the change would be lost",
            remedy="report this; the splits of a table must cover every key",
        )

    def is_inconsistent_at(self, position: LogPosition) -> bool:
        """Tell whether the table is still inconsistent once everything up to `position` is applied.

        One H to come is enough, and the latest are last.
        """
        return self.is_unread or any(
            not position.covers(high) for high in reversed(self.consistent_at)
        )

    def passed(self, position: LogPosition) -> TableProgress:
        """Return the table's progress once everything up to `position` is applied.

        Split details are dropped when the largest H has passed.
        """
        waiting = tuple(high for high in self.consistent_at if not position.covers(high))
        if waiting:
            return replace(self, consistent_at=waiting)
        return replace(self, finished=(), consistent_at=())


@dataclass(frozen=True, slots=True)
class StreamSplit:
    """The one reader of the log: where it starts, where it ends, and each table's progress."""

    start: LogPosition
    stop: LogPosition | None
    tables: tuple[TableProgress, ...]
    stop_by: str = ""
    """The words of the pipeline file for `stop`."""
    began: Beginning | None = None
    """Where it began, if no snapshot came before it."""

    @property
    def is_early(self) -> bool:
        """Tell whether it is where the definitions of its tables are not known yet."""
        return self.began is not None and self.began.is_before_known(self.start)

    def progress_of(self, table: TableId) -> TableProgress | None:
        """Return a table's progress, None for a table that is not captured."""
        return next((progress for progress in self.tables if progress.table == table), None)

    @property
    def inconsistent(self) -> tuple[TableId, ...]:
        """Return the tables that are not consistent yet: unread, or with an H still to pass."""
        return tuple(
            progress.table
            for progress in self.tables
            if progress.consistent_at or progress.is_unread
        )

    @property
    def waits_for_positions(self) -> bool:
        """Tell whether any table has an H that the stream has still to pass."""
        return any(progress.consistent_at for progress in self.tables)

    @property
    def unread(self) -> tuple[TableId, ...]:
        """Return the tables that were added and whose rows are not read yet."""
        return tuple(progress.table for progress in self.tables if progress.is_unread)

    def with_tables(
        self, added: Mapping[TableId, LogPosition], removed: Collection[TableId]
    ) -> StreamSplit:
        """Return the stream with tables added, as unread, and others removed.

        The stream applies an added table's changes behind its position. A table that is there
        stays as it is.
        """
        tables = {
            progress.table: progress for progress in self.tables if progress.table not in removed
        }
        for table, position in added.items():
            tables.setdefault(table, TableProgress(table, position, is_unread=True))
        return replace(self, tables=tuple(tables[table] for table in sorted(tables)))

    def changed(self, table: TableId, through: LogPosition, *, unread: bool) -> StreamSplit:
        """Return the stream with a table that has another definition from a position on.

        Where it was consistent, no change of it lies between the stream's position and that one. An
        `unread` table is read again, also if it was isolated; until then only changes behind that
        position are applied.
        """
        if unread:
            return self.with_tables({}, {table}).with_tables({table: through}, ())
        return replace(
            self,
            tables=tuple(
                replace(progress, applied_through=through) if progress.table == table else progress
                for progress in self.tables
            ),
        )

    def gone_on_from(self, position: LogPosition, begun: Collection[TableId]) -> StreamSplit:
        """Return the stream moved to a position from which the source's history is another one.

        What was applied beyond it is of the former history: it says nothing of the new one's log.
        """
        kept = self.with_tables({}, begun)
        tables = tuple(replace(each, applied_through=position) for each in kept.tables)
        began = None if self.began is None else replace(self.began, known=position)
        moved = replace(self, start=position, tables=tables, began=began)
        return moved.with_tables(dict.fromkeys(begun, position), ())

    def ending_at(self, stop: LogPosition | None, stop_by: str = "") -> StreamSplit:
        """Return the stream with another ending position, or with none."""
        return replace(self, stop=stop, stop_by=stop_by)

    @property
    def reach(self) -> LogPosition:
        """Return the latest position of which the sink has rows: the start, or an H to pass."""
        return reduce(lambda one, other: one.join(other), self._highs, self.place)

    @property
    def place(self) -> LogPosition:
        """Return the start with a place in the log: its own, or that of the latest H it covers.

        With neither it has none. Reading begins at the start itself, which may be known elsewhere.
        """
        return self.start.placed_by(self._highs)

    @property
    def _highs(self) -> list[LogPosition]:
        """Return each H that the stream has still to pass."""
        return [high for progress in self.tables for high in progress.consistent_at]

    def read(self, tables: Collection[TableId]) -> StreamSplit:
        """Return the stream with tables marked whose rows are all in the sink now."""
        return replace(
            self,
            tables=tuple(
                replace(progress, is_unread=False) if progress.table in tables else progress
                for progress in self.tables
            ),
        )

    def passed(self, position: LogPosition) -> StreamSplit:
        """Return the stream once everything up to `position` is applied."""
        tables = tuple(progress.passed(position) for progress in self.tables)
        return replace(self, start=position, tables=tables)


def smallest(positions: Iterable[LogPosition]) -> LogPosition:
    """Return the latest position that each of `positions` covers."""
    return reduce(lambda one, other: one.meet(other), positions)


def hand_off(
    finished: Sequence[FinishedSplit],
    *,
    backfilled: bool = True,
    running: StreamSplit | None = None,
    stop: LogPosition | None = None,
) -> StreamSplit:
    """Make the stream split from the finished splits of whole tables.

    With a `running` stream, tables read again or added join it: the stream goes back to their
    smallest watermark and the other tables skip up to where they were.
    """
    if not finished and running is None:
        raise ValueError("hand-off needs finished splits or a running stream")
    by_table: dict[TableId, list[FinishedSplit]] = {}
    for split in finished:
        by_table.setdefault(split.split.table, []).append(split)
    joining = [
        _joining(table, by_table[table], backfilled=backfilled) for table in sorted(by_table)
    ]
    staying: list[TableProgress] = []
    if running is not None:
        staying = [
            replace(progress, applied_through=_applied(progress, running.start))
            for progress in running.tables
            if progress.table not in by_table
        ]
    starts = [progress.applied_through for progress in joining]
    if running is not None:
        starts.append(running.start)
    tables = sorted((*joining, *staying), key=lambda progress: progress.table)
    return StreamSplit(start=smallest(starts), stop=stop, tables=tuple(tables))


def _applied(progress: TableProgress, stream_start: LogPosition) -> LogPosition:
    """Return the position through which a table of the running stream is applied."""
    return progress.applied_through.join(stream_start)


def _joining(
    table: TableId, finished: Sequence[FinishedSplit], *, backfilled: bool
) -> TableProgress:
    """Return the progress of a table that joins; its splits must cover every key once."""
    filtered = backfilled and comparable(finished[0].split.key_kinds)
    ordered = sorted(finished, key=_range_order) if filtered else []
    for left, right in pairwise(ordered):
        if left.split.keys.end != right.split.keys.start:
            raise _uncovered(table, f"{left.split.keys} is followed by {right.split.keys}")
    if ordered and (ordered[0].split.keys.start, ordered[-1].split.keys.end) != (None, None):
        raise _uncovered(table, f"the ends are {ordered[0].split.keys}, {ordered[-1].split.keys}")
    return TableProgress(
        table=table,
        applied_through=smallest(split.watermark for split in finished),
        finished=tuple(ordered),
        consistent_at=_distinct(split.consistent_at for split in finished),
    )


def _distinct(highs: Iterable[LogPosition]) -> tuple[LogPosition, ...]:
    """Return each H once, sorted, so that the same reports make the same hand-off in every run.

    The same place in two servers' logs is two.
    """
    by_name = {high.exact: high for high in highs}
    return tuple(by_name[name] for name in sorted(by_name))


def _range_order(finished: FinishedSplit) -> tuple[bool, Key]:
    """Return a key that sorts splits by the start of their range."""
    start = finished.split.keys.start
    return (False, ()) if start is None else (True, start)


def _uncovered(table: TableId, found: str) -> IntegrityError:
    """Return the error for finished splits that do not cover every key once."""
    return IntegrityError(
        f"the finished splits of {table} do not cover every key once: {found}",
        where=f"hand-off of {table}",
        risk="changes between the splits would be lost",
        remedy="finish the snapshot of the table, then hand off again",
    )
