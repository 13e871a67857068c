"""Runs the tasks of a pipeline that is handed off in a real Airflow, and says what was loaded.

python -m tests.airflow.lineage_program PIPELINE_FILE RESULT_FILE [--without-openlineage]
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

HIDDEN = ("openlineage", "airflow.providers.openlineage")


class Hiding(MetaPathFinder):
    """Refuses to import OpenLineage, as where it is not installed."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        if any(fullname == name or fullname.startswith(f"{name}.") for name in HIDDEN):
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)
        return None


def hide() -> None:
    """Make this interpreter one that has no OpenLineage: neither its modules nor their packages."""
    sys.meta_path.insert(0, Hiding())
    import importlib_metadata  # noqa: PLC0415 - by which Airflow looks for providers

    every = importlib_metadata.distributions

    def others(**context: Any) -> Iterator[Any]:
        return (each for each in every(**context) if "openlineage" not in each.metadata["Name"])

    importlib_metadata.distributions = others


def main(path: str, result: str) -> None:
    from airflow.sdk import DAG  # noqa: PLC0415 - after the blocker
    from airflow.utils.db import initdb  # noqa: PLC0415, TID251 - there is no other way to

    initdb()
    from airflow_cdc_provider.operators.jobs import CdcStreamOperator  # noqa: PLC0415
    from airflow_cdc_provider.operators.steps import CdcFinishOperator  # noqa: PLC0415
    from airflow_cdc_provider.operators.verify import CdcVerifyOperator  # noqa: PLC0415
    from tests.airflow.shop import known  # noqa: PLC0415

    with DAG("told", schedule=None) as dag:
        stream = CdcStreamOperator(task_id="stream", pipeline=path, mode="bounded")
        finish = CdcFinishOperator(task_id="finish", pipeline=path)
        stream >> finish >> CdcVerifyOperator(task_id="verify", pipeline=path, settle_s=1)
    parsed = sorted(sys.modules)
    run = known(dag).test()
    states = {task.task_id: str(task.state) for task in run.get_task_instances()}
    told = {"states": states, "parsed": parsed, "loaded": sorted(sys.modules)}
    Path(result).write_text(json.dumps(told), encoding="utf-8")


if __name__ == "__main__":
    if "--without-openlineage" in sys.argv:
        hide()
    main(*sys.argv[1:3])
