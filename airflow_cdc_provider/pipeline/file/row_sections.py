"""What the sink keeps of deleted rows, and says of each row: parts of the section `tables`."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Literal

from pydantic import Field

from airflow_cdc_provider.core.row_metadata import RowMetadata
from airflow_cdc_provider.systems.sections.base import Section

_ColumnName = Annotated[str, Field(min_length=1)]
Deletes = Literal["hard", "soft"]
DELETED = "_deleted"
"""The flag's name where the file gives none."""


class MetadataSection(Section):
    """Columns at the sink that say of each row what wrote it last; all by names of your choice."""

    deleted: _ColumnName | None = Field(
        default=None,
        description="With `deletes: soft`: 1 where the source has deleted the row, else 0. "
        f"`{DELETED}`, unless it is named.",
        examples=[DELETED],
    )
    operation: _ColumnName | None = Field(
        default=None,
        description="`r` read, `c` inserted, `u` updated, `d` deleted, `t` truncated.",
        examples=["_last_op"],
    )
    position: _ColumnName | None = Field(
        default=None,
        description="The place in the source's log: where the transaction begins, or, of a row "
        "that was read, the place whose state it is.",
        examples=["_last_position"],
    )
    committed_at: _ColumnName | None = Field(
        default=None,
        description="When the source committed it, in UTC; NULL of a row that was read.",
        examples=["_last_commit"],
    )
    table: _ColumnName | None = Field(
        default=None, description="The source's table.", examples=["_table"]
    )
    server: _ColumnName | None = Field(
        default=None,
        description="The server whose log or table was read.",
        examples=["_server"],
    )

    @property
    def metadata(self) -> RowMetadata:
        """Return the names of the columns."""
        names = {each.name: getattr(self, each.name) or "" for each in fields(RowMetadata)}
        return RowMetadata(**names)
