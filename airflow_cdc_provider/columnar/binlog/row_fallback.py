"""Tables whose rows are decoded one by one, because a column lies in the log in a rare form.

The column decoder does not know these forms. Whoever makes it may hand it another way to read
such a table's rows; all other tables of the same log stay with the column decoder. Without that
way the table is refused by name.
"""

from __future__ import annotations

from collections import Counter
from typing import Protocol

from airflow_cdc_provider.columnar.binlog.frames import Frames
from airflow_cdc_provider.columnar.binlog.octets import Ints
from airflow_cdc_provider.columnar.binlog.row_events import RowChanges
from airflow_cdc_provider.columnar.binlog.table_map import TableMap
from airflow_cdc_provider.columnar.value_model import ZeroDates
from airflow_cdc_provider.core.errors import UnknownTypeError


class RowDecoder(Protocol):
    """Decodes the row events that follow one table map."""

    @property
    def map(self) -> TableMap:
        """Return the table as the log described it."""

    @property
    def nulled(self) -> Counter[str]:
        """Return how many zero dates became NULL, by column."""

    def decode(self, frames: Frames, places: Ints) -> RowChanges:
        """Decode the row events at these places."""


class RowFallback(Protocol):
    """Makes the decoder of a table that the column decoder cannot read."""

    def __call__(self, table_map: TableMap, zero_dates: ZeroDates) -> RowDecoder: ...


def no_fallback(table_map: TableMap, zero_dates: ZeroDates) -> RowDecoder:  # noqa: ARG001 - the port's
    """Refuse such tables."""
    rare = [
        f"{column.name} ({wire.kind})"
        for column, wire in zip(table_map.columns, table_map.wires, strict=True)
        if wire.is_rare
    ]
    raise UnknownTypeError(
        f"the log holds columns in a rare form, which is not decoded: {', '.join(rare)}",
        str(table_map.table),
        "its values, and all columns behind it, would be read wrong",
        "leave the table out, or rebuild it with a current type "
        "(ALTER TABLE ... FORCE; MariaDB: mysql56_temporal_format=ON)",
    )
