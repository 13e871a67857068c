"""The model notices where a rule of the engine is taken out, and finds nothing wrong with it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_cdc_provider.core.errors import SinkBusyError
from airflow_cdc_provider.engine.sink import guarded_writes, their_changes
from tests.engine.nodes.nodes_world import BrokenPromiseError
from tests.engine.nodes.schedules import run
from tests.engine.nodes.taken_out import IN_COLUMNS, RULES, TakenOut


def notices(rule: TakenOut, monkeypatch: pytest.MonkeyPatch) -> None:
    start = replace(rule.start, reading=replace(rule.start.reading, cuts=True))
    run(start, rule.schedule)
    rule.take_out(monkeypatch)
    with pytest.raises((BrokenPromiseError, SinkBusyError), match=rule.seen_as):
        run(rule.start, rule.schedule)


@pytest.mark.parametrize("name", RULES)
def test_the_model_notices_a_rule_that_is_taken_out(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    notices(RULES[name], monkeypatch)


@pytest.mark.parametrize("name", IN_COLUMNS)
def test_the_model_notices_it_where_changes_are_compared_as_columns(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (guarded_writes, their_changes):
        monkeypatch.setattr(module, "_MOST_PLAIN", -1)
    rule = RULES[name]
    start = replace(rule.start, reading=replace(rule.start.reading, few=False))
    notices(replace(rule, start=start), monkeypatch)
