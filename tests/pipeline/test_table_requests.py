"""Tables added, removed and begun again while a stream runs: requests, as a resync is one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from airflow_cdc_provider.core.errors import (
    CdcError,
    IntegrityError,
    PipelineFileError,
    RefusedError,
    StreamEndedError,
)
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.lifecycle import Wanted
from airflow_cdc_provider.core.requests import Request, RequestKind, RequestStatus
from airflow_cdc_provider.pipeline.run import Run, give_back, take_over
from airflow_cdc_provider.pipeline.steps import new_table_watch, table_membership, table_requests
from airflow_cdc_provider.pipeline.steps.converging import run_until_caught_up
from airflow_cdc_provider.pipeline.steps.planning import plan
from airflow_cdc_provider.pipeline.steps.range_requests import is_owned
from airflow_cdc_provider.pipeline.steps.sink import open_ledger
from airflow_cdc_provider.state.asking import ask_about_tables
from tests.pipeline.conftest import Shop
from tests.pipeline.shop_tables import at_sink, at_source, exclude, later
from tests.pipeline.synced_shops import continuous, options, synced, writing
from tests.pipeline.test_plan_sync import either  # noqa: F401 - a fixture
from tests.servers.patience import wait_until

WAIT_S = 60.0


@pytest.fixture(autouse=True)
def _told(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave it to a person to add what comes later, and never look for it."""
    name = "either" if "either" in request.fixturenames else "shop"
    shop: Shop = request.getfixturevalue(name)
    shop.path.write_text(shop.path.read_text().replace("sink:", "  new_tables: tell\nsink:", 1))
    monkeypatch.setattr(new_table_watch, "LOOK_EVERY_S", 3600.0)


def asked(run: Run, kind: RequestKind, table: TableId) -> Request:
    """Ask as the page does, which reaches no server."""
    return ask_about_tables(run.store, run.name, kind, [table], by="somebody in Airflow")


def now(run: Run, request: Request) -> Request:
    found = run.store.request(run.name, request.request_id)
    assert found is not None
    return found


def streaming(run: Run) -> bool:
    return run.store.ensure(run.name).phase.value == "streaming"


def settled(run: Run) -> bool:
    stream = run.store.stream(run.name)
    return (
        streaming(run)
        and not run.store.requests(run.name, only_open=True)
        and stream is not None
        and not stream.inconsistent
    )


def test_while_a_stream_runs_its_owner_adds_resets_and_removes(either: Shop) -> None:  # noqa: F811
    shop = either
    synced(shop)
    said: list[str] = []
    with continuous(shop, said) as run:
        wait_until(lambda: streaming(run))
        with writing(shop, ("one", "two")):
            one, two = (TableId(shop.database, name) for name in ("one", "two"))
            other = shop.run()
            assert "follows" in table_requests.add(other, [one, two], wait_s=WAIT_S)
            wait_until(lambda: settled(run))
            assert "begins again" in table_requests.reset_some(other, [one], wait_s=WAIT_S)
            wait_until(lambda: settled(run))
            exclude(shop, two)
            without = shop.run()
            told = table_requests.remove(without, [two], wait_s=WAIT_S)
            assert told == f"{two} is not copied any more. The rows in {shop.target}.two stay"
            wait_until(lambda: streaming(run))
        assert is_owned(run)
    assert [line.split(":")[0] for line in said] == ["added", "begun again", "removed"]
    synced(shop)
    assert at_sink(shop, "one") == at_source(shop, "one")
    assert at_sink(shop, "orders") == at_source(shop, "orders")
    kinds = {request.kind for request in run.store.requests(run.name)}
    assert {RequestKind.FOLLOW, RequestKind.RESET, RequestKind.REMOVE} <= kinds


def test_a_removed_table_is_dropped_at_the_sink_while_the_stream_runs(shop: Shop) -> None:
    table = later(shop)
    synced(shop)
    with continuous(shop, []) as run:
        wait_until(lambda: streaming(run))
        exclude(shop, table)
        told = table_requests.remove(shop.run(), [table], drop_targets=True, wait_s=WAIT_S)
        assert "is dropped" in told
        wait_until(lambda: streaming(run))
    found = shop.sink.execute("SHOW TABLES LIKE 'later'", database=shop.target)
    assert list(found) == []


