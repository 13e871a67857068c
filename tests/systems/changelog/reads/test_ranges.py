"""From where to where a log is read: pieces that touch make the whole, no row is in two."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_cdc_provider.core.errors import CdcError, RefusedError, SnapshotRequiredError
from tests.behaviours.ledger_asks import altered
from tests.behaviours.sink_join_behaviours import join
from tests.behaviours.sink_world import insert, update
from tests.behaviours.source_log import at
from tests.systems.changelog.reads.made_logs import (
    MadeLog,
    changes_read,
    commits_of,
    exact_rows,
    parts_asked,
    rows_read,
)

BASE = "binlog.000001"
LAST_PLACE = 230
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
Rows = list[tuple[Any, ...]]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> MadeLog:
    """A log of several commits; some of its rows were logged before their commit, as XA's are."""
    log = MadeLog(root=tmp_path_factory.mktemp("log") / "log")
    log.begin((1, "r"), (11, "r"), splits=(None, 10, None))
    log.commit([insert(2, "a")], [insert(3, "b")], [insert(4, "c")])
    log.commit([update((2, "a"), (2, "A"))], [insert(5, "xa")], logged_at=[131, 105])
    log.commit([insert(6, "xa"), insert(7, "d")], logged_at=[111, 151])
    for key in range(20, 27):
        log.commit([insert(key, "e")])
    assert log.next_place == LAST_PLACE
    return log


def pieces(log: MadeLog, kind: str, cuts: list[Any], following: Callable[[Any], Any]) -> Rows:
    """All rows, read in pieces: each begins where the one before it ends."""
    rows: Rows = []
    start: Any = None
    for cut in [*sorted(cuts), None]:
        options = {f"starting{kind}": start, f"ending{kind}": cut}
        asked = {name: each for name, each in options.items() if each is not None}
        rows += exact_rows(log.root, **asked)
        start = None if cut is None else following(cut)
    return rows


@settings(max_examples=20)
@given(st.lists(st.integers(100, LAST_PLACE), max_size=5))
def test_pieces_between_places_are_the_whole_log(log: MadeLog, cuts: list[int]) -> None:
    texts = [f"{BASE}:{cut}" for cut in sorted(cuts)]
    assert sorted(pieces(log, "Position", texts, str)) == sorted(exact_rows(log.root))


@settings(max_examples=20)
@given(st.data())
def test_pieces_between_versions_are_the_whole_log(log: MadeLog, data: st.DataObject) -> None:
    last = commits_of(log.root).last_version
    cuts = data.draw(st.lists(st.integers(3, last - 1), max_size=5, unique=True))
    assert pieces(log, "Version", cuts, lambda cut: cut + 1) == exact_rows(log.root)


@settings(max_examples=20)
@given(st.lists(st.floats(-0.1, 1.1), max_size=5))
def test_pieces_between_times_are_the_whole_log(log: MadeLog, shares: list[float]) -> None:
    found = commits_of(log.root)
    first, last = found.files[0].committed_us, found.files[-1].committed_us
    cuts = [first + int((last - first) * share) for share in shares]
    cuts += [each.committed_us for each in found.files[1:3]]  # on a commit's very time
    texts = [time_text(max(min(cut, last), found.first_us)) for cut in sorted(cuts)]
    assert pieces(log, "Timestamp", texts, str) == exact_rows(log.root)


def time_text(microseconds: int) -> str:
    return (EPOCH + dt.timedelta(microseconds=microseconds)).isoformat()


def test_places_hold_the_changes_from_the_start_on_and_before_the_end(log: MadeLog) -> None:
    between = {"startingPosition": f"{BASE}:110", "endingPosition": f"{BASE}:130"}
    assert changes_read(log.root, **between) == [("insert", 3, "b"), ("insert", 4, "c")]
    inside = {"startingPosition": f"{BASE}:112", "endingPosition": f"{BASE}:122"}
    assert changes_read(log.root, **inside) == [("insert", 4, "c")]


