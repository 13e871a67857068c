"""The problems of a pipeline on the CDC page: their order, and the way out that each names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from airflow_cdc_provider.core.errors import RefusedError
from airflow_cdc_provider.core.findings import NOT_ADDABLE, Finding, Level, PipelineCode
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.lifecycle import Phase, TablePhase
from airflow_cdc_provider.core.records import NoteKind, PlanOrigin
from airflow_cdc_provider.core.stored_error import StoredError
from airflow_cdc_provider.state.store import SqlStateStore, open_store
from airflow_cdc_provider.views.page import list_row
from airflow_cdc_provider.web.known import KnownDag
from airflow_cdc_provider.web.nobody import with_nobody
from tests.behaviours.state_behaviours import ORDERS, SHOP, plan_of

REFUSAL = RefusedError("other rules", where="the file", risk="none", remedy="`run` it")
LATER = TableId("shop", "later")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlStateStore]:
    with closing(open_store(f"sqlite:///{tmp_path / 'state.db'}")) as opened:
        generation = opened.take_over(SHOP, "a test").generation
        opened.start_plan(SHOP, generation, "plan-1", [plan_of()])
        yield opened


def row(store: SqlStateStore) -> dict[str, Any]:
    (found,) = store.overviews([SHOP], store.now_us())
    return list_row(str(SHOP), found, store.now_us())


def with_later(store: SqlStateStore, *findings: Finding) -> None:
    """Have a table that came after the plan, and preflight's findings on it."""
    generation = store.ensure(SHOP).generation
    store.keep_origin(SHOP, generation, PlanOrigin("source", "sink", ("shop.*",), ()), [LATER])
    form = {"counts": {}, "findings": [each.to_json() for each in findings]}
    store.keep_note(SHOP, NoteKind.PREFLIGHT, form)


def test_what_was_refused_comes_before_that_nothing_runs_it(store: SqlStateStore) -> None:
    generation = store.ensure(SHOP).generation
    store.mark_table(SHOP, generation, ORDERS, TablePhase.FAILED, StoredError.of(REFUSAL))
    store.keep_note(SHOP, NoteKind.LAST_TRY, {"step": "plan", "error": REFUSAL.to_json()})
    store.release_lease(SHOP, generation)
    stopped = {**row(store), "phase": Phase.STOPPED.value}
    first, second, third = with_nobody(stopped, KnownDag("shop__sync"))["problems"]
    assert first["what"] == "other rules"
    assert second["what"].startswith("it is wanted to run, and nothing runs it")
    assert third["table"] == str(ORDERS)


def test_a_way_in_airflow_has_the_pipelines_name(store: SqlStateStore) -> None:
    store.keep_note(SHOP, NoteKind.LAST_TRY, {"step": "plan", "error": REFUSAL.to_json()})
    (problem,) = row(store)["problems"]
    assert problem["in_airflow"] == f"`run`: trigger the DAG `{SHOP}__sync`"


def test_a_table_that_can_be_added_says_how(store: SqlStateStore) -> None:
    with_later(store)
    (problem,) = row(store)["problems"]
    assert problem["what"] == "it came after the plan and is not copied"
    assert problem["remedy"] == f"`add` with --table {LATER} copies it from now on"


@pytest.mark.parametrize(
    ("subject", "only"), [(str(LATER), ""), ("copy.later", str(LATER))], ids=["source", "sink"]
)
def test_a_table_that_cannot_be_added_says_why(
    store: SqlStateStore, subject: str, only: str
) -> None:
    found = Finding(
        PipelineCode.TABLE_COLUMNS,
        Level.WARN,
        subject,
        "its collation is not at the sink",
        why=f"{NOT_ADDABLE}: rows would be merged",
        fix="choose another {one}",
        only=only,
    )
    with_later(store, found)
    (problem,) = row(store)["problems"]
    assert problem["what"].endswith("`add` would be refused: its collation is not at the sink")
    assert problem["remedy"].startswith("choose another {one}; then `add` with --table shop.later")


def test_a_table_that_differed_when_it_was_compared_last_is_a_problem(
    store: SqlStateStore,
) -> None:
    for is_equal, told in ((False, [str(ORDERS)]), (True, [])):
        verified = {str(ORDERS): {"at_us": 1, "equal": is_equal, "rows": 3}}
        store.keep_note(SHOP, NoteKind.VERIFIED, {"tables": verified})
        assert [problem["table"] for problem in row(store)["problems"]] == told
