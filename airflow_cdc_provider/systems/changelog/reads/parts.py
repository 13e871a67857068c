"""The files of a range as parts of about one size, each for one task.

Small files are put together, for a log that is followed has a file for each commit. A large file is
cut between its row groups.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from airflow_cdc_provider.systems.changelog.reads.change_rows import FilePart, open_file
from airflow_cdc_provider.systems.changelog.reads.commits import (
    CommittedFile,
    TableCommits,
    require_place,
)
from airflow_cdc_provider.systems.changelog.reads.log_places import place_of
from airflow_cdc_provider.systems.changelog.reads.ranges import FileRange

PART_BYTES = 32 * 1024 * 1024
"""The size of files, as they are stored, that one task reads if nothing else is said."""


def parts_of(
    commits: TableCommits, chosen: FileRange, *, part_bytes: int = PART_BYTES
) -> list[tuple[FilePart, ...]]:
    """Return the parts of a range in the order of the log, each for one task."""
    parts: list[tuple[FilePart, ...]] = []
    small: list[FilePart] = []
    size = 0
    for each in commits.files[chosen.first : chosen.behind]:
        part = _whole(commits, each, chosen)
        if each.file.bytes > part_bytes:
            pieces = list(_cut(part, each.file.bytes, part_bytes))
            parts += [tuple(small)] if small else []
            parts += [(piece,) for piece in pieces]
            small, size = [], 0
            continue
        if small and size + each.file.bytes > part_bytes:
            parts.append(tuple(small))
            small, size = [], 0
        small.append(part)
        size += each.file.bytes
    return [*parts, tuple(small)] if small else parts


def _whole(commits: TableCommits, each: CommittedFile, chosen: FileRange) -> FilePart:
    """Return a whole file as one part, with the places to cut it at where they are inside."""
    place = place_of(each.end)
    part = FilePart(
        store=commits.root,
        name=each.file.path,
        file_rows=each.file.rows,
        groups=None,
        first_row=each.first_row,
        version=each.version,
        committed_us=each.committed_us,
        position=str(each.end.short if place is None else place),
    )
    if each.is_snapshot or (chosen.start is None and chosen.end is None):
        return part
    begin, end = require_place(commits, each.begin), require_place(commits, each.end)
    start = None if chosen.start is None or chosen.start.is_before_or_at(begin) else chosen.start
    stop = None if chosen.end is None or end.is_before_or_at(chosen.end) else chosen.end
    if start is None and stop is None:
        return part
    return replace(part, begin=begin, start=start, end=stop)


def _cut(part: FilePart, size: int, part_bytes: int) -> Iterator[FilePart]:
    """Yield the pieces of a large file, each of whole row groups."""
    with open_file(part.store, part.name) as file:
        groups = [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)]
    wanted_rows = max(1, part.file_rows * part_bytes // size)
    first, first_row, rows = 0, part.first_row, 0
    for number, count in enumerate(groups):
        rows += count
        if rows >= wanted_rows or number == len(groups) - 1:
            yield replace(part, groups=(first, number + 1), first_row=first_row)
            first, first_row, rows = number + 1, first_row + rows, 0
