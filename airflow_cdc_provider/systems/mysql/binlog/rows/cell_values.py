"""One column of the log becomes one Arrow array of the value model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_cdc_provider.core.table_schema import ColumnType
from airflow_cdc_provider.systems.mysql.binlog.rows import date_cells, number_cells, text_cells
from airflow_cdc_provider.systems.mysql.binlog.rows.date_cells import DateColumn
from airflow_cdc_provider.systems.mysql.binlog.rows.row_walk import Cells
from airflow_cdc_provider.systems.mysql.binlog.rows.wire_types import Wire
from airflow_cdc_provider.systems.mysql.dialect.value_model import ZeroDates

if TYPE_CHECKING:
    import pyarrow as pa


def decode_cells(
    cells: Cells, wire: Wire, column: ColumnType, wanted: pa.DataType, zero_dates: ZeroDates
) -> DateColumn:
    """Decode one column's cells to Arrow, with a count of zero dates that became NULL."""
    if wire.kind in date_cells.DATES:
        return date_cells.dates(cells, wire, wanted, zero_dates)
    return DateColumn(_plain(cells, wire, column, wanted))


def _plain(cells: Cells, wire: Wire, column: ColumnType, wanted: pa.DataType) -> pa.Array:
    """Decode cells of a type without dates to an Arrow array."""
    match wire.kind:
        case "integer":
            return number_cells.integers(cells, wire, wanted)
        case "real":
            return number_cells.reals(cells, wire, wanted)
        case "decimal":
            return number_cells.decimals(cells, wire, wanted)
        case "bit":
            return number_cells.bits(cells, wire, wanted)
        case "year":
            return number_cells.years(cells, wanted)
        case "time":
            return date_cells.times(cells, wire, wanted)
        case "old time":
            return date_cells.old_times(cells, wanted)
        case "enum":
            return text_cells.enums(cells, wire, column)
        case "set":
            return text_cells.sets(cells, wire, column)
        case _:
            return text_cells.variable(cells, wire, column)
