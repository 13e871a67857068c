"""Events that OpenLineage's provider writes of real tasks, by Airflow's own listener."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.pipeline.run import give_back
from tests.airflow.idle_runs import without_spark
from tests.airflow.lineage_listener import names, said
from tests.pipeline.conftest import shop
from tests.pipeline.without_spark import handed_off

if TYPE_CHECKING:
    from pathlib import Path

    from tests.pipeline.conftest import Shop

__all__ = ["shop"]

STATES = {"stream": "success", "finish": "success", "verify": "failed"}
"""The snapshot's rows are in the ledger only, so the sink has not what the source has."""


def tasks_of(
    shop: Shop, folder: Path, *words: str, events: Path | None, **settings: str
) -> dict[str, Any]:
    """Run the pipeline's tasks in a process and an Airflow of their own."""
    environment = {**os.environ, **shop.environment, "AIRFLOW_HOME": str(folder)}
    environment["AIRFLOW__CORE__DAGS_FOLDER"] = str(folder / "dags")
    if events is not None:
        transport = {"type": "file", "log_file_path": str(events), "append": True}
        environment["AIRFLOW__OPENLINEAGE__TRANSPORT"] = json.dumps(transport)
    told = folder / "done.json"
    done = subprocess.run(
        [sys.executable, "-m", "tests.airflow.lineage_program", str(shop.path), str(told), *words],
        capture_output=True,
        text=True,
        check=False,
        env={**environment, **settings},
        timeout=240,
    )
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    log = f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return {**json.loads(told.read_text()), "log": log}


@pytest.fixture
def copied(shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """A shop that is handed off, whose tasks start no Spark."""
    without_spark(shop, monkeypatch)
    (tmp_path / "dags").mkdir()
    give_back(handed_off(shop))
    return shop


@pytest.mark.parametrize("in_thread", ["False", "True"])
@pytest.mark.sample(1)
def test_the_listener_writes_what_the_tasks_tell(
    copied: Shop, tmp_path: Path, in_thread: str
) -> None:
    copied.at_source("UPDATE orders SET note = 'a planted value' WHERE id = 1")
    events = tmp_path / "events.json"
    done = tasks_of(
        copied,
        tmp_path,
        events=events,
        AIRFLOW__OPENLINEAGE__EXECUTE_IN_THREAD=in_thread,
        AIRFLOW__OPENLINEAGE__INCLUDE_FULL_TASK_INFO="True",
    )
    assert done["states"] == STATES, done["log"]
    source, sink = (
        f"mysql://{place.host}:{place.port} {database}.orders"
        for place, database in (
            (Endpoint.parse(copied.environment["SHOP_DSN"]), copied.database),
            (copied.sink_endpoint, copied.target),
        )
    )
    for task in ("stream", "finish"):
        for kind in ("START", "COMPLETE"):
            event = said(events, "told", task)[kind]
            assert (names(event["inputs"]), names(event["outputs"])) == ({source}, {sink})
    (orders,) = said(events, "told", "finish")["COMPLETE"]["outputs"]
    assert [each["name"] for each in orders["facets"]["schema"]["fields"]] == ["id", "note", "code"]
    assert set(orders["facets"]["columnLineage"]["fields"]) == {"id", "note", "code"}
    assert " on " in orders["facets"]["version"]["datasetVersion"]
    event = said(events, "told", "verify")["FAIL"]
    assert names(event["inputs"]) == {source, sink}
    assert event["outputs"] == []
    (at_sink,) = [
        each for each in event["inputs"] if "dataQualityAssertions" in each["inputFacets"]
    ]
    assert not at_sink["inputFacets"]["dataQualityAssertions"]["assertions"][0]["success"]
    assert (
        said(events, "told", "stream")["COMPLETE"]["job"]["facets"]["jobType"]["jobType"] == "TASK"
    )
    text = events.read_text()
    assert "a planted value" not in text
    for dsn in copied.environment.values():
        assert dsn not in text
        assert Endpoint.parse(dsn).password not in text


def test_without_a_transport_nothing_is_loaded_and_nothing_written(
    copied: Shop, tmp_path: Path
) -> None:
    done = tasks_of(copied, tmp_path, events=None)
    assert done["states"] == STATES, done["log"]
    assert openlineage(done["parsed"]) == set()
    assert openlineage(done["loaded"]) == set()


def test_where_openlineage_is_not_installed_nothing_changes(copied: Shop, tmp_path: Path) -> None:
    events = tmp_path / "events.json"
    done = tasks_of(copied, tmp_path, "--without-openlineage", events=events)
    assert done["states"] == STATES, done["log"]
    assert not events.exists()
    mine = [name for name in done["loaded"] if name.startswith("airflow_cdc_provider")]
    assert "airflow_cdc_provider.hooks.lineage" in mine
    assert "airflow_cdc_provider.hooks.openlineage" not in mine


def openlineage(modules: list[str]) -> set[str]:
    """Return what was loaded of OpenLineage's client, its listener, or our module for them."""
    ours = "airflow_cdc_provider.hooks.openlineage"
    listener = "airflow.providers.openlineage.plugins.listener"
    return {name for name in modules if name.startswith(("openlineage", ours, listener))}
