"""Asset events: of changed tables alone, from a run's end and from a stream that goes on."""

from __future__ import annotations

import asyncio
import json
import os
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk import Asset
from airflow.sdk.exceptions import AirflowException, TaskDeferred
from airflow.sdk.execution_time.context import OutletEventAccessors

from airflow_cdc_provider.operators.assets import WATERMARK_KEY, outlets_of
from airflow_cdc_provider.operators.steps import CdcFinishOperator
from airflow_cdc_provider.pipeline.file.loader import load_pipeline
from airflow_cdc_provider.sensors.changes import CdcChangesSensor
from airflow_cdc_provider.triggers.changes import CLASS_PATH, CdcChangesTrigger
from tests.airflow.conftest import SHOP, TaskState, at, beat, streaming
from tests.airflow.idle_runs import without_spark
from tests.pipeline.table_announcements import caught_up
from tests.pipeline.test_nothing_to_stream import shop
from tests.pipeline.without_spark import handed_off

if TYPE_CHECKING:
    from airflow_cdc_provider.pipeline.run import Run
    from airflow_cdc_provider.state.store import SqlStateStore
    from tests.pipeline.conftest import Shop

__all__ = ["shop"]


class Stores(dict[Any, TaskState]):
    """The stores of all assets."""

    def __missing__(self, asset: Asset) -> TaskState:
        self[asset] = made = TaskState()
        return made


def context_of(run_id: str) -> Any:
    return {
        "task_state_store": TaskState(),
        "dag_run": SimpleNamespace(dag_id="d", run_id=run_id),
        "outlet_events": OutletEventAccessors(),
        "asset_state_store": Stores(),
    }


