"""The markers around transactions: BEGIN, and END with the number of its events by table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from airflow_cdc_provider.columns.arrow_arrays import as_arrow, numbers_of, texts_of
from airflow_cdc_provider.columns.numpy_types import IntArray
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.systems.file_log.events import Passed, TableEvents
from airflow_cdc_provider.systems.file_log.transactions import Transactions
from airflow_cdc_provider.systems.file_log.tree import Many, Members, numbers


@dataclass(frozen=True, slots=True)
class Tally:
    """The number of events of each table in each transaction of a batch."""

    transaction: IntArray
    table: IntArray
    """Place in `tables`."""
    events: IntArray
    tables: tuple[TableId, ...]


def tally(tables: Sequence[TableEvents], passed: Passed) -> Tally:
    """Count the events of each transaction by table, with those in batches before."""
    names = sorted({events.changes.table for events in tables} | set(passed.tables))
    place = {name: i for i, name in enumerate(names)}
    pairs = [events.transaction * len(names) + place[events.changes.table] for events in tables]
    before = [np.full(count, place[table], np.int64) for table, count in passed.tables.items()]
    found, events = np.unique(np.concatenate([*pairs, *before, _NONE]), return_counts=True)
    count = max(len(names), 1)
    return Tally(found // count, found % count, events.astype(np.int64), tuple(names))


_NONE = np.zeros(0, np.int64)


def open_at_end(counted: Tally, transactions: int) -> Passed:
    """Return how many events a batch's last transaction has had so far."""
    last = counted.transaction == transactions - 1
    tables = {
        counted.tables[table]: events
        for table, events in zip(
            counted.table[last].tolist(), counted.events[last].tolist(), strict=True
        )
    }
    return Passed(sum(tables.values()), tables)


def markers(
    counted: Tally, transactions: Transactions, *, begun: bool, ends: int
) -> tuple[Members, int]:
    """Return the BEGIN and END markers of a batch's transactions, and their number.

    `begun`: its first transaction began in a batch before. `ends`: how many transactions have
    their end in it.
    """
    which, first = np.unique(counted.transaction, return_index=True)
    bounds = np.append(first, len(counted.transaction))
    begins = which[1:] if begun and len(which) and which[0] == 0 else which
    ended = which < ends
    rows = np.concatenate([begins * 2, which[ended] * 2 + 1])
    order = np.argsort(rows, kind="stable")
    rows = rows[order]
    is_end = (rows & 1).astype(np.bool_)
    places = rows >> 1
    of = np.searchsorted(which, places)
    lengths = np.where(is_end, bounds[of + 1] - bounds[of], 0)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    entries = np.arange(int(offsets[-1])) - np.repeat(offsets[:-1], lengths)
    entries += np.repeat(bounds[of], lengths)
    totals = np.add.reduceat(counted.events, first) if len(first) else _NONE
    names = texts_of([_collection(table) for table in counted.tables])
    collections = Members(
        (
            ("data_collection", names.take(numbers_of(counted.table[entries]))),
            ("event_count", numbers(counted.events[entries])),
        )
    )
    ids = transactions.ids(places)
    rows_of = Members(
        (
            ("key", Members((("id", ids),))),
            ("status", texts_of(["BEGIN", "END"]).take(numbers_of(is_end.astype(np.int64)))),
            ("id", ids),
            ("event_count", as_arrow(totals[of], ~is_end, pa.int64())),
            ("data_collections", Many(offsets, collections, ~is_end)),
            ("ts_ms", numbers(transactions.committed_us[places] // 1000)),
        )
    )
    return rows_of, len(rows)


def _collection(table: TableId) -> str:
    """Return a table's name as Debezium calls a data collection."""
    return f"{table.database}.{table.table}"
