"""From where to where a lake's table is read: versions, times and places become an `_order`.

A range is of an order alone, so it has the same rows in whatever files they are, and ranges that
touch share none. An end counts only if no row before it can come any more: the table has a row at
or behind it, or its log proves that the table has all changes up to there. Else it is refused.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from airflow_cdc_provider.core.errors import SnapshotRequiredError
from airflow_cdc_provider.systems.changelog.reads.log_places import LogPlace
from airflow_cdc_provider.systems.changelog.reads.ranges import (
    LATEST,
    backwards,
    kind_asked,
    microseconds,
    parsed_place,
    refused,
)
from airflow_cdc_provider.systems.lake.columns import SNAPSHOT_ORDER
from airflow_cdc_provider.systems.lake.reads.first_rows import (
    Mark,
    PlaceMark,
    RowsRead,
    TimeMark,
    first_is_void,
    first_order,
    last_read_place,
    rows_read,
    several_servers,
)
from airflow_cdc_provider.systems.lake.reads.lake_table import BEFORE_ALL, LakeTable

_ALWAYS = -(1 << 62)
"""In the place of a time: before all of them."""
_FROM_NOW_US = 3_600_000_000
"""How far behind now a commit time may be: clocks differ by less."""


@dataclass(frozen=True, slots=True)
class OrderRange:
    """The rows behind an `_order`, up to another one."""

    behind: int
    upto: int


def order_range(table: LakeTable, options: Mapping[str, str]) -> OrderRange:
    """Return the range that the options ask for.

    An end that is not there yet, a start that is not kept any more and an end before the start are
    refused.
    """
    kind = kind_asked(options)
    start, end = options.get(f"starting{kind}"), options.get(f"ending{kind}")
    match kind:
        case "Version":
            found = _by_version(table, start, end)
        case "Timestamp":
            found = _by_time(table, start, end)
        case "Position":
            found = _by_place(table, start, end)
        case _:
            return OrderRange(BEFORE_ALL, table.end)
    _require_kept(table, found, has_start=start is not None, is_exact=kind == "Version")
    return found


def stream_start(table: LakeTable, options: Mapping[str, str]) -> int:
    """Return the order behind which a new stream with these options begins."""
    for name in options:
        if name.startswith("ending"):
            raise refused(
                f"a stream has no {name}",
                remedy="leave it out, with trigger(availableNow=True) for what is there now; or "
                "read it once, not as a stream",
            )
    if not options:
        return BEFORE_ALL
    found = min(order_range(table, options).behind, table.end)
    if "startingTimestamp" in options and found == table.end:
        raise refused(
            f"no row of {table.options.table} is of startingTimestamp or later yet, so rows of "
            "before may still come",
            remedy="give startingVersion=latest for what comes from now on, or begin later",
        )
    return found


# --- versions ---------------------------------------------------------------------------------


def _by_version(table: LakeTable, start: str | None, end: str | None) -> OrderRange:
    """Return the rows of the versions from `start` to `end`, both included."""
    low = None if start is None else _version("startingVersion", start)
    high = None if end is None else _version("endingVersion", end)
    if low == LATEST and high == LATEST:
        raise refused("both ends are latest", remedy="leave one out, or give a number")
    for option, version in (("startingVersion", low), ("endingVersion", high)):
        if isinstance(version, int) and version > table.proven:
            raise refused(
                f"{option}={version} does not exist yet: {table.options.table} has all changes up "
                f"to version {table.proven}",
                remedy="give one up to that, or read later: tables follow the log every "
                "commit_seconds; a stream (readStream) goes on by itself",
            )
    if isinstance(low, int) and isinstance(high, int) and high < low:
        raise backwards("endingVersion", high, "startingVersion", low)
    behind = BEFORE_ALL if low is None else table.end if low == LATEST else int(low) - 1
    return OrderRange(behind, table.end if high in (None, LATEST) else min(int(high), table.end))


def _version(option: str, text: str) -> int | str:
    """Read a version, which is an `_order`, or `latest`."""
    plain = text.strip().lower()
    if plain == LATEST:
        return LATEST
    if not plain.isdecimal() and plain != str(SNAPSHOT_ORDER):
        raise refused(
            f"{option}={text!r} is no version",
            remedy="give the whole number of a change, its _order; -1 for the snapshot; or latest",
        )
    return int(plain)


# --- times and places -------------------------------------------------------------------------


def _by_time(table: LakeTable, start: str | None, end: str | None) -> OrderRange:
    """Return the rows from the first one of a time on, and before the first one of another."""
    now_us = time.time_ns() // 1000
    low = None if start is None else microseconds("startingTimestamp", start)
    high = None if end is None else microseconds("endingTimestamp", end)
    for option, text, us in (
        ("startingTimestamp", start, low),
        ("endingTimestamp", end, high),
    ):
        if us is not None and us > now_us:
            raise refused(f"{option}={text} has not come yet", remedy="give a time that is over")
    if low is not None and high is not None and high < low:
        raise backwards("endingTimestamp", end, "startingTimestamp", start)
    latest_us = now_us + _FROM_NOW_US
    first, _ = (None, True) if low is None else _since(table, low, latest_us)
    last, is_over = (None, True) if high is None else _since(table, high, latest_us)
    if not is_over:
        raise refused(
            f"no change of {table.options.table} is of endingTimestamp={end} or later yet, so rows "
            "of before may still come",
            remedy="read it once the table has such a change, or leave the end out; or give "
            "versions",
        )
    return _between(table, first, last, has_start=low is not None)


def _since(table: LakeTable, us: int, latest_us: int) -> tuple[int | None, bool]:
    """Return the first row since a time, and whether no change of before can come any more.

    Rows that were read are of it with the change behind them; those before all changes, such as a
    snapshot's, are since any time that one of them has reached. A change of then or later says that
    all of before is there; or a first snapshot that was begun later.
    """
    change = _first(table, TimeMark(us, latest_us))
    if _first(table, TimeMark(_ALWAYS, latest_us)) != change:
        return change, change is not None
    found = _rows_read(table, change)
    if found is None:
        return change, change is not None
    is_later = found.first == SNAPSHOT_ORDER and us <= found.earliest_us
    return change if found.latest_us < us else found.first, change is not None or is_later


def _rows_read(table: LakeTable, change: int | None) -> RowsRead | None:
    """Return the rows before a table's first change; all if it has none."""
    before = table.end + 1 if change is None else change
    return rows_read(table.options.files, table.files, before)