@pytest.fixture
def run(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A pipeline of two tables, of which one is picked by a pattern, with all of the log."""
    shop.at_source("CREATE TABLE customers (id INT PRIMARY KEY)")
    text = shop.path.read_text()
    source = shop.database
    shop.path.write_text(text.replace(f'["{source}.*"]', f'["{source}.orders", "{source}.c*"]'))
    assert "c*" in shop.path.read_text()
    run = handed_off(shop)
    caught_up(shop, run)
    without_spark(shop, monkeypatch)
    return run


def told(task: Any, context: Any, summary: Any = None) -> dict[str, Any]:
    """Run a task, and say which tables Airflow would send an event of, and how much changed."""
    returned = task.execute(context) if summary is None else summary
    events = context["outlet_events"]
    found = {each.name: events[each].extra for each in task.outlets if isinstance(each, Asset)}
    for alias in (each for each in task.outlets if not isinstance(each, Asset)):
        found |= {e.dest_asset_key.name: e.extra for e in events[alias].asset_alias_events}
    changes = {name.rpartition("/")[2]: extra["changes"] for name, extra in found.items()}
    assert returned["tables"] == len(changes)
    return changes


def finish(shop: Shop) -> CdcFinishOperator:
    outlets = outlets_of(load_pipeline(shop.path).model)
    other = Asset("somebody's own")
    path = str(shop.path)
    return CdcFinishOperator(task_id="finish", pipeline=path, outlets=[*outlets, other])


def test_a_run_tells_of_the_tables_it_changed_and_an_idle_one_of_none(run: Run, shop: Shop) -> None:
    mine = {"somebody's own": None}

    def tables(run_id: str) -> dict[str, Any]:
        task, context = finish(shop), context_of(run_id)
        context["outlet_events"][Asset("somebody's own")].extra = {"changes": None}
        summary = task.execute(context)
        return told(task, context, {**summary, "tables": summary["tables"] + 1})

    assert tables("first") == mine | {"orders": None, "customers": None}
    assert tables("first") == mine | {"orders": None, "customers": None}  # its next try
    assert tables("idle") == mine
    shop.at_source("DELETE FROM orders WHERE id = 1")
    caught_up(shop, run)
    for _ in range(2):
        assert tables("second") == mine | {"orders": 1}
    shop.at_source("INSERT INTO customers VALUES (1), (2)")
    caught_up(shop, run)
    assert tables("third") == mine | {"customers": 2}


def test_tables_that_share_one_of_the_sink_are_told_of_together(run: Run, shop: Shop) -> None:
    finish(shop).execute(context_of("first"))
    shop.at_source("DELETE FROM orders WHERE id = 1")
    shop.at_source("INSERT INTO customers VALUES (1), (2)")
    caught_up(shop, run)
    plans = {state.table.table: state.plan for state in run.store.tables(run.name)}
    target = replace(plans["customers"].target, table=plans["orders"].sink_table)
    generation = run.store.take_over(run.name, "test").generation
    shared = replace(plans["customers"], target=target)
    run.store.change_plan(run.name, generation, changed=[shared])
    task, context = finish(shop), context_of("second")
    assert task.execute(context)["tables"] == 2
    (asset,) = (each for each in task.outlets if each.name.endswith("/orders"))
    extra = context["outlet_events"][asset].extra
    sources = ", ".join(str(plans[name].schema.table) for name in ("customers", "orders"))
    assert (extra["source"], extra["changes"]) == (sources, 3)


def test_the_assets_own_store_shows_the_watermark(run: Run, shop: Shop) -> None:
    context = context_of("first")
    finish(shop).execute(context)
    (kept,) = context["asset_state_store"].values()
    stream = run.store.stream(run.name)
    assert stream is not None
    assert kept.values[WATERMARK_KEY]["position"] == str(stream.position)


def sensor(shop: Shop) -> CdcChangesSensor:
    outlets = outlets_of(load_pipeline(shop.path).model)
    return CdcChangesSensor(
        task_id="changes", pipeline=str(shop.path), every_s=0, poke_interval=0.02, outlets=outlets
    )


def test_a_stream_that_goes_on_is_told_of_when_something_changed(run: Run, shop: Shop) -> None:
    assert told(sensor(shop), context_of("first")) == {"orders": None, "customers": None}
    waiting = sensor(shop)
    with pytest.raises(TaskDeferred) as deferred:
        waiting.execute(context_of("second"))
    path, arguments = deferred.value.trigger.serialize()
    assert path == CLASS_PATH
    with pytest.raises(TimeoutError):
        fired(arguments, within_s=0.3)
    shop.at_source("UPDATE orders SET note = 'x' WHERE id = 2")
    caught_up(shop, run)
    event = fired(arguments, within_s=20)
    context = context_of("second")
    assert told(waiting, context, waiting.execute_complete(context, event)) == {"orders": 1}


def test_a_sink_that_is_away_is_waited_for_and_for_a_day_at_most(
    run: Run, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert told(sensor(shop), context_of("first")) == {"orders": None, "customers": None}
    shop.at_source("UPDATE orders SET note = 'x' WHERE id = 2")
    caught_up(shop, run)
    reference = run.model.sink.reference
    assert reference is not None
    name = reference.dsn_env
    assert name is not None
    back = os.environ[name]
    monkeypatch.setenv(name, re.sub(r":[0-9]+/", ":1/", back))  # nobody listens there
    with pytest.raises(TaskDeferred) as deferred:
        sensor(shop).execute(context_of("second"))
    arguments = deferred.value.trigger.serialize()[1]
    assert 50e6 < arguments["due_us"] - run.store.now_us() < 61e6
    kept = json.loads(json.dumps(deferred.value.kwargs))
    context = context_of("second")
    long_ago = {"away_since_us": kept["away_since_us"] - 86_400_000_000}
    with pytest.raises(AirflowException, match="CDC-SNK-001"):
        sensor(shop).execute_complete(context, {}, **long_ago)
    with pytest.raises(TaskDeferred) as deferred:
        sensor(shop).execute_complete(context, {}, **kept)
    assert deferred.value.kwargs == kept
    monkeypatch.setenv(name, back)
    event = fired({**arguments, "due_us": 0}, within_s=20)
    waiting = sensor(shop)
    assert told(waiting, context, waiting.execute_complete(context, event, **kept)) == {"orders": 1}


def fired(arguments: dict[str, Any], *, within_s: float) -> Any:
    """Let a trigger run as the triggerer would: made again from what is stored."""

    async def first() -> Any:
        trigger = CdcChangesTrigger(**json.loads(json.dumps(arguments)))
        try:
            async with asyncio.timeout(within_s):
                return (await anext(trigger.run())).payload
        finally:
            await trigger.cleanup()

    return asyncio.run(first())


def test_nothing_fires_before_its_time_and_it_fires_at_last_whatever_happened(
    store: SqlStateStore, state_dsn: str
) -> None:
    beat(store, streaming(store), changes=1, position=at(9))
    place = {"path": state_dsn.removeprefix("sqlite:///")}
    arguments = {"pipeline": str(SHOP), "state": place, "poll_s": 0.02}
    now = store.now_us()
    with pytest.raises(TimeoutError):
        fired({**arguments, "due_us": now + 60_000_000}, within_s=0.3)
    assert fired(arguments, within_s=20)["pipeline"] == str(SHOP)
    activity = {"activity": "another", "look_us": now - 1}
    assert fired({**arguments, **activity}, within_s=20)["pipeline"] == str(SHOP)
