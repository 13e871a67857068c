"""Changes become events: what stands in one line each, and its place in its transaction.

A change of a key is two events, as Debezium has it: the old row is deleted, then the new one is
created. Both count in their transaction. So is each update of a row without a key, where events do
not have the row as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from airflow_cdc_provider.columns.arrow_arrays import as_numpy, mask_of
from airflow_cdc_provider.columns.changes import Op, TableChanges
from airflow_cdc_provider.columns.numpy_types import BoolArray, IntArray
from airflow_cdc_provider.core.identifiers import TableId

_NO = mask_of([False])[0]


@dataclass(frozen=True, slots=True)
class TableEvents:
    """The events of one table in log order; a change of key is two events."""

    changes: TableChanges
    change: IntArray
    """Which change an event is of."""
    op: npt.NDArray[np.int8]
    """What happened, by `Op`."""
    transaction: IntArray
    order: IntArray
    """Grows with the log, over all tables of a batch."""

    def __len__(self) -> int:
        return len(self.op)


@dataclass(frozen=True, slots=True)
class Places:
    """The numbers of events: from 1 in their transaction and its table, from 0 in the whole log."""

    total: IntArray
    in_table: IntArray
    in_log: IntArray


@dataclass(frozen=True, slots=True)
class Passed:
    """How many events a transaction has had so far, in all and by table."""

    total: int = 0
    tables: dict[TableId, int] = field(default_factory=dict)


def events_of(
    changes: TableChanges, key: Sequence[str], *, tells_before: bool = True
) -> TableEvents:
    """Return the events of a table's changes; `key` names the key's columns.

    `tells_before`: an event of an update has the row as it was.
    """
    op = as_numpy(changes.op)
    moved = _moves_key(changes, op, key) if key or tells_before else op == Op.UPDATE
    change = np.repeat(np.arange(len(op)), 1 + moved.astype(np.int64))
    ops = op[change].copy()
    behind = np.flatnonzero(moved) + np.cumsum(moved)[moved]
    second = np.zeros(len(change), np.int64)
    if len(behind):
        ops[behind - 1], ops[behind] = Op.DELETE, Op.INSERT
        second[behind] = 1
    return TableEvents(
        changes,
        change,
        ops,
        as_numpy(changes.transaction)[change].astype(np.int64),
        as_numpy(changes.ordinal)[change] * 2 + second,
    )


def _moves_key(changes: TableChanges, op: npt.NDArray[np.int8], key: Sequence[str]) -> BoolArray:
    """Tell which updates give their row another key."""
    moved = np.zeros(len(op), np.bool_)
    if not (op == Op.UPDATE).any():
        return moved
    for name in key:
        differs = pc.not_equal(changes.before.column(name), changes.after.column(name))
        moved |= as_numpy(pc.fill_null(differs, _NO))
    moves: BoolArray = moved & (op == Op.UPDATE)
    return moves


def places_of(tables: Sequence[TableEvents], passed: Passed, *, first: int = 0) -> list[Places]:
    """Return the events' numbers by table.

    `passed` counts what the first transaction had before; `first` is the number in the log of
    their first.
    """
    if not tables:
        return []
    orders = np.concatenate([events.order for events in tables])
    transactions = np.concatenate([events.transaction for events in tables])
    sorted_ = np.argsort(orders, kind="stable")
    ranks = np.empty(len(orders), np.int64)
    ranks[sorted_] = _counted(transactions[sorted_])
    in_log = np.empty(len(orders), np.int64)
    in_log[sorted_] = np.arange(first, first + len(orders))
    total = ranks + np.where(transactions == 0, passed.total, 0)
    places: list[Places] = []
    begun: dict[TableId, IntArray] = {}
    begin = 0
    for events in tables:
        table, end = events.changes.table, begin + len(events)
        in_table = _counted(events.transaction)
        before = begun.get(table)  # the same table may come in several pieces
        if before is None:
            in_table += np.where(events.transaction == 0, passed.tables.get(table, 0), 0)
        else:
            in_table += before[events.transaction]
        places.append(Places(total[begin:end], in_table, in_log[begin:end]))
        begun[table] = _highest(in_table, events.transaction, before, int(transactions.max()) + 1)
        begin = end
    return places


def _counted(groups: IntArray) -> IntArray:
    """Number the members of each group from 1 on; a group's members follow each other."""
    places = np.arange(len(groups))
    begins = np.flatnonzero(np.diff(groups, prepend=groups[:1] - 1))
    starts = np.repeat(begins, np.diff(begins, append=len(groups)))
    return places - starts + 1


def _highest(
    in_table: IntArray, transactions: IntArray, before: IntArray | None, count: int
) -> IntArray:
    """Return the highest number of a table's events in each transaction."""
    reached = np.zeros(count, np.int64) if before is None else before.copy()
    np.maximum.at(reached, transactions, in_table)
    return reached
