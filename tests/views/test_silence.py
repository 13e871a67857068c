"""What is shown of a pipeline whose owner was killed, while its lease lasts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from airflow_cdc_provider.core.lifecycle import LEASE_S
from airflow_cdc_provider.core.owners import this_process
from airflow_cdc_provider.core.records import NoteKind
from airflow_cdc_provider.state.store import SqlStateStore, open_store
from airflow_cdc_provider.views.overview import Shown, overview_lines
from airflow_cdc_provider.views.page import list_row
from airflow_cdc_provider.views.progress import progress_line
from airflow_cdc_provider.views.reports import status_lines
from airflow_cdc_provider.views.status import PipelineStatus, status
from tests.behaviours.state_behaviours import SHOP

_OWNER = """\
import sys, time
from airflow_cdc_provider.core.lifecycle import Phase
from airflow_cdc_provider.core.records import StreamState
from airflow_cdc_provider.core.owners import this_process
from airflow_cdc_provider.state.store import open_store
from tests.behaviours.state_behaviours import SHOP, at, plan_of
store = open_store(sys.argv[1])
generation = store.take_over(SHOP, this_process()).generation
store.start_plan(SHOP, generation, "plan-1", [plan_of()])
phases = (Phase.NEW, Phase.PLANNING, Phase.SNAPSHOT, Phase.HANDED_OFF, Phase.STREAMING)
for former, to in zip(phases, phases[1:]):
    store.move(SHOP, generation, expected=former, to=to)
store.beat(
    SHOP, generation, StreamState(at(4), changes=7, lag_us=2_500_000, heartbeat_us=store.now_us())
)
print("streaming", flush=True)
time.sleep(60)
"""


@pytest.fixture
def state_dsn(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'state.db'}"


@pytest.fixture
def store(state_dsn: str) -> Iterator[SqlStateStore]:
    with closing(open_store(state_dsn)) as opened:
        yield opened


@pytest.fixture
def owner(store: SqlStateStore, state_dsn: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that streams, as far as its state says."""
    command = [sys.executable, "-c", _OWNER, state_dsn]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"streaming\n"
        yield process
        process.kill()


def look(store: SqlStateStore) -> PipelineStatus:
    return status(store, SHOP, now_us=store.now_us())


def row(store: SqlStateStore) -> dict[str, object]:
    """Return the row of the page's list."""
    now_us = store.now_us()
    (found,) = store.overviews([SHOP], now_us)
    return list_row(str(SHOP), found, now_us)


def test_one_that_is_at_work_is_shown_as_that(
    store: SqlStateStore, owner: subprocess.Popen[bytes]
) -> None:
    seen = look(store)
    assert (seen.summary, seen.doubt, seen.lag_s) == ("streaming", "", 2.5)
    assert f"owner: process {owner.pid}" in "\n".join(status_lines(seen))
    assert row(store)["stale"] is False


def test_one_that_was_killed_is_not_shown_as_at_work(
    store: SqlStateStore, owner: subprocess.Popen[bytes]
) -> None:
    assert row(store)["rows_per_s"] is not None
    os.kill(owner.pid, signal.SIGKILL)
    owner.wait()
    seen = look(store)
    assert seen.doubt == "its process is gone, the last word is 0 s old"
    assert seen.summary == "streaming (nobody may be at work)"
    assert (seen.lag_s, seen.to_json()["doubt"]) == (None, seen.doubt)
    told = f"streaming (nobody may be at work), {seen.doubt}, "
    assert f"{told}7 changes, lag 2.5 s when last heard of, " in progress_line(seen)
    assert told in overview_lines([Shown(str(SHOP), "shop.yaml", seen)])[0]
    assert f"({seen.doubt}; nobody may be at work), generation" in "\n".join(status_lines(seen))
    shown = row(store)
    assert (shown["stale"], shown["lag_s"], shown["rows_per_s"]) == (True, None, None)
    assert seen.doubt in str(shown["problems"])


def test_a_killed_process_is_known_whatever_its_owner_is_called(store: SqlStateStore) -> None:
    generation = store.take_over(SHOP, "airflow dag shop__sync").generation
    with subprocess.Popen(["/bin/true"]) as ended:
        pass
    process = this_process().replace(f" {os.getpid()} ", f" {ended.pid} ")
    note = {"generation": generation, "process": this_process(), "outages": []}
    store.keep_note(SHOP, NoteKind.OUTAGES, note)
    assert (look(store).doubt, row(store)["problems"]) == ("", [])
    store.keep_note(SHOP, NoteKind.OUTAGES, {**note, "process": process})
    assert look(store).doubt == "its process is gone, the last word is 0 s old"
    assert "nobody may be at work" in str(row(store)["problems"])
    store.take_over(SHOP, "airflow dag shop__sync")  # the next one has noted nothing yet
    assert look(store).doubt == ""


def test_one_that_is_silent_may_be_dead_wherever_it_was(store: SqlStateStore) -> None:
    store.take_over(SHOP, "dag shop__sync")
    heard_us = store.ensure(SHOP).lease_until_us - int(LEASE_S * 1e6)

    def then(later_s: float) -> PipelineStatus:
        return status(store, SHOP, now_us=heard_us + int(later_s * 1e6))

    assert then(25).doubt == ""
    assert then(40).doubt == "the last word is 40 s old"
    assert then(LEASE_S + 1).doubt == ""
    assert not then(LEASE_S + 1).is_owned
