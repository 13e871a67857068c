"""What is left to read of a range that is read again, split by split, from its start to its end.

The ranges of a request are read one after the other, so what is in the sink already is their
beginning: a new owner goes on at the end of the last one. Ends are only compared for being equal,
or by kinds that code may compare, so this holds for texts too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from airflow_cdc_provider.core.errors import IntegrityError
from airflow_cdc_provider.core.keys import Key, KeyRange
from airflow_cdc_provider.core.split_planner import splits_between
from airflow_cdc_provider.core.splits import SnapshotSplit
from airflow_cdc_provider.core.table_schema import TableSchema


@dataclass(frozen=True, slots=True)
class Left:
    """What of a range is left to read."""

    keys: KeyRange
    number: int
    """The first split's."""


def left_of(keys: KeyRange, joined: Sequence[SnapshotSplit]) -> Left | None:
    """Return what is left of a range behind its splits that are in the sink; None for nothing."""
    if not joined:
        return Left(keys, 0)
    ordered = sorted(joined, key=lambda split: split.number)
    reached = keys.start
    for split in ordered:
        if split.keys.start != reached:
            raise _torn(split, reached)
        reached = split.keys.end
        if reached is None or reached == keys.end:
            return None
    return Left(KeyRange(reached, keys.end), ordered[-1].number + 1)


def splits_of(schema: TableSchema, left: Left, cuts: Iterable[Key]) -> Iterator[SnapshotSplit]:
    """Cut what is left at the boundaries that lie in it."""
    splits = splits_between(
        schema.table,
        schema.primary_key,
        schema.key_kinds,
        inside(cuts, left.keys),
        first_number=left.number,
        start=left.keys.start,
    )
    for split in splits:
        is_last = split.keys.end is None
        yield replace(split, keys=KeyRange(split.keys.start, left.keys.end)) if is_last else split


def inside(cuts: Iterable[Key], keys: KeyRange) -> Iterator[Key]:
    """Yield the boundaries before a range's end; its keys are comparable if it has one."""
    for cut in cuts:
        if keys.end is not None and not KeyRange(end=keys.end).contains(cut):
            return
        yield cut


def _torn(split: SnapshotSplit, reached: Key | None) -> IntegrityError:
    return IntegrityError(
        f"the splits of a request do not follow each other: {split.split_id} {split.keys} is not "
        f"at {reached}",
        where="ledger of the sink",
        risk="rows in between would be taken for read",
        remedy="cancel the request and ask for it under another id; report this",
    )
