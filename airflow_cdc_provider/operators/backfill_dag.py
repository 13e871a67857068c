"""`<pipeline>__backfill`: each run reads the rows of its data interval again.

    window > a task for each table of the file's `backfill`

It works with Airflow's own backfill, and beside whoever is at work on the pipeline.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, CronDataIntervalTimetable, Param
from airflow.sdk.bases.operator import chain
from airflow.sdk.bases.timetable import BaseTimetable

from airflow_cdc_provider.operators.backfill import CdcBackfillOperator, CdcWindowOperator
from airflow_cdc_provider.operators.parts import NOT_IN_AN_ID, Parts, new_dag
from airflow_cdc_provider.pipeline.file.loader import LoadedPipeline

DEFAULT_SCHEDULE = "@daily"
_WINDOW = "window"
_DOC = """\
Reads rows of `{name}` again, as they are at the source by now, while its tables flow on: those
whose column lies in the run's data interval.

{tables}

For days that are past use Airflow's backfill: *Trigger > Backfill*, or `airflow backfill create`.
The same window twice, or several at once, end the same. For any other window trigger a single run
with **Window from** and **Window to**.
"""


def backfill_dag(
    pipeline: LoadedPipeline | Parts | str | Path,
    *,
    schedule: str | BaseTimetable | None = DEFAULT_SCHEDULE,
    default_args: Mapping[str, Any] | None = None,
    tags: Iterable[str] = (),
) -> DAG:
    """
    Make the DAG `<pipeline>__backfill` of a pipeline whose file has `backfill`.

    :param pipeline: the pipeline file, its path, or what was made of it.
    :param schedule: cron, in UTC, of which each run has an interval; or a timetable with data
        intervals; None leaves it to be triggered.
    :param default_args: arguments of all tasks, over ours.
    :param tags: more tags for the DAG.
    """
    parts = pipeline if isinstance(pipeline, Parts) else Parts.of(pipeline)
    # a plain cron has intervals of no length
    when = CronDataIntervalTimetable(schedule, "UTC") if isinstance(schedule, str) else schedule
    with new_dag(
        parts,
        "backfill",
        schedule=when,
        default_args=default_args,
        tags=("backfill", *tags),
        params=window_params(),
        doc_md=parts.doc if parts.problem else _doc(parts),
    ) as dag:
        given: dict[str, Any] = {"pipeline": parts.path, "refused": parts.refused}
        window = CdcWindowOperator(task_id=_WINDOW, **given)
        told = f"ti.xcom_pull(task_ids='{_WINDOW}')"
        for task_id, table in _task_ids(parts):
            backfill = CdcBackfillOperator(
                task_id=task_id,
                table=table,
                start=f"{{{{ {told}['start'] }}}}",
                end=f"{{{{ {told}['end'] }}}}",
                **given,
            )
            chain(window, backfill)
    return dag


def _tables(parts: Parts) -> Mapping[str, Any]:
    """Return the tables of the file's `backfill` section."""
    return {} if parts.model is None else parts.model.backfill


def _task_ids(parts: Parts) -> Iterator[tuple[str, str]]:
    """Yield each task's id and table; ids that would be equal get a number."""
    taken = {_WINDOW}
    for table in _tables(parts):
        task_id = first = NOT_IN_AN_ID.sub("_", table)
        number = 1
        while task_id in taken:
            number += 1
            task_id = f"{first}_{number}"
        taken.add(task_id)
        yield task_id, table


def window_params(
    section: str | None = "Another window than the run's own",
) -> dict[str, Param]:
    """Return the form's fields for a window, in a section that is closed at first.

    Airflow's own backfill asks for a range of dates as From and To just above.
    """
    return {
        name: Param(
            default=None,
            type=["null", "string"],
            format="date-time",
            title=f"Window {name}",
            description=f"{what}, of a single run. A backfill's runs have their own.",
            section=section,
        )
        for name, what in (("from", "First instant"), ("to", "First instant behind it"))
    }


def _doc(parts: Parts) -> str:
    """Return the DAG's documentation."""
    tables = (f"- `{name}` by `{table.column}`" for name, table in _tables(parts).items())
    return _DOC.format(name=parts.name, tables="\n".join(tables))
