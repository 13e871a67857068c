"""What a folder's manifests are of: a change log, or a lake, and of which form its tables are."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from itertools import chain, islice
from pathlib import Path

from airflow_cdc_provider.core.errors import NOTHING_STARTED, IntegrityError, RefusedError
from airflow_cdc_provider.systems.changelog.reads.options import ReadOptions
from airflow_cdc_provider.systems.file_log.layout import table_folder
from airflow_cdc_provider.systems.file_log.state import LogState
from airflow_cdc_provider.systems.files.object_store import ObjectStore
from airflow_cdc_provider.systems.lake.columns import OP
from airflow_cdc_provider.systems.lake.gathered import columns_of
from airflow_cdc_provider.systems.lake.next_commit import MIRROR
from airflow_cdc_provider.systems.lake.packages import PACKAGES, is_there

_LOOKED_AT = 8
"""Files that are opened to see what they are of; most are there at the first look."""
_OWN_CATALOG = "catalog.db"


class LogKind(StrEnum):
    """What a log is of."""

    CHANGELOG = "changelog"
    APPEND = "append"
    MIRROR = "mirror"


def kind_of(store: ObjectStore, state: LogState) -> LogKind:
    """Tell what a log is of; one without any file is taken for a change log."""
    if state.types == MIRROR:
        return LogKind.MIRROR
    # tables take files over in a lake alone, and only its changes are numbered over all tables
    if any(state.taken.values()) or state.counts.events:
        return LogKind.APPEND
    names = (name for name in _names(state) if name.endswith(".parquet"))
    for name in islice(names, _LOOKED_AT):
        try:
            return LogKind.APPEND if OP in columns_of(store, name).names else LogKind.CHANGELOG
        except IntegrityError:
            continue  # it is gone since: the next one says the same
    return LogKind.CHANGELOG


def _names(state: LogState) -> Iterator[str]:
    """Yield the files that a log names."""
    splits = (file for each in state.splits.values() for file in each.files)
    others = chain(*state.kept.values(), *state.changes.values())
    yield from (each.path for each in chain(splits, others))


def table_form(options: ReadOptions) -> str | None:
    """Return the form of a lake's tables, None if the table was not committed to yet.

    `RefusedError` if its library is not installed here, or its catalog is not named.
    """
    store, folder = options.files, table_folder(options.table)
    if options.catalog is not None or _has_own_catalog(options):
        form = "iceberg"
    elif store.holds_any(f"{folder}/_delta_log"):
        form = "delta"
    elif store.holds_any(f"{folder}/metadata"):
        raise RefusedError(
            f"{options.table} is a table of Iceberg whose catalog is a server",
            where=str(options.place),
            risk=NOTHING_STARTED,
            remedy="name the catalog as the pipeline file does, by catalogType (sql, rest or glue) "
            "and catalogDsnEnv; or read the table by Spark's own reader of Iceberg",
        )
    else:
        return None
    if not is_there(form):
        raise RefusedError(
            f"the package {PACKAGES[form]} is not installed, and nothing else says which files a "
            f"table of {form} has",
            where=str(options.place),
            risk=NOTHING_STARTED,
            remedy=f"pip install 'airflow-provider-cdc[{form}]' where Spark's driver runs; "
            "executors do not need it",
        )
    return form


def _has_own_catalog(options: ReadOptions) -> bool:
    """Tell whether a folder has a catalog of its own."""
    place = options.place
    return place.scheme == "file" and (Path(place.path) / _OWN_CATALOG).is_file()
