"""Cut a table's key space into splits that cover every key exactly once.

The planner only decides; the source is asked for boundaries. Boundaries are strictly increasing in
the server's own order, so n boundaries make n + 1 half-open splits, the first and the last open-
ended. Even steps over an integer key are used only when a real probe of the index says the keys are
dense (estimates are never trusted); else each boundary is the key found `split_rows` further on in
the index, over the whole primary key, or about there: where the key's first column is an integer
and runs on as fast behind a split as at its beginning.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.keys import Key, KeyKinds, KeyRange
from airflow_cdc_provider.core.splits import SnapshotSplit

DENSE_ENOUGH = 0.5
"""The share of an integer range that must hold keys, in every probed part, for even steps."""
TELLING_SPAN = 16
"""How far a column must run for its pace to tell anything."""
LARGEST_NUMBER = (1 << 63) - 1
"""All integer types of the servers but one end here or before."""


@dataclass(frozen=True, slots=True)
class DensityProbe:
    """The rows counted in one sampled range `[first, last]` of an integer key."""

    first: int
    last: int
    rows: int

    @property
    def density(self) -> float:
        """Return rows per key value."""
        return self.rows / (self.last - self.first + 1)


def even_step(split_rows: int, probes: Iterable[DensityProbe]) -> int | None:
    """Return the distance between even split boundaries if the keys are dense, else None.

    A step is widened by the smallest probed density, so a split holds about `split_rows` rows.
    """
    densities = [probe.density for probe in probes]
    if not densities or min(densities) < DENSE_ENOUGH:
        return None
    return max(1, int(split_rows / min(1.0, *densities)))


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive rows of an index: the first column's values at both ends, and their count."""

    first: int
    last: int
    rows: int

    def after(self, rows: int) -> int | None:
        """Estimate the first column's value `rows` further on, if it grows as it does here.

        None if there is no estimate: it takes too few values, or would exceed the largest number.
        """
        span = self.last - self.first
        reached = self.first + span * rows // self.rows
        return reached if span >= TELLING_SPAN and reached <= LARGEST_NUMBER else None

    def resembles(self, other: Stretch) -> bool:
        """Tell whether the column grows about as fast in both, by a factor of two."""
        mine, others = (self.last - self.first) * other.rows, (other.last - other.first) * self.rows
        return max(mine, others) <= 2 * min(mine, others)


def splits_between(
    table: TableId,
    key_columns: tuple[str, ...],
    key_kinds: KeyKinds,
    boundaries: Iterable[Key],
    *,
    first_number: int = 0,
    start: Key | None = None,
) -> Iterator[SnapshotSplit]:
    """Yield the splits between boundaries, each as soon as its end is known.

    `first_number` and `start` resume a plan that was stored up to there.
    """
    number = first_number
    for bound in boundaries:
        if start is not None and bound == start:
            raise ValueError(f"boundaries of {table} do not increase: {bound!r} came twice")
        yield SnapshotSplit(table, number, key_columns, key_kinds, KeyRange(start, bound))
        number, start = number + 1, bound
    yield SnapshotSplit(table, number, key_columns, key_kinds, KeyRange(start, None))


def cut_in_two(
    split: SnapshotSplit, middle: Key, *, next_number: int
) -> tuple[SnapshotSplit, SnapshotSplit]:
    """Cut a split in two at `middle`, a key strictly inside it."""
    if middle in (split.keys.start, split.keys.end):
        raise ValueError(f"{split.split_id} cannot be cut at its own end {middle!r}")
    halves = (KeyRange(split.keys.start, middle), KeyRange(middle, split.keys.end))
    left, right = (
        SnapshotSplit(split.table, next_number + i, split.key_columns, split.key_kinds, keys)
        for i, keys in enumerate(halves)
    )
    return left, right
