"""From where to where a change log is read: what a reader asks for, and the files that hold it.

Three kinds of ends, never mixed. Versions: both are included. Times and places in the source's log:
the start is included, the end is not, so that ranges that touch share no row.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Mapping
from dataclasses import dataclass

from airflow_cdc_provider.core.errors import NOTHING_STARTED, RefusedError, SnapshotRequiredError
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.systems.changelog.reads.commits import (
    CommittedFile,
    TableCommits,
    require_place,
)
from airflow_cdc_provider.systems.changelog.reads.log_places import LogPlace

LATEST = "latest"
_KINDS = ("Version", "Timestamp", "Position")
RANGE_OPTIONS = tuple(f"{end}{kind}" for kind in _KINDS for end in ("starting", "ending"))
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True, slots=True)
class FileRange:
    """Some of a table's files, one behind the other, and the places to cut them at."""

    first: int
    """The number of files before the range."""
    behind: int
    """The number of files up to the end of the range."""
    start: LogPlace | None = None
    """Changes before this place are left out."""
    end: LogPlace | None = None
    """Changes from this place on are left out."""


def kind_asked(options: Mapping[str, str]) -> str:
    """Return the kind of ends that are given, empty for none; refuse two kinds at once."""
    given = [name for name in RANGE_OPTIONS if name in options]
    kinds = sorted({name.removeprefix("starting").removeprefix("ending") for name in given})
    if len(kinds) > 1:
        raise refused(
            f"{' and '.join(given)} are of two kinds",
            remedy="give versions, times or positions, the same kind for both ends",
        )
    return "".join(kinds)


def file_range(commits: TableCommits, options: Mapping[str, str]) -> FileRange:
    """Return the files that hold what the options ask for.

    An end that is not there yet, a start that is not kept any more and an end before the start are
    refused.
    """
    kind = kind_asked(options)
    start, end = options.get(f"starting{kind}"), options.get(f"ending{kind}")
    match kind:
        case "Version":
            return _by_version(commits, start, end)
        case "Timestamp":
            return _by_time(commits, start, end)
        case "Position":
            return _by_place(commits, start, end)
        case _:
            return FileRange(0, len(commits.files))


def refused(what: str, *, remedy: str) -> RefusedError:
    """Return the error for options that cannot be obeyed."""
    return RefusedError(what, where="options of format cdc", risk=NOTHING_STARTED, remedy=remedy)


# --- versions ---------------------------------------------------------------------------------


def _by_version(commits: TableCommits, start: str | None, end: str | None) -> FileRange:
    """Return the files of the versions from `start` to `end`, both included."""
    versions = [each.version for each in commits.files]
    first, behind = 0, len(versions)
    low = None if start is None else _version("startingVersion", start)
    high = None if end is None else _version("endingVersion", end)
    if low == LATEST:
        first = behind
    elif isinstance(low, int):
        if commits.has_former_log and low < commits.first_version:
            raise _not_kept(f"version {low}", commits, f"version {commits.first_version}")
        _require_there(low, commits, "startingVersion")
        first = sum(each < low for each in versions)
    if isinstance(high, int):
        _require_there(high, commits, "endingVersion")
        if isinstance(low, int) and high < low:
            raise backwards("endingVersion", high, "startingVersion", low)
        if high < commits.first_version:
            raise _not_kept(f"version {high}", commits, f"version {commits.first_version}")
        behind = sum(each <= high for each in versions)
    elif high == LATEST and low == LATEST:
        raise refused("both ends are latest", remedy="leave one out, or give a number")
    return FileRange(first, max(first, behind))


def _version(option: str, text: str) -> int | str:
    """Read a version, or `latest`."""
    if text.strip().lower() == LATEST:
        return LATEST
    if not text.strip().isdecimal():
        raise refused(
            f"{option}={text!r} is no version",
            remedy="give the whole number of a commit, or latest",
        )
    return int(text)


def _require_there(version: int, commits: TableCommits, option: str) -> None:
    """Refuse a version that the log does not have yet."""
    if version > commits.last_version:
        raise refused(
            f"{option}={version} does not exist yet: the last version is {commits.last_version}",
            remedy="give one up to that; a stream (readStream) goes on by itself as versions come",
        )


# --- times ------------------------------------------------------------------------------------


def _by_time(commits: TableCommits, start: str | None, end: str | None) -> FileRange:
    """Return the files of the commits from a time on, and before another."""
    times = [each.committed_us for each in commits.files]
    first, behind = 0, len(times)
    now_us = time.time_ns() // 1000
    low = None if start is None else microseconds("startingTimestamp", start)
    high = None if end is None else microseconds("endingTimestamp", end)
    if low is not None:
        if commits.has_former_log and low < commits.first_us:
            raise _not_kept(f"before {start}", commits, _time_text(commits.first_us))
        if low > now_us:
            raise refused(
                f"startingTimestamp={start} has not come yet", remedy="give a time that is over"
            )
        first = sum(each < low for each in times)
    if high is not None:
        if low is not None and high < low:
            raise backwards("endingTimestamp", end, "startingTimestamp", start)
        if high > now_us:
            raise refused(
                f"endingTimestamp={end} has not come yet: commits before it may still be made",
                remedy="give a time that is over, or leave it out",
            )
        if high < commits.first_us:
            raise _not_kept(f"before {end}", commits, _time_text(commits.first_us))
        behind = sum(each < high for each in times)
    return FileRange(first, max(first, behind))


