"""What a range of a lake's table has: each row once, the same whenever it is read."""

from __future__ import annotations

import datetime as dt
import json
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from airflow_cdc_provider.core.errors import CdcError, RefusedError, SnapshotRequiredError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.table_layout import PartitionField, TableLayout, Transform
from airflow_cdc_provider.systems.file_log.manifest import Manifest
from airflow_cdc_provider.systems.file_log.state import LogState
from airflow_cdc_provider.systems.lake import compacting
from airflow_cdc_provider.systems.lake.reads import log_kinds
from airflow_cdc_provider.systems.lake.reads.stream_places import StreamPlaces
from tests.behaviours.sink_join_behaviours import join
from tests.behaviours.sink_world import delete, insert, update, worlds
from tests.behaviours.source_log import at, point
from tests.systems.lake.damage import catalog_of
from tests.systems.lake.reading import table_of
from tests.systems.lake.reads.beside import delete_beside
from tests.systems.lake.reads.made_lakes import MadeLake
from tests.systems.lake.steps import again_by, append, delete_by_hand, rewritten, set_back
from tests.systems.lake.world import FORMATS

NOW = dt.datetime(2026, 2, 1, tzinfo=dt.UTC)


@pytest.fixture(params=FORMATS)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MadeLake]:
    yield from worlds(MadeLake(root=tmp_path / "lake", form=request.param))


def filled(lake: MadeLake) -> None:
    """Rows of a snapshot, changes of two tables, rows read again, and a TRUNCATE."""
    lake.begin((1, "a"), (12, "b"), (13, "c"))
    lake.commit([update((1, "a"), (1, "A"))], [insert(3, "c"), delete(12, "b")])
    lake.commit([insert(3, 30)], table="seats")
    lake.resync((13, "other"), (14, "new"))
    lake.commit([insert(4, "d")], [delete(4, "d")])
    lake.truncate()
    lake.commit([insert(5, "e")])


def test_all_rows_are_read_with_the_columns_of_a_change_log(lake: MadeLake) -> None:
    filled(lake)
    found = lake.read()
    assert found == lake.expected()
    types = [row["_change_type"] for row in found]
    assert types == [
        *["insert"] * 3,
        *["update_postimage", "insert", "delete", "insert", "insert"],
        *["insert", "delete", "truncate", "insert"],
    ]


def test_a_truncate_is_refused_unless_it_is_wanted_as_a_row(lake: MadeLake) -> None:
    filled(lake)
    (void,) = (row for row in lake.rows_there() if row["_op"] == "t")
    with pytest.raises(RefusedError, match=f"by TRUNCATE in version {void['_order']}, or begins"):
        lake.read(truncates="fail")
    behind = lake.read(truncates="fail", startingVersion=void["_order"] + 1)
    assert [row["id"] for row in behind] == [5]


@pytest.mark.parametrize("part_bytes", [1, 1 << 30])
def test_ranges_of_versions_that_touch_have_each_row_once(lake: MadeLake, part_bytes: int) -> None:
    filled(lake)
    rows, orders = lake.expected(), [row["_order"] for row in lake.rows_there()]
    for cut in sorted({*orders})[:-1]:
        before = lake.read(endingVersion=cut, maxPartitionBytes=part_bytes)
        behind = lake.read(startingVersion=cut + 1, maxPartitionBytes=part_bytes)
        assert before + behind == rows
        assert {row["_commit_version"] for row in before} <= {*range(-1, cut + 1)}
    assert lake.read(startingVersion="latest") == []


