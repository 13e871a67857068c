"""The options of a read of a change log, as a person writes them."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.systems.changelog.reads.parts import PART_BYTES
from airflow_cdc_provider.systems.changelog.reads.ranges import RANGE_OPTIONS, kind_asked, refused

OPTIONS = (
    "path",
    "table",
    "columns",
    "truncates",
    "maxPartitionBytes",
    "maxFilesPerTrigger",
    *RANGE_OPTIONS,
)
_BY_LOWER_CASE = {name.lower(): name for name in OPTIONS}


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What to read of a change log, checked as far as the log is not needed for it."""

    path: Path
    table: TableId
    columns: str = ""
    """The names of the table's columns to read, parted by commas; empty for all."""
    with_truncates: bool = False
    part_bytes: int = PART_BYTES
    max_files: int | None = None
    """The most files of a stream's micro-batch; None for all that are there."""
    ends: Mapping[str, str] = field(default_factory=dict)
    """The options that say from where to where."""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ReadOptions:
        """Read the options; their names may have any case, as Spark's have."""
        named = {_known_name(name): value for name, value in options.items()}
        ends = {name: value for name, value in named.items() if name in RANGE_OPTIONS}
        kind_asked(ends)
        return cls(
            _path(named.get("path", "")),
            _table(named.get("table", "")),
            named.get("columns", "").strip(),
            _with_truncates(named.get("truncates", "fail")),
            _number("maxPartitionBytes", named.get("maxPartitionBytes")) or PART_BYTES,
            _number("maxFilesPerTrigger", named.get("maxFilesPerTrigger")),
            ends,
        )


def _known_name(name: str) -> str:
    """Return an option's name as it is written here; refuse one that is not known."""
    known = _BY_LOWER_CASE.get(name.lower())
    if known is not None:
        return known
    near = difflib.get_close_matches(name.lower(), _BY_LOWER_CASE, 1)
    hint = f"; did you mean {_BY_LOWER_CASE[near[0]]}?" if near else ""
    raise refused(
        f"there is no option {name!r}{hint}", remedy=f"the options are {', '.join(OPTIONS)}"
    )


def _path(text: str) -> Path:
    """Read the change log's folder."""
    path = text.removeprefix("file://")
    if not path.startswith("/"):
        raise refused(
            f"path={text!r} is no absolute path of a folder" if text else "no path is given",
            remedy="give the sink's path, as in .load('/data/changes'); it must be the same on the "
            "driver's machine and on every executor",
        )
    return Path(path)


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
