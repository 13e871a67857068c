"""Triggers that an earlier release stored are read by this one, with all that they were told.

A deferred task outlives an upgrade: what stands in Airflow's database then was written before.
Where this fails because an argument was added, add a file with it; never change one that is there.
"""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
from pathlib import Path
from typing import Any

import pytest
from airflow.triggers.base import BaseTrigger

from airflow_cdc_provider import triggers
from airflow_cdc_provider.operators.requests import CdcRequestOperator
from airflow_cdc_provider.sensors.requests import CdcRequestSensor
from airflow_cdc_provider.sensors.stream import CdcStreamSensor

STORED = sorted((Path(__file__).parents[1] / "data" / "triggers").glob("*.json"))


def stored(path: Path) -> tuple[str, dict[str, Any]]:
    class_path, arguments = json.loads(path.read_text(encoding="utf-8"))
    return class_path, arguments


def class_of(class_path: str) -> type[BaseTrigger]:
    module, _, name = class_path.rpartition(".")
    found: type[BaseTrigger] = getattr(importlib.import_module(module), name)
    return found


def all_triggers() -> list[type[BaseTrigger]]:
    """Return every trigger of the package."""
    names = [found.name for found in pkgutil.iter_modules(triggers.__path__, "x.")]
    modules = [importlib.import_module(name.replace("x", triggers.__name__, 1)) for name in names]
    return [
        value
        for module in modules
        for value in vars(module).values()
        if inspect.isclass(value)
        and issubclass(value, BaseTrigger)
        and value.__module__ == module.__name__
    ]


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.stem)
def test_a_stored_trigger_is_made_with_all_that_was_stored(path: Path) -> None:
    class_path, arguments = stored(path)
    made = class_of(class_path)(**arguments)
    kept_path, kept = made.serialize()
    assert kept_path == class_path
    assert {name: kept.get(name) for name in arguments} == arguments


@pytest.mark.parametrize("kind", all_triggers(), ids=lambda kind: kind.__name__)
def test_every_argument_of_a_trigger_is_in_a_stored_one(kind: type[BaseTrigger]) -> None:
    known: dict[str, Any] = {}
    for path in STORED:
        class_path, arguments = stored(path)
        if class_of(class_path) is kind:
            known |= arguments
    assert known, f"no trigger of {kind.__name__} is stored in tests/data/triggers"
    _, now = kind(**known).serialize()
    assert now.keys() == known.keys()


@pytest.mark.parametrize("kind", all_triggers(), ids=lambda kind: kind.__name__)
def test_an_argument_of_a_later_release_is_no_error(kind: type[BaseTrigger]) -> None:
    (path, *_) = [path for path in STORED if class_of(stored(path)[0]) is kind]
    kind(**stored(path)[1], an_argument_of_a_later_release=1)


def test_what_a_deferred_task_is_resumed_by_has_not_changed_its_name() -> None:
    """Airflow stores the method and its arguments beside the trigger."""
    resumed: dict[Any, list[str]] = {
        CdcStreamSensor: ["self", "context", "event", "wait"],
        CdcRequestOperator: ["self", "context", "event", "wait"],
        CdcRequestSensor: ["self", "context", "event"],
    }
    for kind, names in resumed.items():
        assert [*inspect.signature(kind.execute_complete).parameters] == names
