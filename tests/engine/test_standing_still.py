"""Rows differ only if they have not changed for some rounds: others come and go meanwhile."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

from airflow_cdc_provider.engine.verify.comparison import Comparison

KEY = (1,)


def rounds(*seen: tuple[str | None, str | None], both: bool = True) -> tuple[int, int]:
    """Judge one row by what is seen of it, at source and sink, before and behind each round.

    Returns how many rows differ, and how many are still open.
    """
    now: dict[str, dict[Any, str | None]] = {}
    sides = {
        side: SimpleNamespace(hashes_of=lambda _keys, side=side: now[side])
        for side in ("source", "sink")
    }
    found = Comparison(cast("Any", SimpleNamespace(**sides)), candidates={KEY})
    for earlier, later in pairwise(seen):
        now["source"], now["sink"] = {KEY: later[0]}, {KEY: later[1]}
        before = {KEY: earlier[1]} if both else None
        found.judge(cast("Any", {KEY: earlier[0]}), cast("Any", before))
    return len(found.confirmed), len(found.candidates)


def test_rows_that_stand_still_differ() -> None:
    assert rounds(("a", "b"), ("a", "b"), ("a", "b"), ("a", "b")) == (1, 0)
    assert rounds(("a", "b"), ("a", "b"), ("a", "b")) == (0, 1)


def test_a_row_that_moves_at_either_side_is_looked_at_anew() -> None:
    still = [("a", "b")] * 3
    assert rounds(*still, ("a", "c"), ("a", "c"), ("a", "c")) == (0, 1)
    assert rounds(*still, ("x", "b"), ("x", "b"), ("x", "b")) == (0, 1)
    assert rounds(*still, (None, "b"), *still) == (0, 1)
    assert rounds(*still, ("a", "a")) == (0, 0)


def test_where_only_the_source_is_written_to_two_rounds_are_enough() -> None:
    assert rounds(("a", "b"), ("a", "b"), ("a", "b"), both=False) == (1, 0)
    assert rounds(("a", "b"), ("a", "b"), both=False) == (0, 1)
    assert rounds(("a", "b"), ("a", "b"), ("a", "c"), both=False) == (0, 1)
    assert rounds(("a", "b"), ("a", "b"), ("x", "b"), both=False) == (0, 1)


def test_a_row_that_comes_and_goes_between_two_looks_is_not_extra() -> None:
    assert rounds((None, "b"), (None, "b"), (None, None), both=False) == (0, 0)
    assert rounds((None, "b"), (None, "b"), (None, "b"), both=False) == (1, 0)
