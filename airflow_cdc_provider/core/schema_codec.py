"""JSON forms of table definitions and plans; the same rules as in `codec`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace

from airflow_cdc_provider.core.codec import Json, position_from_json, position_to_json
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.keys import KeyKind
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.row_metadata import Operation, RowStamp
from airflow_cdc_provider.core.schema_changes import Difference, SchemaChange
from airflow_cdc_provider.core.table_schema import (
    Column,
    ColumnType,
    TableSchema,
    TypeKind,
    UniqueKey,
)
from airflow_cdc_provider.core.table_shape import SAME_SHAPE, TableShape

NamedType = Callable[[Json], ColumnType]
"""Reads a type that was stored before types had kinds."""


def schema_to_json(schema: TableSchema) -> Json:
    """Return the JSON form of a table's definition."""
    form = {**asdict(schema), "table": str(schema.table)}
    for name in ("key_name", "named_key", "key_problem"):
        if not form[name]:  # as it was before there was one
            del form[name]
    return form


def schema_from_json(form: Json, named: NamedType) -> TableSchema:
    """Read a table's definition from its JSON form."""
    return TableSchema(
        **{
            **form,
            "table": TableId.parse(form["table"]),
            "columns": tuple(_column(column, named) for column in form["columns"]),
            "primary_key": tuple(form["primary_key"]),
            "key_prefixes": tuple(form["key_prefixes"]),
            "unique_keys": tuple(
                UniqueKey(key["name"], tuple(key["columns"])) for key in form["unique_keys"]
            ),
        }
    )


def change_to_json(change: SchemaChange) -> Json:
    """Return the JSON form of a change of a table's definition."""
    form = {
        "before": plan_to_json(change.before),
        "after": plan_to_json(change.after),
        "difference": asdict(change.difference),
        "through": position_to_json(change.through),
        "statement": change.statement,
        "keeps_dropped": change.keeps_dropped,
        "truncates": change.truncates,
        "leaves": change.leaves,
        "drops_target": change.drops_target,
    }
    if change.stamp is not None:
        form["stamp"] = asdict(change.stamp)
    return form


def change_from_json(form: Json) -> SchemaChange:
    """Read a change of a table's definition from its JSON form."""
    stated = form["difference"]
    lists = {name: tuple(value) for name, value in stated.items() if isinstance(value, list)}
    pairs = {
        name: tuple((old, new) for old, new in stated.get(name, ()))
        for name in ("renamed", "traded")
    }
    return SchemaChange(
        **{
            **form,
            "before": plan_from_json(form["before"], _type),
            "after": plan_from_json(form["after"], _type),
            "difference": Difference(**{**stated, **lists, **pairs}),
            "through": position_from_json(form["through"]),
            "stamp": _stamp(form.get("stamp")),
        }
    )


def _stamp(form: Json | None) -> RowStamp | None:
    """Read what is said of deleted rows from its JSON form."""
    if form is None:
        return None
    return RowStamp(**{**form, "operation": Operation(form["operation"])})


def _column(form: Json, named: NamedType) -> Column:
    """Read a column from its JSON form."""
    stated = form["type"]
    read = _type if "kind" in stated else named
    return Column(**{**form, "type": read(stated)})


def _type(form: Json) -> ColumnType:
    """Read a column's type from its JSON form."""
    return ColumnType(
        **{
            **form,
            "kind": TypeKind(form["kind"]),
            "key_kind": KeyKind(form["key_kind"]),
            "members": tuple(form["members"]),
        }
    )


def plan_to_json(plan: TablePlan) -> Json:
    """Return the JSON form of one table's plan.

    The sink's definition is in it only where it differs from the source's in more than its name.
    """
    form = {
        "schema": schema_to_json(plan.schema),
        "sink_table": str(plan.sink_table),
        "estimated_rows": plan.estimated_rows,
    }
    if plan.target != replace(plan.schema, table=plan.sink_table):
        form["target"] = schema_to_json(plan.target)
    if plan.shape != SAME_SHAPE:
        form["shape"] = plan.shape.to_json()
    if plan.estimated_bytes:
        form["estimated_bytes"] = plan.estimated_bytes
    return form


def plan_from_json(form: Json, named: NamedType) -> TablePlan:
    """Read one table's plan from its JSON form."""
    schema = schema_from_json(form["schema"], named)
    plan = TablePlan.alike(schema, TableId.parse(form["sink_table"]), form["estimated_rows"])
    if "target" in form:
        plan = replace(plan, target=schema_from_json(form["target"], named))
    if "shape" in form:
        plan = replace(plan, shape=TableShape.from_json(form["shape"]))
    return replace(plan, estimated_bytes=form.get("estimated_bytes", 0))
