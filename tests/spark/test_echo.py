"""A stream that reads its own commits waits between them, and not where there are changes."""

from __future__ import annotations

from airflow_cdc_provider.engine.stream.echo import FIRST_S, MOST_S, EchoPause


def test_the_pause_grows_to_its_limit_while_nothing_comes() -> None:
    pause = EchoPause()
    waits = [pause.after(0) for _ in range(20)]
    assert waits[0] == FIRST_S
    assert waits == sorted(waits)
    assert waits[-5:] == [MOST_S] * 5


def test_a_change_is_followed_at_once_and_ends_the_growth() -> None:
    pause = EchoPause()
    for _ in range(5):
        pause.after(0)
    assert pause.after(3) == 0.0
    assert pause.after(0) == FIRST_S
