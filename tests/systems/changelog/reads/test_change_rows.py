"""A change log's events as rows of changes: which there are, of what type and in which order."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_cdc_provider.core.errors import (
    CorruptLogError,
    RefusedError,
    SnapshotRequiredError,
    UnknownEventError,
)
from airflow_cdc_provider.systems.changelog.reads.table_columns import log_columns
from airflow_cdc_provider.systems.file_log.files import Format
from tests.behaviours.sink_world import delete, insert, update
from tests.systems.changelog.reads.made_logs import (
    MadeLog,
    changes_read,
    commits_of,
    parts_read,
    rows_read,
)


@pytest.fixture
def log(tmp_path: Path) -> MadeLog:
    return MadeLog(root=tmp_path / "log")


def test_rows_of_the_snapshot_come_first_then_each_change_with_its_images(log: MadeLog) -> None:
    log.begin((1, "a"), (2, None))
    log.commit([update((1, "a"), (1, "b")), insert(3, "c")], [delete(2, None)])
    log.commit([update((3, "c"), (4, "c"))])
    assert changes_read(log.root) == [
        ("insert", 1, "a"),
        ("insert", 2, None),
        ("update_preimage", 1, "a"),
        ("update_postimage", 1, "b"),
        ("insert", 3, "c"),
        ("delete", 2, None),
        ("delete", 3, "c"),  # a key that moves is gone, and another one comes
        ("insert", 4, "c"),
    ]


def test_version_and_order_sort_all_changes_as_the_log_has_them(log: MadeLog) -> None:
    log.begin((1, "a"), (12, "b"), splits=(None, 10, None))
    log.commit([update((1, "a"), (1, "b"))], [update((1, "b"), (1, "c")), insert(2, "d")])
    log.commit([delete(2, "d")])
    rows = rows_read(log.root)
    places = [(row["_commit_version"], row["_commit_order"]) for row in rows]
    assert places == sorted(places)
    afters = [
        place for place, row in zip(places, rows, strict=True) if "pre" not in row["_change_type"]
    ]
    assert len(set(afters)) == len(afters) == 6
    assert [order for _, order in places] == [0, 1, 0, 0, 1, 1, 2, 0]


def test_each_row_has_its_commit_s_time_and_position(log: MadeLog) -> None:
    log.begin((1, "a"))
    log.commit([insert(2, "b")])
    first, second = rows_read(log.root)
    assert first["_commit_position"] == "binlog.000001:100"
    assert second["_commit_position"] == "binlog.000001:110"
    assert first["_commit_timestamp"] <= second["_commit_timestamp"]
    assert second["_commit_version"] == commits_of(log.root).last_version


def test_a_truncate_stops_the_reader_unless_it_wants_a_row_of_it(log: MadeLog) -> None:
    log.begin((1, "a"))
    log.truncate()
    log.commit([insert(1, "new")])
    with pytest.raises(RefusedError, match="emptied by TRUNCATE in version"):
        rows_read(log.root)
    assert changes_read(log.root, truncates="rows") == [
        ("insert", 1, "a"),
        ("truncate", None, None),
        ("insert", 1, "new"),
    ]


def test_only_the_wanted_columns_are_read_beside_the_commit_s(log: MadeLog) -> None:
    log.begin((1, "a"))
    (row,) = rows_read(log.root, columns="name")
    assert [name for name in row if not name.startswith("_")] == ["name"]
    with pytest.raises(RefusedError, match="no column 'nme'; did you mean name"):
        rows_read(log.root, columns="id, nme")


def test_a_log_whose_columns_changed_is_read_on_each_side_or_by_columns_of_both(
    log: MadeLog,
) -> None:
    log.begin((1, "a"))
    log.commit([insert(2, "b")])
    before = commits_of(log.root).last_version
    log.alter(*log.orders.schema.columns, replace(log.orders.schema.columns[0], name="more"))
    log.commit([insert(3, "c", 7)])
    with pytest.raises(RefusedError, match="column more is not there in version"):
        rows_read(log.root)
    assert changes_read(log.root, columns="id,name") == [
        ("insert", 1, "a"),
        ("insert", 2, "b"),
        ("insert", 3, "c"),
    ]
    assert len(rows_read(log.root, endingVersion=before)) == 2
    (row,) = rows_read(log.root, startingVersion=before + 1)
    assert (row["id"], row["more"]) == (3, 7)
    log.alter(*log.orders.schema.columns[:2])
    log.commit([insert(4, "d")])
    with pytest.raises(RefusedError, match=r"column more is in version .* and not among"):
        rows_read(log.root, startingVersion=before + 1)


def test_a_file_that_no_manifest_names_does_not_count(log: MadeLog) -> None:
    log.begin((1, "a"))
    (file,) = (log.root / "shop.orders").iterdir()
    (file.parent / "stream-000001-g00000001-00000000.parquet").write_bytes(file.read_bytes())
    assert changes_read(log.root) == [("insert", 1, "a")]


def test_a_split_that_is_read_again_counts_once_and_nothing_counts_before_the_hand_off(
    log: MadeLog,
) -> None:
    sink = log.splits()
    log.publish(sink, log.split(), (1, "old"))
    assert commits_of(log.root).files == []
    log.begin((1, "new"), (2, "b"))
    assert changes_read(log.root) == [("insert", 1, "new"), ("insert", 2, "b")]


def test_files_of_a_log_of_before_reset_do_not_count(log: MadeLog) -> None:
    log.begin((1, "a"))
    log.commit([insert(2, "b")])
    former = commits_of(log.root)
    log.begin_plan("two")
    log.begin((1, "A"))
    assert changes_read(log.root) == [("insert", 1, "A")]
    assert commits_of(log.root).id != former.id


def test_a_file_that_is_gone_or_was_changed_is_an_error(log: MadeLog) -> None:
    log.begin((1, "a"))
    (file,) = (log.root / "shop.orders").iterdir()
    whole = pq.read_table(file)
    pq.write_table(pa.concat_tables([whole, whole]), file)
    with pytest.raises(CorruptLogError, match="has 2 rows, the manifest says 1"):
        rows_read(log.root)
    pq.write_table(
        whole.set_column(whole.schema.get_field_index("op"), "op", pa.array(["m"])), file
    )
    with pytest.raises(UnknownEventError, match="'m'"):
        rows_read(log.root)
    file.write_bytes(b"PAR1 and no more")
    with pytest.raises(CorruptLogError, match="no whole Parquet file"):
        rows_read(log.root)
    file.unlink()
    with pytest.raises(SnapshotRequiredError, match="is gone"):
        rows_read(log.root)


def test_files_that_say_no_types_are_refused(tmp_path: Path) -> None:
    log = MadeLog(root=tmp_path / "log", form=Format.JSON)
    log.begin((1, "a"))
    with pytest.raises(RefusedError, match="in JSON, which has no types"):
        rows_read(log.root)


def test_the_types_of_debezium_s_envelope_are_refused(log: MadeLog) -> None:
    log.begin((1, "a"))
    for manifest in (log.root / "_manifest").glob("manifest-*.json"):
        manifest.write_text(manifest.read_text().replace("native", ""))
    with pytest.raises(RefusedError, match="types of Debezium's envelope"):
        rows_read(log.root)


def test_a_table_that_is_not_there_is_refused_with_those_that_are(log: MadeLog) -> None:
    log.begin((1, "a"))
    with pytest.raises(RefusedError, match=r"its tables: shop\.orders, shop\.seats"):
        log_columns(commits_of(log.root, "shop.order"))
    assert log_columns(commits_of(log.root, "shop.seats")) is None


def test_a_folder_without_a_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="there is no change log"):
        commits_of(tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()


def test_a_log_whose_first_manifests_are_gone_is_refused(
    log: MadeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_cdc_provider.systems.file_log.manifest.CHECKPOINT_EVERY", 2)
    log.begin((1, "a"))
    log.commit([insert(2, "b")])
    (log.root / "_manifest" / "manifest-00000001.json").unlink()
    with pytest.raises(CorruptLogError, match="first manifests are missing"):
        commits_of(log.root)


def test_small_files_share_a_part_and_a_large_one_is_cut_between_row_groups(log: MadeLog) -> None:
    log.begin((1, "a"))
    for key in range(2, 6):
        log.commit([insert(key, "b")])
    (all_of_them,) = parts_read(log.root)
    assert len(all_of_them) == 5
    assert [len(part) for part in parts_read(log.root, maxPartitionBytes=1)] == [1] * 5
    (file,) = (log.root / "shop.orders").glob("split-*")
    table = pq.read_table(file)
    rows = pa.concat_tables([table] * 30)
    pq.write_table(rows, file, row_group_size=10)
    manifest = next(m for m in (log.root / "_manifest").glob("m*") if '"publish"' in m.read_text())
    text = manifest.read_text()
    manifest.write_text(text.replace('"rows": 1, "bytes"', '"rows": 30, "bytes"'))
    parts = parts_read(
        log.root, endingVersion=commits_of(log.root).files[0].version, maxPartitionBytes=1
    )
    assert [part.groups for (part,) in parts] == [(0, 1), (1, 2), (2, 3)]
    orders = [row["_commit_order"] for row in rows_read(log.root, maxPartitionBytes=1)][:30]
    assert orders == list(range(30))
