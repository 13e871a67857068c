"""Several tables of the source in one table of the sink: when their rows can be told apart.

Each of them is a shard. Its shape names one column that has the same value in all rows of the
shard, and another value in those of each other shard. A plan says nothing of the other shards, so
none changes when one comes or goes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.table_shape import TableShape


@dataclass(frozen=True, slots=True)
class Routed:
    """A table of the source, where its rows go, and how they look there."""

    table: TableId
    target: TableId
    shape: TableShape

    @property
    def shard_value(self) -> str:
        """Return the value of the shard column as the sink compares it: without blanks behind."""
        column = self.shape.shard_column
        return "" if column is None else str(column.constant).rstrip(" ")


@dataclass(frozen=True, slots=True)
class Clash:
    """Two tables that cannot share their sink table: why, and what mends it."""

    table: TableId
    """The later one."""
    what: str
    fix: str


def shards_of(plans: Sequence[TablePlan], known: Sequence[TablePlan] = ()) -> list[list[TablePlan]]:
    """Return the shards of each shared sink table that one of these plans goes to.

    Those among the pipeline's `known` plans come first, as they are in `plans` if they are there.
    """
    latest = {plan.schema.table: plan for plan in (*known, *plans) if plan.shard is not None}
    together: dict[TableId, list[TablePlan]] = {}
    for plan in latest.values():
        together.setdefault(plan.sink_table, []).append(plan)
    wanted = {plan.sink_table for plan in plans}
    return [shards for table, shards in together.items() if table in wanted]


def clashes(routed: Iterable[Routed]) -> Iterator[Clash]:
    """Yield each table that cannot share its sink table with an earlier one, once."""
    seen: dict[TableId, list[Routed]] = {}
    for each in routed:
        others = seen.setdefault(each.target, [])
        found = next(filter(None, (_clash(other, each) for other in others)), None)
        if found is not None:
            yield found
        others.append(each)


def _clash(other: Routed, one: Routed) -> Clash | None:
    """Return why two tables cannot share their sink table; None if they can."""
    if other.table == one.table:
        return None
    both = f"{other.table} and {one.table} both go to {one.target}"
    if not (one.shape.shard and other.shape.shard):
        lacking = one if other.shape.shard else other
        alone = f", and nothing tells the rows of {lacking.table} from others"
        return Clash(
            one.table,
            both + (alone if one.shape.shard or other.shape.shard else ""),
            "route one of them elsewhere: their rows would overwrite each other; or give each a "
            "column that tells them apart, by shard in its section of tables",
        )
    if one.shape.shard != other.shape.shard:
        return Clash(
            one.table,
            f"{both}, and their shard columns are {other.shape.shard} and {one.shape.shard}",
            "name the same column in both sections",
        )
    if one.shard_value == other.shard_value:
        return Clash(
            one.table,
            f"{both}, and the rows of both have {one.shard_value!r} in {one.shape.shard}",
            "write value: name, which no two tables share, or route one of them elsewhere",
        )
    if _marks(one.shape) != _marks(other.shape):
        return Clash(
            one.table,
            f"{both}, and one is to have other columns of metadata or other deletes there",
            "write the same deletes and metadata for both: whoever reads the table asks one column",
        )
    if other.shape.layout != one.shape.layout:
        return Clash(
            one.table,
            f"{both}, and the files of one are to be laid out otherwise",
            "write the same partition_by and sort_by for both: they have their files together",
        )
    return None


def _marks(shape: TableShape) -> object:
    """Return the columns that say what became of rows, which all shards have alike."""
    return shape.deleted_flag, shape.metadata
