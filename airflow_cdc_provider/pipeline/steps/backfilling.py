"""What a backfill is about: the rows of one table whose column lies in an interval."""

from __future__ import annotations

import difflib

from airflow_cdc_provider.columns.source_port import ReadsText, offered
from airflow_cdc_provider.core.keys import KeyPart
from airflow_cdc_provider.core.requests import Scope
from airflow_cdc_provider.core.splits import Interval
from airflow_cdc_provider.core.table_schema import Column, TableSchema
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps.range_requests import (
    planned_table,
    refused,
    require_parts,
    resync_scope,
)
from airflow_cdc_provider.pipeline.steps.sink import source_of


def backfill_scope(
    run: Run, table: str, column: str, *, start: str | None, end: str | None
) -> Scope:
    """Return the scope of a backfill: a table's rows whose column is in an interval.

    `end` is the first value that is not read. None is an open end; at most one of both may be None.
    """
    (named,) = resync_scope(run, [table]).tables
    plan = planned_table(run, named)
    require_parts(plan)
    schema = plan.schema
    if start is None and end is None:
        raise refused(
            "an interval has an end on one side at least",
            "give --from, --to or both; `resync` reads the whole table, NULLs included",
        )
    found = interval_column(schema, column)
    interval = Interval(
        found.name,
        _value(run, schema, found, "--from", start),
        _value(run, schema, found, "--to", end),
    )
    values = interval.values
    if values.start is not None and values.end is not None and not values.start < values.end:
        raise refused(
            f"no value of {found.name} lies from {start} up to {end}",
            "give the smaller value as --from; --to is not read itself",
        )
    return Scope((named,), chosen=interval)


def interval_column(schema: TableSchema, name: str) -> Column:
    """Return a column whose values can bound an interval; refuse any other."""
    copied = {column.name: column for column in schema.copied_columns}
    found = copied.get(name)
    if found is None:
        near = difflib.get_close_matches(name, copied, n=1, cutoff=0.6)
        raise refused(
            f"{schema.table} has no column {name!r} that is copied",
            f"did you mean {near[0]}?" if near else f"name one of {', '.join(copied)}",
        )
    if not found.type.key_kind.comparable:
        raise refused(
            f"an interval of {found.name} cannot be told: the order of {found.type.name} is the "
            "server's own, or its values are not exact",
            "name a column of whole or decimal numbers, dates or times of day with a date",
        )
    return found


def _value(
    run: Run, schema: TableSchema, column: Column, option: str, text: str | None
) -> KeyPart | None:
    """Parse one end of the interval; refuse a value that the column cannot have."""
    if text is None:
        return None
    try:
        return offered(source_of(run), ReadsText).value_of(schema, column.name, text)
    except ValueError as error:
        raise refused(f"{option}: {error}", f"write a value of {column.name}") from None