def microseconds(option: str, text: str) -> int:
    """Read a time with its zone as microseconds since the epoch."""
    try:
        moment = dt.datetime.fromisoformat(text.strip())
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise refused(
            f"{option}={text!r} is no time with a zone",
            remedy="write it as 2026-02-01T00:00:00+00:00 or 2026-02-01T00:00:00Z",
        )
    return (moment - _EPOCH) // dt.timedelta(microseconds=1)


def _time_text(microseconds: int) -> str:
    """Return a time as text in UTC."""
    return (_EPOCH + dt.timedelta(microseconds=microseconds)).isoformat()


# --- places in the source's log ---------------------------------------------------------------


def _by_place(commits: TableCommits, start: str | None, end: str | None) -> FileRange:
    """Return the files of changes from a place on, and before another.

    Without a start the rows of the snapshot come before the changes.
    """
    if commits.begin is None or commits.end is None:
        raise refused(
            "the snapshot is not finished, so the log has no changes yet",
            remedy="wait until the pipeline's tables are handed off to its stream",
        )
    begins, ends = require_place(commits, commits.begin), require_place(commits, commits.end)
    low = None if start is None else _place("startingPosition", start, begins, ends)
    high = None if end is None else _place("endingPosition", end, begins, ends)
    if low is not None and high is not None and not low.is_before_or_at(high):
        raise backwards("endingPosition", high, "startingPosition", low)
    first, behind = 0, len(commits.files)
    if low is not None:
        first = sum(each.is_snapshot or _is_before(each, low) for each in commits.files)
    if high is not None:
        behind = sum(each.is_snapshot or not _is_from(each.begin, high) for each in commits.files)
    return FileRange(first, max(first, behind), low, high)


def parsed_place(option: str, text: str) -> LogPlace:
    """Read a place of the source's log."""
    try:
        return LogPlace.parse(text)
    except ValueError as error:
        raise refused(
            f"{option}: {error}",
            remedy="give the file and the offset of the source's log; the position of an asset's "
            "event begins with them, and _commit_position has them",
        ) from None


def _place(option: str, text: str, begins: LogPlace, ends: LogPlace) -> LogPlace:
    """Read a place, which must be in the log that was read."""
    place = parsed_place(option, text)
    if place.base != begins.base:
        raise refused(
            f"{option}={place} is of another server's log: this one's files are called "
            f"{begins.base}.*",
            remedy=f"give a place between {begins} and {ends}",
        )
    if not begins.is_before_or_at(place):
        raise SnapshotRequiredError(
            f"{option}={place} is before the log's first change: it begins at {begins}",
            where="options of format cdc",
            risk="changes before that are in the snapshot's rows, not as changes; nothing was read",
            remedy=f"give a place between {begins} and {ends}, or leave out the start: then the "
            "snapshot's rows come first",
        )
    if not place.is_before_or_at(ends):
        raise refused(
            f"{option}={place} does not exist yet: the log was read up to {ends}",
            remedy="give a place up to that, or read again later",
        )
    return place


def _is_before(file: CommittedFile, place: LogPlace) -> bool:
    """Tell whether a file's changes are all before a place; rows that joined are at theirs."""
    end = LogPlace.parse(_text(file.end))
    return end.is_before_or_at(place) and not (file.is_joined and place.is_before_or_at(end))


def _is_from(position: LogPosition, place: LogPlace) -> bool:
    """Tell whether a position is at a place or behind it."""
    return place.is_before_or_at(LogPlace.parse(_text(position)))


def _text(position: LogPosition) -> str:
    """Return the file and offset of a position."""
    facts = position.facts()
    return f"{facts['file']}:{facts['pos']}"


# --- errors -----------------------------------------------------------------------------------


def _not_kept(wanted: str, commits: TableCommits, oldest: str) -> SnapshotRequiredError:
    """Return the error for a start in a former log."""
    return SnapshotRequiredError(
        f"the log of {wanted} is not kept any more: `reset` began it anew with {oldest}",
        where=str(commits.root),
        risk="what changed in between is in no file; nothing was read",
        remedy="read the log from its start: without a start, the snapshot's rows come first",
    )


def backwards(end: str, last: object, start: str, first: object) -> RefusedError:
    """Return the error for an end that is before the start."""
    return refused(
        f"{end}={last} is before {start}={first}", remedy="give an end at or behind the start"
    )
