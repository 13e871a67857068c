"""Tasks that ask: once, whatever is killed, and without a worker where somebody else does it."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException, TaskDeferred

from airflow_cdc_provider.core.errors import RowRefusedError
from airflow_cdc_provider.core.lifecycle import Phase, Wanted
from airflow_cdc_provider.core.requests import Request, RequestStatus
from airflow_cdc_provider.core.stored_error import StoredError
from airflow_cdc_provider.hooks.request_hook import CdcRequests
from airflow_cdc_provider.operators.requests import CdcResyncOperator
from airflow_cdc_provider.operators.resync_steps import CdcResyncCheckOperator
from airflow_cdc_provider.pipeline.run import take_over
from airflow_cdc_provider.pipeline.steps.carrying_out import carry_out
from airflow_cdc_provider.pipeline.steps.range_requests import approve
from airflow_cdc_provider.pipeline.steps.sink import open_ledger
from airflow_cdc_provider.sensors.requests import CdcRequestSensor
from airflow_cdc_provider.triggers.requests import CdcRequestTrigger, RequestVerdict
from tests.airflow.asking import Copied, copied, task_context

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers.given import SqlServer

READING, DONE, CANCELLED = RequestStatus.READING, RequestStatus.DONE, RequestStatus.CANCELLED


@pytest.fixture(scope="module")
def module_shop(
    mysql_server: SqlServer, mysql_sink: SqlServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Copied]:
    with copied(mysql_server, mysql_sink, tmp_path_factory.mktemp("asked"), "asked") as made:
        yield made


@pytest.fixture
def shop(module_shop: Copied) -> Iterator[Copied]:
    """The same pipeline for all tests; none leaves anything to do behind."""
    yield module_shop
    store = module_shop.store()
    store.want(module_shop.name, Wanted.RUN)
    for request in store.requests(module_shop.name, only_open=True):
        store.cancel_request(module_shop.name, request.request_id)
    state = store.ensure(module_shop.name)
    store.release_lease(module_shop.name, state.generation)
    store.close()


def resync(shop: Copied, **options: Any) -> CdcResyncOperator:
    given = {"tables": [shop.table], "poll_s": 0.05, **options}
    return CdcResyncOperator(task_id="resync", pipeline=str(shop.path), **given)


def requests_of(shop: Copied) -> tuple[Request, ...]:
    with shop.opened() as run:
        return run.store.requests(run.name)


def request_of(shop: Copied, request_id: str) -> Request:
    (found,) = [each for each in requests_of(shop) if each.request_id == request_id]
    return found


def owned(shop: Copied) -> None:
    """Have somebody hold the pipeline's lease."""
    with shop.opened() as run, closing(open_ledger(run)) as ledger:
        take_over(run, ledger)


def given_back(shop: Copied) -> None:
    with shop.opened() as run:
        run.store.release_lease(run.name, run.store.ensure(run.name).generation)


def deferred(task: CdcResyncOperator, context: Any) -> TaskDeferred:
    with pytest.raises(TaskDeferred) as raised:
        task.execute(context)
    return raised.value


def event_of(waiting: TaskDeferred, timeout_s: float = 20.0) -> dict[str, Any]:
    """Run the trigger as it is made again from what is stored, until it fires."""
    path, arguments = waiting.trigger.serialize()
    assert path.endswith(".CdcRequestTrigger")
    trigger = CdcRequestTrigger(**json.loads(json.dumps(arguments)))

    async def first() -> dict[str, Any]:
        try:
            async with asyncio.timeout(timeout_s):
                async for event in trigger.run():
                    payload: dict[str, Any] = event.payload
                    return payload
        finally:
            await trigger.cleanup()
        raise AssertionError("the trigger ended without an event")

    return asyncio.run(first())


def resumed(task: CdcResyncOperator, context: Any, waiting: TaskDeferred) -> dict[str, Any]:
    kwargs = json.loads(json.dumps(waiting.kwargs))
    result: dict[str, Any] = getattr(task, waiting.method_name)(
        context, event_of(waiting), **kwargs
    )
    return result


def test_where_nobody_is_at_work_the_task_does_it_and_gives_the_lease_back(shop: Copied) -> None:
    shop.drift()
    assert not shop.is_equal
    done = resync(shop).execute(task_context(run_id="alone"))
    assert shop.is_equal
    assert (done["status"], done["tables"], done["rows"]) == ("done", [shop.table], 3000)
    assert done["position"]
    with shop.opened() as run:
        assert run.store.ensure(run.name).lease_until_us == 0


