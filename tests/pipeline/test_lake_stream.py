"""A stream into a lake that cannot go on ends or waits with an error, and never says it is fine."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from airflow_cdc_provider.core.backoff import BackOff
from airflow_cdc_provider.core.errors import (
    IntegrityError,
    LedgerSetBackError,
    SinkUnreachableError,
)
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.records import NoteKind
from airflow_cdc_provider.engine.job_result import JobResult, Outcome
from airflow_cdc_provider.engine.stream.follow import run_stream
from airflow_cdc_provider.engine.stream.own_follower import OwnFollower
from airflow_cdc_provider.pipeline.steps.small_work import _job
from airflow_cdc_provider.pipeline.steps.start_jobs import _stream_to_do
from airflow_cdc_provider.systems.file_log.layout import table_folder
from airflow_cdc_provider.systems.lake import publisher as publisher_module
from airflow_cdc_provider.views.remarks import published_of
from airflow_cdc_provider.views.reports import status_lines
from airflow_cdc_provider.views.status import status
from tests.pipeline.conftest import Shop
from tests.pipeline.lakes import FORMS, Lake
from tests.servers.patience import wait_until
from tests.systems.lake.damage import set_back

if TYPE_CHECKING:
    from airflow_cdc_provider.core.errors import CdcError

QUICK = BackOff(first_s=0.1, longest_s=0.1, give_up_s=0.5)


@pytest.fixture(params=FORMS)
def lake(shop: Shop, request: pytest.FixtureRequest) -> Lake:
    found = Lake.of(shop, request.param)
    found.catch_up()
    return found


def stream(lake: Lake, mode: str, first: Callable[[], object] = lambda: None) -> None:
    run = lake.shop.run()
    job = _job(run, _stream_to_do(run, mode), threading.Event())
    first()
    run_stream(job, OwnFollower, back_off=QUICK)


def test_one_that_begins_while_the_folder_is_elsewhere_makes_no_other_one(lake: Lake) -> None:
    lake.shop.at_source("INSERT INTO orders (id) VALUES (80)")
    away = lake.folder.with_name("away")
    with pytest.raises(LedgerSetBackError, match="gone, or set back"):
        stream(lake, "bounded", first=lambda: lake.folder.rename(away))
    assert not lake.folder.exists()
    away.rename(lake.folder)
    lake.catch_up()
    assert lake.is_equal("orders")


def test_whatever_ends_the_commits_of_its_tables_ends_it(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: object) -> None:
        raise TypeError("nobody thought of this")

    with monkeypatch.context() as patched:
        patched.setattr(publisher_module.Publisher, "publish", broken)
        with pytest.raises(TypeError, match="nobody thought of this"):
            stream(lake, "continuous")
    lake.catch_up()
    assert lake.is_equal("orders")


def test_tables_are_as_old_as_what_their_log_has(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def as_of_us() -> int:
        told = lake.shop.run().store.note(lake.shop.run().name, NoteKind.PUBLISHED)
        assert told is not None
        return int(told.form["at_us"])

    def now_us() -> int:
        return time.time_ns() // 1000

    lake.shop.at_source("INSERT INTO orders (id) VALUES (79)")
    begin_us = now_us()
    lake.catch_up()
    assert begin_us <= as_of_us() <= now_us()
    changed_us = now_us()
    lake.shop.at_source("INSERT INTO orders (id) VALUES (80)")
    time.sleep(0.1)
    publish, left = publisher_module.Publisher.publish, ["once, before a change was read"]

    def broken(publisher: publisher_module.Publisher) -> None:
        if not left:
            raise SinkUnreachableError("away", "the lake", "none")
        left.clear()
        publish(publisher)

    with monkeypatch.context() as patched:
        patched.setattr(publisher_module.Publisher, "publish", broken)
        with pytest.raises(SinkUnreachableError):
            stream(lake, "bounded")
    assert not left
    assert as_of_us() <= changed_us
    begin_us = now_us()
    lake.catch_up()
    assert as_of_us() >= begin_us


def unreadable(lake: Lake, table: TableId) -> Callable[[], object]:
    """Have a table's own files not be read, and return what mends it."""
    folder = lake.folder / table_folder(table)
    form = "_delta_log/*.json" if lake.form == "delta" else "metadata/*.json"
    texts = {each: each.read_text() for each in folder.glob(form)}
    for each in texts:
        each.write_text("nonsense")
    return lambda: [each.write_text(text) for each, text in texts.items()]


def test_an_idle_run_says_that_the_tables_are_as_new_as_it_is(lake: Lake) -> None:
    lake.catch_up()
    run = lake.shop.run()
    first = published_of(run.store.note(run.name, NoteKind.PUBLISHED))
    for _ in range(2):
        lake.catch_up()
    told = status(run.store, run.name, now_us=run.store.now_us())
    assert "nothing to stream" in " ".join(event.text for event in told.events)
    assert first is not None
    assert (told.published_us or 0) > first


@pytest.mark.parametrize("by", ["set back", "unreadable"])
def test_a_table_that_may_not_be_committed_to_stands_still_alone(lake: Lake, by: str) -> None:
    shop, mend = lake.shop, None
    shop.at_source("CREATE TABLE seats (id INT PRIMARY KEY)")
    lake.catch_up()
    for number in (80, 81):
        shop.at_source(f"INSERT INTO orders (id) VALUES ({number})")
        lake.catch_up()
    orders = TableId(shop.database, "orders")
    if by == "unreadable":
        mend = unreadable(lake, orders)
        shop.at_source("INSERT INTO orders (id) VALUES (82)")
    else:
        set_back(lake.form, lake.folder, orders)
    run, stop = shop.run(), threading.Event()
    ends: list[JobResult] = []
    job = _job(run, _stream_to_do(run, "continuous"), stop)
    thread = threading.Thread(target=lambda: ends.append(run_stream(job, OwnFollower)))

    def refused() -> list[CdcError]:
        told = status(run.store, run.name, now_us=time.time_ns() // 1000).outages
        return [each.error for each in told if each.error.tables]

    thread.start()
    try:
        wait_until(lambda: bool(refused()))
        (error,) = refused()
        assert error.tables == (f"{shop.database}.orders",)
        assert "orders" in error.what
        told = status_lines(status(run.store, run.name, now_us=time.time_ns() // 1000))
        waits = [line for line in told if line.endswith("rows") and "waits at the sink" in line]
        assert [line.split()[0] for line in waits] == [str(orders)]
        assert "1 of which waits at the sink" in told[0]
        for number in range(3):
            shop.at_source(f"INSERT INTO seats VALUES ({number})")
            wait_until(lambda: lake.current("seats") == lake.source_rows("seats"))
        shop.at_source("ALTER TABLE seats ADD COLUMN more INT")  # the stream begins again
        shop.at_source("INSERT INTO seats VALUES (9, 9)")
        wait_until(lambda: 9 in lake.changes("seats").column("id").to_pylist())
        assert thread.is_alive()
        assert refused()
    finally:
        stop.set()
        thread.join()
    (end,) = ends
    assert end.outcome is Outcome.STOPPED
    assert not end.consistent
    if mend is not None:
        mend()
        lake.catch_up()
        assert lake.is_equal("orders")
        return
    with pytest.raises(IntegrityError, match="orders"):
        lake.catch_up()
