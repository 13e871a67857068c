"""The table builder of a lake: which changed types begin a table again.

A lake's columns have types. A table whose files of before do not have the new one begins again, and
its next commit exchanges it whole.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pyarrow as pa

from airflow_cdc_provider.core.errors import RefusedError
from airflow_cdc_provider.core.identifiers import table_option
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.shards import shards_of
from airflow_cdc_provider.core.table_schema import Column, ColumnType, TypeKind
from airflow_cdc_provider.engine.sink.port import Owner
from airflow_cdc_provider.systems.file_log.targets import LogTables
from airflow_cdc_provider.systems.files.opening import Root, files_at
from airflow_cdc_provider.systems.lake.preflight import names_twice, twice_text
from airflow_cdc_provider.systems.lake.shared_tables import (
    Disagreement,
    EmptiedShards,
    disagreements,
    require_agreed,
)
from airflow_cdc_provider.systems.lake.table_columns import is_wider

_SMALL = frozenset({"tinyint", "smallint", "mediumint", "int"})
_MOST_DIGITS = 38


class LakeTargetTables(LogTables):
    """The table builder of one lake; `widens` if its format can make a column's type wider."""

    def __init__(
        self, root: Root, owner: Owner, known: Sequence[TablePlan] = (), *, widens: bool
    ) -> None:
        """`known`: the pipeline's plans."""
        super().__init__(root, owner, is_exact=False)
        self._emptied = EmptiedShards(files_at(root), owner)
        self._known, self._widens = known, widens

    def require_fit(self, plans: Sequence[TablePlan]) -> None:
        """Refuse tables whose columns readers could not tell apart."""
        super().require_fit(plans)
        require_agreed(self.unshared(plans), plans)
        for plan in plans:
            if twice := names_twice(plan):
                raise RefusedError(
                    f"{plan.schema.table}: {twice_text(twice)}",
                    where=f"table {plan.sink_table}",
                    risk="readers could not tell the columns apart; nothing was committed",
                    remedy="rename it in the pipeline file (tables.columns.rename) or at the "
                    f"source, then `reset` it with {table_option(plan.schema.table)}; while the "
                    "first snapshot is not done, `reset` the pipeline",
                ).about(plan.schema.table)

    def unshared(self, plans: Sequence[TablePlan]) -> list[Disagreement]:
        """Return why plans cannot share their tables, with others or with what these have.

        Where all that share one begin together it is made anew.
        """
        found: list[Disagreement] = []
        asked = {plan.schema.table for plan in plans}
        for shards in shards_of(plans, self._known):
            among = list(disagreements(shards, self._fits))
            if not among and not asked.issuperset(each.schema.table for each in shards):
                former = {each.schema.table: each for each in self._known}
                for each in shards:
                    before = former.get(each.schema.table, each)
                    among += disagreements([before, each], self._fits)
            found += among
        return found

    def delete_shard(self, plan: TablePlan) -> None:
        """Take a shard's rows away from the table that it shares, with the next commit."""
        self._emptied.empty(plan)

    def empty_columns(self, plan: TablePlan, names: Collection[str]) -> None:
        """Do nothing: a shard that begins again has rows of its own columns alone."""

    def _fits(self, one: Column, other: Column) -> bool:
        """Tell whether a column can have the values of two, each written as it is."""
        types = one.type, other.type
        return not any(self.rewritten({one.name: pair}) for pair in (types, (types[1], types[0])))

    def rewritten(self, change_of: Mapping[str, tuple[ColumnType, ColumnType]]) -> str:
        """Return which columns' values of before are not what the new type has, and why."""
        if why := super().rewritten(change_of):
            return why
        names = [name for name, (old, new) in change_of.items() if not self._holds_both(old, new)]
        return f"the lake's table has {', '.join(names)} as its old type" if names else ""

    def _holds_both(self, old: ColumnType, new: ColumnType) -> bool:
        """Tell whether one column can hold the values of both types, which are written alike."""
        if old.kind not in _TYPES:
            return True
        was, now = _TYPES[old.kind](old), _TYPES[new.kind](new)
        if was is None or now is None:
            return False
        return was == now or is_wider(was, now) or (self._widens and is_wider(now, was))


def _of_integer(kind: ColumnType) -> pa.DataType | None:
    """Return the lake's type of a whole number; None if it is not known."""
    if kind.name == "bigint":
        return pa.decimal128(20, 0) if kind.unsigned else pa.int64()
    if kind.name not in _SMALL:
        return None
    return pa.int64() if kind.name == "int" and kind.unsigned else pa.int32()


def _of_decimal(kind: ColumnType) -> pa.DataType | None:
    """Return the lake's type of a DECIMAL; None if it is not known."""
    if kind.precision is None:
        return None
    if kind.precision > _MOST_DIGITS:
        return pa.string()
    return pa.decimal128(kind.precision, kind.scale or 0)


_TYPES = {TypeKind.INTEGER: _of_integer, TypeKind.DECIMAL: _of_decimal}
