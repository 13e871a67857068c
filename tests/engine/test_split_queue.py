"""Which split a reader gets, and when readers may go home."""

from __future__ import annotations

import threading

from airflow_cdc_provider.core.errors import IntegrityError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.keys import KeyKind, KeyRange
from airflow_cdc_provider.core.splits import SnapshotSplit
from airflow_cdc_provider.engine.snapshot.split_queue import Claim, NoClaim, SplitQueue

ORDERS = TableId("shop", "orders")
CUSTOMERS = TableId("shop", "customers")


def split(
    number: int, start: int | None, end: int | None, table: TableId = ORDERS
) -> SnapshotSplit:
    keys = KeyRange(None if start is None else (start,), None if end is None else (end,))
    return SnapshotSplit(table, number, ("id",), (KeyKind.INTEGER,), keys)


FIRST, MIDDLE, LAST = split(0, None, 10), split(1, 10, 20), split(2, 20, None)


def claimed(queue: SplitQueue, reader: int = 1) -> SnapshotSplit:
    claim = queue.claim(reader, wait_s=0)
    assert isinstance(claim, Claim)
    return claim.split


def test_the_open_ended_last_split_is_read_first() -> None:
    queue = SplitQueue()
    queue.add([FIRST, MIDDLE, LAST])
    assert [claimed(queue) for _ in range(3)] == [LAST, FIRST, MIDDLE]


def test_a_split_is_given_to_one_reader_only() -> None:
    queue = SplitQueue()
    queue.add([FIRST])
    assert claimed(queue) == FIRST
    assert queue.claim(2, wait_s=0) is NoClaim.WAIT


def test_a_dead_readers_split_goes_before_all_others_and_counts_an_attempt() -> None:
    queue = SplitQueue()
    queue.add([FIRST, MIDDLE, LAST])
    assert claimed(queue, reader=1) == LAST
    assert [claim.split for claim in queue.give_back(1)] == [LAST]
    assert queue.claim(2, wait_s=0) == Claim(LAST, attempt=2)


def test_readers_wait_while_a_table_is_still_planned() -> None:
    queue = SplitQueue()
    queue.start_planning([ORDERS])
    assert queue.claim(1, wait_s=0) is NoClaim.WAIT
    queue.finish_planning(ORDERS)
    assert queue.claim(1, wait_s=0) is NoClaim.END


def test_readers_wait_while_another_holds_a_split_that_may_come_back() -> None:
    queue = SplitQueue()
    queue.add([FIRST])
    claimed(queue, reader=1)
    assert queue.claim(2, wait_s=0) is NoClaim.WAIT
    queue.finish(FIRST.split_id)
    assert queue.claim(2, wait_s=0) is NoClaim.END


def test_a_waiting_reader_is_woken_by_a_new_split() -> None:
    queue = SplitQueue()
    queue.start_planning([ORDERS])
    timer = threading.Timer(0.1, queue.add, [[FIRST]])
    timer.start()
    assert queue.claim(1, wait_s=30) == Claim(FIRST, attempt=1)
    timer.join()


def test_the_halves_of_a_cut_split_replace_it() -> None:
    queue = SplitQueue()
    queue.add([MIDDLE])
    whole = claimed(queue)
    halves = split(7, 10, 15), split(8, 15, 20)
    assert queue.cut(whole, halves)
    assert [claimed(queue), claimed(queue)] == list(halves)
    assert not queue.cut(whole, halves)


def test_a_failed_table_stops_alone() -> None:
    queue = SplitQueue()
    other = split(0, None, None, CUSTOMERS)
    queue.add([FIRST, MIDDLE, other])
    why = IntegrityError("why")
    queue.fail_table(ORDERS, why)
    assert claimed(queue) == other
    queue.finish(other.split_id)
    assert queue.claim(1, wait_s=0) is NoClaim.END
    assert queue.failed_tables == {ORDERS: why}


def test_after_a_stop_nothing_is_given_out() -> None:
    queue = SplitQueue()
    queue.add([FIRST])
    queue.stop()
    assert queue.claim(1, wait_s=0) is NoClaim.END
