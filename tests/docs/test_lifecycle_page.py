"""The states that the page shows, and the picture above the code, are the code's."""

from __future__ import annotations

import re

import pytest

from airflow_cdc_provider.core import lifecycle
from airflow_cdc_provider.core.errors import StateMovedError
from airflow_cdc_provider.core.lifecycle import Phase, check_move
from tests.docs.pages import page

NAMES = {phase.value for phase in Phase}


def allowed(current: Phase, to: Phase) -> bool:
    try:
        check_move(current, to)
    except StateMovedError:
        return False
    return True


def shown() -> set[tuple[str, str]]:
    """Return the moves of the page's table; `any` is left as it is."""
    rows = re.findall(r"^\| `?(\w+)`? \| `(\w+)` \|", page("lifecycle.md"), re.MULTILINE)
    return {(state, to) for state, to in rows if to in NAMES and state in NAMES | {"any"}}


def drawn() -> set[tuple[str, str]]:
    """Return the moves of the picture in the module's own words."""
    text = (lifecycle.__doc__ or "").partition("What is:")[2]
    rows = re.findall(r"^    (\w+) +((?:[A-Z_]+, )*[A-Z_]+)  ", text, re.MULTILINE)
    return {(state.lower(), to.lower()) for state, many in rows for to in many.split(", ")}


@pytest.mark.parametrize("moves", [shown, drawn])
def test_every_move_that_is_shown_is_allowed(moves: object) -> None:
    found = moves()  # type: ignore[operator]
    assert {state for state, _ in found} >= {"new", "planning", "snapshot", "stopped", "any"}
    for state, to in found - {("any", "new")}:  # `drop` forgets, and moves nothing
        for current in Phase if state == "any" else [Phase(state)]:
            assert allowed(current, Phase(to)), f"{current} to {to}"


def test_every_move_to_another_state_is_drawn() -> None:
    found = drawn()
    for current in Phase:
        for to in Phase:
            if current is not to and allowed(current, to):
                assert {(current.value, to.value), ("any", to.value)} & found, f"{current} {to}"
