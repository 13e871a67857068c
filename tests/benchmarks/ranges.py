"""What it costs to have very many ranges: 100,000 splits of one table, and 50 of each of 2,000.

`make bench ONLY=ranges`: the splits are made up, each with an H of its own as under load; the
ledger is a server's, the state store a file of SQLite. What is told are seconds of one step each.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from airflow_cdc_provider.columns.changes import ChangeBatch, Op, TableChanges
from airflow_cdc_provider.core.codec import dumps, report_to_json, split_to_json
from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.keys import KeyRange
from airflow_cdc_provider.core.lifecycle import Phase
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.splits import FinishedSplit, SnapshotSplit, SplitReport
from airflow_cdc_provider.core.stream_split import StreamSplit, hand_off
from airflow_cdc_provider.core.table_schema import Column, TableSchema
from airflow_cdc_provider.engine.reconcile import reconcile
from airflow_cdc_provider.engine.sink.port import ChangeSink, Owner
from airflow_cdc_provider.state.store import open_store
from airflow_cdc_provider.systems.mysql.dialect.column_types import mysql_type
from airflow_cdc_provider.systems.mysql.positions.gtid import Gtid, GtidSet, GtidSource
from airflow_cdc_provider.systems.mysql.positions.position import (
    BinlogPosition,
    MySqlPoint,
    MySqlPosition,
)
from airflow_cdc_provider.systems.registry import open_sink
from airflow_cdc_provider.views.status import status
from tests.servers.throwaway import MySqlServer

_PIPELINE = PipelineName("ranges")
_OWNER = Owner(_PIPELINE, 1)
_UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
_KIND = mysql_type("int")
SHAPES = {"one table of 100,000": (1, 100_000), "2,000 tables of 50": (2_000, 50)}


@dataclass(frozen=True, slots=True)
class Found:
    """Seconds that one step took."""

    shape: str
    step: str
    seconds: float
    cpu_s: float
    """Of this process: what another machine, or a quieter one, would take at the least."""
    load: float


def measured() -> Iterator[Found]:
    """Take every step for each shape."""
    with MySqlServer() as sink:
        for shape, (tables, splits) in SHAPES.items():
            with tempfile.TemporaryDirectory() as folder:
                for step, seconds in _Steps(sink, Path(folder), tables, splits).taken():
                    yield Found(shape, step, *seconds, os.getloadavg()[0])


def plans_of(tables: int) -> tuple[TablePlan, ...]:
    """Plan tables of an integer key."""
    columns = (Column("id", _KIND, nullable=False), Column("v", _KIND))
    names = [TableId("shop", f"t{number:04}") for number in range(tables)]
    return tuple(TablePlan.alike(TableSchema(name, columns, ("id",)), name, 0) for name in names)


def reports_of(
    plans: Sequence[TablePlan], splits: int
) -> Iterator[tuple[SnapshotSplit, SplitReport]]:
    """Make splits that cover each table, every one read at a place of its own."""
    number = 0
    for plan in plans:
        schema = plan.schema
        for each in range(splits):
            number += 1
            keys = KeyRange(
                None if each == 0 else (each * 10,),
                None if each + 1 == splits else (each * 10 + 10,),
            )
            split = SnapshotSplit(schema.table, each, schema.primary_key, schema.key_kinds, keys)
            place = place_of(number)
            yield split, SplitReport(split.split_id, place, place, 10, 100, schema.fingerprint, 1)


def place_of(number: int) -> MySqlPosition:
    """Return the place behind so many transactions."""
    gtids = GtidSet({GtidSource(_UUID): ((1, number + 1),)})
    return MySqlPosition(_UUID, BinlogPosition(1, number * 200, "bin"), gtids)


def batch_of(plan: TablePlan, first: int, rows: int) -> ChangeBatch:
    """Make a batch of inserts, each a transaction, that ends in the middle of the splits."""
    points = tuple(
        MySqlPoint(
            _UUID,
            Gtid(GtidSource(_UUID), number),
            BinlogPosition(1, (number - 1) * 200, "bin"),
            BinlogPosition(1, number * 200, "bin"),
            0,
        )
        for number in range(first, first + rows)
    )
    numbers = pa.array(range(first, first + rows), pa.int32())
    after = pa.record_batch({"id": numbers, "v": numbers})
    before = pa.record_batch({name: pa.nulls(rows, pa.int32()) for name in ("id", "v")})
    changes = TableChanges(
        plan.schema.table,
        pa.array(range(rows), pa.int32()),
        pa.array(range(rows), pa.int64()),
        pa.array([Op.INSERT.value] * rows, pa.int8()),
        before,
        after,
    )
    return ChangeBatch(place_of(first - 1), place_of(first + rows - 1), points, (changes,))


class _Steps:
    """The steps for one shape, in the order in which a pipeline takes them."""

    def __init__(self, server: MySqlServer, folder: Path, tables: int, splits: int) -> None:
        self._server = server
        self._plans = plans_of(tables)
        self._reports = list(reports_of(self._plans, splits))
        self._sink = open_sink("mysql", Endpoint.parse(server.dsn()), _OWNER, self._plans)
        self._store = open_store(f"sqlite:///{folder / 'state.db'}")
        self._stream: StreamSplit | None = None

    def taken(self) -> Iterator[tuple[str, tuple[float, float]]]:
        """Take the steps, one after the other; yield names, and seconds of clock and CPU."""
        self._server.execute("DROP DATABASE IF EXISTS airflow_cdc")
        self._server.execute("DROP DATABASE IF EXISTS shop")
        self._server.execute("CREATE DATABASE shop")
        for plan in self._plans:
            self._server.execute(f"CREATE TABLE {plan.sink_table} (id INT PRIMARY KEY, v INT)")
        with closing(self._sink.open_ledger()) as self._ledger:
            self._begin()
            steps: dict[str, Callable[[], Any]] = {
                "plan is stored": self._plan,
                "splits are planned in the state store": self._planned,
                "reports are read from the ledger": self._ledger.reports,
                "state store follows the ledger": self._reconcile,
                "state store follows it once more": self._reconcile,
                "splits are read from the state store": lambda: self._store.splits(_PIPELINE),
                "status": lambda: status(self._store, _PIPELINE, now_us=0),
                "hand-off is made": self._made,
                "hand-off is stored in the ledger": self._hand_off,
                "hand-off is stored in the state store": self._remember,
                "stream is read from the ledger": self._ledger.stream,
                "stream is read from it once more": self._ledger.stream,
                "stream is read from the state store": lambda: self._store.hand_off(_PIPELINE),
            }
            for name, step in steps.items():
                yield name, _timed(step)
        with closing(
            self._sink.open_changes({p.schema.table: _COLUMNS for p in self._plans})
        ) as sink:
            for number in range(3):
                name = f"batch {number + 1} of 1,000 changes is applied"
                yield name, _timed(partial(self._applied, sink, number))

    def _begin(self) -> None:
        """Fill the ledger as readers would have, without their rows."""
        self._ledger.take_over(1)
        self._ledger.start_plan("plan")
        connection = self._server.connect()
        with closing(connection), connection.cursor() as cursor:
            cursor.executemany(
                "INSERT INTO airflow_cdc.finished_split (pipeline, table_name, number, plan_id, "
                "generation, split, report, rows_written, committed_us) "
                "VALUES (%s, %s, %s, 'plan', 1, %s, %s, 10, 0)",
                [
                    (
                        str(_PIPELINE),
                        str(split.table),
                        split.number,
                        dumps(split_to_json(split)),
                        dumps(report_to_json(report)),
                    )
                    for split, report in self._reports
                ],
            )

    def _plan(self) -> None:
        self._store.take_over(_PIPELINE, "bench")
        self._store.start_plan(_PIPELINE, 1, "plan", self._plans)
        self._store.move(_PIPELINE, 1, expected=Phase.NEW, to=Phase.PLANNING)

    def _planned(self) -> None:
        self._store.add_splits(_PIPELINE, 1, [split for split, _ in self._reports])

    def _reconcile(self) -> None:
        reconcile(self._store, self._ledger, _PIPELINE, 1)

    def _made(self) -> None:
        self._stream = hand_off(
            [FinishedSplit.of(split, report, backfilled=True) for split, report in self._reports]
        )

    def _hand_off(self) -> None:
        assert self._stream is not None
        self._ledger.store_stream(self._stream)

    def _remember(self) -> None:
        assert self._stream is not None
        self._store.store_hand_off(_PIPELINE, 1, self._stream)

    def _applied(self, sink: ChangeSink, number: int) -> None:
        sink.apply(batch_of(self._plans[0], 2 + number * 1000, 1000))


_COLUMNS = pa.schema([("id", pa.int32()), ("v", pa.int32())])


def _timed(step: Callable[[], Any]) -> tuple[float, float]:
    began, used = time.monotonic(), time.process_time()
    step()
    return time.monotonic() - began, time.process_time() - used


def lines(found: Iterator[Found]) -> Iterator[str]:
    """Write them as a table."""
    yield "| ranges | step | seconds | CPU | load |"
    yield "|---|---|---:|---:|---:|"
    for each in found:
        seconds = f"{each.seconds:.2f} | {each.cpu_s:.2f}"
        yield f"| {each.shape} | {each.step} | {seconds} | {each.load:.1f} |"
