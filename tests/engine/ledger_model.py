"""What a log, the rows at a sink and the laws of a ledger are, without any ledger.

The log is a list of numbers. At each there is a change of every table's rows, a change of one
table's definition, or nothing for the pipeline. A table has two halves, each with a row that every
change writes. `rows` says up to which number a half is the source's; None: that is not known.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.keys import Key, KeyKind, KeyRange
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.schema_changes import Difference, SchemaChange
from airflow_cdc_provider.core.splits import FinishedSplit, SnapshotSplit, SplitReport
from airflow_cdc_provider.core.stream_split import StreamSplit, TableProgress, hand_off
from airflow_cdc_provider.core.table_schema import Column, TableSchema
from airflow_cdc_provider.engine.ledger.state import LedgerState, Place
from airflow_cdc_provider.systems.mysql.dialect.column_types import mysql_type
from tests.engine.counter_log import CounterPoint, CounterPosition

TABLES = tuple(TableId("shop", name) for name in ("orders", "others", "seats"))
HALVES = (0, 1)
KEYS: tuple[Key, ...] = ((1,), (101,))
"""A row in each half."""
RANGES = (KeyRange(None, (100,)), KeyRange((100,), None))
EMPTY = LedgerState(Place(PipelineName("shop"), "nowhere"), 0, "", (), (), (), ())
Half = tuple[TableId, int]


def number_of(position: object) -> int:
    assert isinstance(position, CounterPosition)
    return position.number


def split_of(table: TableId, half: int) -> SnapshotSplit:
    return SnapshotSplit(table, half, ("id",), (KeyKind.INTEGER,), RANGES[half])


def plan_of(table: TableId) -> TablePlan:
    column = Column("id", mysql_type("bigint"), nullable=False)
    return TablePlan.alike(TableSchema(table, (column,), ("id",), (0,)), table, 0)


def change_of(table: TableId, number: int, *, rereads: bool) -> SchemaChange:
    """The change of a table's definition at a number of the log."""
    plan = plan_of(table)
    found = Difference(added=("c",), reread="its values may be others" if rereads else "")
    return SchemaChange(plan, plan, found, CounterPosition(number), "ALTER TABLE")


@dataclass
class Model:
    """The source's log and the sink's rows, and what has been done to them."""

    log: list[TableId | bool] = field(default_factory=list)
    """From number 1: the table whose definition changes, or whether rows do."""
    reports: dict[Half, SplitReport] = field(default_factory=dict)
    """Of each half, the report that was published last and is still of use."""
    rows: dict[Half, int | None] = field(default_factory=dict)
    owned: set[TableId] = field(default_factory=set)
    """Tables that were handed off or added, and have not been removed."""
    stopped: dict[TableId, int] = field(default_factory=dict)
    """Tables that the stream leaves alone, and where each of them is."""
    made: set[tuple[TableId, int]] = field(default_factory=set)
    """Changes of definitions that were made at the sink."""
    prepared: StreamSplit | None = None
    """A hand-off that is made, and maybe not stored yet."""
    made_from: dict[Half, SplitReport] = field(default_factory=dict)
    is_spread: bool = False
    """The stream had several writers, so changes may be applied more than once."""

    @property
    def end(self) -> int:
        return len(self.log)

    def touches(self, number: int, table: TableId) -> bool:
        """Tell whether something happens to a table at a number."""
        what = self.log[number - 1]
        return what is True or what == table

    def missing(self, half: Half, through: int) -> list[int]:
        """Return what has happened to a half up to a number, and is not at the sink."""
        known = self.rows[half]
        assert known is not None
        return [n for n in range(known + 1, through + 1) if self.touches(n, half[0])]

    def publish(self, half: Half) -> SplitReport:
        """Return the report of a read at the end of the log."""
        high = CounterPosition(self.end)
        attempt = 1 + (self.reports[half].attempt if half in self.reports else 0)
        return SplitReport(split_of(*half).split_id, high, high, 1, 1, "f", attempt)

    def prepare(self, tables: Iterable[TableId]) -> None:
        """Make the hand-off of tables that are read, from the reports as they are now."""
        halves = [(table, half) for table in tables for half in HALVES]
        self.made_from = {half: self.reports[half] for half in halves}
        self.prepared = hand_off(
            [
                FinishedSplit.of(split_of(*half), report, backfilled=True)
                for half, report in self.made_from.items()
            ]
        )

    def outdated(self) -> bool:
        """Tell whether a half of the hand-off was read elsewhere since; attempts do not count."""
        return any(
            (self.reports[half].low, self.reports[half].high) != (made.low, made.high)
            for half, made in self.made_from.items()
        )

    def handed_off(self, stream: StreamSplit) -> None:
        """Take the rows that were read as those that the stream goes on from."""
        self.owned = {progress.table for progress in stream.tables}
        self.rows = {half: number_of(report.high) for half, report in self.made_from.items()}
        self.keep_reports(self.owned)

    def keep_reports(self, owned: Iterable[TableId], *, but: Iterable[TableId] = ()) -> None:
        kept = {*owned} - {*but}
        self.reports = {half: each for half, each in self.reports.items() if half[0] in kept}

    def unread(self, table: TableId) -> None:
        """A table begins anew: nothing is known of its rows."""
        self.owned.add(table)
        self.stopped.pop(table, None)
        self.rows |= {(table, half): None for half in HALVES}

    def apply(self, half: Half, progress: TableProgress, number: int) -> None:
        """Apply the change at a number to a half, if the table's progress says so (laws 5, 7)."""
        if not self.touches(number, half[0]):
            return
        owns, known = progress.owns(KEYS[half[1]], CounterPoint(number)), self.rows[half]
        if known is None:
            return  # the read that is to come holds it
        if not owns:
            assert number <= known, f"{number} is left out, and {half} is at {known}"
            return
        assert not self.missing(half, number - 1), f"{number} comes to {half} before others"
        assert self.is_spread or number > known, f"{number} is applied twice to {half}"
        self.rows[half] = max(known, number)

    def is_definition(self, number: int, progress: TableProgress) -> bool:
        """Tell whether the definition of a table changes at a number, and is still to be made."""
        if self.log[number - 1] != progress.table:
            return False
        if progress.applied_through.contains(CounterPoint(number)):
            return False
        change = progress.table, number
        assert change not in self.made, f"{change} would be made again"
        return True

    def is_right_at(self, table: TableId, number: int) -> bool:
        """Tell whether a table is exactly the source's at a number."""
        halves = [(table, half) for half in HALVES]
        return all(
            (known := self.rows[half]) is not None
            and known <= number
            and not self.missing(half, number)
            for half in halves
        )

    def other_history(self, number: int) -> None:
        """The log is another one from a number on."""
        del self.log[number:]
        self.made = {each for each in self.made if each[1] <= number}
        self.prepared = None

    def forget(self) -> None:
        """A new plan begins; the log stays."""
        fresh = Model(log=self.log)
        self.__dict__.update(replace(fresh).__dict__)