def _by_place(table: LakeTable, start: str | None, end: str | None) -> OrderRange:
    """Return the rows whose transactions begin at a place or behind it, and before another.

    Without a start the snapshot's rows come first.
    """
    places = table.places
    if not places.is_one_server:
        raise several_servers(table.where)
    low = None if start is None else parsed_place("startingPosition", start)
    high = None if end is None else parsed_place("endingPosition", end)
    if low is not None and high is not None and not low.is_before_or_at(high):
        raise backwards("endingPosition", high, "startingPosition", low)
    if low is not None and places.was_read:
        _require_begun(table, low)
    first = None if low is None else _first_at(table, low, "startingPosition")
    last = None if high is None else _first_at(table, high, "endingPosition")
    return _between(table, first, last, has_start=low is not None)


def _between(
    table: LakeTable, first: int | None, last: int | None, *, has_start: bool
) -> OrderRange:
    """Return the rows from one on and before another; one that is not there is behind all."""
    behind = BEFORE_ALL
    if has_start:
        behind = table.end if first is None else first - 1
    return OrderRange(behind, table.end if last is None else last - 1)


def _first_at(table: LakeTable, place: LogPlace, option: str) -> int | None:
    """Return the first row at a place or behind it; None if all are before it.

    Refuse a place behind which the table has nothing, and up to which it may get more.
    """
    found = _first(table, PlaceMark(place, table.where))
    proven = table.places.proven
    if found is not None or (proven is not None and place.is_before_or_at(proven)):
        return found
    if proven is not None and proven.base != place.base:
        raise refused(
            f"{option}={place} is of another server's log: this one's files are called "
            f"{proven.base}.*",
            remedy=f"give a place up to {proven}",
        )
    upto = f"the log was read up to {proven}" if proven else "the table does not have all of it"
    raise refused(
        f"{option}={place} does not exist yet: {upto}",
        remedy="give a place up to that, or read later: tables follow the log every commit_seconds",
    )


def _require_begun(table: LakeTable, place: LogPlace) -> None:
    """Refuse a start at which changes are in the snapshot's rows alone."""
    begins = table.places.begins or last_read_place(table.options.files, table.files)
    if begins is not None and begins.is_before_or_at(place):
        return
    if begins is not None and begins.base != place.base:
        return  # the rows tell, and say so
    since = f"each is there from {begins} on" if begins else "since when is not known any more"
    raise SnapshotRequiredError(
        f"startingPosition={place} is before the table's first change: {since}",
        where="options of format cdc",
        risk="changes before that are in the snapshot's rows, not as changes; nothing was read",
        remedy="give a later place; or versions; or leave out the start: then the snapshot's rows "
        "come first",
    )


def _first(table: LakeTable, mark: Mark) -> int | None:
    """Return the first row at or behind a mark."""
    found = first_order(table.options.files, table.files, mark)
    return found if found is None or found <= table.end else None


# --- what is kept -----------------------------------------------------------------------------


def _require_kept(table: LakeTable, found: OrderRange, *, has_start: bool, is_exact: bool) -> None:
    """Refuse an end among changes that a table had before all of it was exchanged.

    `is_exact`: the ends are orders themselves; else a lost row may have been the first one.
    """
    first = table.first
    if first is None or first <= SNAPSHOT_ORDER:
        return
    is_lost = has_start and found.behind + (2 if is_exact else 1) <= first
    is_lost |= found.upto < first
    if is_lost and first_is_void(table.options.files, table.files, first):
        raise _not_kept(table, first)


def _not_kept(table: LakeTable, first: int) -> SnapshotRequiredError:
    """Return the error for changes of before the table was exchanged."""
    return SnapshotRequiredError(
        f"{table.options.table} has no changes of before version {first} any more: it began again "
        "with other columns or partitions",
        where=table.where,
        risk="changes in between would be missing; nothing was read",
        remedy=f"give a startingVersion from {first} on; its rows from there are all that it had "
        "then",
    )
