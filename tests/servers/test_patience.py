"""Waiting ends when what is waited for is there, or when nothing happens any more."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

from tests.servers.patience import StandstillError, sizes, wait_while_working


def test_it_waits_for_as_long_as_something_happens() -> None:
    looks, signs = count(), count()
    wait_while_working(
        lambda: next(looks) == 20, "the end", signs=lambda: next(signs), poll_s=0.01, quiet_s=0.0
    )
    assert next(looks) == 21


def test_it_fails_when_nothing_happens_any_more() -> None:
    with pytest.raises(StandstillError, match=r"the end did not come about:\nthe last words"):
        wait_while_working(
            lambda: False,
            "the end",
            signs=lambda: 7,
            told=lambda: "the last words",
            poll_s=0.01,
            quiet_s=0.05,
        )


def test_files_that_are_gone_count_as_empty(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("words")
    assert sizes([tmp_path / "log", tmp_path / "gone"]) == 5
