"""The throttle: leave to read a split, or the reason why not."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from airflow_cdc_provider.core.errors import CriticalLoadError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.throttle import ThrottleLimits, ThrottleWish
from airflow_cdc_provider.engine.requests.read_gate import ReadGate
from airflow_cdc_provider.engine.throttle.load import LoadSeen, Unknown
from airflow_cdc_provider.engine.throttle.throttle import Leave, Refusal, Throttle

ORDERS = TableId("shop", "orders")


@dataclass
class Clock:
    now_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s


def why(answer: Leave | Refusal) -> str:
    return answer.why if isinstance(answer, Refusal) else ""


def test_without_limits_every_split_is_let_through() -> None:
    throttle = Throttle()
    assert all(isinstance(throttle.enter(ORDERS), Leave) for _ in range(100))
    assert throttle.state().throttled_s == 0.0


def test_the_pace_refuses_with_the_time_to_wait() -> None:
    clock = Clock()
    throttle = Throttle(ThrottleLimits(rows_per_second=1_000), split_rows=5_000, clock=clock)
    assert isinstance(throttle.enter(ORDERS), Leave)
    refusal = throttle.enter(ORDERS)
    assert isinstance(refusal, Refusal)
    assert refusal.why == "the pace is 1,000 rows/s"
    assert refusal.wait_s == pytest.approx(5.0)
    clock.now_s = 5.0
    assert isinstance(throttle.enter(ORDERS), Leave)
    assert throttle.state().throttled_s == pytest.approx(5.0)


def test_bytes_are_planned_by_what_the_table_held_so_far() -> None:
    clock = Clock()
    limits = ThrottleLimits(mb_per_second=1)
    throttle = Throttle(limits, split_rows=10, most_bytes=64 << 20, clock=clock)
    leave = throttle.enter(ORDERS)
    assert isinstance(leave, Leave)
    assert leave.planned.bytes == 64 << 20
    throttle.read(leave, ORDERS, rows=5, size=1 << 20)
    clock.now_s = 1.0
    second = throttle.enter(ORDERS)
    assert isinstance(second, Leave)
    assert second.planned.bytes == 2 << 20


def test_a_leave_that_was_not_used_costs_nothing() -> None:
    throttle = Throttle(ThrottleLimits(rows_per_second=1), split_rows=100, clock=Clock())
    leave = throttle.enter(ORDERS)
    assert isinstance(leave, Leave)
    throttle.unused(leave)
    assert isinstance(throttle.enter(ORDERS), Leave)


def test_threads_above_the_limit_close_it_and_at_the_limit_they_do_not() -> None:
    throttle = Throttle(ThrottleLimits(max_threads_running=50))
    throttle.see(LoadSeen(threads=51))
    assert why(throttle.enter(ORDERS)) == "Threads_running 51 is above 50"
    assert throttle.state().closed_by == "Threads_running 51 is above 50"
    throttle.see(LoadSeen(threads=50))
    assert isinstance(throttle.enter(ORDERS), Leave)


def test_a_load_that_is_not_known_closes_it() -> None:
    throttle = Throttle(ThrottleLimits(max_threads_running=50))
    assert "is not known yet" in why(throttle.enter(ORDERS))
    throttle.see(LoadSeen(threads=1))
    assert isinstance(throttle.enter(ORDERS), Leave)
    throttle.rest()
    assert "is not known yet" in why(throttle.enter(ORDERS))


def test_a_load_that_was_seen_long_ago_closes_it() -> None:
    clock = Clock()
    throttle = Throttle(ThrottleLimits(max_threads_running=50, max_replica_lag_s=9), clock=clock)
    throttle.see(LoadSeen(1, {"db2": 0.0}))
    clock.now_s = 20.0
    assert isinstance(throttle.enter(ORDERS), Leave)
    clock.now_s = 21.0
    assert "nobody looked for 20 s" in why(throttle.enter(ORDERS))
    throttle.change(ThrottleLimits(max_replica_lag_s=9))
    assert "the lag of replica db2 is not known" in why(throttle.enter(ORDERS))
    throttle.change(ThrottleLimits())
    assert isinstance(throttle.enter(ORDERS), Leave)


def test_a_critical_limit_alone_lets_nothing_through_before_the_first_look() -> None:
    throttle = Throttle(ThrottleLimits(critical_threads_running=100))
    assert "is not known yet" in why(throttle.enter(ORDERS))


@pytest.mark.parametrize(
    ("lag", "expected"),
    [
        (10.0, ""),
        (11.0, "replica db2 is 11 s behind, above 10 s"),
        (Unknown("is not known: it stands"), "the lag of replica db2 is not known: it stands"),
    ],
)
def test_a_replica_that_is_late_or_unknown_closes_it(lag: float | Unknown, expected: str) -> None:
    throttle = Throttle(ThrottleLimits(max_replica_lag_s=10))
    throttle.see(LoadSeen(Unknown(""), {"db1": 0.0, "db2": lag}))
    assert why(throttle.enter(ORDERS)) == expected


def test_a_lag_limit_without_a_replica_that_is_known_closes_it() -> None:
    throttle = Throttle(ThrottleLimits(max_replica_lag_s=10))
    throttle.see(LoadSeen(1))
    assert "knows no replica" in why(throttle.enter(ORDERS))


def test_a_critical_load_ends_who_began_before_it_and_nobody_after() -> None:
    throttle = Throttle(ThrottleLimits(critical_threads_running=100))
    began = throttle.criticals
    assert throttle.see(LoadSeen(99)) is None
    assert isinstance(throttle.see(LoadSeen(100)), CriticalLoadError)
    throttle.see(LoadSeen(1))
    with pytest.raises(CriticalLoadError, match="Threads_running 100 of the source is critical"):
        throttle.enter(ORDERS, since=began)
    assert isinstance(throttle.enter(ORDERS, since=throttle.criticals), Leave)


def test_other_limits_hold_at_once() -> None:
    throttle = Throttle(ThrottleLimits(rows_per_second=1), split_rows=100, clock=Clock())
    throttle.enter(ORDERS)
    assert why(throttle.enter(ORDERS))
    throttle.change(ThrottleLimits())
    assert isinstance(throttle.enter(ORDERS), Leave)


def test_a_wish_changes_what_it_names_and_leaves_the_rest_to_the_file() -> None:
    wish = ThrottleWish(1, {"rows_per_second": 10.0, "max_threads_running": None}, by="ana")
    file = ThrottleLimits(rows_per_second=1, mb_per_second=2, max_threads_running=3)
    assert wish.over(file) == ThrottleLimits(rows_per_second=10, mb_per_second=2)
    assert wish.origin == "from the file, max_threads_running, rows_per_second set by ana"
    assert ThrottleWish.from_json(1, wish.to_json()) == wish


def test_limits_survive_their_json() -> None:
    limits = ThrottleLimits(1.5, 2, 3, 4, 5)
    assert ThrottleLimits.from_json({**limits.to_json(), "of_a_later_release": 1}) == limits


def test_a_request_that_waits_ends_with_a_critical_load_and_a_later_one_does_not() -> None:
    throttle = Throttle(ThrottleLimits(max_threads_running=1, critical_threads_running=10))
    throttle.see(LoadSeen(5))
    gate, seen = ReadGate(throttle), []

    def pause(_: float) -> None:
        seen.append(gate.why)
        throttle.see(LoadSeen(10))
        throttle.see(LoadSeen(0))

    with pytest.raises(CriticalLoadError):
        gate.enter(ORDERS, pause)
    assert seen == ["Threads_running 5 is above 1"]
    assert gate.why == ""
    assert isinstance(ReadGate(throttle).enter(ORDERS, pause), Leave)


def test_rows_that_were_read_without_waiting_are_paid_for_by_the_next_split() -> None:
    throttle = Throttle(ThrottleLimits(rows_per_second=10), split_rows=10, clock=Clock())
    ReadGate(throttle).charge(ORDERS, rows=20, size=0)
    refusal = throttle.enter(ORDERS)
    assert isinstance(refusal, Refusal)
    assert refusal.wait_s == pytest.approx(2.0)
