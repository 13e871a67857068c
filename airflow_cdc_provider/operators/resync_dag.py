"""`<pipeline>__resync`: a form to have rows read again, from a dry run to the rows.

    check > estimate > approve > resync

`check` refuses a form that cannot be carried out, `estimate` says what it would cost, and a dry run
ends there. `approve` asks a person where it is about many rows, and holds no worker meanwhile.
`resync` asks the pipeline, waits, and gives the request up if its run is ended.

Runs begin by hand or by another DAG, never by a schedule and not by Airflow's backfill. Several at
once are fine: requests with a table in common follow each other, others go side by side.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, Param
from airflow.sdk.bases.operator import chain

from airflow_cdc_provider.links.page import page_url
from airflow_cdc_provider.operators.parts import Parts, new_dag
from airflow_cdc_provider.operators.requests import CdcResyncOperator
from airflow_cdc_provider.operators.resync_steps import (
    CdcApprovalOperator,
    CdcEstimateOperator,
    CdcResyncCheckOperator,
)
from airflow_cdc_provider.pipeline.file.loader import LoadedPipeline

_MOST_RUNS = 8
_ASK_ABOVE_ROWS = 1_000_000
_ROWS = "Only some rows of one table"
_APPROVED_BY = "{{ (ti.xcom_pull(task_ids='approve') or {}).get('by', '') }}"
_DOC = """\
Reads rows of {name} again while its tables flow on: rows at the sink that are wrong, missing or
too many are afterwards as the source has them.

1. Trigger it with the tables. **Dry run** is on: `estimate` says what it would cost, and it ends.
2. Trigger it again with dry run off. Above the number of rows that you give, `approve` waits for
   somebody: *Required Actions* shows what will be touched.
3. `resync` asks the pipeline and waits. Marking the run as failed gives the request up.

Where the pipeline is paused the request waits until it is resumed.
"""


def resync_dag(
    pipeline: LoadedPipeline | str | Path,
    *,
    default_args: Mapping[str, Any] | None = None,
    tags: Iterable[str] = (),
) -> DAG:
    """
    Make the DAG `<pipeline>__resync`, a form to read rows again.

    :param pipeline: the pipeline file, or its path.
    :param default_args: arguments of all tasks, over ours.
    :param tags: more tags for the DAG.
    """
    return resync_dag_of(Parts.of(pipeline), default_args=default_args, tags=tags)


def resync_dag_of(
    parts: Parts,
    *,
    default_args: Mapping[str, Any] | None = None,
    tags: Iterable[str] = (),
) -> DAG:
    """Make the resync DAG of what a file says, also if the file has errors."""
    doc = parts.doc if parts.problem else _DOC.format(name=parts.named)
    with new_dag(
        parts,
        "resync",
        schedule=None,
        default_args=default_args,
        tags=[*tags, "resync"],
        max_active_runs=_MOST_RUNS,
        allowed_run_types=["manual", "operator_triggered"],
        params=form(parts),
        doc_md=doc,
    ) as dag:
        _tasks(parts)
    return dag


def _tasks(parts: Parts) -> None:
    """Add the tasks of the resync DAG: check, estimate, approve, resync."""
    given = parts.arguments
    check = CdcResyncCheckOperator(task_id="check", **given)
    choice: Any = check.output  # what it returns, by the time a task reads it
    estimate = CdcEstimateOperator(task_id="estimate", choice=choice, **given)
    estimated: Any = estimate.output
    approve = CdcApprovalOperator(
        task_id="approve",
        subject=f"Read rows of {parts.shown_name} again?",
        estimate=estimated,
    )
    resync = CdcResyncOperator(
        task_id="resync",
        choice=choice,
        approved_by=_APPROVED_BY,
        **given,
    )
    chain(check, estimate, approve, resync)


def form(parts: Parts) -> dict[str, Param]:
    """
    Return the fields of the resync form.

    Airflow opens the section of the fields without one: what every run needs is there.
    """
    return {**_tables(parts), **_how(parts), **_rows()}


def _tables(parts: Parts) -> dict[str, Param]:
    """Return the form's fields that choose tables."""
    names = list(parts.table_names)
    has_patterns = parts.model is None or len(names) < len(parts.model.source.patterns)
    fields: dict[str, Param] = {}
    if names:
        fields["tables"] = Param(
            default=[],
            type=["null", "array"],
            items={"type": "string", "enum": names},
            examples=names,
            title="Tables",
            description="Source tables that the pipeline file names.",
        )
    if has_patterns:
        fields["more_tables" if names else "tables"] = Param(
            default=[],
            type=["null", "array"],
            items={"type": "string"},
            title="More tables" if names else "Tables",
            description_md="Source tables as `database.table`, one on a line. *Resync…* on the "
            f"[CDC page]({page_url(parts.dag_id('resync'))}) has all tables in a list.",
        )
    fields["all_tables"] = Param(
        default=False,
        type="boolean",
        title="All tables",
        description="Of the whole pipeline; then choose no single one.",
    )
    return fields


def _rows() -> dict[str, Param]:
    """Return the form's fields that choose rows."""

    def text(title: str, help_: str) -> Param:
        return Param(
            default=None,
            type=["null", "string"],
            title=title,
            description_md=help_,
            section=_ROWS,
        )

    return {
        "from_key": text("From key", "The first key that is read, its parts with commas between."),
        "to_key": text("To key", "The first key that is **not** read any more."),
        "where": text("Where", "A condition in SQL on the table's columns: `state = 'open'`."),
    }


def _how(parts: Parts) -> dict[str, Param]:
    """Return the form's fields for dry run and approval."""
    limit = None if parts.model is None else parts.model.requests.approve_above_rows
    return {
        "dry_run": Param(
            default=True,
            type="boolean",
            title="Dry run",
            description="Only say what it would cost: rows, bytes, time, rows to be deleted.",
        ),
        "ask_above_rows": Param(
            default=_ASK_ABOVE_ROWS if limit is None else min(limit, _ASK_ABOVE_ROWS),
            type=["null", "integer"],
            minimum=0,
            title="Ask me above this many rows",
            description="More rows, at the source or the sink, wait for somebody to approve them. "
            "A limit in the pipeline file holds all the same.",
        ),
    }
