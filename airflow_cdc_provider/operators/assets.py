"""Target tables as Airflow assets: other DAGs run when rows of a table have changed.

A table that the pipeline file names is an asset as soon as the DAG is parsed. Tables of a pattern
are not known before the source is asked, which a parse never does; their events go through one
alias for each pipeline.

Airflow sends an event for every asset among a task's outlets once the task succeeds, whether
anything happened or not. So before it ends, the task that tells keeps among its outlets only those
tables that are news.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.sdk import Asset, AssetAlias, BaseOperator, Context
from pydantic import JsonValue

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.table_patterns import sink_table
from airflow_cdc_provider.pipeline.file.model import PipelineFile
from airflow_cdc_provider.views.lineage import LineageEntry, LineageWork

if TYPE_CHECKING:
    from airflow_cdc_provider.hooks.steps import CdcSteps
    from airflow_cdc_provider.pipeline.steps.table_announcements import TableAnnouncement

WATERMARK_KEY = "watermark"
_MOST = 200
"""Tables that a summary names one by one."""


def table_asset(model: PipelineFile, table: TableId) -> Asset:
    """Return the Airflow asset of one sink table, the same as `Asset(uri)`."""
    sink = model.sink
    server = sink.name if sink.reference else f"{sink.type}{sink.name}"
    path = f"{quote(table.database, safe='')}/{quote(table.table, safe='')}"
    return Asset(f"cdc://{quote(server)}/{path}")


def tables_alias(model: PipelineFile) -> AssetAlias:
    """Return the asset alias for the tables that the file's patterns pick."""
    return AssetAlias(name=f"cdc/{model.pipeline}")


def outlets_of(model: PipelineFile) -> list[Asset | AssetAlias]:
    """Return the outlets of tasks that announce the pipeline's tables."""
    source = model.source
    exact = [table for pattern in source.patterns if (table := pattern.exact) is not None]
    named = [sink_table(table, model.sink.routes) for table in exact if model.picks(table)]
    assets: list[Asset | AssetAlias] = [table_asset(model, table) for table in dict.fromkeys(named)]
    if len(exact) < len(source.patterns):
        assets.append(tables_alias(model))
    return assets


def announce_tables(
    operator: BaseOperator, context: Context, steps: CdcSteps, news: Sequence[TableAnnouncement]
) -> dict[str, JsonValue]:
    """Send an asset event for each table in `news` when the task succeeds.

    Returns a summary. What is announced is stored under the run, so that a retried task announces
    it again.
    """
    model, state = steps.run.model, steps.status().state
    alias = tables_alias(model)
    declared = {outlet.name: outlet for outlet in operator.outlets}
    every = {outlet.name for outlet in outlets_of(model) if isinstance(outlet, Asset)}
    kept = [outlet for outlet in operator.outlets if outlet.name not in every]
    for sink, shared in _by_sink(news).items():
        asset = table_asset(model, sink)
        changes = [each.changes for each in shared if each.changes is not None]
        extra: dict[str, JsonValue] = {
            "pipeline": model.pipeline,
            "generation": state.generation,
            "source": ", ".join(str(each.table) for each in shared),
            "position": str(shared[0].position),
            "changes": sum(changes) if len(changes) == len(shared) else None,
        }
        if asset.name in declared:
            kept.append(asset)
            context["outlet_events"][asset].extra = extra
            _mirror(context, asset, extra)
        elif alias.name in declared:
            context["outlet_events"][alias].add(asset, extra=extra)
    operator.outlets = kept
    steps.store_announced(news, told_by(context))
    changed: dict[str, JsonValue] = {str(each.table): each.changes for each in news[:_MOST]}
    position = str(news[0].position) if news else ""
    return {
        "pipeline": model.pipeline,
        "generation": state.generation,
        "position": position,
        "tables": len(news),
        "changes": changed,
    }


def _by_sink(
    news: Sequence[TableAnnouncement],
) -> Mapping[TableId, Sequence[TableAnnouncement]]:
    """Return news by the sink's tables, of which several tables of the source may share one."""
    found: dict[TableId, list[TableAnnouncement]] = {}
    for each in news:
        found.setdefault(each.sink_table, []).append(each)
    return found


def work_of_news(news: Sequence[TableAnnouncement] | None) -> LineageWork:
    """Return the lineage of a task that announces tables; all tables if it is not known."""
    if news is None:
        return LineageWork()
    deeds = {each.table: LineageEntry(rows=each.changes, position=each.position) for each in news}
    return LineageWork(deeds=deeds, others=LineageEntry(rows=0))


def told_by(context: Mapping[str, Any] | Context) -> str:
    """Return the name under which one run of a DAG announces tables."""
    run = context.get("dag_run")
    return "" if run is None else f"{run.dag_id}/{run.run_id}"


def _mirror(context: Context, asset: Asset, extra: Mapping[str, JsonValue]) -> None:
    """Copy the position to the asset's own store; the state store stays the authority."""
    context["asset_state_store"][asset].set(WATERMARK_KEY, dict(extra))
