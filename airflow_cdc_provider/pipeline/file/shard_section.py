"""What tells the rows of several source tables apart in one table of the sink."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.table_shape import OutputColumn
from airflow_cdc_provider.systems.sections.base import Section

ShardValue = Literal["database", "table", "name"]


class ShardSection(Section):
    """The column that tells these tables' rows apart in one table of the sink."""

    column: Annotated[str, Field(min_length=1)] = Field(
        description="A column that the tables do not have: a VARCHAR(129), the first of the sink's "
        "key.",
        examples=["shop"],
    )
    value: ShardValue = Field(
        default="name",
        description="What is in it: the source table's `database`, its `table`, or both as its "
        "`name`, `shop_1.orders`.",
        examples=["database"],
    )

    def column_of(self, table: TableId) -> OutputColumn:
        """Return the column of a table, with its value."""
        values = {
            "database": table.database,
            "table": table.table,
            "name": f"{table.database}.{table.table}",
        }
        return OutputColumn(self.column, constant=values[self.value])
