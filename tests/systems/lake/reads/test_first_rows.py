"""Where a time or a place begins in the order of a table's changes, whatever files these are in."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_cdc_provider.core.errors import RefusedError
from airflow_cdc_provider.systems.changelog.reads.log_places import LogPlace
from airflow_cdc_provider.systems.files.file_store import FileStore
from airflow_cdc_provider.systems.lake.columns import CHANGE_COLUMNS
from airflow_cdc_provider.systems.lake.reads.first_rows import PlaceMark, TimeMark, first_order
from airflow_cdc_provider.systems.lake.reads.table_files import RawFile

READ = range(20, 25)
"""Orders of rows that were read again."""
LATEST = 2_000
Row = tuple[int, int | None, str]
"""The order of a change, its time, and its place."""


def written(root: Path, files: list[list[Row]], *, group_rows: int, with_bounds: bool) -> Any:
    """Write rows to files; return these as a table has them."""
    found = []
    for number, rows in enumerate(files):
        columns = {
            "_order": pa.array([row[0] for row in rows], pa.int64()),
            "_committed_at": pa.array([row[1] for row in rows], CHANGE_COLUMNS["_committed_at"]),
            "_position": pa.array([row[2] for row in rows], pa.string()),
            "_op": pa.array(["r" if row[0] < 0 or row[0] in READ else "u" for row in rows]),
        }
        name, orders = f"{number}.parquet", [row[0] for row in rows]
        pq.write_table(pa.table(columns), root / name, row_group_size=group_rows)
        bounds = (min(orders), max(orders)) if with_bounds else (None, None)
        found.append(RawFile(name, 1, *bounds))
    return found


def mixed(chosen: random.Random) -> list[list[Row]]:
    """Changes with times that go back now and then, in files as others wrote them anew."""
    time, place = 1_000, (1, 4)
    rows: list[Row] = [(-1, chosen.randrange(900, 1_000), "bin.000001:4") for _ in range(3)]
    for order in range(40):
        time += chosen.randrange(-20, 40)
        if chosen.random() < 0.1:
            place = (place[0] + 1, 4)
        place = (place[0], place[1] + chosen.randrange(0, 90))
        told = None if chosen.random() < 0.1 else time
        rows.append((order, told, f"bin.{place[0]:06d}:{place[1]}"))
    chosen.shuffle(rows)
    cuts = sorted(chosen.sample(range(1, len(rows)), 4))
    ends = zip([0, *cuts], [*cuts, len(rows)], strict=True)
    return [rows[first:last] for first, last in ends]


@pytest.mark.parametrize("with_bounds", [True, False])
def test_it_is_the_least_order_of_all_rows_behind_it(with_bounds: bool, tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chosen = random.Random(seed)
    files, store = mixed(chosen), FileStore(tmp_path)
    raw = written(tmp_path, files, group_rows=3, with_bounds=with_bounds)
    rows = [row for file in files for row in file]
    for us in range(880, 2_400, 40):
        later = [
            order
            for order, time, _ in rows
            if time is not None and us <= time <= LATEST and order >= 0 and order not in READ
        ]
        assert first_order(store, raw, TimeMark(us, LATEST)) == min(later, default=None), seed
    for number in range(1, 9):
        for offset in (0, 4, 300, 1_000):
            mark = PlaceMark(LogPlace("bin", number, offset), "here")
            behind = [
                order
                for order, _, text in rows
                if order >= 0 and LogPlace.parse(text).order >= (number, offset)
            ]
            assert first_order(store, raw, mark) == min(behind, default=None), seed


@pytest.mark.parametrize(
    "places",
    [
        ["bin.000002:50", "bin.000001:90"],  # another server's log, which has the same name
        ["bin.000001:50", "bin.000001:40"],
        ["bin.000001:50", "other.000001:60"],
        ["bin.000001:50", "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5"],
        ["bin.000001:50", ""],
    ],
)
def test_places_of_several_servers_are_no_places(places: list[str], tmp_path: Path) -> None:
    rows: list[Row] = [(order, 1, place) for order, place in enumerate(places)]
    raw = written(tmp_path, [rows], group_rows=9, with_bounds=True)
    with pytest.raises(RefusedError, match="from several servers, or without files"):
        first_order(FileStore(tmp_path), raw, PlaceMark(LogPlace("bin", 1, 0), "here"))
