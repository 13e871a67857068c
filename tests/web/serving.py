"""A real API server of Airflow below a base path, a browser, and pipelines to be seen there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_cdc_provider.core.errors import CdcError, RowRefusedError
from airflow_cdc_provider.core.findings import Finding, Level, PipelineCode
from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.lifecycle import Phase, SplitStatus, TablePhase, Wanted
from airflow_cdc_provider.core.log_reach import LogReach
from airflow_cdc_provider.core.records import NoteKind, StreamState
from airflow_cdc_provider.core.requests import RequestKind, RequestStatus, Scope
from airflow_cdc_provider.core.stored_error import StoredError
from airflow_cdc_provider.state.store import SqlStateStore
from tests.behaviours.request_behaviours import request_of
from tests.behaviours.state_behaviours import at, plan_of, report_of, splits_of
from tests.servers.browser import started
from tests.servers.packages import PackagesUnavailableError
from tests.servers.throwaway import free_port
from tests.web.shop import SHOP, Page, pipeline_dags, streaming

if TYPE_CHECKING:
    from playwright.sync_api import Browser, FrameLocator
    from playwright.sync_api import Page as Tab

NASTY = '<img src=x onerror="document.title=1">'
BUSY, QUIET = PipelineName("web_warehouse"), PipelineName("web_archive")
HOURLY, BROKEN = PipelineName("web_hourly"), PipelineName("web_broken")
THERE, BACK = PipelineName("web_berlin_paris"), PipelineName("web_paris_berlin")
ON, LOST = PipelineName("web_berlin_rome"), PipelineName("web_lost")
_EDGE = """topology:
  name: {}
  src_node: {}
  dst_node: {}
  conflicts: {{policy: priority, winner: berlin}}
"""
_START_S = 200.0


@dataclass(frozen=True)
class Served:
    """The API server and somebody's way in."""

    url: str
    tokens: dict[str, str]


@pytest.fixture(scope="module")
def served(page: Page, web_folder: Path) -> Iterator[Served]:
    """An API server on the metadata database that this process has made."""
    from airflow.configuration import conf  # noqa: PLC0415 - loads Airflow

    folder = web_folder / "pipelines"
    pipeline_dags(folder, [str(BROKEN)], more="snapshot: {split_row: 5}\n")
    pipeline_dags(folder, [str(HOURLY)], mode="bounded", more="freshness: {target: 1h}\n")
    pipeline_dags(folder, [str(BUSY), str(QUIET)])
    for name, ends in ((THERE, "berlin paris"), (BACK, "paris berlin"), (ON, "berlin rome")):
        pipeline_dags(folder, [str(name)], more=_EDGE.format("shops", *ends.split()))
    lost = _EDGE.format("lost", "berlin", "oslo")
    pipeline_dags(folder, [str(LOST)], state="conn_id: web_nowhere", more=lost)
    port = free_port()
    url = f"http://127.0.0.1:{port}/af"
    key = conf.get("core", "fernet_key")  # by which this process encrypts connections
    command = ["api-server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    log = web_folder / "api-server.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "airflow", *command],
            env={**os.environ, "AIRFLOW__API__BASE_URL": url, "AIRFLOW__CORE__FERNET_KEY": key},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            _await(f"{url}/api/v2/monitor/health", process, log)
            yield Served(url, page.tokens)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)


