"""Preflight of tables in a lake: is the format's library there, and do the tables' columns fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from airflow_cdc_provider.core.errors import SinkUnreachableError
from airflow_cdc_provider.core.findings import Finding, FindingCode, Level
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.systems.file_log.layout import table_folder
from airflow_cdc_provider.systems.file_log.preflight import folder_look
from airflow_cdc_provider.systems.files.object_store import ObjectStore
from airflow_cdc_provider.systems.lake.columns import CHANGE_COLUMNS
from airflow_cdc_provider.systems.lake.held import libraries_explained, said_by
from airflow_cdc_provider.systems.lake.packages import PACKAGES, how_to_install, is_there
from airflow_cdc_provider.systems.lake.tables.table import ClosedTableError

if TYPE_CHECKING:
    from airflow_cdc_provider.core.catalog_access import CatalogAccess
    from airflow_cdc_provider.core.endpoint import Folder
    from airflow_cdc_provider.core.table_layout import PartitionField
    from airflow_cdc_provider.systems.lake.shared_tables import Disagreement
    from airflow_cdc_provider.systems.lake.tables.table import LakeTables

CATALOGS = "airflow_cdc_provider.systems.lake.tables.catalogs"


class LakeCode(FindingCode):
    """The codes of preflight findings for tables in a lake: name, levels and meaning."""

    PACKAGE = (
        "lake.package",
        "block",
        "the library that commits to tables of this format is not installed",
    )
    TABLE_NAME = (
        "lake.table_name",
        "block",
        "the name is one that the format's library, or the catalog, cannot have",
    )
    COLUMN_NAME = (
        "lake.column_name",
        "block",
        "a column is called like one that tells of changes, or two differ by case alone",
    )
    LAYOUT = (
        "lake.layout",
        "block",
        "the table is there with other partitions, and tables of the format keep theirs",
    )
    SHARED_TABLE = (
        "lake.shared_table",
        "block",
        "two tables go to one as its shards, and their definitions do not go together",
    )


def lake_look(store: ObjectStore, folder: Folder, plans: Sequence[TablePlan]) -> Iterator[Finding]:
    """Yield the findings about the folder, the library and the tables; ask the catalog."""
    form, catalog = folder.form, folder.catalog
    yield from folder_look(store, plans, is_exact=False)
    yield from _package(form)
    if catalog is not None and is_there(form):
        with libraries_explained(partial(_not_asked, catalog)):
            import_module(CATALOGS).ask(catalog, folder.store)
    for plan in plans:
        if form == "delta":
            yield from _folder_name(store, plan)
        if catalog is not None and catalog.kind == "glue":
            yield from _name_in_glue(plan)
        yield from _columns(plan)


def _not_asked(catalog: CatalogAccess, error: Exception) -> SinkUnreachableError:
    """Return the error for a catalog that does not answer, or lets nobody in."""
    return SinkUnreachableError(
        f"the catalog cannot be asked: {said_by(error)}",
        where=f"catalog of type {catalog.kind}, sink.catalog",
        risk="none: nothing was committed",
        remedy="mend what it says, such as a server that is away, or an account in the connection",
    )


def _name_in_glue(plan: TablePlan) -> Iterator[Finding]:
    """Yield a finding if Glue would give a table another name, in lower case."""
    name = str(plan.sink_table)
    if name != name.lower():
        yield Finding(
            LakeCode.TABLE_NAME,
            Level.BLOCK,
            name,
            "it has capital letters, and Glue's names have none",
            "names in lower case",
            "two tables could be one there",
            "route the table to such a name (sink.route)",
        )


def _package(form: str) -> Iterator[Finding]:
    """Yield a finding if the format's library is not there."""
    if not is_there(form):
        yield Finding(
            LakeCode.PACKAGE,
            Level.BLOCK,
            f"tables of {form}",
            f"the package {PACKAGES[form]} is not installed here",
            f"{PACKAGES[form]}",
            "nothing could be committed",
            how_to_install(form),
        )


def _folder_name(store: ObjectStore, plan: TablePlan) -> Iterator[Finding]:
    """Yield a finding if the folder's path has a `%`, which delta-rs takes for an escape."""
    path = f"{store}/{table_folder(plan.sink_table)}"
    if "%" in path:
        yield Finding(
            LakeCode.TABLE_NAME,
            Level.BLOCK,
            str(plan.sink_table),
            f"its folder would be {path}",
            "a path without %: names of letters, digits, dots, hyphens and _",
            "the library takes what follows a % for another character",
            "route the table to such a name (sink.route), or use iceberg",
        )


def not_shared(found: Iterable[Disagreement]) -> Iterator[Finding]:
    """Yield a finding for each table whose definition does not go into the table it shares."""
    for each in found:
        yield Finding(
            LakeCode.SHARED_TABLE,
            Level.BLOCK,
            str(each.target),
            str(each),
            "types of which the format can make one, and names in the same case",
            "rows of one could not be committed beside those of the other",
            "make them alike, leave the column out by columns.exclude or rename it in the table's "
            "section of tables, or route one of them elsewhere",
            only=str(each.table),
        )


def names_twice(plan: TablePlan) -> list[str]:
    """Return the names that a table's columns would have more than once, whatever their case."""
    names = [column.name.lower() for column in plan.target.copied_columns]
    return sorted(name for name, count in Counter((*names, *CHANGE_COLUMNS)).items() if count > 1)


def twice_text(names: Sequence[str]) -> str:
    """Return that columns of these names would be in a table twice."""
    word = "column" if len(names) == 1 else "columns"
    return f"{word} {', '.join(names)} would be there twice"


def kept_partitions(tables: LakeTables, plans: Sequence[TablePlan]) -> Iterator[Finding]:
    """Yield a finding for each table that keeps other partitions than it is to have."""
    for plan in plans:
        wanted = plan.shape.layout.partitions
        try:
            loaded = tables.load(plan.sink_table)
        except ClosedTableError:  # its commits say so, and what to do
            continue
        if loaded is not None and loaded.partitions not in {wanted, None}:
            yield Finding(
                LakeCode.LAYOUT,
                Level.BLOCK,
                str(plan.schema.table),
                f"its partitions are by {_fields_text(loaded.partitions)}",
                f"partitions by {_fields_text(wanted)}, as the pipeline file says",
                "a table of Delta keeps the partitions with which it was made",
                "write the former partition_by; or, as where its columns are gone, route the table "
                "to another name (sink.route)",
            )


def _fields_text(fields: Sequence[PartitionField] | None) -> str:
    """Return the fields of partitions as text."""
    return ", ".join(map(str, fields or ())) or "nothing"


def _columns(plan: TablePlan) -> Iterator[Finding]:
    """Yield a finding if a table's columns cannot be told apart at the sink."""
    if twice := names_twice(plan):
        yield Finding(
            LakeCode.COLUMN_NAME,
            Level.BLOCK,
            str(plan.schema.table),
            twice_text(twice),
            f"names that differ by more than case, and none of {', '.join(CHANGE_COLUMNS)}",
            "readers could not tell the columns apart",
            f"rename {'them' if twice[1:] else 'it'} in the pipeline file (tables.columns.rename, "
            "or the names under metadata)",
        )
