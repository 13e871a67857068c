"""People read errors as they are printed; no place shows the JSON in which they are stored."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_cdc_provider.core.errors import LogPurgedError, RowRefusedError, SinkUnreachableError
from airflow_cdc_provider.core.lifecycle import Phase, TablePhase
from airflow_cdc_provider.core.requests import RequestStatus
from airflow_cdc_provider.core.stored_error import StoredError
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.pipeline.steps.range_requests import ended
from airflow_cdc_provider.state.desired_state import set_aside
from airflow_cdc_provider.state.store import SqlStateStore, open_store
from airflow_cdc_provider.triggers.lines import standing_lines, standing_tables
from airflow_cdc_provider.views.health import status_text
from airflow_cdc_provider.views.overview import Shown, overview_form, overview_lines
from airflow_cdc_provider.views.page import pipeline_form
from airflow_cdc_provider.views.reports import status_lines
from airflow_cdc_provider.views.request_text import request_form, request_line
from airflow_cdc_provider.views.status import status
from tests.behaviours.request_behaviours import request_of
from tests.behaviours.state_behaviours import ORDERS, SHOP, at, plan_of

PURGED = LogPurgedError("purged; what to do: nothing", "source", "rows", "`reset`")
REFUSED = RowRefusedError("refused; where: there", "sink", "", "mend it").about(ORDERS)
AWAY = SinkUnreachableError("away; at risk: all", "sink", "", "wait")
WAITS = "waits: the stream leaves it alone"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlStateStore]:
    """The state of a pipeline whose stream, whose table and whose requests have an error each."""
    opened = open_store(f"sqlite:///{tmp_path}/state.db")
    generation = opened.take_over(SHOP, "me").generation
    opened.start_plan(SHOP, generation, "plan", [plan_of()])
    phases = (Phase.PLANNING, Phase.SNAPSHOT, Phase.HANDED_OFF, Phase.STREAMING)
    for before, to in zip((Phase.NEW, *phases), phases, strict=False):
        opened.move(SHOP, generation, expected=before, to=to)
    opened.store_hand_off(SHOP, generation, StreamSplit(at(4), None, ()))
    for name in ("failed", "waits"):
        opened.ask(request_of(name))
    away, asked = StoredError.of(AWAY), RequestStatus.ASKED
    failed = RequestStatus.FAILED
    opened.move_request(SHOP, generation, "failed", expected=asked, to=failed, error=away)
    opened.note_request(generation, request_of("waits", error=StoredError.saying(WAITS)))
    opened.mark_table(SHOP, generation, ORDERS, TablePhase.FAILED, StoredError.of(REFUSED))
    error = StoredError.of(PURGED)
    opened.move(SHOP, generation, expected=Phase.STREAMING, to=Phase.FAILED, error=error)
    yield opened
    opened.close()


def leaves(form: Any) -> Iterator[str]:
    """Return each text in plain values."""
    if isinstance(form, dict):
        form = [*form.values()]
    if isinstance(form, (list, tuple)):
        for each in form:
            yield from leaves(each)
    elif isinstance(form, str):
        yield form


def test_texts_and_forms_have_errors_as_they_are_printed(store: SqlStateStore) -> None:
    now = store.now_us()
    seen = status(store, SHOP, now_us=now)
    shown = [Shown("shop", "shop.yaml", seen)]
    requests = store.requests(SHOP)
    texts = [
        *status_lines(seen),
        *overview_lines(shown),
        status_text(seen),
        *map(request_line, requests),
        *standing_lines(standing_tables(store, SHOP, now)[1], {}),
    ]
    forms = [
        dict(seen.to_json()),
        overview_form(shown),
        *map(request_form, requests),
        pipeline_form(store, SHOP, now_us=now, events=50),
    ]
    json.dumps(forms)
    every = [*texts, *leaves(forms)]
    assert not [text for text in every if '{"' in text]
    for error in (PURGED, AWAY):
        assert any(str(error) in text for text in texts)
        assert str(error) in [*leaves(forms)]
    for what in (f"{REFUSED.code} {REFUSED.what}", WAITS):
        assert any(what in text for text in texts)


def test_the_page_has_the_facts_of_each_error(store: SqlStateStore) -> None:
    form = pipeline_form(store, SHOP, now_us=store.now_us(), events=50)
    assert [each["what"] for each in form["problems"]] == [PURGED.what, REFUSED.what]
    error = form["table_list"][0]["error"]
    assert (error["code"], error["where"], error["tables"]) == (
        REFUSED.code,
        "sink",
        [str(ORDERS)],
    )


def test_who_waits_for_a_request_is_told_its_facts(store: SqlStateStore) -> None:
    (failed,) = (each for each in store.requests(SHOP) if each.status is RequestStatus.FAILED)
    error = ended(failed)
    assert error.what.endswith(f"has failed: {AWAY.what}")
    assert (error.where, error.remedy) == ("sink", "wait")


def test_what_is_set_aside_is_noted_without_its_advice(store: SqlStateStore) -> None:
    assert set_aside(store, SHOP)
    (event, *_) = store.events(SHOP, 1)
    assert event.text == f"to be tried again: {PURGED.code} {PURGED.what}; where: source"