def test_a_row_of_xa_counts_where_the_commit_begins_that_has_it(log: MadeLog) -> None:
    before = changes_read(log.root, startingPosition=f"{BASE}:100", endingPosition=f"{BASE}:130")
    assert ("insert", 5, "xa") not in before
    behind = changes_read(log.root, startingPosition=f"{BASE}:130", endingPosition=f"{BASE}:131")
    assert behind == [("insert", 5, "xa")]


def test_without_a_start_the_snapshot_comes_first_and_with_one_it_does_not(log: MadeLog) -> None:
    whole = changes_read(log.root, endingPosition=f"{BASE}:110")
    assert whole == [("insert", 1, "r"), ("insert", 11, "r"), ("insert", 2, "a")]
    changes = changes_read(log.root, startingPosition=f"{BASE}:100", endingPosition=f"{BASE}:110")
    assert changes == [("insert", 2, "a")]


def test_the_position_of_a_commit_and_of_an_asset_s_event_are_places(log: MadeLog) -> None:
    row = rows_read(log.root)[-1]
    assert row["_commit_position"] == f"{BASE}:{LAST_PLACE}"
    text = f"{BASE}:220 3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5 on any server"
    assert changes_read(log.root, startingPosition=text) == [("insert", 26, "e")]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"startingVersion": 99}, "startingVersion=99 does not exist yet"),
        ({"endingVersion": 99}, "endingVersion=99 does not exist yet"),
        ({"startingVersion": 8, "endingVersion": 7}, "endingVersion=7 is before startingVersion=8"),
        ({"startingVersion": "first"}, "'first' is no version"),
        ({"startingVersion": "latest", "endingVersion": "latest"}, "both ends are latest"),
        ({"startingPosition": f"{BASE}:99"}, "is before the log's first change: it begins at"),
        ({"startingPosition": f"{BASE}:231"}, f"does not exist yet: the log was read up to {BASE}"),
        ({"endingPosition": "binlog.000002:4"}, "does not exist yet"),
        ({"endingPosition": "mysql-bin.000001:110"}, "of another server's log"),
        ({"startingPosition": "4711"}, "expected a file and a number"),
        (
            {"startingPosition": f"{BASE}:120", "endingPosition": f"{BASE}:110"},
            "endingPosition=.*110 is before startingPosition",
        ),
        ({"startingTimestamp": "2999-01-01T00:00:00Z"}, "has not come yet"),
        ({"endingTimestamp": "2999-01-01T00:00:00Z"}, "commits before it may still be made"),
        ({"startingTimestamp": "2026-02-01"}, "no time with a zone"),
        (
            {
                "startingTimestamp": "2026-01-02T00:00:00Z",
                "endingTimestamp": "2026-01-01T00:00:00+00:00",
            },
            "is before startingTimestamp",
        ),
        (
            {"startingVersion": 1, "endingPosition": f"{BASE}:110"},
            "startingVersion and endingPosition are of two kinds",
        ),
        ({"startingVersions": 1}, "no option 'startingVersions'; did you mean startingVersion"),
        ({"truncates": "skip"}, "neither rows nor fail"),
        ({"maxPartitionBytes": "0"}, "no number"),
        ({"path": "changes"}, "no absolute path"),
        ({"table": "orders"}, "expected 'database.table'"),
    ],
)
def test_what_cannot_be_given_is_an_error_that_says_what_to_do(
    log: MadeLog, options: dict[str, Any], error: str
) -> None:
    given = {"path": str(log.root), "table": "shop.orders", **options}
    with pytest.raises(CdcError, match=error) as caught:
        parts_asked({name: str(value) for name, value in given.items()})
    assert caught.value.remedy


def test_an_empty_range_has_no_rows(log: MadeLog) -> None:
    assert exact_rows(log.root, startingPosition=f"{BASE}:120", endingPosition=f"{BASE}:120") == []
    assert exact_rows(log.root, startingVersion="latest") == []
    assert exact_rows(log.root, startingPosition=f"{BASE}:{LAST_PLACE}") == []


def test_nothing_is_read_before_the_hand_off(tmp_path: Path) -> None:
    log = MadeLog(root=tmp_path / "log")
    log.publish(log.splits(), log.split(), (1, "a"))
    with pytest.raises(RefusedError, match="snapshot is not finished"):
        rows_read(log.root, startingPosition=f"{BASE}:100")