def test_where_somebody_is_at_work_the_task_waits_without_a_worker(shop: Copied) -> None:
    shop.drift()
    owned(shop)
    context, task = task_context(run_id="beside"), resync(shop)
    waiting = deferred(task, context)
    with shop.opened() as run:
        carry_out(run)
    assert shop.is_equal
    done = resumed(task, context, waiting)
    assert (done["status"], done["rows"]) == ("done", 3000)


def test_where_a_stream_has_done_it_soon_nothing_is_deferred(
    shop: Copied, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_cdc_provider.operators.requests._SOON_S", 60.0)
    shop.drift()
    streamed(shop)
    stream = threading.Thread(target=carry_out_what_comes, args=(shop,))
    stream.start()
    done = resync(shop).execute(task_context(run_id="soon"))
    stream.join()
    assert (done["status"], done["rows"]) == ("done", 3000)
    assert shop.is_equal


def test_what_a_stream_takes_long_for_is_waited_for_without_a_worker(
    shop: Copied, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_cdc_provider.operators.requests._SOON_S", 1.0)
    streamed(shop)
    began = time.monotonic()
    deferred(resync(shop), task_context(run_id="long"))
    assert time.monotonic() - began >= 1.0
    streamed(shop, heard_s=60.0)
    monkeypatch.setattr("airflow_cdc_provider.operators.requests._SOON_S", 1e6)
    deferred(resync(shop), task_context(run_id="not heard of"))


def streamed(shop: Copied, *, heard_s: float = 0.0) -> None:
    """Have somebody stream who was heard of so long ago."""
    with shop.opened() as run, closing(open_ledger(run)) as ledger:
        generation = take_over(run, ledger).generation
        phase, stream = run.store.ensure(run.name).phase, run.store.stream(run.name)
        run.store.move(run.name, generation, expected=phase, to=Phase.STREAMING)
        assert stream is not None
        heard_us = run.store.now_us() - int(heard_s * 1e6)
        run.store.beat(run.name, generation, replace(stream, heartbeat_us=heard_us))


def carry_out_what_comes(shop: Copied) -> None:
    """Be the stream that finds a request, and carries it out."""
    with shop.opened() as run:
        while not run.store.to_do(run.name):
            time.sleep(0.05)
        carry_out(run)


def test_of_a_continuous_pipeline_a_stream_gets_time_to_begin_before_the_task_does_it(
    shop: Copied,
) -> None:
    text = shop.path.read_text()
    shop.path.write_text(text.replace("mode: bounded", "mode: continuous"))
    try:
        shop.drift()
        context, task = task_context(run_id="continuous"), resync(shop)
        waiting = deferred(task, context)
        assert waiting.trigger.idle_s == 120.0
        with pytest.raises(TimeoutError):
            event_of(waiting, timeout_s=0.4)
        task = resync(shop, idle_s=0.2)
        waiting = deferred(task, context)
        assert event_of(waiting)["verdict"] == RequestVerdict.IDLE
        assert resumed(task, context, waiting)["status"] == "done"
    finally:
        shop.path.write_text(text)
    assert shop.is_equal


def test_a_try_after_a_kill_goes_on_with_the_same_request(shop: Copied) -> None:
    owned(shop)
    context, before = task_context(run_id="killed"), len(requests_of(shop))
    first = deferred(resync(shop), context)  # and then its process, or the triggerer, is killed
    given_back(shop)
    shop.drift()
    done = resync(shop).execute(context)
    assert first.trigger.serialize()[1]["request_id"] == done["request"]
    assert len(requests_of(shop)) == before + 1
    assert shop.is_equal


def test_a_try_after_a_kill_that_finds_it_done_only_tells_of_it(shop: Copied) -> None:
    owned(shop)
    context, before = task_context(run_id="late"), len(requests_of(shop))
    deferred(resync(shop), context)
    with shop.opened() as run:
        carry_out(run)
    done = resync(shop).execute(context)
    assert (done["status"], len(requests_of(shop))) == ("done", before + 1)


def test_a_cleared_task_asks_anew_once_its_request_has_ended(shop: Copied) -> None:
    context = task_context(run_id="cleared")
    first = resync(shop).execute(context)
    shop.drift()
    second = resync(shop).execute(context)
    assert second["request"] == f"{first['request']}.2"
    assert shop.is_equal


def test_a_task_whose_store_was_emptied_asks_under_a_new_id(shop: Copied) -> None:
    first = resync(shop).execute(task_context(run_id="emptied"))
    second = resync(shop).execute(task_context(run_id="emptied"))
    assert second["request"] == f"{first['request']}.2"


def test_two_runs_of_a_task_ask_twice(shop: Copied) -> None:
    first = resync(shop).execute(task_context(run_id="one"))
    second = resync(shop).execute(task_context(run_id="two"))
    assert first["request"] != second["request"]


def test_a_try_that_asks_for_other_rows_gives_up_what_the_one_before_asked(shop: Copied) -> None:
    owned(shop)
    context = task_context(run_id="changed")
    first = deferred(resync(shop), context)
    second = deferred(resync(shop, to_key="100"), context)
    assert request_of(shop, first.trigger.request_id).status is CANCELLED
    assert request_of(shop, second.trigger.request_id).scope.ranges


def test_ending_a_task_that_waits_gives_its_request_up(shop: Copied) -> None:
    owned(shop)
    context = task_context(run_id="ended")
    waiting = deferred(resync(shop), context)
    asyncio.run(waiting.trigger.on_kill())
    assert request_of(shop, waiting.trigger.request_id).status is CANCELLED
    with pytest.raises(AirflowFailException, match="was cancelled"):
        resumed(resync(shop), context, waiting)


def test_a_cleared_task_whose_request_was_given_up_asks_anew(shop: Copied) -> None:
    owned(shop)
    context = task_context(run_id="cleared while it waits")
    first = deferred(resync(shop), context)
    asyncio.run(first.trigger.on_kill())
    second = deferred(resync(shop), context)
    assert second.trigger.request_id == f"{first.trigger.request_id}.2"


def test_a_kill_that_comes_late_is_made_up_for_by_the_new_try(shop: Copied) -> None:
    """Airflow may start the try after a clear before the trigger of the one before has ended."""
    owned(shop)
    context = task_context(run_id="late kill")
    first = deferred(resync(shop), context)
    task = resync(shop)
    second = deferred(task, context)
    assert second.trigger.request_id == first.trigger.request_id
    asyncio.run(first.trigger.on_kill())
    with pytest.raises(TaskDeferred) as third:
        resumed(task, context, second)
    assert third.value.trigger.request_id == f"{first.trigger.request_id}.2"


def test_a_request_that_a_person_cancels_fails_its_task_for_good(shop: Copied) -> None:
    owned(shop)
    context, task = task_context(run_id="a person"), resync(shop)
    waiting = deferred(task, context)
    with shop.opened() as run:
        run.store.cancel_request(run.name, waiting.trigger.request_id)
    with pytest.raises(AirflowFailException, match="was cancelled"):
        resumed(task, context, waiting)


def test_a_paused_pipelines_request_is_stored_and_begins_after_resume(shop: Copied) -> None:
    shop.drift()
    with shop.opened() as run:
        run.store.want(run.name, Wanted.STOP)
    context, task = task_context(run_id="paused"), resync(shop)
    waiting = deferred(task, context)
    with pytest.raises(TimeoutError):
        event_of(waiting, timeout_s=0.4)
    with shop.opened() as run:
        run.store.want(run.name, Wanted.RUN)
    assert resumed(task, context, waiting)["status"] == "done"
    assert shop.is_equal


def test_a_request_above_the_tasks_limit_waits_to_be_approved(shop: Copied) -> None:
    shop.drift()
    context, task = task_context(run_id="large"), resync(shop, approve_above_rows=10)
    waiting = deferred(task, context)
    with pytest.raises(TimeoutError):
        event_of(waiting, timeout_s=0.4)
    assert not shop.is_equal
    with shop.opened() as run:
        approve(run, waiting.trigger.request_id, by="the lead")
    assert resumed(task, context, waiting)["status"] == "done"
    assert shop.is_equal


def test_a_request_that_was_approved_before_waits_for_nobody(shop: Copied) -> None:
    task = resync(shop, approve_above_rows=10, approved_by="the lead")
    assert task.execute(task_context(run_id="approved"))["status"] == "done"
    with shop.opened() as run:
        assert any("approved by the lead" in event.text for event in run.store.events(run.name))


def test_an_estimate_asks_nothing(shop: Copied) -> None:
    shop.drift()
    before = requests_of(shop)
    told = resync(shop, only_estimate="True").execute(task_context(run_id="estimate"))
    (rows,) = told["estimate"]
    assert (rows["table"], rows["source_rows"]) == (shop.table, 3000)
    assert rows["sink_rows"] == 3000 - 3000 // 7 + 1
    assert requests_of(shop) == before
    resync(shop).execute(task_context(run_id="after the estimate"))


def test_an_estimate_that_is_refused_keeps_why_for_the_page(shop: Copied) -> None:
    context = task_context(run_id="refused")
    task = resync(shop, tables=[f"{shop.table}x"], only_estimate="True")
    with pytest.raises(AirflowFailException):
        task.execute(context)
    refused = context["ti"].xcoms["refused"]
    assert f"did you mean {shop.table}" in refused["remedy"]


def test_a_table_that_is_not_copied_is_refused_by_name(shop: Copied) -> None:
    before = requests_of(shop)
    task = resync(shop, tables=[f"{shop.table}x"])
    with pytest.raises(AirflowFailException, match=f"did you mean {shop.table}"):
        task.execute(task_context(run_id="misspelt"))
    assert requests_of(shop) == before


def test_a_request_that_failed_fails_its_task_with_its_error(shop: Copied) -> None:
    owned(shop)
    context, task = task_context(run_id="failed"), resync(shop)
    waiting = deferred(task, context)
    with shop.opened() as run:
        run.store.move_request(
            run.name,
            run.store.ensure(run.name).generation,
            waiting.trigger.request_id,
            expected=RequestStatus.ASKED,
            to=RequestStatus.FAILED,
            error=StoredError.of(RowRefusedError("the sink refused a row", remedy="mend the row")),
        )
    with pytest.raises(AirflowFailException, match=r"(?s)refused a row.*mend the row"):
        resumed(task, context, waiting)


def test_a_task_that_is_killed_while_it_does_the_work_gives_it_up(
    shop: Copied, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.drift()  # rows that are equal are not written, and would wait for no lock
    task = resync(shop, progress_every_s=0.01)
    context, look = task_context(run_id="killed at work"), CdcRequests.known

    def kill_when_it_reads(requests: CdcRequests, request_id: str) -> Request:
        found = look(requests, request_id)
        if found.status is READING:
            monkeypatch.undo()
            task.on_kill()
        return found

    with closing(shop.shop.sink.connect(database=shop.shop.sink_database)) as connection:
        connection.begin()
        connection.cursor().execute("SELECT * FROM orders WHERE id = 2001 FOR UPDATE")
        monkeypatch.setattr(CdcRequests, "known", kill_when_it_reads)
        with pytest.raises(AirflowException):
            task.execute(context)
    (*_, last) = requests_of(shop)
    assert (last.status, last.is_cancel_wanted) == (CANCELLED, True)
    assert resync(shop).execute(context)["request"] == f"{last.request_id}.2"
    assert shop.is_equal


def test_the_sensor_waits_for_a_request_that_somebody_else_asked(shop: Copied) -> None:
    owned(shop)
    asked = deferred(resync(shop), task_context(run_id="asked elsewhere")).trigger.request_id
    sensor = CdcRequestSensor(
        task_id="wait", pipeline=str(shop.path), request_id=asked, poke_interval=0.05
    )
    context: Any = task_context("wait")
    with pytest.raises(TaskDeferred) as waiting:
        sensor.execute(context)
    asyncio.run(waiting.value.trigger.on_kill())  # whoever waits does not give it up
    with shop.opened() as run:
        carry_out(run)
    event = event_of(waiting.value)
    assert event["verdict"] == RequestVerdict.ENDED
    assert sensor.execute_complete(context, event)["status"] == "done"
    assert sensor.execute(context)["request"] == asked


class TestFromMariaDb:
    """The same from a server of the other family."""

    @pytest.fixture
    def shop(
        self, mariadb_server: SqlServer, mysql_sink: SqlServer, tmp_path_factory: Any
    ) -> Iterator[Copied]:
        folder = tmp_path_factory.mktemp("asked")
        with copied(mariadb_server, mysql_sink, folder, "asked_of_mariadb") as made:
            yield made

    def test_rows_that_are_wrong_are_right_after_the_task(self, shop: Copied) -> None:
        shop.drift()
        assert resync(shop).execute(task_context())["rows"] == 3000
        assert shop.is_equal


def test_a_dry_run_that_its_form_refuses_keeps_why_for_the_page(shop: Copied) -> None:
    context = task_context(run_id="wrong form")
    context["params"] = {"tables": [shop.table], "from_key": "abc"}
    context["dag"] = SimpleNamespace(params=context["params"])
    task = CdcResyncCheckOperator(task_id="check", pipeline=str(shop.path))
    with pytest.raises(AirflowFailException):
        task.execute(context)
    assert "--from-key" in context["ti"].xcoms["refused"]["what"]
