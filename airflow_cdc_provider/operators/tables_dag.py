"""`<pipeline>__tables`: a form to add, remove, reset, pause or resume single tables.

Runs begin by hand or by another DAG. The one task asks whoever owns the pipeline and waits; where
nobody is at work it does what is asked itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, Param

from airflow_cdc_provider.hooks.lifecycle_hook import OF_TABLES
from airflow_cdc_provider.operators.control import CdcTablesOperator
from airflow_cdc_provider.operators.parts import Parts, new_dag
from airflow_cdc_provider.pipeline.file.loader import LoadedPipeline

_MOST_RUNS = 8
_DOC = """\
Changes single tables of {name}; the others flow on, and are not read again.

- **add**: the stream follows a table that the pipeline file picks, and reads the rows there are.
- **remove**: the stream gives a table up. Take it out of the pipeline file first. Its rows at the
  sink stay, unless *Drop at the sink* is on.
- **reset**: a table begins again as it is defined now, and all of its rows are read.
- **pause** and **resume**: the stream leaves a table alone where it stands, and takes it back.

A continuous stream ends for some seconds, behind a transaction, and goes on.
"""


def tables_dag(
    pipeline: LoadedPipeline | Parts | str | Path,
    *,
    default_args: Mapping[str, Any] | None = None,
    tags: Iterable[str] = (),
) -> DAG:
    """
    Make the DAG `<pipeline>__tables`, a form to change single tables.

    :param pipeline: the pipeline file, its path, or what was made of it.
    :param default_args: arguments of all tasks, over ours.
    :param tags: more tags for the DAG.
    """
    parts = pipeline if isinstance(pipeline, Parts) else Parts.of(pipeline)
    with new_dag(
        parts,
        "tables",
        schedule=None,
        default_args=default_args,
        tags=["tables", *tags],
        max_active_runs=_MOST_RUNS,
        allowed_run_types=["manual", "operator_triggered"],
        params=_form(parts),
        doc_md=parts.doc if parts.problem else _DOC.format(name=parts.named),
    ) as dag:
        CdcTablesOperator(task_id="change", **parts.arguments)
    return dag


def _form(parts: Parts) -> dict[str, Param]:
    """Return the fields of the form."""
    return {
        "action": Param(
            default="add",
            type="string",
            enum=sorted(OF_TABLES),
            title="Action",
            description="What is to become of the tables.",
        ),
        "tables": Param(
            default=None,
            type=["null", "array"],
            items={"type": "string"},
            examples=list(parts.table_names),
            title="Tables",
            description="As database.table, one on a line. `add` without any adds all that the "
            "file picks.",
        ),
        "drop_target": Param(
            default=False,
            type="boolean",
            title="Drop at the sink",
            description="Of `remove`: drop the table at the sink as well, with its rows, for good.",
        ),
    }
