"""What keeps a job from going forward is noted with since when, by its kind."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from airflow_cdc_provider.core.errors import SinkUnreachableError, SourceUnreachableError
from airflow_cdc_provider.core.identifiers import PipelineName
from airflow_cdc_provider.core.records import NoteKind
from airflow_cdc_provider.engine.outages import Outages, Part
from airflow_cdc_provider.state.store import SqlStateStore, open_store

SHOP = PipelineName("shop")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlStateStore]:
    with closing(open_store(f"sqlite:///{tmp_path / 'state.db'}")) as opened:
        opened.ensure(SHOP)
        yield opened


def noted(store: SqlStateStore) -> list[tuple[str, int]]:
    note = store.note(SHOP, NoteKind.OUTAGES)
    assert note is not None
    return [(each["error"]["code"], each["since_us"]) for each in note.form["outages"]]


def test_another_server_that_fails_began_to_fail_by_itself(store: SqlStateStore) -> None:
    outages = Outages(store, SHOP, 1)
    outages.note(Part.WORK, SourceUnreachableError("the source is away"), tries=1)
    outages.tell()
    ((_, first_us),) = noted(store)
    time.sleep(0.01)
    outages.note(Part.WORK, SourceUnreachableError("the source is still away"), tries=2)
    outages.tell()
    assert noted(store) == [("CDC-SRC-001", first_us)]
    outages.note(Part.WORK, SinkUnreachableError("the sink is away"), tries=3)
    outages.tell()
    ((code, second_us),) = noted(store)
    assert code == "CDC-SNK-001"
    assert second_us > first_us
    outages.over(Part.WORK)
    outages.tell()
    assert noted(store) == []
    assert store.events(SHOP)[0].text == "over, after 0 s: the sink is away"


def test_what_several_parts_meet_is_one_outage_that_ends_with_the_last_of_them(
    store: SqlStateStore,
) -> None:
    outages = Outages(store, SHOP, 1)
    outages.note(Part.SINK, SinkUnreachableError("the sink does not answer"), for_s=40.0)
    outages.note(Part.WORK, SinkUnreachableError("the sink is away"), tries=1)
    outages.over(Part.SINK)
    outages.tell()
    assert ends(store) == []
    outages.note(Part.SINK, SinkUnreachableError("the sink is away again"))
    outages.over(Part.SINK)
    outages.over(Part.WORK)
    outages.tell()
    outages.tell()
    assert ends(store) == ["over, after 40 s: the sink is away"]


def test_an_outage_of_which_a_part_saw_the_end_is_over_when_the_work_meets_another(
    store: SqlStateStore,
) -> None:
    outages = Outages(store, SHOP, 1)
    for part in (Part.SINK, Part.WORK):
        outages.note(part, SinkUnreachableError("the sink is away"))
    outages.over(Part.SINK)
    outages.note(Part.WORK, SourceUnreachableError("the source is away"))
    outages.tell()
    assert ends(store) == ["over, after 0 s: the sink is away"]


def test_an_end_that_a_state_store_could_not_take_is_told_when_it_is_back(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path / 'state.db'}")
    outages = Outages(store, SHOP, 1)  # the store does not know it yet
    outages.note(Part.SINK, SinkUnreachableError("the sink is away"))
    outages.over(Part.SINK)
    with closing(store):
        tables = tmp_path / "state.db"
        kept = tables.rename(tmp_path / "away.db")
        tables.mkdir()
        store.close()
        outages.tell()
        tables.rmdir()
        kept.rename(tables)
        store.ensure(SHOP)
        outages.tell()
        assert ends(store) == ["over, after 0 s: the sink is away"]


def ends(store: SqlStateStore) -> list[str]:
    return [event.text for event in store.events(SHOP) if event.text.startswith("over")]
