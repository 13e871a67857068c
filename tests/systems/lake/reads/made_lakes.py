"""Lakes that are made by the sink itself, what a reader of changes finds, and what is to be found.

What is to be found is computed from the table alone, as the format's own library reads it.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow_cdc_provider.columns.changes import Statement
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.idle_log import IdleRange
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.statement_effect import StatementEffect, StatementKind
from airflow_cdc_provider.core.table_schema import Column, TypeKind
from airflow_cdc_provider.systems.changelog.reads.options import ReadOptions
from airflow_cdc_provider.systems.lake.reads.lake_changes import ChosenRows, LakeChanges
from tests.behaviours.ledger_asks import altered
from tests.behaviours.sink_join_behaviours import join
from tests.behaviours.sink_world import Change, Row
from tests.behaviours.source_log import at, point
from tests.systems.lake.reading import table_of
from tests.systems.lake.steps import as_numbers
from tests.systems.lake.world import LakeWorld

if TYPE_CHECKING:
    import pyarrow as pa

ORDERS = "shop.orders"
OTHER_SERVER = "4350f323-7565-4e59-8763-4b1b83a0ce0e"
CHANGE_OF = {
    "r": "insert",
    "c": "insert",
    "u": "update_postimage",
    "d": "delete",
    "t": "truncate",
}


@dataclass(kw_only=True)
class MadeLake(LakeWorld):
    """A lake of `shop.orders` (id, name): its changes are in the source's log where they say."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.next_place, self.joins = 100, 0
        self.opened(self.sink.open_targets()).claim((self.orders, self.seats))
        self.ledger.start_plan("one")

    def begin(self, *rows: Row) -> None:
        """Read the tables, hand off, and commit them to the lake."""
        self.ledger.store_stream(self.hand_off(orders=rows, high=self.next_place))
        self.publish_tables()

    def publish_tables(self) -> None:
        """Bring the tables to the end of the log."""
        self.lake.publish_tables()

    def log_changes(self, *transactions: Sequence[Change], table: str = "orders") -> None:
        """Log transactions, ten bytes each; the tables do not have them yet."""
        self.changes().apply(self.batch(*transactions, start=self.next_place, table=table))
        self.next_place += 10 * len(transactions)

    def commit(self, *transactions: Sequence[Change], table: str = "orders") -> None:
        """Log transactions, and bring the tables there."""
        self.log_changes(*transactions, table=table)
        self.publish_tables()

    def truncate(self) -> None:
        """Empty the table by TRUNCATE."""
        place = point(self.next_place, self.next_place + 10)
        effect = StatementEffect(StatementKind.TRUNCATE, (TableId("shop", "orders"),))
        barrier = Statement("shop", "TRUNCATE TABLE orders", place, effect)
        end = self.next_place + 10
        self.changes().apply(self.batch(start=self.next_place, end=end, barrier=barrier))
        self.next_place = end
        self.publish_tables()

    def resync(self, *rows: Row, low: int = 10, high: int = 20) -> None:
        """Read the rows with keys from `low` to `high` again: these are there."""
        self.joins += 1
        split = self.split(0, low, high)
        sink = self.opened(self.lake.open_joins())
        join(self, sink, split, *rows, high=self.next_place, request=f"r{self.joins}")
        self.publish_tables()

    def begin_again(self, *rows: Row, with_numbers: bool = False) -> None:
        """Have the table begin again with these rows, read in two ranges.

        `with_numbers`: its names are numbers then, so that it is exchanged as a whole.
        """
        self.joins += 1
        change = altered(self.orders, through=self.next_place, rereads=True)
        self.ledger.begin_changes([change])
        self.ledger.end_change(change)
        self._read_whole(*rows, with_numbers=with_numbers)

    def leave(self) -> None:
        """Have the table leave the stream; its rows stay in the lake."""
        self.ledger.change_tables(removed=[self.orders.schema.table])
        self.publish_tables()

    def come_back(self, *rows: Row) -> None:
        """Have the table come to the stream again, with these rows."""
        self.joins += 1
        self.ledger.change_tables(added={self.orders.schema.table: at(self.next_place)})
        self._read_whole(*rows)

    def _read_whole(self, *rows: Row, with_numbers: bool = False) -> None:
        """Read all rows of the table, in two ranges, beside the stream."""
        sink, name = self.opened(self.lake.open_joins()), f"b{self.joins}"
        ranges = ((None, 10), (10, None))
        for number, (start, end) in enumerate(ranges):
            inside = [row for row in rows if (start or 0) <= row[0] < (end or 1 << 30)]
            split = self.split(number, start, end)
            join(self, sink, split, *inside, high=self.next_place, request=name)
            self.publish_tables()
        if with_numbers:
            as_numbers(self, "name")
        self.ledger.change_tables(read=[self.orders.schema.table])
        self.publish_tables()

    def fail_over(self) -> None:
        """Let the log go on at another server."""
        there = replace(at(self.next_place), server_uuid=OTHER_SERVER)
        self.ledger.pass_over(IdleRange(at(self.next_place), there, only_ledgers=False))

    def add_column(self) -> None:
        """Give the table one more column, of numbers, by a change of its definition."""
        schema = self.orders.schema
        more = Column("note", self.types[TypeKind.INTEGER])
        after = TablePlan.alike(
            replace(schema, columns=(*schema.columns, more)), self.orders.sink_table, 0
        )
        change = replace(altered(self.orders, through=self.next_place), after=after)
        self.ledger.begin_changes([change])
        self.ledger.end_change(change)
        self.orders = after
        self.lake.tell_columns(self.columns)
        self.publish_tables()

    def rows_there(self) -> list[dict[str, Any]]:
        """The rows that the table has, by the format's own library, in their order."""
        found = table_of(self.form, self.root, ORDERS).sort_by("_order").to_pylist()
        return sorted(found, key=lambda row: (row["_order"], row["id"] or 0))

    def expected(self) -> list[dict[str, Any]]:
        """The rows of changes that a reader is to find, computed from the table."""
        return [as_changes(row) for row in self.rows_there()]

    def reading(self, **options: Any) -> LakeChanges:
        given = {name: str(value) for name, value in options.items()}
        path = str(self.root) if self.bucket is None else self.bucket.path
        return LakeChanges(ReadOptions.parse({"path": path, "table": ORDERS, **given}))

    def read(self, **options: Any) -> list[dict[str, Any]]:
        """The rows that a reader of changes finds, in the order of the source."""
        found = self.reading(**{"truncates": "rows", **options})
        return rows_of_range(found.asked(), found.columns())


def as_changes(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of the table as a row of changes."""
    own = {name: value for name, value in row.items() if not name.startswith("_")}
    return {
        **own,
        "_change_type": CHANGE_OF[row["_op"]],
        "_commit_version": row["_order"],
        "_commit_timestamp": row["_committed_at"],
        "_commit_position": row["_position"],
        "_commit_order": 0,
    }


def in_order(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return sorted(map(dict, rows), key=lambda row: (row["_commit_version"], row.get("id") or 0))


def rows_of_range(chosen: ChosenRows, columns: pa.Schema | None) -> list[dict[str, Any]]:
    """The rows of a range, read as executors do: what they are to read was sent to them."""
    assert columns is not None
    if chosen.is_empty:
        return []
    parts = pickle.loads(pickle.dumps(list(chosen.parts(columns))))
    return in_order(
        [row for part in parts for batch in part.batches() for row in batch.to_pylist()]
    )