def test_random_ranges_are_those_of_the_table_whatever_files_it_has(
    lake: MadeLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chosen = random.Random(seed)
    lake.begin(*((key, "x") for key in range(1, chosen.randrange(2, 5))))
    for number in range(6):
        count = chosen.randrange(1, 4)
        batch = [[insert(100 * number + n, "y") for n in range(count)] for _ in range(1)]
        if chosen.random() < 0.4:
            lake.commit([insert(number + 1, number)], table="seats")
        lake.commit(*batch)
    for compacts in (False, True):
        if compacts:
            monkeypatch.setattr(compacting, "_MOST", 3)
            lake.commit([insert(999, "z")])
        rows = lake.expected()
        last = rows[-1]["_commit_version"]
        for _ in range(15):
            start = chosen.randrange(-1, last + 1)
            end = chosen.randrange(start, last + 1)
            found = lake.read(startingVersion=start, endingVersion=end)
            assert found == [r for r in rows if start <= r["_commit_version"] <= end], seed


def test_an_end_that_the_table_does_not_have_yet_is_refused_until_it_does(lake: MadeLake) -> None:
    lake.begin((1, "a"))
    lake.commit([insert(2, "b")])
    lake.log_changes([insert(3, "c")])
    with pytest.raises(RefusedError, match=r"endingVersion=1 does not exist yet.* version 0"):
        lake.read(endingVersion=1)
    place = lake.next_place
    with pytest.raises(RefusedError, match=r"endingPosition=.*does not exist yet"):
        lake.read(endingPosition=f"binlog.000001:{place}")
    lake.publish_tables()
    assert [row["id"] for row in lake.read(endingVersion=1)] == [1, 2, 3]
    assert [row["id"] for row in lake.read(endingPosition=f"binlog.000001:{place}")] == [1, 2, 3]
    with pytest.raises(RefusedError, match="startingVersion=2 does not exist yet"):
        lake.read(startingVersion=2)


def test_changes_of_other_tables_prove_that_a_quiet_one_has_all(lake: MadeLake) -> None:
    lake.begin((1, "a"))
    lake.log_changes([insert(3, 30)], [insert(4, 40)], table="seats")
    assert [row["id"] for row in lake.read(endingVersion=1)] == [1]
    with pytest.raises(RefusedError, match="endingVersion=2 does not exist yet"):
        lake.read(endingVersion=2)
    assert [row["id"] for row in lake.read(endingPosition="binlog.000001:120")] == [1]


def test_places_that_touch_have_each_row_once_and_a_start_leaves_the_snapshot_out(
    lake: MadeLake,
) -> None:
    filled(lake)
    rows = lake.expected()
    for place in range(100, lake.next_place + 1, 5):
        text = f"binlog.000001:{place}"
        before, behind = lake.read(endingPosition=text), lake.read(startingPosition=text)
        assert before + behind == rows
        assert all(row["_commit_version"] == -1 or offset(row) < place for row in before)
        assert all(row["_commit_version"] >= 0 and offset(row) >= place for row in behind)


@pytest.mark.parametrize("leaves", [False, True])
def test_a_table_that_began_again_knows_still_where_its_snapshot_was_read(
    lake: MadeLake, leaves: bool
) -> None:
    filled(lake)
    if leaves:
        lake.leave()
        lake.come_back((1, "b"), (12, "l"))
    else:
        lake.begin_again((1, "b"), (12, "l"))
    lake.commit([insert(6, "f")])
    rows = lake.expected()
    for place in (100, 115, lake.next_place):
        text = f"binlog.000001:{place}"
        before, behind = lake.read(endingPosition=text), lake.read(startingPosition=text)
        assert before + behind == rows
    with pytest.raises(SnapshotRequiredError, match=r"each is there from binlog\.000001:100 on"):
        lake.read(startingPosition="binlog.000001:99")


def test_places_are_sorted_by_the_number_of_their_file(lake: MadeLake) -> None:
    filled(lake)
    assert lake.read(startingPosition="binlog.000001:100")[0]["_commit_version"] == 0
    with pytest.raises(RefusedError, match=r"startingPosition=binlog.000002:4 does not exist yet"):
        lake.read(startingPosition="binlog.000002:4")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (
            {"startingPosition": "binlog.000001:99"},
            "before the table's first change: each is there",
        ),
        ({"startingPosition": "mysql-bin.000001:110"}, "several servers, or without files"),
        ({"startingPosition": "somewhere"}, "expected a file and a number"),
        ({"startingVersion": "3", "endingVersion": "2"}, "endingVersion=2 is before"),
        ({"startingVersion": "-2"}, "is no version"),
        ({"startingVersion": "latest", "endingVersion": "latest"}, "both ends are latest"),
        ({"endingTimestamp": "2999-01-01T00:00:00Z"}, "has not come yet"),
        ({"columns": "nama"}, "did you mean name"),
        ({"table": "shop.seat"}, r"not in this lake; its tables: shop.orders, shop.seats"),
    ],
)
def test_what_cannot_be_read_is_refused(
    lake: MadeLake, options: dict[str, str], error: str
) -> None:
    filled(lake)
    with pytest.raises(CdcError, match=error):
        lake.read(**options)


