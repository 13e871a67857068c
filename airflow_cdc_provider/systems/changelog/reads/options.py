"""The options of a read of a table's changes, as a person writes them."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from airflow_cdc_provider.core.catalog_access import CatalogAccess
from airflow_cdc_provider.core.endpoint import STORE_SCHEMES, Store
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.store_access import StoreAccess
from airflow_cdc_provider.systems.changelog.reads.catalog_options import (
    CATALOG_OPTIONS,
    PROPERTY,
    catalog_of,
)
from airflow_cdc_provider.systems.changelog.reads.parts import PART_BYTES
from airflow_cdc_provider.systems.changelog.reads.ranges import RANGE_OPTIONS, kind_asked, refused
from airflow_cdc_provider.systems.files.object_store import ObjectStore
from airflow_cdc_provider.systems.files.opening import open_files

_ACCESS = ("accessKeyId", "secretAccessKey", "sessionToken", "region", "endpointUrl")
"""What says how to get into a store; without them the environment does."""
OPTIONS = (
    "path",
    *_ACCESS,
    "table",
    "columns",
    "truncates",
    "maxPartitionBytes",
    "maxFilesPerTrigger",
    *RANGE_OPTIONS,
    *CATALOG_OPTIONS,
)
_BY_LOWER_CASE = {name.lower(): name for name in OPTIONS}


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What to read of a table's changes, checked as far as they are not needed for it."""

    place: Store
    table: TableId
    columns: str = ""
    """The names of the table's columns to read, parted by commas; empty for all."""
    with_truncates: bool = False
    part_bytes: int = PART_BYTES
    max_files: int | None = None
    """The most files of a stream's micro-batch; None for all that are there."""
    ends: Mapping[str, str] = field(default_factory=dict)
    """The options that say from where to where."""
    catalog: CatalogAccess | None = None
    """The server that knows the tables of a lake, if it is one."""

    @property
    def files(self) -> ObjectStore:
        """Return the store of the log, or of the lake."""
        return open_files(self.place)

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ReadOptions:
        """Read the options; their names may have any case, as Spark's have."""
        named = {_known_name(name): value for name, value in options.items()}
        ends = {name: value for name, value in named.items() if name in RANGE_OPTIONS}
        kind_asked(ends)
        return cls(
            _place(named.get("path", ""), [named.get(name, "") for name in _ACCESS]),
            _table(named.get("table", "")),
            named.get("columns", "").strip(),
            _with_truncates(named.get("truncates", "fail")),
            _number("maxPartitionBytes", named.get("maxPartitionBytes")) or PART_BYTES,
            _number("maxFilesPerTrigger", named.get("maxFilesPerTrigger")),
            ends,
            catalog_of(named),
        )


def _known_name(name: str) -> str:
    """Return an option's name as it is written here; refuse one that is not known."""
    known = name if name.startswith(PROPERTY) else _BY_LOWER_CASE.get(name.lower())
    if known is not None:
        return known
    near = difflib.get_close_matches(name.lower(), _BY_LOWER_CASE, 1)
    hint = f"; did you mean {_BY_LOWER_CASE[near[0]]}?" if near else ""
    raise refused(
        f"there is no option {name!r}{hint}", remedy=f"the options are {', '.join(OPTIONS)}"
    )


def _place(text: str, access: Sequence[str]) -> Store:
    """Read where the log or lake is: a folder, or a store and how to get in."""
    scheme = text.partition("://")[0]
    if scheme in STORE_SCHEMES and "://" in text:
        return Store(text.rstrip("/"), _access(access))
    if any(access):
        raise refused(
            f"{', '.join(_ACCESS)} are of a log in a store",
            remedy="leave them out, or give the sink's path, as in .load('s3://bucket/changes')",
        )
    path = text.removeprefix("file://")
    if not path.startswith("/"):
        raise refused(
            f"path={text!r} is no absolute path of a folder, nor the URI of a store"
            if text
            else "no path is given",
            remedy="give the sink's path, as in .load('/data/changes'), the same on the driver's "
            "machine and on every executor; or .load('s3://bucket/changes')",
        )
    return Store.of_folder(path)


def _access(values: Sequence[str]) -> StoreAccess:
    """Read how to get into a store; no value is repeated in an error."""
    key, secret, token, region, endpoint = values
    try:
        return StoreAccess.made(key, secret, token, region, endpoint)
    except ValueError as error:
        raise refused(
            f"of {', '.join(_ACCESS)}: {error}",
            remedy="give a key with its secret, or let the environment say how to get in",
        ) from None


def _table(text: str) -> TableId:
    """Read the table's name, as the sink has it."""
    try:
        return TableId.parse(text)
    except ValueError as error:
        raise refused(
            f"option table: {error}" if text else "no table is given",
            remedy="name one as the sink has it, as in .option('table', 'shop.orders')",
        ) from None


def _with_truncates(text: str) -> bool:
    """Read whether a TRUNCATE is a row or an error."""
    match text.strip().lower():
        case "rows":
            return True
        case "fail":
            return False
        case _:
            raise refused(
                f"truncates={text!r} is neither rows nor fail",
                remedy="rows has each TRUNCATE as a row, fail (the default) stops at one",
            )


def _number(option: str, text: str | None) -> int | None:
    """Read a whole number above 0, None if it is not given."""
    if text is None:
        return None
    if not text.strip().isdecimal() or not int(text):
        raise refused(f"{option}={text!r} is no number", remedy="give a whole number above 0")
    return int(text)
