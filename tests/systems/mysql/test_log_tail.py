"""What of the log is kept between splits, and when a dump is opened anew."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_cdc_provider.columns.changes import ChangeBatch, Op, Statement, TableChanges
from airflow_cdc_provider.core.errors import SplitOutdatedError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.systems.mysql.dialect.ddl_effects import effect_of
from airflow_cdc_provider.systems.mysql.positions.gtid import Gtid, GtidSet, GtidSource
from airflow_cdc_provider.systems.mysql.positions.position import (
    BinlogPosition,
    MySqlPoint,
    MySqlPosition,
    own,
    own_point,
)
from airflow_cdc_provider.systems.mysql.source.log_tail import LogTail

UUID = "11111111-1111-1111-1111-111111111111"
SOURCE = GtidSource(UUID)
TABLE = TableId("d", "t")


def place(number: int) -> BinlogPosition:
    """Return where transaction `number` ends."""
    return BinlogPosition(1, 100 * number)


def executed(*numbers: int) -> MySqlPosition:
    """Return an L that contains these transactions."""
    gtids = GtidSet()
    for number in numbers:
        gtids = gtids.add(Gtid(SOURCE, number))
    return MySqlPosition(UUID, None, gtids)


def point(number: int) -> MySqlPoint:
    return MySqlPoint(UUID, Gtid(SOURCE, number), place(number - 1), place(number), 0)


def changes(numbers: list[int], *, of: list[int] | None = None) -> TableChanges:
    """Return one insert a transaction; its key is the transaction's number."""
    rows = pa.RecordBatch.from_pydict({"id": pa.array(numbers, pa.int32())})
    count = len(numbers)
    return TableChanges(
        TABLE,
        pa.array(of if of is not None else range(count), pa.int32()),
        pa.array(range(count), pa.int64()),
        pa.array([int(Op.INSERT)] * count, pa.int8()),
        pa.RecordBatch.from_pydict({"id": pa.array([None] * count, pa.int32())}),
        rows,
    )


def batch(numbers: list[int], *, ended: bool = True, size: int = 10) -> ChangeBatch:
    end = MySqlPosition(UUID, place(numbers[-1]), executed(*range(1, numbers[-1] + 1)).gtids)
    return ChangeBatch(
        start=executed(),
        end=end if ended else None,
        transactions=tuple(point(number) for number in numbers),
        tables=(changes(numbers),),
        bytes=size,
    )


class ScriptedReader:
    """Gives prepared batches for each call of `read_to`, from its start on."""

    def __init__(self, start: MySqlPosition, calls: list[list[ChangeBatch]]) -> None:
        self.start = start
        self.position = start
        self._calls = calls
        self.closed = False

    def read_to(self, until: BinlogPosition | None) -> Iterator[ChangeBatch]:
        for each in self._calls.pop(0) if self._calls else []:
            self.position = own(each.end or self.position)
            yield each

    def close(self) -> None:
        self.closed = True


def tail_of(
    *scripts: list[list[ChangeBatch]], keep_bytes: int = 1000
) -> tuple[LogTail, list[ScriptedReader]]:
    opened: list[ScriptedReader] = []
    waiting = list(scripts)

    def open_reader(start: MySqlPosition) -> ScriptedReader:
        opened.append(ScriptedReader(start, waiting.pop(0)))
        return opened[-1]

    return LogTail(open_reader, keep_bytes=keep_bytes), opened


def keys(tail: LogTail, low: MySqlPosition, until: int) -> list[int]:
    found = []
    for part in tail.changes(TABLE, low, place(until)):
        if isinstance(part, TableChanges):
            found += part.after.column("id").to_pylist()
    return found


def test_the_next_split_is_given_what_its_l_lacks_though_it_was_read_before() -> None:
    tail, opened = tail_of([[batch([1, 2, 3])], [batch([4])]])
    assert keys(tail, executed(), 3) == [1, 2, 3]
    assert keys(tail, executed(1, 2), 4) == [3, 4]
    assert len(opened) == 1


def test_from_the_first_missing_transaction_on_none_is_skipped() -> None:
    tail, _ = tail_of([[batch([1, 2, 3, 4])]])
    assert keys(tail, executed(1, 3), 4) == [2, 3, 4]


def test_a_batch_that_l_contains_whole_is_not_kept() -> None:
    tail, opened = tail_of([[batch([1, 2])], [batch([3])], []])
    keys(tail, executed(), 2)
    assert keys(tail, executed(1, 2), 3) == [3]
    assert keys(tail, executed(1, 2, 3), 3) == []
    assert len(opened) == 1


