"""OpenLineage's listener in this process, for as long as a DAG runs, and what it has written."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.openlineage import conf
from airflow.sdk.listener import get_listener_manager

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def listening(events: Path) -> Iterator[None]:
    """Have the provider's listener write to a file what tasks of this process tell."""
    manager: Any = get_listener_manager()  # of plugins it has none: there is no transport yet
    transport = {"type": "file", "log_file_path": str(events), "append": True}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW__OPENLINEAGE__TRANSPORT", json.dumps(transport))
        patch.setenv("AIRFLOW__OPENLINEAGE__EXECUTE_IN_THREAD", "True")
        _forget_settings()
        from airflow.providers.openlineage.plugins.listener import (  # noqa: PLC0415 - reads them
            OpenLineageListener,
        )

        listener: Any = OpenLineageListener  # it is not typed
        added = listener()
        manager.add_listener(added)
        try:
            yield
        finally:
            manager.pm.unregister(added)
            patch.undo()
            _forget_settings()


def _forget_settings() -> None:
    """Have the provider read its settings anew."""
    for setting in vars(conf).values():
        if hasattr(setting, "cache_clear"):
            setting.cache_clear()


def said(events: Path, dag: str, task: str) -> dict[str, dict[str, Any]]:
    """Return what was said of a task, by the kind of event."""
    every = [json.loads(line) for line in events.read_text().splitlines()]
    mine = [each for each in every if each["job"]["name"] == f"{dag}.{task}"]
    return {each["eventType"]: each for each in mine}


def names(datasets: list[dict[str, Any]]) -> set[str]:
    return {f"{each['namespace']} {each['name']}" for each in datasets}
