"""The SQL that marks rows of the sink as deleted, where a table keeps such rows.

Only living rows are marked: what one was marked with says when it was deleted, and stays.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow_cdc_provider.core.identifiers import quote_identifier
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.row_metadata import MetadataKind, Operation, RowStamp
from airflow_cdc_provider.systems.mysql.dialect.sql import literal, living, of_shard

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def living_and(plan: TablePlan, condition: str) -> str:
    """Return a condition that is true for a plan's own rows only, of which none is marked.

    Rows of other shards are not its own, nor is a row its table's that is marked as deleted.
    """
    flag = plan.shape.deleted_flag
    return of_shard(plan.shard, f"{living(flag)} AND ({condition})" if flag else condition)


def marking(plan: TablePlan, stamp: RowStamp) -> str:
    """Return the assignments of an UPDATE that marks rows as deleted.

    Rows that a read did not find are deleted by what the read says of its own place.
    """
    deleted = Operation.DELETE if stamp.operation is Operation.READ else stamp.operation
    values = {
        MetadataKind.OPERATION: literal(deleted.value),
        MetadataKind.POSITION: literal(stamp.position),
        MetadataKind.COMMITTED_AT: _moment(stamp.committed_us),
        MetadataKind.TABLE: literal(str(plan.schema.table)),
        MetadataKind.SERVER: literal(stamp.server),
    }
    named = plan.shape.metadata.named
    assigned = {plan.shape.deleted_flag: "1"} | {named[kind]: values[kind] for kind in named}
    return ", ".join(f"{quote_identifier(name)} = {value}" for name, value in assigned.items())


def _moment(committed_us: int) -> str:
    """Return a commit's time as SQL, NULL if it is not known."""
    if committed_us <= 0:
        return "NULL"
    moment = _EPOCH + timedelta(microseconds=committed_us)
    return literal(moment.strftime("%Y-%m-%d %H:%M:%S.%f"))
