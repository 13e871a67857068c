"""Conflicts are counted at once, and told of by an event now and then."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_cdc_provider.core.identifiers import PipelineName
from airflow_cdc_provider.core.records import NoteKind
from airflow_cdc_provider.engine.stream.conflict_count import TELL_EVERY_S, ConflictCount
from airflow_cdc_provider.state.store import SqlStateStore, open_store

EDGE = PipelineName("berlin_to_paris")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlStateStore]:
    opened = open_store(f"sqlite:///{tmp_path}/state.db")
    opened.ensure(EDGE)
    yield opened
    opened.close()


def told(store: SqlStateStore) -> list[int]:
    return [int(event.text.split()[0]) for event in reversed(store.events(EDGE))]


def noted(store: SqlStateStore) -> int:
    note = store.note(EDGE, NoteKind.CONFLICTS)
    return 0 if note is None else int(note.form["count"])


def test_the_first_ones_are_told_at_once_and_later_ones_together(store: SqlStateStore) -> None:
    now_s = [5000.0]
    count = ConflictCount(store, EDGE, clock=lambda: now_s[0])
    for number in (0, 3, 3, 10, 12):
        count.tell(number)
        assert noted(store) == number
        now_s[0] += 10.0
    assert told(store) == [3]
    now_s[0] += TELL_EVERY_S
    count.tell(12)  # none came meanwhile, and 9 are not told yet
    count.tell(13)
    assert told(store) == [3, 9]


def test_what_a_job_did_not_tell_the_next_one_does(store: SqlStateStore) -> None:
    first = ConflictCount(store, EDGE)
    first.tell(3)
    first.tell(8)
    ConflictCount(store, EDGE).tell(8)
    assert told(store) == [3, 5]
    ConflictCount(store, EDGE).tell(8)
    assert told(store) == [3, 5]


def test_a_copy_that_begins_anew_counts_from_none(store: SqlStateStore) -> None:
    ConflictCount(store, EDGE).tell(8)
    count = ConflictCount(store, EDGE)
    count.tell(0)
    count.tell(2)
    assert (noted(store), told(store)) == (2, [8, 2])


def test_the_note_of_an_earlier_release_is_read(store: SqlStateStore) -> None:
    store.keep_note(EDGE, NoteKind.CONFLICTS, {"count": 4})
    ConflictCount(store, EDGE).tell(4)
    assert told(store) == []
