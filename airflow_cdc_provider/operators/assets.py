"""Target tables as Airflow assets: other DAGs run when a table has reached a position.

A table that the pipeline file names is an asset as soon as the DAG is parsed. Tables of a pattern
are not known before the source is asked, which a parse never does; their events go through one
alias for each pipeline.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import quote

from airflow.sdk import Asset, AssetAlias, Context
from pydantic import JsonValue

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.pipeline.file.model import PipelineFile
from airflow_cdc_provider.pipeline.file.patterns import sink_table

if TYPE_CHECKING:
    from airflow_cdc_provider.views.status import PipelineStatus

CONSISTENT_POINT_KEY = "consistent_point"


def table_asset(model: PipelineFile, table: TableId) -> Asset:
    """Return the asset of one target table."""
    server = model.sink.conn_id or model.sink.dsn_env or f"changelog{model.sink.path}"
    path = f"{quote(table.database, safe='')}/{quote(table.table, safe='')}"
    return Asset(name=f"cdc/{model.pipeline}/{path}", uri=f"cdc://{quote(server)}/{path}")


def tables_alias(model: PipelineFile) -> AssetAlias:
    """Return the alias of the tables that patterns pick."""
    return AssetAlias(name=f"cdc/{model.pipeline}")


def outlets_of(model: PipelineFile) -> list[Asset | AssetAlias]:
    """Return what the pipeline's last step before verify brings about."""
    source = model.source
    exact = [
        TableId(pattern.database, pattern.table) for pattern in source.patterns if pattern.is_exact
    ]
    named = [sink_table(table, model.sink.routes) for table in exact if model.picks(table)]
    assets: list[Asset | AssetAlias] = [table_asset(model, table) for table in dict.fromkeys(named)]
    if len(exact) < len(source.patterns):
        assets.append(tables_alias(model))
    return assets


def tell_consistent(
    context: Context, model: PipelineFile, status: PipelineStatus
) -> dict[str, JsonValue]:
    """Put the consistent point on each target table's event, and return it."""
    point: dict[str, JsonValue] = {
        "pipeline": model.pipeline,
        "generation": status.state.generation,
        "position": "" if status.stream is None else str(status.stream.position),
    }
    alias = tables_alias(model)
    outlets = {outlet.name: outlet for outlet in outlets_of(model)}
    for table in status.tables:
        asset = table_asset(model, TableId.parse(table.sink))
        extra = {**point, "source": table.source}
        if asset.name in outlets:
            context["outlet_events"][asset].extra = extra
            _mirror(context, asset, extra)
        elif alias.name in outlets:
            context["outlet_events"][alias].add(asset, extra=extra)
    return {**point, "tables": len(status.tables)}


def _mirror(context: Context, asset: Asset, extra: Mapping[str, JsonValue]) -> None:
    """Show the point in the asset's own store; the state store stays the authority."""
    context["asset_state_store"][asset].set(CONSISTENT_POINT_KEY, dict(extra))
