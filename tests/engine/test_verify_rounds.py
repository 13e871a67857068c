"""A row differs once it does so for some looks in a row: others change while it is looked at."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, cast

from airflow_cdc_provider.columns.verify_port import Hashes
from airflow_cdc_provider.core.keys import Key
from airflow_cdc_provider.core.verify_report import DifferenceKind
from airflow_cdc_provider.engine.verify.comparison import Comparison
from airflow_cdc_provider.engine.verify.pairs import ComparedTable

KEY: Key = (1,)
ROW, OTHER = "a row", "another one"


@dataclass
class Side:
    """One side's row of the key at each look in turn; None: it is not there."""

    looks: list[Any] = field(default_factory=list)

    def hashes_of(self, keys: Iterable[Key]) -> Hashes:
        found = self.looks.pop(0)
        return {} if found is None else dict.fromkeys(keys, found)


@dataclass
class Pair:
    source: Side
    sink: Side


def confirmed(rounds: list[tuple[Any, Any, Any]]) -> list[DifferenceKind]:
    """Judge by rounds: the source before the wait, then the sink and the source behind it."""
    source, sink = Side(), Side()
    found = Comparison(cast("ComparedTable", Pair(source, sink)), candidates={KEY})
    for before, there, now in rounds:
        sink.looks, source.looks = [there], [now]
        found.judge({} if before is None else {KEY: before})
    return [each.kind for each in found.confirmed.values()]


def test_a_row_that_comes_and_goes_between_two_looks_is_not_extra() -> None:
    came_and_went = (None, ROW, None)
    assert confirmed([came_and_went]) == []
    assert confirmed([came_and_went, (None, None, None)]) == []
    assert confirmed([came_and_went, (ROW, None, ROW), came_and_went]) == []


def test_one_that_stays_is_told_behind_the_second_look() -> None:
    assert confirmed([(None, ROW, None)] * 2) == [DifferenceKind.EXTRA]
    assert confirmed([(ROW, None, ROW)] * 2) == [DifferenceKind.MISSING]
    assert confirmed([(ROW, OTHER, ROW)] * 2) == [DifferenceKind.DIFFERENT]
