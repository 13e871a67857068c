"""`<pipeline>__verify`: source and sink compared on a schedule, and repaired if that is wanted.

    compare > approve > repair > verdict

It waits for whoever is at work on the pipeline, and takes nothing from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

from airflow.sdk import DAG, Asset, AssetAlias, Param, TriggerRule, XComArg
from airflow.sdk.bases.operator import chain

from airflow_cdc_provider.operators.compare import (
    CdcApproveRepairOperator,
    CdcCompareOperator,
    CdcRepairOperator,
    CdcVerdictOperator,
    verify_asset,
)
from airflow_cdc_provider.operators.parts import Parts, new_dag
from airflow_cdc_provider.pipeline.file.loader import LoadedPipeline

Repair = Literal["never", "ask", "always"]
_ANSWER_WITHIN = timedelta(days=1)
_MOST_RUNS = 16
_RUN_TYPES = ("scheduled", "manual", "operator_triggered", "asset_triggered")
"""Not Airflow's backfill: what is compared is now, whatever the interval."""
_DOC = """\
Compares source and sink of {name}, both ways, table by table, beside whoever is at work on it.

Rows that differ are looked at again once the stream has brought what the source had, so a row that
is only late is not told. The run fails at `verdict`, with the tables' names, if some differ; counts
and keys are in the log and in the XCom of `compare`. Values are nowhere, unless the form asks for
them: then what differs in rows that are shown stands in the log.
"""


def verify_dag(  # noqa: PLR0913 - each is one a DAG's author may set
    pipeline: LoadedPipeline | Parts | str | Path,
    *,
    schedule: str | None = None,
    repair: Repair = "never",
    only_changed: bool = False,
    percent: float = 100.0,
    default_args: Mapping[str, Any] | None = None,
    tags: Iterable[str] = (),
) -> DAG:
    """
    Make the DAG `<pipeline>__verify` that compares source and sink, and repairs if wanted.

    :param pipeline: the pipeline file, its path, or what was made of it.
    :param schedule: when it runs; None leaves it to be triggered.
    :param repair: what becomes of rows that differ, unless a run says otherwise.
    :param only_changed: leave out tables that were found equal and did not change since, unless a
        run says otherwise.
    :param percent: about how many percent of each table's splits are compared, chosen by chance,
        unless a run says otherwise.
    :param default_args: arguments of all tasks, over ours.
    :param tags: more tags for the DAG.
    """
    parts = pipeline if isinstance(pipeline, Parts) else Parts.of(pipeline)
    given = parts.arguments
    outlet: Asset | AssetAlias = verify_asset(parts.name)
    alias = AssetAlias(outlet.name)  # which has no event unless it compares again
    several: dict[str, Any] = {}
    if parts.pipelines:  # the asset is that of the pipeline which the run is about
        outlet = alias = AssetAlias("cdc-verify")
        several = {"max_active_runs": _MOST_RUNS}
    with new_dag(
        parts,
        "verify",
        schedule=schedule,
        default_args=default_args,
        tags=("verify", *tags),
        allowed_run_types=_RUN_TYPES,
        params={**_params(parts, repair), **_budget_params(percent, only_changed=only_changed)},
        doc_md=parts.doc if parts.problem else _DOC.format(name=parts.named),
        **several,
    ) as dag:
        compare = CdcCompareOperator(task_id="compare", outlets=[outlet], **given)
        approve = _approval(parts)
        repaired = CdcRepairOperator.partial(
            task_id="repair", map_index_template="{{ task.repair['table'] }}", **given
        ).expand(repair=XComArg(approve))
        verdict = CdcVerdictOperator(
            task_id="verdict",
            trigger_rule=TriggerRule.NONE_FAILED,
            outlets=[alias],
            **given,
        )
        chain(compare, approve, repaired, verdict)
        chain(compare, verdict)
    return dag


def _approval(parts: Parts) -> CdcApproveRepairOperator:
    """Make the task that asks for approval of the repairs."""
    found = "ti.xcom_pull(task_ids='compare')"
    again = "These rows would be read again:"
    if parts.is_continuous:
        again = "The stream goes on while these rows are read again:"
    return CdcApproveRepairOperator(
        task_id="approve",
        repair="{{ params.repair }}",
        subject=f"Repair {parts.shown_name}: read rows that differ again?",
        body=f"Source and sink differ. {again}\n\n"
        f"{{% for each in ({found} or {{}}).get('repairs', ()) %}}- {{{{ each.text }}}}\n"
        "{% endfor %}",
        defaults=CdcApproveRepairOperator.REJECT,
        response_timeout=_ANSWER_WITHIN,
    )


def _params(parts: Parts, repair: Repair) -> dict[str, Param]:
    """Return the form's fields for repair, tables and values."""
    return {
        "repair": Param(
            default=repair,
            type="string",
            enum=["never", "ask", "always"],
            title="Repair",
            description_md="What becomes of rows that differ: `never` tells of them, `ask` waits "
            "for your approval and then reads them again, `always` does so without asking.",
        ),
        "tables": Param(
            default=None,
            type=["null", "array"],
            items={"type": "string"},
            examples=list(parts.table_names),
            title="Tables",
            description="Only these, as database.table; all of them if empty.",
        ),
        "values": Param(
            default=False,
            type="boolean",
            title="Show values",
            description="Write the values that differ into the log, of the rows that are shown. "
            "Whoever may read the log sees them.",
        ),
    }


def _budget_params(percent: float, *, only_changed: bool) -> dict[str, Param]:
    """Return the form's fields that leave out tables or rows."""
    return {
        "only_changed": Param(
            default=only_changed,
            type="boolean",
            title="Only changed tables",
            description="Leave out tables that were found equal and did not change since.",
        ),
        "percent": Param(
            default=percent,
            type="number",
            exclusiveMinimum=0,
            maximum=100,
            title="Percent",
            description="Compare about so many percent of each table's splits, chosen by chance. "
            "A table without splits of the snapshot, or with a key of text, is compared whole.",
        ),
    }
