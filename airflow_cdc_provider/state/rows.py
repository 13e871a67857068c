"""Records from rows of the state store, and back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from functools import lru_cache
from typing import Any

from sqlalchemy import ColumnElement, Row

from airflow_cdc_provider.core.codec import (
    dumps,
    position_from_json,
    position_to_json,
    split_from_json,
    split_to_json,
)
from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.lifecycle import Phase, SplitStatus, TablePhase, Wanted
from airflow_cdc_provider.core.records import (
    PipelineEvent,
    PipelineState,
    PlanOrigin,
    SplitState,
    StreamState,
    TablePlan,
    TableState,
)
from airflow_cdc_provider.core.schema_codec import plan_from_json
from airflow_cdc_provider.core.splits import SnapshotSplit
from airflow_cdc_provider.core.stored_error import StoredError
from airflow_cdc_provider.core.table_schema import ColumnType
from airflow_cdc_provider.state.tables import splits

Values = dict[str, Any]
SPLIT_COLUMNS: tuple[ColumnElement[Any], ...] = (
    splits.c.split,
    splits.c.status,
    splits.c.attempt,
    splits.c.started_us,
    splits.c.finished_us,
    splits.c.error,
)
"""What of a split's row is read to know where it stands: its report is the long part."""


def pipeline_of(row: Row[Any]) -> PipelineState:
    """Make a pipeline's state from a row of `cdc_pipeline`."""
    return PipelineState(
        name=PipelineName(row.name),
        wanted=Wanted(row.wanted),
        phase=Phase(row.phase),
        generation=row.generation,
        plan_id=row.plan_id,
        owner=row.owner,
        lease_until_us=row.lease_until_us,
        error=StoredError(row.error),
        updated_us=row.updated_us,
    )


def origin_of(text: str) -> PlanOrigin:
    """Read what a plan was made from, from the JSON in `cdc_plan`."""
    form = json.loads(text)
    lists = {name: tuple(form[name]) for name in ("tables", "exclude")}
    return PlanOrigin(**{**form, **lists})


def plan_values(origin: PlanOrigin, not_copied: Iterable[TableId] = ()) -> Values:
    """Return what a plan was made from as columns of `cdc_plan`."""
    names = [str(table) for table in not_copied]
    return {"origin": dumps(asdict(origin)), "not_copied": dumps(names)}


@lru_cache(maxsize=4096)
def _plan_of(text: str) -> TablePlan:
    """Read a table's plan from its JSON in `cdc_table`; it is read far more often than changed."""
    return plan_from_json(json.loads(text), _type_of_before_kinds)


def table_of(row: Row[Any], counts: Mapping[str, int]) -> TableState:
    """Make a table's state from a row of `cdc_table`; `counts` are sums over its splits."""
    return TableState(
        plan=_plan_of(row.plan),
        phase=TablePhase(row.phase),
        splits_planned=counts.get("planned", 0),
        planning_done=bool(row.planning_done),
        splits_finished=counts.get("finished", 0),
        rows=counts.get("rows", 0),
        bytes=counts.get("bytes", 0),
        error=StoredError(row.error),
        changed_us=row.updated_us,
    )


def split_of(row: Row[Any]) -> SplitState:
    """Make a split's state from the `SPLIT_COLUMNS` of a row of `cdc_split`."""
    return SplitState(
        split=split_from_json(json.loads(row.split)),
        status=SplitStatus(row.status),
        attempt=row.attempt,
        started_us=row.started_us,
        finished_us=row.finished_us,
        error=StoredError(row.error),
    )


def new_split(pipeline: PipelineName, split: SnapshotSplit) -> Values:
    """Return a planned split as a row of `cdc_split`."""
    return {
        "pipeline": str(pipeline),
        "source_table": str(split.table),
        "number": split.number,
        "split": dumps(split_to_json(split)),
        "status": SplitStatus.PLANNED.value,
        "attempt": 0,
        "report": None,
        "row_count": 0,
        "byte_count": 0,
        "started_us": 0,
        "finished_us": 0,
        "error": "",
    }


def stream_of(row: Row[Any]) -> StreamState:
    """Make the stream's state from a row of `cdc_stream`."""
    end = row.source_end
    return StreamState(
        position=position_from_json(json.loads(row.position)),
        source_end=None if end is None else position_from_json(json.loads(end)),
        batch=row.batch,
        changes=row.changes,
        transactions=row.transactions,
        lag_us=row.lag_us,
        heartbeat_us=row.heartbeat_us,
        inconsistent=tuple(TableId.parse(name) for name in json.loads(row.inconsistent)),
        generation=row.generation,
    )


def stream_values(stream: StreamState) -> Values:
    """Return the stream's progress as columns of `cdc_stream`."""
    end = stream.source_end
    return {
        "position": dumps(position_to_json(stream.position)),
        "source_end": None if end is None else dumps(position_to_json(end)),
        "batch": stream.batch,
        "changes": stream.changes,
        "transactions": stream.transactions,
        "lag_us": stream.lag_us,
        "heartbeat_us": stream.heartbeat_us,
        "inconsistent": dumps([str(table) for table in stream.inconsistent]),
    }


def event_of(row: Row[Any]) -> PipelineEvent:
    """Make an event from a row of `cdc_event`."""
    return PipelineEvent(at_us=row.at_us, level=row.level, text=row.text)


def _type_of_before_kinds(form: Mapping[str, Any]) -> ColumnType:
    """Read a column type that an early release stored without its kind."""
    # for stores of the first releases only, so that others load no system
    from airflow_cdc_provider.systems.registry import type_of_before_kinds  # noqa: PLC0415

    return type_of_before_kinds(form)