def test_what_a_former_log_held_is_not_kept(tmp_path: Path) -> None:
    log = MadeLog(root=tmp_path / "log")
    log.begin((1, "a"))
    log.commit([insert(2, "b")])
    former = commits_of(log.root)
    log.begin_plan("two")
    log.begin((1, "A"))
    for options in (
        {"startingVersion": former.last_version},
        {"endingVersion": former.last_version},
        {"startingTimestamp": time_text(former.last_us)},
        {"endingTimestamp": time_text(former.last_us)},
    ):
        with pytest.raises(SnapshotRequiredError, match="is not kept any more"):
            rows_read(log.root, **options)
    begun = commits_of(log.root).first_version
    assert changes_read(log.root, startingVersion=begun) == [("insert", 1, "A")]


def test_a_snapshot_that_was_begun_again_threw_no_rows_away(tmp_path: Path) -> None:
    log = MadeLog(root=tmp_path / "log")
    log.publish(log.splits(), log.split(), (1, "a"))
    log.begin_plan("two")
    log.begin((1, "A"))
    assert changes_read(log.root, startingVersion=0) == [("insert", 1, "A")]


def test_a_log_of_several_servers_has_no_places_but_versions(tmp_path: Path) -> None:
    log = MadeLog(root=tmp_path / "log")
    log.begin((1, "a"))
    log.commit([insert(2, "b")])
    log.commit([insert(3, "c")])
    newest = max((log.root / "_manifest").glob("manifest-*.json"))
    form = json.loads(newest.read_text())
    form["position"]["server"] = "4350f323-7565-4e59-8763-4b1b83a0ce0e"
    newest.write_text(json.dumps(form))
    with pytest.raises(RefusedError, match="several servers"):
        rows_read(log.root, endingPosition=f"{BASE}:110")
    assert len(rows_read(log.root, endingVersion=form["version"])) == 3


def test_a_clock_that_goes_back_moves_no_commit_before_another(tmp_path: Path) -> None:
    log = MadeLog(root=tmp_path / "log")
    log.begin((1, "a"))
    log.commit([insert(2, "b")])
    newest = max((log.root / "_manifest").glob("manifest-*.json"))
    form = json.loads(newest.read_text())
    newest.write_text(json.dumps({**form, "at_us": 7}))
    found = commits_of(log.root)
    assert found.files[0].committed_us <= found.files[1].committed_us
    begun = time_text(found.files[0].committed_us)
    assert len(rows_read(log.root, startingTimestamp=begun)) == 2


def test_rows_that_joined_are_at_the_place_where_the_log_stood(tmp_path: Path) -> None:
    """Pieces that meet there have them once."""
    log = MadeLog(root=tmp_path / "log")
    log.begin_both(orders=[(1, "gone")], seats=[])
    log.commit([insert(2, "b")])
    place = log.commit([insert(3, "c")])
    change = altered(log.orders, through=place, rereads=True)
    log.ledger.begin_changes([change])
    log.ledger.end_change(change)
    joins = log.opened(log.sink.open_joins())
    assert join(log, joins, log.split(), (2, "B"), (3, "C"))[0] == at(place)
    log.ledger.change_tables(read=[log.orders.schema.table])
    log.commit([update((3, "C"), (3, "D"))])
    with pytest.raises(RefusedError, match=r"emptied by TRUNCATE in version \d+, or begins again"):
        rows_read(log.root)
    whole = exact_rows(log.root, truncates="rows")
    kinds = [row["_change_type"] for row in rows_read(log.root, truncates="rows")]
    assert kinds == [
        "insert",
        "insert",
        "insert",
        "truncate",
        "insert",
        "insert",
        "update_preimage",
        "update_postimage",
    ]
    for cut in (place - 10, place, place + 5):
        text = f"binlog.000001:{cut}"
        before = exact_rows(log.root, truncates="rows", endingPosition=text)
        after = exact_rows(log.root, truncates="rows", startingPosition=text)
        assert before + after == whole, text