def _await(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (OSError, urllib.error.URLError):
            time.sleep(0.3)
    raise AssertionError(f"the API server did not start:\n{log.read_text()[-3000:]}")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    try:
        with started() as browser:
            yield browser
    except PackagesUnavailableError as error:
        pytest.skip(f"no chromium: {error}")


@pytest.fixture
def tab(browser: Browser, served: Served) -> Iterator[Tab]:
    """An administrator's tab; a script's error or a refused file fails the test."""
    yield from opened(browser, served, "ADMIN")


def opened(browser: Browser, served: Served, role: str) -> Iterator[Tab]:
    context = browser.new_context(viewport={"width": 1280, "height": 900}, locale="en-GB")
    context.add_cookies([{"name": "_token", "value": served.tokens[role], "url": served.url}])
    wrong: list[str] = []
    tab = context.new_page()
    tab.set_default_timeout(20_000)
    tab.on("pageerror", lambda error: wrong.append(str(error)))
    tab.on(
        "console",
        lambda said: wrong.append(said.text) if "Content Security Policy" in said.text else None,
    )
    yield tab
    context.close()
    assert wrong == []


def themed(tab: Tab, served: Served, theme: str) -> None:
    """Choose light or dark as a person does in Airflow's own menu."""
    tab.add_init_script(f"localStorage.setItem('theme', '{theme}')")


# --- what there is to be seen --------------------------------------------------------------------


@pytest.fixture
def lively(store: SqlStateStore) -> SqlStateStore:
    """Three pipelines: one that streams with all there can be, one that reads, one that failed."""
    _warehouse(store)
    generation = store.take_over(SHOP, "airflow dag web_shop__sync").generation
    store.start_plan(SHOP, generation, "p", [plan_of(TableId("shop", "orders"))])
    store.add_splits(SHOP, generation, splits_of(30, TableId("shop", "orders")))
    for to in (Phase.PLANNING, Phase.SNAPSHOT):
        store.move(SHOP, generation, expected=store.ensure(SHOP).phase, to=to)
    for number, split in enumerate(splits_of(30, TableId("shop", "orders"))[:14]):
        if number < 12:
            report = report_of(split, rows=40)
            store.mark_split(SHOP, generation, split, SplitStatus.FINISHED, report=report)
        else:
            store.mark_split(SHOP, generation, split, SplitStatus.READING)
    archive = streaming(store, QUIET, heartbeat_us=store.now_us() - 600_000_000)
    store.want(QUIET, Wanted.RUN)
    store.move(
        QUIET, archive, expected=Phase.STREAMING, to=Phase.FAILED, error=StoredError.of(_refusal())
    )
    return store


def _refusal() -> CdcError:
    return RowRefusedError(
        "the sink refused a row: Duplicate entry '7' for key 'email' (1062)",
        where="copy.customers, key 7, behind binlog.000003:1234",
        risk="none of this batch was kept; the stream stands at its last commit",
        remedy="remove the row that holds the value at the sink, then `resume`",
    )


def _warehouse(store: SqlStateStore) -> None:
    """A stream of an hour, with tables in every phase and requests in every status."""
    generation = store.take_over(BUSY, "test").generation
    store.forget(BUSY, generation)
    store.want(BUSY, Wanted.RUN)
    names = ("orders", "order_lines", "customers", "products", "stock", NASTY)
    tables = [TableId("shop", name) for name in names]
    generation = store.take_over(BUSY, "airflow dag web_warehouse__sync").generation
    store.start_plan(BUSY, generation, "p", [plan_of(table) for table in tables])
    for table in tables:
        splits = splits_of(80, table)
        store.add_splits(BUSY, generation, splits)
        store.finish_planning(BUSY, generation, table)
        store.finish_splits(
            BUSY, generation, [(each, report_of(each, rows=1234)) for each in splits]
        )
        store.mark_table(BUSY, generation, table, TablePhase.CONSISTENT)
    store.mark_table(BUSY, generation, tables[1], TablePhase.FAILED, StoredError.of(_refusal()))
    store.mark_table(BUSY, generation, tables[2], TablePhase.PAUSED)
    store.mark_table(BUSY, generation, tables[3], TablePhase.CATCHING_UP)
    for to in (Phase.PLANNING, Phase.SNAPSHOT, Phase.HANDED_OFF, Phase.STREAMING):
        store.move(BUSY, generation, expected=store.ensure(BUSY).phase, to=to)
    _beats(store, generation, tables[3])
    reach = LogReach(files=12, kept_bytes=12 << 30, applied_bytes=9 << 30, kept_s=259_200)
    store.keep_note(BUSY, NoteKind.LOG_REACH, asdict(reach))
    found = Finding(
        PipelineCode.PIPELINE_ENDED,
        Level.WARN,
        f"shop.{NASTY}",
        "the stream ended for good",
        why="nothing is copied",
        fix="`reset` the pipeline",
    )
    kept = {"counts": {"warn": 1, "info": 2}, "findings": [found.to_json()]}
    store.keep_note(BUSY, NoteKind.PREFLIGHT, kept)
    for name, status, rows in (
        ("nightly-1", RequestStatus.ASKED, 0),
        ("resync-k7m2", RequestStatus.READING, 21_000),
        ("resync-big", RequestStatus.WAITING, 0),
    ):
        _ask(store, generation, name, status, rows)
    store.tell(BUSY, f"a table was changed: {NASTY}", level="warning")


def _ask(
    store: SqlStateStore, generation: int, name: str, status: RequestStatus, rows: int
) -> None:
    is_waiting = status is RequestStatus.WAITING
    asked = store.ask(
        replace(
            request_of(),
            pipeline=BUSY,
            request_id=name,
            kind=RequestKind.RESYNC,
            scope=Scope((TableId("shop", "stock"),)),
            asked_by="ada in Airflow",
            asked_us=store.now_us(),
            estimated_rows=98_720,
            status=RequestStatus.WAITING if is_waiting else RequestStatus.ASKED,
        )
    )
    if status is RequestStatus.READING:
        store.move_request(BUSY, generation, name, expected=RequestStatus.ASKED, to=status)
        store.note_request(generation, replace(asked, status=status, rows=rows, splits=17))


def _beats(store: SqlStateStore, generation: int, catching_up: TableId) -> None:
    """Tell of the last day, a sample a minute at most."""
    now, clock = store.now_us(), store._clock
    changes = 0
    moments = [now - minute * 300_000_000 for minute in range(280, 3, -2)]
    moments += [now - tens * 10_000_000 for tens in range(90, -1, -1)]
    for number, moment in enumerate(moments):
        wave = (number % 50) / 50
        changes += int((400 + 900 * wave) * (600 if number < 139 else 10))
        lag_us = int(400_000 + 1_800_000 * wave) if number % 100 > 6 else 9_000_000
        state = StreamState(
            at(4_000 + number),
            source_end=at(4_100 + len(moments)),
            changes=changes,
            transactions=changes // 3,
            lag_us=lag_us,
            heartbeat_us=now,
            inconsistent=(catching_up,),
        )
        store._clock = lambda at_us=moment: at_us  # type: ignore[misc]
        store.beat(BUSY, generation, state)
    store._clock = clock
    store.renew_lease(BUSY, generation, 3600)


def framed(tab: Tab, served: Served, search: str = "") -> FrameLocator:
    """Open the page within Airflow's UI."""
    inner = f"/af/cdc/page{search}" if search else ""
    tab.goto(f"{served.url}/plugin/cdc{inner}")
    return tab.frame_locator("iframe[title='CDC']")


def of(name: PipelineName) -> str:
    return f"?dag_id={name}__sync&pipeline={name}"
