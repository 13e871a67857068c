"""A column's type as the server's own text; without Arrow."""

from __future__ import annotations

from airflow_cdc_provider.core.table_schema import ColumnType


def decimal_digits(column_type: ColumnType) -> tuple[int, int]:
    """Return precision and scale of a DECIMAL; the server's defaults are 10 and 0."""
    precision = 10 if column_type.precision is None else column_type.precision
    return precision, column_type.scale or 0


def type_text(column_type: ColumnType) -> str:
    """Return a column type as SQL text, without its charset."""
    name, kind = column_type.name, column_type
    if kind.members:
        members = ",".join("'" + member.replace("'", "''") + "'" for member in kind.members)
        return f"{name}({members})"
    if name == "decimal":
        precision, scale = decimal_digits(kind)
        name = f"decimal({precision},{scale})"
    elif kind.length is not None and name in {"char", "varchar", "binary", "varbinary", "bit"}:
        name = f"{name}({kind.length})"
    elif kind.length is not None and name == "vector":
        name = f"vector({kind.length})"
    elif kind.fraction:
        name = f"{name}({kind.fraction})"
    return f"{name} unsigned" if kind.unsigned else name
