"""One `cdc__resync`, `cdc__tables`, `cdc__verify` and `cdc__backfill` for several pipelines.

Twenty pipelines with a DAG of each kind are a hundred DAGs in Airflow's list. These have the
pipeline as a field of their form instead; the rest of the form, the tasks and their approvals are
those of the DAGs of one pipeline. What runs on a schedule keeps a DAG for each pipeline: a schedule
fills in no form.

A run is an owner of its own. Two runs of one pipeline at once wait for each other as those of two
DAGs would, while a retried task goes on as the run that it belongs to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from airflow.sdk import DAG, XComArg

from airflow_cdc_provider.operators.backfill import CdcBackfillOperator, CdcTableWindowsOperator
from airflow_cdc_provider.operators.backfill_dag import window_params
from airflow_cdc_provider.operators.parts import Parts, new_dag
from airflow_cdc_provider.operators.resync_dag import resync_dag_of
from airflow_cdc_provider.operators.tables_dag import tables_dag
from airflow_cdc_provider.operators.verify_dag import Repair, verify_dag

_MOST_RUNS = 16
_BACKFILL = """\
Reads rows of a pipeline's tables again, as they are at the source by now, while the tables flow on:
those whose column, as the pipeline file's `backfill` says, lies in the window.
"""


def shared_dags(  # noqa: PLR0913 - each is one a DAG's author may set
    pipelines: Iterable[Parts],
    *,
    resync: bool = True,
    tables: bool = True,
    repair: Repair = "never",
    only_changed: bool = False,
    percent: float = 100.0,
    default_args: Mapping[str, Any] | None = None,
    tags: Iterable[str] = (),
) -> Iterator[DAG]:
    """
    Make the DAGs that several pipelines share, with the pipeline as a field of the form.

    :param pipelines: what the DAGs of each pipeline are made from; those whose file is wrong cannot
        be chosen, nor change logs where rows are compared or read again.
    :param resync: make `cdc__resync`.
    :param tables: make `cdc__tables`.
    :param repair: what becomes of rows that differ, unless a run says otherwise.
    :param only_changed: leave out tables that were found equal and did not change since, unless a
        run says otherwise.
    :param percent: about how many percent of each table's splits are compared, unless a run says
        otherwise.
    :param default_args: arguments of all tasks, over ours.
    :param tags: more tags for the DAGs.
    """
    fine = [parts for parts in pipelines if not parts.problem]
    compared = [parts for parts in fine if parts.is_compared]
    again = [parts for parts in fine if parts.takes_rows_again]
    changing = [parts for parts in fine if parts.takes_tables]
    common: dict[str, Any] = {"default_args": default_args, "tags": [*tags]}
    if again and resync:
        yield resync_dag_of(Parts.shared_by(again), **common)
    if changing and tables:
        yield tables_dag(Parts.shared_by(changing), **common)
    if compared:
        how: dict[str, Any] = {
            "repair": repair,
            "only_changed": only_changed,
            "percent": percent,
        }
        yield verify_dag(Parts.shared_by(compared), **how, **common)
    with_backfill = [each for each in again if each.model is not None and each.model.backfill]
    if with_backfill:
        yield _backfill(Parts.shared_by(with_backfill), **common)


def _backfill(parts: Parts, *, default_args: Mapping[str, Any] | None, tags: Iterable[str]) -> DAG:
    """Make `cdc__backfill`, whose runs take their window from the form."""
    with new_dag(
        parts,
        "backfill",
        schedule=None,
        default_args=default_args,
        tags=("backfill", *tags),
        max_active_runs=_MOST_RUNS,
        allowed_run_types=["manual", "operator_triggered"],
        params=window_params(section=None),
        doc_md=_BACKFILL,
    ) as dag:
        given = parts.arguments
        windows = CdcTableWindowsOperator(task_id="window", **given)
        CdcBackfillOperator.partial(
            task_id="backfill", map_index_template="{{ task.table }}", **given
        ).expand_kwargs(XComArg(windows))
    return dag
