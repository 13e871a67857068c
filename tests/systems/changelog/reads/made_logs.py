"""Change logs in Parquet that are made by the sink itself, and what a reader finds in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from airflow_cdc_provider.columns.changes import ChangeBatch, Statement
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.idle_log import IdleRange
from airflow_cdc_provider.core.statement_effect import StatementEffect, StatementKind
from airflow_cdc_provider.core.table_schema import Column
from airflow_cdc_provider.systems.changelog.reads.change_rows import FilePart, read_parts
from airflow_cdc_provider.systems.changelog.reads.commits import TableCommits
from airflow_cdc_provider.systems.changelog.reads.options import ReadOptions
from airflow_cdc_provider.systems.changelog.reads.parts import parts_of
from airflow_cdc_provider.systems.changelog.reads.ranges import file_range
from airflow_cdc_provider.systems.changelog.reads.table_columns import log_columns
from airflow_cdc_provider.systems.file_log.files import Format
from airflow_cdc_provider.systems.files.opening import Root
from tests.behaviours.ledger_asks import altered
from tests.behaviours.sink_world import Change, Row
from tests.behaviours.source_log import at, point
from tests.servers.s3 import S3Server
from tests.systems.changelog.world import ChangelogWorld

ORDERS = "shop.orders"


@dataclass(kw_only=True)
class MadeLog(ChangelogWorld):
    """A log of `shop.orders` (id, name): its changes stand in the source's log where they say."""

    form: Format = Format.PARQUET

    def __post_init__(self) -> None:
        super().__post_init__()
        self.next_place = 100
        self.sink.open_targets().claim((self.orders, self.seats))
        self.begin_plan("one")

    def begin_plan(self, name: str) -> None:
        """Begin the log, or begin it anew."""
        self.ledger.start_plan(name)

    def begin(self, *rows: Row, splits: tuple[int | None, ...] = (None, None)) -> None:
        """Publish the snapshot's rows, and hand off."""
        self.stream_from(*rows, splits=splits)
        self.next_place = 100

    def begin_both(self, *, orders: Sequence[Row], seats: Sequence[Row]) -> None:
        """Publish the rows of both tables, and hand off."""
        self.hand_off(orders=orders, seats=seats)
        self.next_place = 100

    def commit(
        self,
        *transactions: Sequence[Change],
        table: str = "orders",
        logged_at: Sequence[int] | None = None,
    ) -> int:
        """Commit transactions, ten bytes of log each; return the place behind them.

        `logged_at` says where each change is in the log, as rows of XA are before its commit.
        """
        batch = self.batch(*transactions, start=self.next_place, table=table)
        self.changes().apply(with_places(batch, self.next_place, logged_at))
        self.next_place += 10 * len(transactions)
        return self.next_place

    def alter(self, *columns: Column) -> None:
        """Give the table other columns, through a change of its definition."""
        self.next_place += 10
        before = self.orders
        self.orders = self._plan("orders", *columns)
        change = replace(altered(before, through=self.next_place), after=self.orders)
        self.ledger.begin_changes([change])
        self.opened(self.sink.open_tables()).change(change)
        self.ledger.end_change(change)
        self.ledger.pass_over(
            IdleRange(at(self.next_place - 10), at(self.next_place), only_ledgers=False)
        )

    def truncate(self) -> int:
        """Empty the table by TRUNCATE."""
        place = point(self.next_place, self.next_place + 10)
        effect = StatementEffect(StatementKind.TRUNCATE, (TableId("shop", "orders"),))
        barrier = Statement(
            "shop",
            "TRUNCATE TABLE orders",
            place,
            effect,
            {"file": "binlog.000001", "pos": self.next_place},
        )
        batch = self.batch(start=self.next_place, end=self.next_place + 10, barrier=barrier)
        self.changes().apply(batch)
        self.next_place += 10
        return self.next_place


def with_places(
    batch: ChangeBatch, start: int, logged_at: Sequence[int] | None = None
) -> ChangeBatch:
    """A batch whose changes say where their events begin: one byte behind their transaction."""
    (changes,) = batch.tables
    own = start + 10 * changes.transaction.to_numpy() + 1
    numbers = own if logged_at is None else np.array(logged_at)
    facts = pa.record_batch(
        {
            "file": pa.array(["binlog.000001"] * len(changes), pa.string()),
            "pos": pa.array(numbers, pa.int64()),
            "row": pa.array(np.zeros(len(changes)), pa.int32()),
        }
    )
    return replace(batch, tables=(replace(changes, facts=facts),))


def way_in(server: S3Server) -> dict[str, str]:
    """What a reader says to get into a server's buckets."""
    access = server.access
    return {
        "accessKeyId": access.key_id,
        "secretAccessKey": access.secret,
        "region": access.region,
        "endpointUrl": access.endpoint_url,
    }


def commits_of(root: Root, table: str = ORDERS) -> TableCommits:
    found = TableCommits(root, TableId.parse(table))
    found.read_on()
    return found


def parts_read(root: Path | str, table: str = ORDERS, **options: Any) -> list[tuple[FilePart, ...]]:
    given = {name: str(value) for name, value in options.items()}
    return parts_asked({"path": str(root), "table": table, **given})


def parts_asked(options: dict[str, str]) -> list[tuple[FilePart, ...]]:
    asked = ReadOptions.parse(options)
    commits = commits_of(asked.files, str(asked.table))
    return parts_of(commits, file_range(commits, asked.ends), part_bytes=asked.part_bytes)


def batches(root: Path | str, table: str = ORDERS, **options: Any) -> Iterator[pa.RecordBatch]:
    given = {name: str(value) for name, value in options.items()}
    asked = ReadOptions.parse({"path": str(root), "table": table, **given})
    commits = commits_of(asked.files, table)
    behind = file_range(commits, asked.ends).behind if commits.files else None
    columns = log_columns(commits, asked.columns, behind=behind)
    assert columns is not None
    with_truncates, has_all = asked.with_truncates, not asked.columns
    for parts in parts_read(root, table, **options):
        yield from read_parts(parts, columns, with_truncates=with_truncates, has_all=has_all)


def rows_read(root: Path | str, table: str = ORDERS, **options: Any) -> list[dict[str, Any]]:
    return [row for batch in batches(root, table, **options) for row in batch.to_pylist()]


def changes_read(root: Path | str, **options: Any) -> list[tuple[Any, ...]]:
    """Rows of `orders` with what was done to each."""
    return [(row["_change_type"], row["id"], row["name"]) for row in rows_read(root, **options)]


def exact_rows(root: Path | str, **options: Any) -> list[tuple[Any, ...]]:
    """Rows with what makes each the only one."""
    wanted = ("_commit_version", "_commit_order", "_change_type", "id", "name")
    return [tuple(row[name] for name in wanted) for row in rows_read(root, **options)]