def test_places_of_several_servers_are_refused(lake: MadeLake) -> None:
    filled(lake)
    lake.fail_over()
    with pytest.raises(RefusedError, match="from several servers"):
        lake.read(startingPosition="binlog.000001:110")
    assert lake.read(startingVersion=0, endingVersion=0) == lake.expected()[3:4]


def test_a_server_that_the_stream_has_left_is_known_without_a_snapshot(lake: MadeLake) -> None:
    lake.begin()
    lake.commit([insert(1, "a")])
    state = Manifest(lake.store, str(lake.pipeline)).read()
    (position,) = {each.report.high for each in state.splits.values()}
    assert lake.read(startingPosition="binlog.000001:100") == lake.expected()
    lake.fail_over()
    told = Manifest(lake.store, str(lake.pipeline)).read()
    for state in (told, LogState.from_json(json.loads(json.dumps(told.to_json())))):
        assert state.servers_left == {position.server}
        state.splits.clear()  # as of a stream that began without them,
        state.changed.clear()  # and whose tables were changed at the other server since
        places = StreamPlaces.of(state, TableId("shop", "orders"), is_complete=True)
        assert not places.is_one_server


def offset(row: dict[str, Any]) -> int:
    return int(row["_commit_position"].rpartition(":")[2])


def timed(lake: MadeLake, minutes: int, *changes: Any) -> None:
    """Commit a transaction of some minutes behind `NOW`."""
    moment = int((NOW + dt.timedelta(minutes=minutes)).timestamp() * 1_000_000)
    made = lake.batch(list(changes), start=lake.next_place)
    place = replace(point(lake.next_place, lake.next_place + 10), committed_us=moment)
    lake.changes().apply(replace(made, transactions=(place,)))
    lake.next_place += 10
    lake.publish_tables()


def test_times_are_those_of_commits_and_end_at_the_first_row_that_is_later(
    lake: MadeLake,
) -> None:
    lake.begin()
    for minutes, key in ((1, 1), (3, 3), (2, 2), (5, 5), (9, 9)):
        timed(lake, minutes, insert(key, "x"))

    def read(start: int | None, end: int | None) -> list[int]:
        texts = {"startingTimestamp": start, "endingTimestamp": end}
        given = {k: moment(v) for k, v in texts.items() if v is not None}
        return [row["id"] for row in lake.read(**given)]

    assert read(None, 3) == [1]
    assert read(3, 5) == [3, 2]  # the later one came first, so the other one is behind it
    assert read(5, 9) == [5]
    assert read(4, None) == [5, 9]
    assert read(10, None) == []
    with pytest.raises(
        RefusedError, match=r"no change of .* is of endingTimestamp=.* or later yet"
    ):
        read(5, 10)
    with pytest.raises(RefusedError, match=r"endingTimestamp=.* is before startingTimestamp"):
        read(5, 3)


def test_rows_that_were_read_prove_no_time_for_the_log_may_be_behind_it(lake: MadeLake) -> None:
    lake.begin()
    timed(lake, 1, insert(1, "x"))
    lake.resync((12, "lacking"))  # read now, while the log was read up to two minutes behind NOW
    read_us = lake.rows_there()[-1]["_committed_at"]
    assert read_us > NOW + dt.timedelta(hours=1)
    with pytest.raises(RefusedError, match=r"no change of .* is of endingTimestamp"):
        lake.read(endingTimestamp=moment(3))
    timed(lake, 2, insert(2, "x"))
    timed(lake, 5, insert(5, "x"))

    def keys(**given: str) -> list[int]:
        return [row["id"] for row in lake.read(**given)]

    assert keys(endingTimestamp=moment(2)) == [1, 12]
    assert keys(startingTimestamp=moment(2), endingTimestamp=moment(3)) == [2]
    assert keys(startingTimestamp=moment(3)) == [5]


