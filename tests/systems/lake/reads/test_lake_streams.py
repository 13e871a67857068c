"""Where a stream of a lake's table has read up to: each row once, whatever becomes of the table."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from airflow_cdc_provider.core.errors import CdcError, RefusedError, SnapshotRequiredError
from airflow_cdc_provider.systems.changelog.reads.options import ReadOptions
from airflow_cdc_provider.systems.file_log.state import LogState
from airflow_cdc_provider.systems.lake import compacting
from airflow_cdc_provider.systems.lake.reads import lake_changes
from airflow_cdc_provider.systems.lake.reads.lake_table import LakeTable, load_table
from tests.behaviours.sink_join_behaviours import join
from tests.behaviours.sink_world import delete, insert, update, worlds
from tests.behaviours.source_log import at
from tests.systems.lake.damage import catalog_of
from tests.systems.lake.reads.made_lakes import MadeLake, rows_of_range
from tests.systems.lake.steps import again_by, set_back
from tests.systems.lake.world import FORMATS


@pytest.fixture(params=FORMATS)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MadeLake]:
    yield from worlds(MadeLake(root=tmp_path / "lake", form=request.param))


@dataclass
class Followed:
    """A stream of a lake's table, as Spark drives it: offsets are stored before rows are read."""

    lake: MadeLake
    options: dict[str, Any] = field(default_factory=dict)
    batches: list[tuple[str, str, list[dict[str, Any]]]] = field(default_factory=list)
    """The offsets of each micro-batch, as they are stored, and its rows."""

    def __post_init__(self) -> None:
        self.changes = self.lake.reading(truncates="rows", **self.options)
        self.place = json.dumps(self.changes.initial())

    def restart(self) -> None:
        """Go on as another process."""
        self.changes = self.lake.reading(truncates="rows", **self.options)

    def go_on(self, most_files: int | None = None) -> int:
        """Read one micro-batch; return how many rows it has."""
        start = json.loads(self.place)
        end = self.changes.behind(start, most_files=most_files, last=None)
        if end == start:
            return 0
        rows = self.between(self.place, json.dumps(end))
        self.batches.append((self.place, json.dumps(end), rows))
        self.place = json.dumps(end)
        return len(rows)

    def between(self, start: str, end: str) -> list[dict[str, Any]]:
        """The rows between two stored offsets."""
        chosen = self.changes.between(json.loads(start), json.loads(end))
        return rows_of_range(chosen, self.changes.columns())

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [row for _, _, rows in self.batches for row in rows]


def test_no_commit_adds_a_row_at_or_below_one_that_was_there_and_a_stream_has_each_once(
    lake: MadeLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chosen = random.Random(seed)
    monkeypatch.setattr(compacting, "_MOST", 3)
    lake.begin((1, "a"), (12, "b"))
    stream = Followed(lake)
    keys = iter(range(100, 1_000))

    def again() -> None:
        lake.begin_again((2, str(next(keys))), (13, "m"))

    steps: list[Callable[[], None]] = [
        lambda: lake.commit([insert(next(keys), "x")], [insert(next(keys), "y")]),
        lambda: lake.log_changes([insert(next(keys), "z")]),
        lambda: lake.commit([insert(next(keys), 1)], table="seats"),
        lambda: lake.resync((12, str(next(keys))), (15, "r")),
        lake.truncate,
        again,
        lake.publish_tables,
    ]
    for step in [*chosen.sample(steps, len(steps)), *chosen.choices(steps, k=5)]:
        before = [row["_commit_version"] for row in lake.expected()]
        step()
        after = [row["_commit_version"] for row in lake.expected()]
        assert after[: len(before)] == before, seed
        assert after[len(before) :] == sorted({*after[len(before) :]} - {*before}), seed
        if chosen.random() < 0.3:
            stream.restart()
        if chosen.random() < 0.6:
            stream.go_on(chosen.choice([None, 1, 2]))
    while stream.go_on(1):
        pass
    assert stream.rows == lake.expected(), seed
    for start, end, rows in stream.batches:
        assert stream.between(start, end) == rows, seed


@pytest.mark.parametrize(("most", "found"), [(1, [3, 1, 2, 1]), (2, [4, 3]), (9, [7]), (None, [7])])
def test_a_micro_batch_has_at_most_so_many_files_and_the_snapshot_whole(
    lake: MadeLake, most: int | None, found: list[int]
) -> None:
    lake.begin((1, "a"), (2, "b"), (3, "c"))
    lake.commit([insert(4, "x")])
    lake.commit([insert(5, "x")], [insert(6, "x")])
    lake.commit([insert(7, "x")])
    stream = Followed(lake)
    while stream.go_on(most):
        pass
    assert [len(rows) for _, _, rows in stream.batches] == found
    assert stream.rows == lake.expected()


def test_a_table_is_loaded_again_only_once_it_was_committed_to(
    lake: MadeLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.begin((1, "a"))
    stream = Followed(lake)
    stream.go_on()
    loads: list[LogState] = []

    def loaded(options: ReadOptions, state: LogState) -> LakeTable:
        loads.append(state)
        return load_table(options, state)

    monkeypatch.setattr(lake_changes, "load_table", loaded)
    for key in range(10, 15):
        lake.log_changes([insert(key, "x")])
        assert stream.go_on() == 0
    assert loads == []
    lake.publish_tables()
    assert stream.go_on() == 5
    assert len(loads) == 2  # once to see how far it is, once to read its files


def test_an_added_table_comes_once(lake: MadeLake) -> None:
    lake.ledger.store_stream(lake.hand_off("seats"))
    lake.publish_tables()
    lake.ledger.change_tables(added={lake.orders.schema.table: at(100)})
    sink = lake.opened(lake.lake.open_joins())
    join(lake, sink, lake.split(0, None, 10), (1, "a"))
    lake.publish_tables()
    with pytest.raises(RefusedError, match=r"shop\.orders has no row of the log yet"):
        Followed(lake)
    lake.log_changes([insert(2, "b")], [insert(14, "left out")])
    join(lake, sink, lake.split(1, 10, None), (12, "l"), high=lake.next_place)
    lake.ledger.change_tables(read=[lake.orders.schema.table])
    lake.publish_tables()
    stream = Followed(lake)
    stream.go_on()
    lake.commit([insert(4, "d")])
    stream.go_on()
    assert stream.rows == lake.expected()
    assert [row["id"] for row in stream.rows] == [1, 2, 12, 4]


def test_a_stream_begins_where_it_is_told(lake: MadeLake) -> None:
    lake.begin((1, "a"))
    lake.commit([insert(2, "b")], [insert(3, "c")])
    lake.log_changes([insert(5, 50)], [insert(6, 60)], table="seats")

    def ids(**options: Any) -> list[int]:
        stream = Followed(lake, options)
        stream.go_on()
        return [row["id"] for row in stream.rows]

    assert ids() == [1, 2, 3]
    assert ids(startingVersion=1) == [3]
    assert ids(startingVersion=2) == ids(startingVersion="latest") == []
    assert ids(startingPosition="binlog.000001:110") == [3]
    late = Followed(lake, {"startingVersion": 3})
    behind = Followed(lake, {"startingPosition": "binlog.000001:140"})
    assert late.go_on() == behind.go_on() == 0
    lake.commit([delete(2, "b")])
    for stream in (late, behind):
        stream.go_on()
        assert [row["_change_type"] for row in stream.rows] == ["delete"]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"endingVersion": 1}, "a stream has no endingVersion"),
        ({"startingTimestamp": "now"}, "no time with a zone"),
    ],
)
def test_a_stream_that_has_an_end_is_refused(
    lake: MadeLake, options: dict[str, Any], error: str
) -> None:
    lake.begin((1, "a"))
    with pytest.raises(RefusedError, match=error):
        Followed(lake, options)


