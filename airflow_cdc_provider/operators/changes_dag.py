"""`<pipeline>__changes`: tells other DAGs of the tables that a continuous stream changes.

Airflow sends asset events when a task succeeds, and the tasks of a continuous pipeline go on for
years. So this DAG has one task, which waits without a worker until something changed, tells it,
and succeeds; a later run waits for what comes then. An idle or paused pipeline costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG

from airflow_cdc_provider.operators.parts import Parts, new_dag
from airflow_cdc_provider.pipeline.file.loader import LoadedPipeline
from airflow_cdc_provider.sensors.changes import CdcChangesSensor

_DOC = """\
Sends an event of each target table in which rows have changed, every {every_s:.0f} seconds at most.

A run waits, without a worker, until there is something to tell. Pause this DAG if nobody
needs the events: what changes meanwhile is told when it is on again.
"""


def changes_dag(
    pipeline: LoadedPipeline | str | Path | Parts,
    *,
    every_s: float = 300.0,
    default_args: Mapping[str, Any] | None = None,
    tags: Iterable[str] = (),
) -> DAG:
    """
    Make the DAG `<pipeline>__changes` that announces changed tables of a continuous pipeline.

    :param pipeline: the pipeline file, or its path.
    :param every_s: seconds that changes are gathered before they are announced.
    :param default_args: arguments of all tasks, over ours.
    :param tags: more tags for the DAG.
    """
    parts = pipeline if isinstance(pipeline, Parts) else Parts.of(pipeline)
    with new_dag(
        parts,
        "changes",
        # not @continuous, which begins a run that cannot succeed anew at once, without end
        schedule=timedelta(seconds=every_s),
        default_args=default_args,
        tags=tags,
        # without it the events that others wait for never come unless somebody finds the switch
        is_paused_upon_creation=False,
        doc_md=_DOC.format(every_s=every_s),
    ) as dag:
        CdcChangesSensor(
            task_id="changes", pipeline=parts.path, every_s=every_s, outlets=[*parts.outlets]
        )
    return dag