def test_a_table_that_came_later_begins_with_the_rows_that_were_read(lake: MadeLake) -> None:
    lake.ledger.store_stream(lake.hand_off("seats"))
    lake.ledger.change_tables(added={lake.orders.schema.table: at(100)})
    sink = lake.opened(lake.lake.open_joins())
    join(lake, sink, lake.split(0, None, 10), (2, "b"))
    join(lake, sink, lake.split(1, 10, None), (13, "m"))
    lake.ledger.change_tables(read=[lake.orders.schema.table])
    lake.publish_tables()
    long_ago = (NOW - dt.timedelta(days=1)).isoformat()
    assert [row["id"] for row in lake.read(startingTimestamp=long_ago)] == [2, 13]
    with pytest.raises(RefusedError, match=r"no change of .* is of endingTimestamp"):
        lake.read(endingTimestamp=long_ago)  # who read the rows was beside a log that may lag
    timed(lake, 1, insert(5, "e"))
    assert lake.read(endingTimestamp=long_ago) == []
    found = lake.read(startingTimestamp=long_ago, endingTimestamp=moment(1))
    assert found == []  # all of it is from the time on at which its rows were read
    assert [row["id"] for row in lake.read(startingTimestamp=moment(1))] == [2, 13, 5]


def test_a_time_that_is_still_to_come_proves_nothing(lake: MadeLake) -> None:
    lake.begin()
    timed(lake, 1, insert(1, "x"))
    timed(lake, 60 * 24 * 36500, insert(3, "as a session of MariaDB says"))
    with pytest.raises(RefusedError, match=r"no change of .* is of endingTimestamp"):
        lake.read(startingTimestamp=moment(4), endingTimestamp=moment(6))
    timed(lake, 5, insert(5, "x"))
    timed(lake, 7, insert(7, "x"))

    def keys(start: int, end: int) -> list[int]:
        given = {"startingTimestamp": moment(start), "endingTimestamp": moment(end)}
        return [row["id"] for row in lake.read(**given)]

    assert keys(0, 4) == [1, 3]
    assert keys(4, 6) == [5]


def test_rows_are_read_from_files_that_others_wrote_anew(lake: MadeLake) -> None:
    lake.begin((1, "a"), (2, "b"))
    lake.commit([insert(3, "c"), insert(4, "d")])
    if lake.form == "delta":
        DeltaTable(str(lake.root / "shop.orders")).delete("id = 3")
    else:
        catalog_of(lake.root).load_table(("shop", "orders")).delete("id = 3")
    rows = lake.expected()
    assert [row["id"] for row in rows] == [1, 2, 4]
    assert lake.read() == rows
    assert [row["id"] for row in lake.read(columns="id")] == [1, 2, 4]
    assert lake.read(startingPosition="binlog.000001:100") == rows[2:]
    assert lake.read(startingVersion=1) == rows[2:]


def test_rows_of_a_partition_by_operation_are_read_whoever_made_its_files(lake: MadeLake) -> None:
    layout = TableLayout((PartitionField("_op"),))
    lake.orders = replace(lake.orders, shape=replace(lake.orders.shape, layout=layout))
    lake.begin((1, "a"), (2, "b"))
    lake.commit([insert(3, "c"), update((1, "a"), (1, "A"))])
    lake.commit([insert(4, "d"), delete(2, "b")])
    if lake.form == "delta":
        rewritten(lake)  # its library leaves the partition's column out of files
    rows = lake.expected()
    assert lake.read() == rows
    assert lake.read(startingVersion=2) == rows[-2:]
    assert [row["id"] for row in lake.read(startingPosition="binlog.000001:110")] == [4, 2]


def moment(minutes: int) -> str:
    return (NOW + dt.timedelta(minutes=minutes)).isoformat()


