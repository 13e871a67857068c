"""A small world of source, splits, stream and sink, driven step by step.

Time is the log: a transaction is first written to the log (its position moves) and becomes
visible to readers later, in log order, as on a server with group commit. Readers go through the
moments of a split one at a time, so that anything can happen in between; a crash at any moment
loses what was not committed in the sink. The decisions are the product's own: watermarks,
hand-off and filter are `core`'s functions. `Laws` switches single laws off, to show that the
model notices.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from airflow_cdc_provider.core.errors import SplitOutdatedError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.keys import KeyKind
from airflow_cdc_provider.core.split_planner import splits_between
from airflow_cdc_provider.core.splits import FinishedSplit, SnapshotSplit, SplitReport
from airflow_cdc_provider.core.stopped_tables import rejoined, stopped_in
from airflow_cdc_provider.core.stream_split import StreamSplit, hand_off
from airflow_cdc_provider.systems.mysql.positions.gtid import Gtid, GtidSet, GtidSource
from airflow_cdc_provider.systems.mysql.positions.position import (
    BinlogPosition,
    MySqlPoint,
    MySqlPosition,
    own,
)

SERVER = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
TABLE = TableId("shop", "orders")
STEP = 100

Rows = dict[int, int]


@dataclass(frozen=True)
class Laws:
    """Which laws the world keeps."""

    low_is_what_is_visible: bool = True
    """Law 1. Broken: L is the log's position, which runs ahead of what is visible."""
    backfill_all: bool = True
    """Law 3. Broken: the first change of (L, H] is forgotten."""
    replace_range: bool = True
    """Law 4. Broken: a re-read only adds rows."""
    start_at_smallest: bool = True
    """Law 5. Broken: the stream starts at the largest watermark."""
    filter_by_split: bool = True
    """Law 5. Broken: a change after the table's largest H only."""
    from_low_without_backfill: bool = True
    """Law 6. Broken: a split that was not backfilled counts as settled at its H."""
    position_with_rows: bool = True
    """Law 7. Broken: the position is stored before the rows."""
    rejoin_behind_stream: bool = True
    """A stopped table comes back where the stream is, or further. Broken: wherever it stands."""


@dataclass(frozen=True)
class Change:
    """One row change; None is absent."""

    key: int
    before: int | None
    after: int | None


@dataclass
class Source:
    """A table, its log, and how far the log is visible."""

    rows: Rows = field(default_factory=dict)
    """As the log has it: what a reader will see once everything is visible."""
    log: list[list[Change]] = field(default_factory=list)
    visible: int = 0
    snapshots: list[Rows] = field(default_factory=lambda: [{}])

    def write(self, wishes: list[tuple[int, int | None]]) -> None:
        """Log one transaction; it is visible only after `show`."""
        changes = []
        for key, value in wishes:
            before = self.rows.get(key)
            if before is None and value is None:
                continue
            changes.append(Change(key, before, value))
            if value is None:
                del self.rows[key]
            else:
                self.rows[key] = value
        self.log.append(changes)
        self.snapshots.append(dict(self.rows))

    def show(self, count: int) -> None:
        self.visible = min(len(self.log), self.visible + count)

    def point(self, index: int) -> MySqlPoint:
        return MySqlPoint(
            SERVER,
            Gtid(GtidSource(SERVER), index + 1),
            BinlogPosition(1, index * STEP + 4),
            BinlogPosition(1, (index + 1) * STEP + 4),
            index,
        )

    def position(self, length: int) -> MySqlPosition:
        gtids = GtidSet.parse(f"{SERVER}:1-{length}" if length else "")
        return MySqlPosition(SERVER, BinlogPosition(1, length * STEP + 4), gtids)


@dataclass
class Sink:
    """Rows and ledger, changed together."""

    rows: Rows = field(default_factory=dict)
    finished: dict[int, FinishedSplit] = field(default_factory=dict)
    stream: StreamSplit | None = None
    stopped: StreamSplit | None = None
    """The table's own, while the stream leaves it alone."""


@dataclass
class Reader:
    """One split being read; what it holds is lost in a crash."""

    split: SnapshotSplit
    low: int | None = None
    rows: Rows | None = None
    high: int | None = None

    def crash(self) -> None:
        self.low = self.rows = self.high = None


