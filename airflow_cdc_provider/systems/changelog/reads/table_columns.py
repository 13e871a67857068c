"""The columns in which a table's changes are handed to readers, as its log has them."""

from __future__ import annotations

import difflib

import pyarrow as pa

from airflow_cdc_provider.core.errors import NOTHING_STARTED, RefusedError
from airflow_cdc_provider.systems.changelog.reads.change_rows import COMMIT_COLUMNS, table_columns
from airflow_cdc_provider.systems.changelog.reads.commits import TableCommits
from airflow_cdc_provider.systems.file_log.state import NATIVE


def log_columns(
    commits: TableCommits, wanted: str = "", *, behind: int | None = None
) -> pa.Schema | None:
    """Return the table's own columns and those of its commits; None if no file has any yet.

    `wanted` names some of its own, parted by commas; without it these are all. They are those of
    the last file before the place `behind` so many files. Refuse a log whose files do not say the
    types of the columns, and a table with a column called like a commit's.
    """
    commits.require_table()
    sample = commits.sample(behind)
    if sample is None:
        return None
    if not sample.path.endswith(".parquet"):
        raise _untyped(commits, "JSON, which has no types")
    if commits.types != NATIVE:
        raise _untyped(commits, "the types of Debezium's envelope")
    own = table_columns(commits.root, sample.path)
    return columns_of_changes(own, wanted, table=str(commits.table), where=str(commits.root))


def columns_of_changes(own: pa.Schema, wanted: str, *, table: str, where: str) -> pa.Schema:
    """Return a table's own columns, all or those that are wanted, and those of its commits.

    Refuse a table with a column called like a commit's.
    """
    reserved = {name.lower() for name in COMMIT_COLUMNS}
    for name in own.names:
        if name.lower() in reserved:
            raise RefusedError(
                f"{table} has a column {name}, which is the name of one of the commit's",
                where=where,
                risk=NOTHING_STARTED,
                remedy="rename the column in the pipeline file (tables.columns.rename), then "
                "`reset`; or read the files as plain Parquet",
            )
    chosen = _chosen(own, wanted) if wanted else list(own)
    return pa.schema([*chosen, *COMMIT_COLUMNS.items()])


def _chosen(own: pa.Schema, wanted: str) -> list[pa.Field]:
    """Return the columns that a list of names chooses, in its order."""
    names = [name.strip() for name in wanted.split(",")]
    for name in names:
        if name not in own.names:
            near = difflib.get_close_matches(name, own.names, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise RefusedError(
                f"the table has no column {name!r}{hint}",
                where="option columns of format cdc",
                risk=NOTHING_STARTED,
                remedy=f"name some of: {', '.join(own.names)}",
            )
    return [own.field(name) for name in dict.fromkeys(names)]


def _untyped(commits: TableCommits, form: str) -> RefusedError:
    """Return the error for a log whose files do not say the types of the table's columns."""
    return RefusedError(
        f"the files of {commits.table} are in {form}, so the types of its columns are not known",
        where=str(commits.root),
        risk="a guessed type would change values; nothing was read",
        remedy="write the log with sink.format: parquet (and types: native, the default), begun "
        "anew by `reset`; or read the files, which sealed_files() lists, as they are: they have "
        "Debezium's envelopes",
    )