def test_the_snapshot_is_in_one_interval_whole(lake: MadeLake) -> None:
    lake.begin((1, "a"), (2, "b"))
    read_at = lake.rows_there()[0]["_committed_at"]
    before = (read_at - dt.timedelta(minutes=1)).isoformat()
    assert [row["id"] for row in lake.read(startingTimestamp=before)] == [1, 2]
    assert lake.read(endingTimestamp=before) == []
    assert lake.read(startingTimestamp=dt.datetime.now(dt.UTC).isoformat()) == []


def test_a_table_that_begins_again_is_behind_all_that_it_had(lake: MadeLake) -> None:
    lake.begin((1, "a"), (12, "b"))
    lake.commit([insert(3, "c")])
    before = lake.read()
    lake.begin_again((2, "b"), (13, "m"))
    lake.commit([insert(5, "e")])
    rows = lake.expected()
    assert lake.read() == rows
    assert rows[: len(before)] == before
    types = [row["_change_type"] for row in rows[len(before) :]]
    assert types == ["truncate", "insert", "insert", "insert"]
    assert lake.read(endingVersion=before[-1]["_commit_version"]) == before


def test_rows_of_before_that_lack_a_column_have_null_there(lake: MadeLake) -> None:
    lake.begin((1, "a"))
    lake.commit([insert(2, "b")])
    lake.add_column()
    lake.commit([insert(3, "c", 7)])
    found = lake.read()
    assert found == lake.expected()
    assert [row["note"] for row in found] == [None, None, 7]
    assert [row["note"] for row in lake.read(columns="note")] == [None, None, 7]


def test_a_table_that_was_set_back_is_refused(lake: MadeLake) -> None:
    lake.begin((1, "a"), (2, "b"))
    lake.commit([insert(3, "c")])
    lake.commit([insert(4, "d")])
    set_back(lake, 1)
    with pytest.raises(CdcError, match="lacks rows that it had"):
        lake.read()


def test_files_that_do_not_say_which_rows_they_have_are_read_all(tmp_path: Path) -> None:
    for lake in worlds(MadeLake(root=tmp_path / "lake")):
        lake.begin((1, "a"))
        table = catalog_of(lake.root).load_table(("shop", "orders"))
        with table.transaction() as transaction:
            transaction.set_properties({"write.metadata.metrics.default": "none"})
        lake.commit([insert(2, "b")])
        lake.commit([insert(3, "c")])
        assert [each.high for each in lake.reading()._now().files].count(None) == 2
        assert lake.read() == lake.expected()
        assert lake.read(startingVersion=1) == lake.expected()[-1:]
        place = "binlog.000001:110"
        assert lake.read(startingPosition=place) == lake.expected()[-1:]
        set_back(lake, 1)
        with pytest.raises(CdcError, match="lacks rows that it had"):
            lake.read()


def test_a_table_whose_last_rows_others_deleted_is_refused(lake: MadeLake) -> None:
    lake.begin((1, "a"))
    lake.commit([insert(3, "c")], [insert(4, "d")])
    delete_by_hand(lake, "_order = 1")
    with pytest.raises(CdcError, match="lacks rows that it had"):
        lake.read()


def test_rows_that_others_added_are_refused(lake: MadeLake) -> None:
    lake.begin((1, "a"))
    row = table_of(lake.form, lake.root, "shop.orders")
    append(lake, pa.Table.from_pylist([row.to_pylist()[0] | {"_order": 77}], row.schema))
    with pytest.raises(RefusedError, match="has a row of _order 77, and the pipeline wrote up to"):
        lake.read()
    delete_by_hand(lake, "_order = 77")
    append(lake, pa.Table.from_pylist([row.to_pylist()[0] | {"_order": None}], row.schema))
    with pytest.raises(CdcError, match="a row has no _order"):
        lake.read()


def test_a_log_that_was_begun_anew_is_read_once_the_table_has_it(lake: MadeLake) -> None:
    lake.begin((1, "a"))
    again_by(lake, 2, (5, "e"))
    with pytest.raises(RefusedError, match="has no row of the log yet"):
        lake.read()
    lake.under(2).publish_tables()
    assert [row["id"] for row in lake.read()] == [5]