class World:
    """Everything, and the steps that can be taken."""

    def __init__(
        self,
        boundaries: list[int],
        *,
        laws: Laws | None = None,
        backfill: bool = True,
        kind: KeyKind = KeyKind.INTEGER,
    ) -> None:
        self.laws = laws or Laws()
        self.backfill = backfill
        self.source = Source()
        self.sink = Sink()
        bounds = [(bound,) for bound in sorted(set(boundaries))]
        self.readers = [Reader(split) for split in splits_between(TABLE, ("id",), (kind,), bounds)]

    def step_reader(self, number: int) -> None:
        """Take the next step of one split."""
        reader = self.readers[number % len(self.readers)]
        if reader.split.number in self.sink.finished:
            return
        if reader.low is None:
            ahead = not self.laws.low_is_what_is_visible
            reader.low = len(self.source.log) if ahead else self.source.visible
        elif reader.rows is None:
            seen = self.source.snapshots[self.source.visible]
            reader.rows = {k: v for k, v in seen.items() if reader.split.keys.contains((k,))}
        elif reader.high is None:
            reader.high = len(self.source.log)
        else:
            self._publish(reader, reader.low, reader.rows, reader.high)

    def _publish(self, reader: Reader, low: int, rows: Rows, high: int) -> None:
        backfilled = reader.split.is_backfilled(wanted=self.backfill)
        if backfilled:
            first = low if self.laws.backfill_all else low + 1
            for index in range(first, high):
                for change in self.source.log[index]:
                    if reader.split.keys.contains((change.key,)):
                        put(rows, change.key, change.after)
        if self.laws.replace_range:
            for key in [k for k in self.sink.rows if reader.split.keys.contains((k,))]:
                del self.sink.rows[key]
        self.sink.rows.update(rows)
        report = SplitReport(
            reader.split.split_id,
            replace(self.source.position(low), binlog=None),
            self.source.position(high),
            rows=len(rows),
            bytes=0,
            fingerprint="",
            attempt=1,
        )
        self.sink.finished[reader.split.number] = FinishedSplit.of(
            reader.split,
            report,
            backfilled=backfilled or not self.laws.from_low_without_backfill,
        )

    def publish_without_report(self, number: int) -> None:
        """Crash a sink without transactions between rows and report: the split is read again.

        A split that has its report is not published any more: sinks refuse a late reader.
        """
        reader = self.readers[number % len(self.readers)]
        if reader.split.number in self.sink.finished:
            return
        if reader.high is not None and reader.rows is not None:
            self.sink.rows.update(reader.rows)
            reader.crash()

    def crash(self, number: int) -> None:
        self.readers[number % len(self.readers)].crash()

    @property
    def all_read(self) -> bool:
        return len(self.sink.finished) == len(self.readers)

    def step_stream(self, transactions: int, *, crash: bool = False) -> None:
        """Apply some whole transactions in one sink transaction, or lose them in a crash."""
        if self.sink.stream is None:
            self.sink.stream = self._handed_off()
        rows = dict(self.sink.rows)
        moved = self._applied(self.sink.stream, rows, transactions)
        if not crash:
            self.sink.rows, self.sink.stream = rows, moved
        elif not self.laws.position_with_rows:
            self.sink.stream = moved

    def _applied(self, stream: StreamSplit, rows: Rows, transactions: int) -> StreamSplit:
        position = own(stream.start)
        for index in self._following(position, transactions):
            point = self.source.point(index)
            for change in self.source.log[index]:
                if stream.tables and self._owns(stream, change.key, point):
                    put(rows, change.key, change.after)
            position = position.after(point)
        return stream.passed(position)

    def stop_table(self) -> None:
        """Have the stream leave the table alone, where it stands."""
        stream = self.sink.stream
        if stream is not None and self.sink.stopped is None:
            (self.sink.stopped,) = stopped_in(stream, {TABLE})
            self.sink.stream = stream.with_tables({}, {TABLE})

    def catch_up_isolated(self, transactions: int) -> None:
        """Apply some whole transactions to the stopped table alone."""
        if self.sink.stopped is not None:
            self.sink.stopped = self._applied(self.sink.stopped, self.sink.rows, transactions)

    def rejoin(self) -> None:
        """Give the table back to the stream, if it has come that far."""
        stream, stopped = self.sink.stream, self.sink.stopped
        if stream is None or stopped is None:
            return
        if not self.laws.rejoin_behind_stream:
            stopped = replace(stopped, start=stopped.start.join(stream.start))
        try:
            found = rejoined(stream, stopped)
        except SplitOutdatedError:
            return
        self.sink.stream, self.sink.stopped = found, None

    def _handed_off(self) -> StreamSplit:
        finished = list(self.sink.finished.values())
        stream = hand_off(finished, backfilled=self.backfill)
        if not self.laws.start_at_smallest:
            latest = max(finished, key=lambda split: length(own(split.watermark)))
            table = replace(stream.tables[0], applied_through=latest.watermark)
            stream = replace(stream, start=latest.watermark, tables=(table,))
        return stream

    def _owns(self, stream: StreamSplit, key: int, point: MySqlPoint) -> bool:
        progress = stream.tables[0]
        if not self.laws.filter_by_split and progress.consistent_at:
            return not any(high.contains(point) for high in progress.consistent_at)
        return progress.owns((key,), point)

    def _following(self, position: MySqlPosition, count: int) -> Iterator[int]:
        missing = (
            index
            for index in range(self.source.visible)
            if not position.contains(self.source.point(index))
        )
        for _, index in zip(range(count), missing, strict=False):
            yield index

    def finish(self) -> None:
        """Stop writing, read what is left, and let the stream pass the end."""
        self.source.show(len(self.source.log))
        while not self.all_read:
            for number in range(len(self.readers)):
                self.step_reader(number)
        self.catch_up_isolated(len(self.source.log) + 1)
        self.rejoin()
        self.step_stream(len(self.source.log) + 1)

    @property
    def is_consistent(self) -> bool:
        stream = self.sink.stream
        return stream is not None and bool(stream.tables) and not stream.inconsistent


def length(position: MySqlPosition) -> int:
    """Return how many transactions a position holds."""
    return len(position.gtids) if isinstance(position.gtids, GtidSet) else 0


def put(rows: Rows, key: int, value: int | None) -> None:
    """Write or delete one row; doing it twice is harmless."""
    if value is None:
        rows.pop(key, None)
    else:
        rows[key] = value