def test_an_l_before_what_was_given_up_has_the_dump_opened_anew_there() -> None:
    first = [[batch([1], size=600), batch([2], size=600)]]
    tail, opened = tail_of(first, [[batch([1]), batch([2])]])
    assert keys(tail, executed(), 2) == [1, 2]
    assert keys(tail, executed(), 2) == [1, 2]
    assert len(opened) == 2
    assert opened[0].closed
    assert opened[1].start == executed()


def test_half_a_given_up_transaction_is_no_place_to_go_on_from() -> None:
    parts = [batch([1], ended=False, size=600), batch([1], ended=False, size=600)]
    tail, opened = tail_of([parts, [batch([1], size=1)]], [[batch([1])]])
    assert keys(tail, executed(), 1) == [1, 1]
    assert keys(tail, executed(), 1) == [1]
    assert len(opened) == 2


def test_a_transaction_given_up_in_part_is_passed_when_l_contains_its_end() -> None:
    parts = [batch([1], ended=False, size=600), batch([1], size=600)]
    tail, opened = tail_of([parts, [batch([2])]])
    assert keys(tail, executed(), 1) == [1, 1]
    assert keys(tail, executed(1), 2) == [2]
    assert len(opened) == 1


def test_a_statement_after_l_is_told_and_one_before_is_not() -> None:
    effect = effect_of("TRUNCATE t", default_database="d")
    statement = Statement("d", "TRUNCATE t", point(2), effect)
    barrier = ChangeBatch(executed(), batch([2]).end, (), (), statement)
    tail, _ = tail_of([[barrier]], [[barrier]])
    assert list(tail.changes(TABLE, executed(1), place(2))) == [statement]
    assert list(tail.changes(TABLE, executed(1, 2), place(2))) == []


@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=8),
    reads=st.lists(st.integers(0, 4), min_size=1, max_size=12),
    lags=st.lists(st.integers(0, 5), min_size=1, max_size=12),
    keep_bytes=st.sampled_from([1, 15, 35, 1000]),
)
def test_whatever_is_kept_each_split_is_given_everything_between_its_l_and_h(
    sizes: list[int], reads: list[int], lags: list[int], keep_bytes: int
) -> None:
    """A log of batches; each split reads on by some batches, with an L that lags behind."""
    log: list[ChangeBatch] = []
    ends = [0]
    for size in sizes:
        log.append(batch(list(range(ends[-1] + 1, ends[-1] + size + 1))))
        ends.append(ends[-1] + size)

    class LogFrom:
        def __init__(self, start: MySqlPosition) -> None:
            self.position = start
            self._next = 0
            assert isinstance(start.gtids, GtidSet)
            self._skipped = start.gtids

        def read_to(self, until: BinlogPosition | None) -> Iterator[ChangeBatch]:
            while self._next < len(log) and until is not None:
                each = log[self._next]
                if own_point(each.transactions[-1]).end > until:
                    return
                self._next += 1
                self.position = own(each.end or self.position)
                yield each

        def close(self) -> None: ...

    tail = LogTail(LogFrom, keep_bytes=keep_bytes)
    read, low = 0, 0
    for step, lag in zip(reads, lags, strict=False):
        low = max(low, ends[read] - lag)
        read = min(read + step, len(log))
        if read:
            found = keys(tail, executed(*range(1, low + 1)), ends[read])
            assert found == list(range(low + 1, ends[read] + 1))


@pytest.mark.parametrize("up_to", [MySqlPosition(UUID, place(3)), executed(1, 2, 3)])
def test_nothing_beyond_the_upper_bound_is_given_though_it_was_read(up_to: MySqlPosition) -> None:
    tail, opened = tail_of([[batch([1, 2], ended=False), batch([3, 4])], [batch([5])]])
    assert keys(tail, executed(1), 4) == [2, 3, 4]
    found = [
        part.after.column("id").to_pylist()
        for part in tail.changes(TABLE, executed(1), place(5), up_to=up_to)
        if isinstance(part, TableChanges)
    ]
    assert found == [[2], [3]]
    assert len(opened) == 1


def test_an_upper_bound_with_gaps_has_the_split_read_again() -> None:
    tail, _ = tail_of([[batch([1, 2, 3, 4])]])
    with pytest.raises(SplitOutdatedError, match="gaps"):
        list(tail.changes(TABLE, executed(), place(4), up_to=executed(1, 2, 4)))
