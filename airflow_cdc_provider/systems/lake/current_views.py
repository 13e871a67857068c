"""Views of tables' current rows, in a catalog that has views.

The file names them. One is made behind the first commit of its table, and made anew where the
columns have changed. All are looked at behind each commit of any table, so one that somebody drops
or alters, or that could not be made before, is right again with the next. They hold no rows: the
engine that asks one reads the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import pyarrow as pa

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.systems.lake.queries import query_of
from airflow_cdc_provider.systems.lake.tables.table import LakeTables


@dataclass(frozen=True, slots=True)
class CurrentView:
    """A view of a table's current rows."""

    name: TableId
    columns: pa.Schema
    queries: Mapping[str, str]
    """SQL by dialect."""


class Views(Protocol):
    """The views of one pipeline in a catalog."""

    def keep(self, view: CurrentView) -> None:
        """Make a view, or make it anew if it says something else. `RefusedError`."""


@runtime_checkable
class HasViews(Protocol):
    """Tables of a format that knows views."""

    def views(self, pipeline: str) -> Views:
        """Return the views of a pipeline. `RefusedError` for a server that has none."""


@dataclass(frozen=True, slots=True)
class CurrentViews:
    """The views that a pipeline file asks for."""

    pattern: str
    """A name with `{table}` in it."""
    in_trino: str
    """What Trino calls the catalog: unlike Spark it looks for tables in none by itself."""
    pipeline: str
    plans: Mapping[TableId, TablePlan]
    """By the tables of the lake."""
    are_mirrors: bool

    def keep(self, tables: LakeTables, table: TableId, there: pa.Schema | None = None) -> None:
        """Keep a table's view, if it has a plan; `there`: the table's columns, if they are known.

        `RefusedError` for a catalog without views, and for a name that others have.
        """
        plan = self.plans.get(table)
        if plan is None or not isinstance(tables, HasViews):
            return
        if there is None:
            loaded = tables.load(table)
            there = None if loaded is None else loaded.columns
        if there is not None:
            name = TableId(table.database, self.pattern.replace("{table}", table.table))
            tables.views(self.pipeline).keep(self._view(plan, name, there))

    def _view(self, plan: TablePlan, name: TableId, there: pa.Schema) -> CurrentView:
        """Return a table's view, of those of its columns that the table has by now."""
        names = [each.name for each in plan.target.copied_columns if each.name in there.names]
        is_mirror = self.are_mirrors
        queries = {
            "spark": query_of(plan, names, is_mirror=is_mirror, quote="`"),
            "trino": query_of(plan, names, is_mirror=is_mirror, catalog=self.in_trino),
        }
        return CurrentView(name, pa.schema([there.field(each) for each in names]), queries)
