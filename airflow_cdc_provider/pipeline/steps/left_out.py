"""What is said of a table that fits the file and is not in the plan."""

from __future__ import annotations

from airflow_cdc_provider.core.identifiers import TableId


def left_out_text(table: TableId | str) -> str:
    """Return the warning that a picked table is not copied, and what to do about it."""
    return (
        f"{table} fits source.tables and is not in the plan, because it came later: it is not "
        "copied. Under new_tables: add a run adds it, unless `check` says what speaks against it; "
        "`add` it, which reads it alone (no topology does), or put it into source.exclude"
    )
