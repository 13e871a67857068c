"""What a day of commits leaves of a lake's table: each minute one, made as fast as can be.

`make bench ONLY=day`: 1,440 commits of 100 changes, for each format and mode. At each quarter of a
day is told what a commit takes (CPU seconds), what it takes to read the whole table by the format's
library, how many files the table has and how many are on the disk, and the memory of the process.
Nothing should grow but the rows. Snapshots of Iceberg expire by their number alone: in a day that
lasts minutes none is an hour old.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
from deltalake import DeltaTable

from tests.behaviours.sink_world import Change, delete, insert, update
from tests.systems.lake.damage import catalog_of
from tests.systems.lake.reading import table_of
from tests.systems.lake.steps import begun, keep_snapshots, published
from tests.systems.lake.world import FORMATS, LakeWorld

COMMITS, CHANGES = 1_440, 100
_QUARTERS = 4
_SEED = 12


@dataclass(frozen=True, slots=True)
class Found:
    """How a table is at one time of the day."""

    kind: str
    commits: int
    commit_s: float
    read_s: float
    files: int
    on_disk: int
    memory_mb: int
    rows: int


def measured() -> Iterator[Found]:
    """Yield what was measured, each kind of table after the other."""
    for form in FORMATS:
        for mirror_mb in (0, 8192):
            with tempfile.TemporaryDirectory() as folder:
                yield from _day(LakeWorld(root=Path(folder), form=form, mirror_mb=mirror_mb))


def lines(found: Iterator[Found]) -> Iterator[str]:
    """Yield the lines that are printed."""
    yield f"a day: {COMMITS:,} commits of {CHANGES} changes, seed {_SEED}"
    for each in found:
        yield (
            f"{each.kind:14} {each.commits:5,} commits: a commit {each.commit_s * 1000:4.0f} ms, "
            f"read {each.read_s * 1000:4.0f} ms, {each.files} files, {each.on_disk} on the disk, "
            f"{each.memory_mb} MB, {each.rows:,} rows"
        )


def _day(world: LakeWorld) -> Iterator[Found]:
    """Yield how a table is after each quarter of its day."""
    dice, held = random.Random(_SEED), dict[int, str]()
    begun(world)
    world.lake.publish_tables()
    if world.form == "iceberg":
        keep_snapshots(world, 100)
    for quarter in range(_QUARTERS):
        spent = 0.0
        for number in range(COMMITS // _QUARTERS):
            commit = quarter * (COMMITS // _QUARTERS) + number
            changes = list(_changes(held, dice, commit))
            world.changes().apply(world.batch(changes, start=100 + 10 * commit))
            before = time.process_time()
            world.lake.publish_tables()
            spent += time.process_time() - before
        yield _found(world, (quarter + 1) * (COMMITS // _QUARTERS), spent)
    if dict(published(world)) != held:
        raise SystemExit(f"rows were lost or doubled: {world.form}")


def _changes(held: dict[int, str], dice: random.Random, commit: int) -> Iterator[Change]:
    """Yield the changes of one commit: mostly new keys, and some that came lately."""
    for number in range(CHANGES):
        key, now = commit * CHANGES + number, f"note {commit}"
        recent = max(0, key - dice.randrange(1, 2_000))
        if number % 4 or recent not in held:
            held[key] = now
            yield insert(key, now)
        elif number % 8:
            yield update((recent, held[recent]), (recent, now))
            held[recent] = now
        else:
            yield delete(recent, held.pop(recent))


def _found(world: LakeWorld, commits: int, spent: float) -> Found:
    """Return how a table is now."""
    before = time.perf_counter()
    rows = table_of(world.form, world.root, "shop.orders").num_rows
    read_s = time.perf_counter() - before
    folder = world.root / "shop.orders"
    if world.form == "delta":
        files = len(DeltaTable(str(folder)).file_uris())
    else:
        files = len(list(catalog_of(world.root).load_table(("shop", "orders")).scan().plan_files()))
    return Found(
        f"{world.form} {'mirror' if world.mirror_mb else 'append'}",
        commits,
        spent * _QUARTERS / COMMITS,
        read_s,
        files,
        len(list(folder.glob("*.parquet"))),
        psutil.Process().memory_info().rss // (1024 * 1024),
        rows,
    )
