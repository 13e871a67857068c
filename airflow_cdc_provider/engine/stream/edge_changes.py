"""A change of definition on an edge of a topology: followed once both nodes have made it.

What an edge alters at its sink comes back in that server's log, and the opposite edge cannot tell
it from what a person did there. So, as a rule, an edge alters nothing. Where its sink's table has
the new definition already, the change is passed, and the rows flow on; else the table stops, and a
person makes the same change at the other node.

Where one node is named as that from which definitions come, the edge from it carries what rows of
the old definition survive: new columns that no row has to name, and wider types. The edge back
meets the statement in the other node's log, and its sink has that definition, or is ahead of it by
changes that are on their way.
"""

from __future__ import annotations

from contextlib import closing

from airflow_cdc_provider.columns.source_port import FollowsDefinitions
from airflow_cdc_provider.core.errors import CdcError, TableChangedError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.schema_changes import Difference
from airflow_cdc_provider.core.table_schema import TableSchema
from airflow_cdc_provider.engine.definitions import redefined
from airflow_cdc_provider.engine.job import Job
from airflow_cdc_provider.engine.sink.own_log import HasOwnLog
from airflow_cdc_provider.engine.sink.port import Sink

COPY_ANEW = (
    "make both nodes' tables alike; the page 'Two nodes' says how a node is copied anew, which "
    "brings the table back"
)


def never_passed(found: Difference, *, truncates: bool, rows_between: bool) -> str:
    """Return why a change is not passed whatever the other node has; empty if it may be.

    Where values change with it, the same definition does not say that they did at both nodes.
    """
    if truncates:
        return "the other node's rows are not truncated with it"
    if found.traded:
        return "columns have traded their names"
    if rows_between:
        return "rows were written between two of its changes"
    return found.refused or found.why


def is_alike_now(job: Job, table: TableId) -> bool:
    """Tell whether both nodes define a table alike now, whatever the plan says.

    Then its rows may be brought up to the statement that made it so: one that finds no place for a
    value is refused by the server, and what would be rounded there was rounded at the source.
    """
    (plan,) = (each for each in job.plans() if each.schema.table == table)
    with job.source().catalogue() as catalogue:
        now = catalogue.schemas([table]).get(table)
    if now is None or now.is_defined_as(plan.schema):
        return False
    try:
        return not why_not_passed(job.sink(), redefined(plan, now, job.sink()))
    except TableChangedError:
        return False


def why_not_passed(sink: Sink, after: TablePlan) -> str:
    """Return why the sink's table is not as the source's is now; empty if it is."""
    if not isinstance(sink, HasOwnLog):
        return f"what {after.sink_table} is at the other node cannot be looked at"
    found = _at_sink(sink, after)
    if found is None:
        return f"{after.sink_table} is not at the other node"
    if _names(found) != _names(after.target):
        return f"{after.sink_table} at the other node has other columns"
    if _unique(found) != _unique(after.target):
        return f"{after.sink_table} at the other node has other unique keys"
    try:
        with closing(sink.open_tables()) as tables:
            tables.require_fit([after])
    except CdcError as error:
        return error.what
    return ""


def why_filled_otherwise(
    sink: Sink, before: TablePlan, after: TablePlan, definitions: FollowsDefinitions
) -> str:
    """Return why rows of before have other values in new columns at each node; empty if not.

    A column that both nodes have added has its own default there, which no change in the log says.
    """
    known = _names(before.target)
    added = [each.name for each in after.target.columns if each.name.lower() not in known]
    found = _at_sink(sink, after) if added and isinstance(sink, HasOwnLog) else None
    if found is None:
        return ""
    others = definitions.other_defaults(after.target, found, added)
    return f"{', '.join(others)} has another default at the other node" if others else ""


def is_ahead(sink: Sink, after: TablePlan) -> bool:
    """Tell whether the sink's table holds the source's rows as they are now, and maybe more."""
    if not isinstance(sink, HasOwnLog):
        return False
    found = _at_sink(sink, after)
    if found is None or not _names(after.target) <= _names(found):
        return False
    if _unique(found) != _unique(after.target):
        return False
    with closing(sink.open_tables()) as tables:
        return not tables.drifted([after])


def _at_sink(sink: HasOwnLog, plan: TablePlan) -> TableSchema | None:
    """Return the definition of a plan's table at the sink; None if it is not there."""
    with sink.own_log().catalogue() as catalogue:
        return catalogue.schemas([plan.sink_table]).get(plan.sink_table)


def _names(schema: TableSchema) -> frozenset[str]:
    """Return the names of a table's columns, in lower case."""
    return frozenset(column.name.lower() for column in schema.columns)


def _unique(schema: TableSchema) -> frozenset[tuple[str, ...]]:
    """Return the columns of a table's keys, in lower case."""
    keys = [schema.primary_key, *(key.columns for key in schema.unique_keys)]
    return frozenset(tuple(name.lower() for name in key) for key in keys)
