"""`<pipeline>__seed`: begins the way back of a pair of nodes, once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from airflow.sdk import DAG

from airflow_cdc_provider.operators.parts import Parts, new_dag
from airflow_cdc_provider.operators.seeding import CdcSeedOperator
from airflow_cdc_provider.pipeline.file.loader import LoadedPipeline

_DOC = """\
Begins {name} with the rows that the opposite edge of its topology has copied.

Trigger it once, for the second edge of a pair, while or after `<pipeline>__sync` of the first edge
makes its copy; then trigger `<pipeline>__sync` of this one. It reads no rows and changes none.
Nobody but the first edge may write at the node that it fills until this has run. A pipeline that
streams already is left as it is.
"""


def seed_dag(
    pipeline: LoadedPipeline | str | Path | Parts,
    *,
    default_args: Mapping[str, Any] | None = None,
    tags: Iterable[str] = (),
) -> DAG:
    """
    Make the DAG `<pipeline>__seed` that begins an edge with the rows that are at both nodes.

    :param pipeline: the pipeline file, its path, or what was made of it.
    :param default_args: arguments of all tasks, over ours.
    :param tags: more tags for the DAG.
    """
    parts = pipeline if isinstance(pipeline, Parts) else Parts.of(pipeline)
    with new_dag(
        parts,
        "seed",
        schedule=None,
        default_args=default_args,
        tags=["topology", *tags],
        allowed_run_types=["manual", "operator_triggered"],
        doc_md=parts.doc if parts.problem else _DOC.format(name=parts.named),
    ) as dag:
        CdcSeedOperator(task_id="seed", **parts.arguments)
    return dag