def test_nothing_is_read_before_the_hand_off(lake: MadeLake) -> None:
    lake.publish(lake.splits(), lake.split(), (1, "a"))
    with pytest.raises(RefusedError, match="the snapshot is not finished"):
        lake.read()


def test_changes_of_before_an_exchange_are_refused_and_never_left_out(lake: MadeLake) -> None:
    lake.begin((1, "a"))
    lake.commit([insert(3, "c")], [insert(4, "d")])
    lake.begin_again((2, "b"), (13, "m"), with_numbers=True)
    rows = lake.expected()
    first = rows[0]["_commit_version"]
    assert rows[0]["_change_type"] == "truncate"
    for options in (
        {"startingVersion": first - 1},
        {"startingVersion": 0},
        {"endingVersion": first - 1},
        {"startingTimestamp": "2020-01-01T00:00:00Z"},
        {"startingPosition": "binlog.000001:110"},
    ):
        with pytest.raises(SnapshotRequiredError, match=f"no changes of before version {first} "):
            lake.read(**options)
    assert lake.read() == lake.read(startingVersion=first) == rows
    assert lake.read(endingVersion=first) == rows[:1]


def test_rows_that_are_deleted_beside_their_files_are_refused(lake: MadeLake) -> None:
    lake.begin((1, "a"), (2, "b"))
    lake.commit([insert(3, "c")])
    delete_beside(lake)
    with pytest.raises(
        RefusedError, match=r"is not what its Parquet files say: .*(deletion|delete)"
    ):
        lake.read()


def test_a_column_that_others_named_anew_is_refused(tmp_path: Path) -> None:
    for lake in worlds(MadeLake(root=tmp_path / "lake")):
        lake.begin((1, "a"))
        table = catalog_of(lake.root).load_table(("shop", "orders"))
        with table.update_schema() as update:
            update.rename_column("name", "title")
        with pytest.raises(RefusedError, match="column title had another name"):
            lake.read()


def test_a_library_that_is_missing_is_named_with_its_extra(
    lake: MadeLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.begin((1, "a"))
    monkeypatch.setattr(log_kinds, "is_there", lambda _: False)
    with pytest.raises(RefusedError, match=f"table of {lake.form} has") as caught:
        lake.read()
    assert f"airflow-provider-cdc[{lake.form}]" in caught.value.remedy


def test_a_table_of_a_catalog_that_is_not_named_is_refused(tmp_path: Path) -> None:
    for lake in worlds(MadeLake(root=tmp_path / "lake")):
        lake.begin((1, "a"))
        (lake.root / "catalog.db").rename(tmp_path / "catalog.db")
        with pytest.raises(RefusedError, match="whose catalog is a server") as caught:
            lake.read()
        assert "catalogType" in caught.value.remedy


def test_a_table_with_partitions_is_read_whoever_made_its_files(
    lake: MadeLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    field = PartitionField("name")
    if lake.form == "iceberg":
        field = PartitionField("id", Transform.BUCKET, 3)
    shape = replace(lake.orders.shape, layout=TableLayout((field,), ("id",)))
    lake.orders = replace(lake.orders, shape=shape)
    lake.begin((1, "a"), (2, "b/c"), (3, None))
    lake.commit([insert(4, "a"), update((2, "b/c"), (2, "ü ="))])
    lake.commit([insert(5, "a"), insert(6, None)])
    rows = lake.expected()
    assert len(rows) == 7
    assert lake.read() == rows
    if lake.form == "delta":
        rewritten(lake)  # its library leaves the partition's column out of files
        assert lake.read() == rows
    assert lake.read(startingVersion=1, endingVersion=2) == rows[4:6]
    names = [(row["name"], row["_commit_version"]) for row in lake.read(columns="name")]
    assert sorted(names, key=str) == sorted(
        ((row["name"], row["_commit_version"]) for row in rows), key=str
    )
    monkeypatch.setattr(compacting, "_MOST", 1)
    lake.commit([delete(6, None)])
    assert lake.read()[:-1] == rows