def test_an_owner_refuses_what_cannot_be_done_and_its_stream_goes_on(shop: Shop) -> None:
    synced(shop)
    with continuous(shop, []) as run:
        wait_until(lambda: streaming(run))
        generation = run.store.ensure(run.name).generation
        absent = asked(run, RequestKind.FOLLOW, TableId(shop.database, "absent"))
        kept = asked(run, RequestKind.REMOVE, TableId(shop.database, "orders"))
        wait_until(lambda: not run.store.table_requests(run.name))
        assert now(run, absent).status is RequestStatus.FAILED
        assert "absent is not at the source" in str(now(run, absent).error)
        assert "the file still picks" in str(now(run, kept).error)
        assert run.store.ensure(run.name).generation == generation
    with pytest.raises(RefusedError, match="is not at the source"):
        table_requests.add(shop.run(), [TableId(shop.database, "absent")])


def test_a_file_that_is_wrong_meanwhile_makes_a_request_wait(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced(shop)
    table, text = later(shop), shop.path.read_text()
    with continuous(shop, []) as run:
        wait_until(lambda: streaming(run))
        shop.path.write_text(text + "\nnonsense: 1\n")
        request = asked(run, RequestKind.FOLLOW, table)
        wait_until(lambda: str(now(run, request).error).startswith("waits: "))
        assert "nonsense" in str(now(run, request).error)
        shop.path.write_text(text)
        monkeypatch.setattr(new_table_watch, "LOOK_EVERY_S", 0.5)
        again = asked(run, RequestKind.FOLLOW, table)  # it is heard at once, and does both
        wait_until(lambda: settled(run))
        assert {now(run, each).status for each in (request, again)} == {RequestStatus.DONE}
    synced(shop)
    assert at_sink(shop, "later") == at_source(shop, "later")


def test_a_table_that_is_asked_for_by_a_new_file_is_added_by_an_owner_of_the_old_one(
    shop: Shop,
) -> None:
    table = later(shop)
    text = shop.path.read_text()
    exclude(shop, table)
    synced(shop)
    with continuous(shop, []) as run:
        wait_until(lambda: streaming(run))
        shop.path.write_text(text)
        assert "follows" in table_requests.add(shop.run(), wait_s=WAIT_S)
        wait_until(lambda: settled(run))
    synced(shop)
    assert at_sink(shop, "later") == at_source(shop, "later")


def test_where_nobody_is_at_work_it_is_done_at_once(shop: Shop) -> None:
    synced(shop)
    table, run = later(shop), shop.run()
    assert "follows" in table_requests.add(run, [table])
    give_back(run)
    request = next(r for r in run.store.requests(run.name) if r.kind is RequestKind.FOLLOW)
    assert request.status is RequestStatus.DONE
    synced(shop)
    assert at_sink(shop, "later") == at_source(shop, "later")


@pytest.mark.parametrize("do", [table_requests.add, table_requests.reset_some])
def test_of_a_paused_pipeline_the_first_run_after_resume_does_it(
    shop: Shop, do: Callable[..., str]
) -> None:
    if do is table_requests.reset_some:
        table = later(shop)
        synced(shop)
    else:
        synced(shop)
        table = later(shop)
    run = shop.run()
    run.store.want(run.name, Wanted.STOP)
    assert "the next run does it" in do(run, [table])
    (request,) = run.store.table_requests(run.name)
    assert request.status is RequestStatus.ASKED
    with closing(open_ledger(run)) as ledger:
        stream = ledger.stream()
    assert stream is not None
    assert (table in {each.table for each in stream.tables}) is (do is table_requests.reset_some)
    run.store.want(run.name, Wanted.RUN)
    synced(shop)
    assert now(run, request).status is RequestStatus.DONE
    assert at_sink(shop, "later") == at_source(shop, "later")


def fails(*_: Any, **__: Any) -> None:
    raise IntegrityError("the log cannot be followed", where="log")


def test_a_reset_that_is_cut_off_is_brought_to_its_end_by_the_next_run(shop: Shop) -> None:
    table = later(shop)
    synced(shop)
    run = shop.run()
    request = asked(run, RequestKind.RESET, table)
    with pytest.raises(IntegrityError):
        plan(run, reach=fails)
    assert now(run, request).status is RequestStatus.READING
    assert "waits: " in str(now(run, request).error)
    run.store.cancel_request(run.name, request.request_id)  # it has left the stream by now
    give_back(run)
    shop.at_source("INSERT INTO later VALUES (9, 'nine')")
    synced(shop)
    assert now(run, request).status is RequestStatus.DONE
    assert at_sink(shop, "later") == at_source(shop, "later")


def test_resets_of_tables_that_need_each_other_are_done_together(shop: Shop) -> None:
    """The log cannot be followed while the second table is in the stream."""
    first = later(shop)
    second = later(shop, "second")
    synced(shop)
    run = shop.run()
    requests = [asked(run, RequestKind.RESET, table) for table in (first, second)]

    def reach(run: Run) -> None:
        with closing(open_ledger(run)) as ledger:
            stream = ledger.stream()
        assert stream is not None
        if second in {each.table for each in stream.tables}:
            fails()

    plan(run, reach=reach)
    give_back(run)
    assert {now(run, each).status for each in requests} == {RequestStatus.DONE}
    synced(shop)
    for table in (first, second):
        assert at_sink(shop, table.table) == at_source(shop, table.table)


def test_resets_that_are_of_all_tables_together_are_done_one_after_the_other(shop: Shop) -> None:
    tables = [later(shop), TableId(shop.database, "orders")]
    synced(shop)
    run = shop.run()
    requests = [asked(run, RequestKind.RESET, table) for table in tables]
    shop.sink.execute("UPDATE orders SET note = 'drifted'", database=shop.target)
    shop.sink.execute("UPDATE later SET note = CONCAT('drifted', id)", database=shop.target)
    synced(shop)
    assert {now(run, each).status for each in requests} == {RequestStatus.DONE}
    for table in tables:
        assert at_sink(shop, table.table) == at_source(shop, table.table)


def test_one_that_nobody_began_is_cancelled(shop: Shop) -> None:
    synced(shop)
    table = later(shop)
    run = shop.run()
    request = asked(run, RequestKind.FOLLOW, table)
    run.store.cancel_request(run.name, request.request_id)
    synced(shop)
    assert now(run, request).status is RequestStatus.CANCELLED
    assert table not in {state.table for state in run.store.tables(run.name)}


def test_another_route_is_taken_by_a_reset_that_an_owner_carries_out(shop: Shop) -> None:
    table = later(shop)
    synced(shop)
    with continuous(shop, []) as run:
        wait_until(lambda: streaming(run))
        moved = f'route: {{"{table}": "{shop.target}.moved", '
        shop.path.write_text(shop.path.read_text().replace("route: {", moved))
        with pytest.raises(PipelineFileError, match=rf"`reset` it with --table {table}"):
            table_requests.add(shop.run())
        told = table_requests.reset_some(shop.run(), [table], wait_s=WAIT_S)
        assert "begins again" in told
        wait_until(lambda: settled(run))
    shop.at_source("INSERT INTO later VALUES (4, 'four')")
    synced(shop)
    assert at_sink(shop, "moved") == at_source(shop, "later")
    assert len(at_sink(shop, "later")) == 3


def test_a_stream_that_ended_is_mended_by_a_reset_that_was_asked_for_on_the_page(
    shop: Shop,
) -> None:
    text = shop.path.read_text()
    shop.path.write_text(
        f"{text}\nschema_changes: {{add_column: stop}}\nstream: {{table_errors: stop}}\n"
    )
    table = later(shop)
    synced(shop)
    shop.at_source("ALTER TABLE later ADD COLUMN more INT")
    shop.at_source("INSERT INTO later VALUES (4, 'four', 4)")
    with pytest.raises(CdcError, match="later"):
        synced(shop)
    with pytest.raises(StreamEndedError):
        synced(shop)
    shop.sink.execute("ALTER TABLE later ADD COLUMN more INT", database=shop.target)
    run = shop.run()
    request = asked(run, RequestKind.RESET, table)
    synced(shop)
    assert now(run, request).status is RequestStatus.DONE
    assert at_sink(shop, "later") == at_source(shop, "later")


def test_what_is_done_already_is_done(shop: Shop) -> None:
    """A run may have added a table by itself, and a killed one may not have said so."""
    synced(shop)
    table = later(shop)
    run = shop.run()
    request = asked(run, RequestKind.FOLLOW, table)
    table_membership.add_tables(run, [table])
    give_back(run)
    run_until_caught_up(run, options(shop))
    give_back(run)
    assert now(run, request).status is RequestStatus.DONE


def test_an_owner_that_is_between_two_steps_is_not_thrown_out(shop: Shop) -> None:
    """Its lease is given back for a moment; who asks then waits for it."""
    synced(shop)
    table, asking, owner = later(shop), shop.run(), shop.run()
    with closing(open_ledger(owner)) as ledger:
        take_over(owner, ledger)
    give_back(owner)

    def go_on() -> None:
        wait_until(lambda: bool(owner.store.table_requests(owner.name)))
        time.sleep(0.5)
        plan(owner)
        give_back(owner)

    thread = threading.Thread(target=go_on)
    thread.start()
    assert "follows" in table_requests.add(asking, [table], wait_s=WAIT_S)
    thread.join()
    assert asking.held.generation == 0
