"""The Parquet files of a lake's table, for those who read Parquet alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from airflow_cdc_provider.core.endpoint import Store
from airflow_cdc_provider.core.errors import RefusedError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.systems.file_log.layout import table_folder
from airflow_cdc_provider.systems.lake.columns import ORDER
from airflow_cdc_provider.systems.lake.tables.table import LoadedTable


@dataclass(frozen=True, slots=True)
class RawFile:
    """A Parquet file of a table: each of its rows is the table's."""

    name: str
    """Below the place of all tables."""
    bytes: int
    low: int | None
    """The smallest `_order` of its rows; None if that is not known."""
    high: int | None
    """The greatest one."""
    constants: Mapping[str, Any] = field(default_factory=dict)
    """Values that all of its rows have in columns which the file need not have."""

    def may_have(self, low: int, high: int) -> bool:
        """Tell whether it may have rows behind an order, up to another one."""
        is_before = self.high is not None and self.high <= low
        is_behind = self.low is not None and self.low > high
        return not (is_before or is_behind)


def raw_files(place: Store, table: TableId, loaded: LoadedTable) -> Sequence[RawFile]:
    """Return the files of a table as it was loaded; those without a row are left out.

    Refuse a table whose files are not all that there is to say of its rows.
    """
    if found := loaded.beside_files():
        raise RefusedError(
            f"{table} is not what its Parquet files say: {found}",
            where=str(place),
            risk="rows that were deleted would be read, or values of other columns; none was read",
            remedy="have the table's files rewritten without it, by rewrite_data_files of Iceberg "
            "or DROP FEATURE of Delta; or read it by Spark's own reader of the format",
        )
    files = []
    for each in loaded.files(ORDER):
        bounds = each.bounds
        if bounds is None and not each.rows:
            continue
        low, high = (None, None) if bounds is None else (bounds.low, bounds.high)
        name = _name(place, table, each.path)
        files.append(RawFile(name, each.bytes, low, high, loaded.constants(each)))
    return files


def _name(place: Store, table: TableId, path: str) -> str:
    """Return a file's name below the place, by its path as the table has it."""
    folder = table_folder(table)
    if "://" not in path and not path.startswith("/"):
        return f"{folder}/{unquote(path)}"  # Delta's are below the table, and encoded
    root = str(place)
    plain = path.removeprefix("file://") if place.scheme == "file" else path
    if not plain.startswith(f"{root}/"):
        raise RefusedError(
            f"the file {path.rpartition('/')[2]} of {table} is not below the lake's path",
            where=path,
            risk="it may be one that others wrote elsewhere; nothing was read",
            remedy="name the path as the pipeline file has it; a file that others put elsewhere is "
            "read by Spark's own reader of the format",
        )
    return plain.removeprefix(f"{root}/")
