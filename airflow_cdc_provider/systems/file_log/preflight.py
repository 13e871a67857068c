"""Preflight of a log of files: may they be written there, and do its tables fit."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from airflow_cdc_provider.core.errors import CdcError, RefusedError
from airflow_cdc_provider.core.findings import Finding, FindingCode, Level
from airflow_cdc_provider.core.keys import comparable
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.systems.file_log.layout import MANIFEST, table_folder
from airflow_cdc_provider.systems.files.file_store import link_once, write_whole


class LogCode(FindingCode):
    """The codes of preflight findings for logs of files: name, levels and meaning."""

    FOLDER = (
        "sink.folder",
        "block",
        "of a change log or a lake: its folder cannot be written to, or its file system gives one "
        "name twice",
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
    root: Path, plans: Sequence[TablePlan], *, is_exact: bool = True
) -> Iterator[Finding]:
    """Yield the findings about the folder, and about tables that cannot be logged there.

    `is_exact`: a change must not be there beside a snapshot's row that has it already.
    """
    yield from _folder(root)
    for plan in plans:
        yield from _table(plan, is_exact=is_exact)


def _folder(root: Path) -> Iterator[Finding]:
    """Yield a finding if a trial shows that the folder cannot link a name only once."""
    there = next(each for each in (root / MANIFEST, root, *root.parents) if each.is_dir())
    tried = [there / f".tried-{secrets.token_hex(8)}" for _ in range(3)]
    try:
        for each in tried[:2]:
            write_whole(each, b"")
        if not link_once(tried[0], tried[2]) or link_once(tried[1], tried[2]):
            yield _block(root, "a name was given twice")
    except (OSError, CdcError) as error:
        yield _block(root, error.what if isinstance(error, CdcError) else str(error))
    finally:
        with suppress(OSError):
            for each in tried:
                each.unlink(missing_ok=True)


def _block(root: Path, observed: str) -> Finding:
    """Return the finding for a folder that cannot be used."""
    return Finding(
        LogCode.FOLDER,
        Level.BLOCK,
        str(root),
        observed,
        "a folder that can be written to, on a file system with links",
        "each commit is a name that only one writer gets",
        "use a folder on a local file system or on NFS, writable for this account",
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
