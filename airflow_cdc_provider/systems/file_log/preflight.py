"""Preflight of a log of files: may they be written there, and do its tables fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from airflow_cdc_provider.core.errors import RefusedError
from airflow_cdc_provider.core.findings import Finding, FindingCode, Level
from airflow_cdc_provider.core.keys import comparable
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.systems.file_log.layout import MANIFEST, table_folder
from airflow_cdc_provider.systems.files.object_store import ObjectStore
from airflow_cdc_provider.systems.files.opening import Root, files_at


class LogCode(FindingCode):
    """The codes of preflight findings for logs of files: name, levels and meaning."""

    FOLDER = (
        "sink.folder",
        "block",
        "of a change log or a lake: its folder cannot be written to or has no room, or its file "
        "system gives one name twice",
    )
    STORE = (
        "sink.store",
        "block",
        "of a change log in a store: the bucket is not there, a right is missing, the store does "
        "not answer, or it gives one name twice",
    )
    FOLDER_NAME = (
        "sink.folder_name",
        "block",
        "of a change log or a lake: a table's name is too long for a folder",
    )
    EXACT_FILTER = (
        "sink.exact_filter",
        "block",
        "of a change log: the table's key is ordered by the server only, so its changes could be "
        "there twice",
    )


def folder_look(
    root: Root, plans: Sequence[TablePlan], *, is_exact: bool = True
) -> Iterator[Finding]:
    """Yield the findings about the folder, and about tables that cannot be logged there.

    `is_exact`: a change must not be there beside a snapshot's row that has it already.
    """
    yield from _place(files_at(root))
    for plan in plans:
        yield from _table(plan, is_exact=is_exact)


def _place(store: ObjectStore) -> Iterator[Finding]:
    """Yield a finding if a trial shows that the place does not do what is asked of a store."""
    unfit = store.why_unfit(MANIFEST)
    if unfit is not None:
        yield Finding(
            LogCode.STORE if unfit.is_remote else LogCode.FOLDER,
            Level.BLOCK,
            str(store),
            unfit.observed,
            unfit.wanted,
            unfit.why,
            unfit.remedy,
        )


def _table(plan: TablePlan, *, is_exact: bool) -> Iterator[Finding]:
    """Yield findings if a table's name is too long, or its key cannot be compared."""
    try:
        table_folder(plan.sink_table)
    except RefusedError as error:
        yield Finding(LogCode.FOLDER_NAME, Level.BLOCK, str(plan.sink_table), error.what)
    if is_exact and plan.schema.has_key and not comparable(plan.schema.key_kinds):
        yield Finding(
            LogCode.EXACT_FILTER,
            Level.BLOCK,
            str(plan.schema.table),
            f"the primary key ({', '.join(plan.schema.primary_key)}) is ordered by the server only",
            "a key of whole numbers, decimals, times or bytes",
            "changes that the snapshot has read already would be in the log twice",
            "leave the table out",
        )
