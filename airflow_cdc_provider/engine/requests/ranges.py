"""What is left to read of ranges that are read again, split by split, from the first's start on.

The ranges of a request are read one after the other, so what is in the sink already is their
beginning: a new owner goes on at the end of the last one. Ends are only compared for being equal,
or by kinds that code may compare, so this holds for texts too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from airflow_cdc_provider.core.errors import IntegrityError
from airflow_cdc_provider.core.keys import Key, KeyRange
from airflow_cdc_provider.core.split_planner import splits_between
from airflow_cdc_provider.core.splits import SnapshotSplit
from airflow_cdc_provider.core.table_schema import TableSchema


def left_of(ranges: Sequence[KeyRange], joined: Sequence[SnapshotSplit]) -> tuple[KeyRange, ...]:
    """Return what is still to read of key ranges: the parts after their joined splits."""
    left = deque(ranges)
    for split in sorted(joined, key=lambda split: split.number):
        if not left or split.keys.start != left[0].start:
            raise _torn(split, left[0].start if left else None)
        keys, reached = left.popleft(), split.keys.end
        if reached not in (None, keys.end):
            left.appendleft(KeyRange(reached, keys.end))
    return tuple(left)


def next_number(joined: Sequence[SnapshotSplit]) -> int:
    """Return the number of the first split that is still to be read."""
    return max((split.number for split in joined), default=-1) + 1


def splits_of(
    schema: TableSchema, keys: KeyRange, cuts: Iterable[Key], *, number: int = 0
) -> Iterator[SnapshotSplit]:
    """Cut a range into splits at the boundaries inside it; `number` is the first split's."""
    splits = splits_between(
        schema.table,
        schema.primary_key,
        schema.key_kinds,
        inside(cuts, keys),
        first_number=number,
        start=keys.start,
    )
    for split in splits:
        is_last = split.keys.end is None
        yield replace(split, keys=KeyRange(split.keys.start, keys.end)) if is_last else split


def inside(cuts: Iterable[Key], keys: KeyRange) -> Iterator[Key]:
    """Yield the boundaries that come before a range's end.

    Keys of a range that has an end are comparable.
    """
    for cut in cuts:
        if keys.end is not None and not KeyRange(end=keys.end).contains(cut):
            return
        yield cut


def _torn(split: SnapshotSplit, reached: Key | None) -> IntegrityError:
    """Return the error for splits of a request that do not follow each other."""
    return IntegrityError(
        f"the splits of a request do not follow each other: {split.split_id} {split.keys} is not "
        f"at {reached}",
        where="ledger of the sink",
        risk="rows in between would be taken for read",
        remedy="cancel the request and ask for it under another id; report this",
    )
