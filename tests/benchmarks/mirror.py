"""What it costs to keep the current rows of a lake's table, and what MERGE of delta-rs costs.

`make bench ONLY=mirror`: a table of Delta with a million rows in twenty files. Each commit brings
changes of one shape: rows with new keys at the table's end, changed rows that are near each other,
or changed rows all over the table. Ours publishes them from the log's files; delta-rs merges the
same rows, which are in memory already, into a table of its own with the same files. What is told
are CPU seconds for a commit, and the files that the tables have at the end.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from airflow_cdc_provider.core.splits import FinishedSplit
from airflow_cdc_provider.core.stream_split import hand_off
from tests.behaviours.sink_world import Change, insert, update
from tests.systems.lake.reading import table_of
from tests.systems.lake.world import LakeWorld

ROWS, FILES, COMMITS, CHANGES = 1_000_000, 20, 8, 2_000
_SIZE = ROWS // FILES
_SEED = 11


@dataclass(frozen=True, slots=True)
class Found:
    """One shape of changes, kept by one of both."""

    shape: str
    by: str
    cpu_s: float
    """Of one commit."""
    files: int


def measured() -> Iterator[Found]:
    """Yield what was measured, each shape after the other."""
    rows = [(key, f"note {key} {key * 7919 % 1_000_003}") for key in range(ROWS)]
    for shape, chosen in _SHAPES.items():
        with tempfile.TemporaryDirectory() as folder:
            yield from _of_shape(shape, chosen, rows, Path(folder))


def lines(found: Iterator[Found]) -> Iterator[str]:
    """Yield the lines that are printed."""
    yield f"mirror: {ROWS:,} rows, {COMMITS} commits of {CHANGES:,} changes, seed {_SEED}"
    before: Found | None = None
    for each in found:
        ratio = "" if before is None else f"  x{each.cpu_s / before.cpu_s:.1f}"
        before = each if before is None else None
        yield f"{each.shape:22} {each.by:9} {each.cpu_s:6.2f} CPU s, {each.files} files{ratio}"


def _of_shape(
    shape: str,
    chosen: Callable[[random.Random, int], Sequence[int]],
    rows: Sequence[tuple[int, str]],
    folder: Path,
) -> Iterator[Found]:
    """Yield what both cost for one shape, and require that both have the same rows then."""
    world = _begun(folder / "ours", rows)
    theirs = str(folder / "theirs")
    for start in range(0, ROWS, _SIZE):
        write_deltalake(theirs, _table(rows[start : start + _SIZE]), mode="append")
    dice, ours_s, merged_s = random.Random(_SEED), 0.0, 0.0
    held = dict(rows)
    for number in range(COMMITS):
        keys = chosen(dice, number)
        changes: list[Change] = []
        for key in keys:
            now = f"changed {number}"
            changes.append(
                update((key, held[key]), (key, now)) if key in held else insert(key, now)
            )
            held[key] = now
        world.changes().apply(world.batch(changes, start=100 + 10 * number))
        ours_s += _cpu(world.lake.publish_tables)
        source = _table([(key, held[key]) for key in keys])
        merged_s += _cpu(partial(_merge, theirs, source))
    mine = table_of("delta", world.root, "shop.orders").select(["id", "name"]).sort_by("id")
    if not mine.equals(DeltaTable(theirs).to_pyarrow_table().cast(mine.schema).sort_by("id")):
        raise SystemExit(f"the tables differ: {shape}")
    ours = DeltaTable(str(world.root / "shop.orders"))
    yield Found(shape, "ours", ours_s / COMMITS, len(ours.file_uris()))
    yield Found(shape, "delta-rs", merged_s / COMMITS, len(DeltaTable(theirs).file_uris()))


def _begun(root: Path, rows: Sequence[tuple[int, str]]) -> LakeWorld:
    """Hand a table off, and publish it."""
    world = LakeWorld(root=root, form="delta", mirror_mb=8192)
    world.opened(world.sink.open_targets()).claim((world.orders, world.seats))
    world.ledger.start_plan("one")
    splits, finished = world.splits(), []
    for number, start in enumerate(range(0, ROWS, _SIZE)):
        split = world.split(number, start or None, None if start + _SIZE == ROWS else start + _SIZE)
        report = world.publish(splits, split, *rows[start : start + _SIZE])
        finished.append(FinishedSplit.of(split, report, backfilled=True))
    seats = world.split(of="seats")
    finished.append(FinishedSplit.of(seats, world.publish(splits, seats), backfilled=True))
    world.ledger.store_stream(hand_off(finished))
    world.lake.publish_tables()
    return world


def _merge(folder: str, rows: pa.Table) -> None:
    """Put rows into a table with delta-rs, in the place of those with the same key."""
    merge = DeltaTable(folder).merge(rows, "t.id = s.id", source_alias="s", target_alias="t")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()


def _table(rows: Sequence[tuple[int, str]]) -> pa.Table:
    """Return rows as columns."""
    keys, names = zip(*rows, strict=True)
    return pa.table({"id": pa.array(keys, pa.int32()), "name": pa.array(names)})


def _cpu(work: Callable[[], object]) -> float:
    """Return the CPU seconds that work takes, of all threads."""
    before = time.process_time()
    work()
    return time.process_time() - before


_SHAPES: dict[str, Callable[[random.Random, int], Sequence[int]]] = {
    "new keys": lambda _, n: range(ROWS + n * CHANGES, ROWS + (n + 1) * CHANGES),
    "keys near each other": lambda _, n: range(300_000 + n * 500, 300_000 + n * 500 + CHANGES),
    "keys all over": lambda dice, _: dice.sample(range(ROWS), CHANGES),
}