def test_a_stream_from_a_time_that_no_row_has_reached_is_refused(lake: MadeLake) -> None:
    lake.begin((1, "a"))
    time = lake.rows_there()[0]["_committed_at"].replace(microsecond=0)
    assert Followed(lake, {"startingTimestamp": time.isoformat()}).go_on() == 1
    lake.commit([insert(2, "b")])
    later = time.replace(year=time.year + 1).isoformat()
    with pytest.raises(RefusedError, match="has not come yet"):
        Followed(lake, {"startingTimestamp": later})


def test_a_log_that_was_begun_anew_ends_the_stream(lake: MadeLake) -> None:
    lake.begin((1, "a"))
    stream = Followed(lake)
    stream.go_on()
    again_by(lake, 2, (5, "e"))
    for _ in range(2):
        with pytest.raises(SnapshotRequiredError, match="it was begun anew, or replaced"):
            stream.go_on()
        with pytest.raises(SnapshotRequiredError, match="it was begun anew, or replaced"):
            stream.between(*stream.batches[0][:2])
        lake.under(2).publish_tables()


def test_a_table_that_was_exchanged_ends_the_stream(lake: MadeLake) -> None:
    lake.begin((1, "a"))
    stream = Followed(lake)
    stream.go_on()
    lake.commit([update((1, "a"), (1, "A"))])
    lake.begin_again((2, "b"), with_numbers=True)
    with pytest.raises(SnapshotRequiredError, match="it was exchanged as a whole"):
        stream.go_on()
    with pytest.raises(SnapshotRequiredError, match="it was exchanged as a whole"):
        stream.between(*stream.batches[0][:2])


def test_a_stream_goes_on_where_others_deleted_the_first_row(lake: MadeLake) -> None:
    lake.begin()
    lake.commit([insert(1, "a")], [insert(2, "b")])
    stream = Followed(lake)
    stream.go_on()
    if lake.form == "delta":
        DeltaTable(str(lake.root / "shop.orders")).delete("id = 1")
    else:
        catalog_of(lake.root).load_table(("shop", "orders")).delete("id = 1")
    lake.commit([insert(3, "c")])
    stream.go_on()
    assert [row["id"] for row in stream.rows] == [1, 2, 3]


def test_a_table_that_was_set_back_ends_the_stream(lake: MadeLake) -> None:
    lake.begin((1, "a"))
    lake.commit([insert(2, "b")])
    stream = Followed(lake)
    stream.go_on()
    set_back(lake, 1)
    with pytest.raises(CdcError, match="lacks rows that it had"):
        stream.between(*stream.batches[0][:2])


def test_a_column_that_comes_while_a_stream_reads_is_not_left_out_unseen(lake: MadeLake) -> None:
    lake.begin((1, "a"))
    stream = Followed(lake)
    columns = stream.changes.columns()
    assert columns is not None
    lake.add_column()
    lake.commit([insert(2, "b", 7)])
    start = json.loads(stream.place)
    end = stream.changes.behind(start, most_files=None, last=None)
    with pytest.raises(RefusedError, match=r"column note is in shop\.orders, and not among those"):
        stream.changes.between(start, end).parts(columns)
    stream.restart()
    stream.go_on()
    assert [row["note"] for row in stream.rows] == [None, 7]
