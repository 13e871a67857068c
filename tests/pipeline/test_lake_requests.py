"""Rows of a lake that are read again: by ranges, intervals and lists, while the stream flows."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest

from airflow_cdc_provider.core.errors import RefusedError
from airflow_cdc_provider.core.lifecycle import TablePhase
from airflow_cdc_provider.core.requests import Request, RequestKind, RequestStatus, Scope
from airflow_cdc_provider.pipeline.steps.backfilling import backfill_scope
from airflow_cdc_provider.pipeline.steps.estimating import estimate
from airflow_cdc_provider.pipeline.steps.range_requests import ask_resync, known, resync_scope
from airflow_cdc_provider.pipeline.steps.repairing import ask_repairs, repairs
from tests.pipeline.changes_while_read import make
from tests.pipeline.conftest import FILE, Shop
from tests.pipeline.joins_watched import Moments
from tests.pipeline.lakes import FORMS, Lake
from tests.pipeline.test_changes_while_read_again import AT_ANY_TIME, CHANGES

if TYPE_CHECKING:
    import pyarrow as pa

STOPS = "another name of the key"
"""Readers of a lake find rows by the key's name, so this one stops the table."""
SEED = random.SystemRandom().randrange(10_000)


@pytest.fixture(params=FORMS)
def lake(empty_shop: Shop, request: pytest.FixtureRequest) -> Lake:
    """A lake of each form."""
    shop = empty_shop
    shop.path.write_text(
        FILE.format(name=f"p_{shop.database}", source=shop.database, sink=shop.target)
    )
    return Lake.of(shop, request.param)


@pytest.fixture
def orders(lake: Lake) -> Lake:
    """Nine rows of `orders`, read and published."""
    make(lake.shop, ["orders"])
    lake.catch_up()
    return lake


def drifted(lake: Lake) -> None:
    """Change, delete and insert a row, which the log does not have."""
    lake.unlogged(
        "UPDATE orders SET note = 'other' WHERE id = 2",
        "DELETE FROM orders WHERE id = 5",
        "INSERT INTO orders VALUES (12, 'new', 12)",
    )


def read_again(lake: Lake, scope: Scope) -> Request:
    """Ask for rows, and run until they are read."""
    run = lake.shop.run()
    request = ask_resync(run, scope)
    lake.catch_up()
    return known(run, request.request_id)


def written(lake: Lake, before: pa.Table) -> list[dict[str, Any]]:
    """Return the rows of `orders` that were not there before, in their order."""
    known = before.to_pylist()
    return [row for row in lake.changes("orders").to_pylist() if row not in known]


def whole(lake: Lake, table: str = "orders") -> Scope:
    return resync_scope(lake.shop.run(), [f"{lake.shop.database}.{table}"])


def interval(lake: Lake, start: str | None, end: str | None) -> Scope:
    return backfill_scope(
        lake.shop.run(), f"{lake.shop.database}.orders", "flag", start=start, end=end
    )


def test_only_rows_that_differ_are_written(orders: Lake) -> None:
    drifted(orders)
    before = orders.changes("orders")
    assert read_again(orders, whole(orders)).status is RequestStatus.DONE
    found = written(orders, before)
    assert [(row["_op"], row["id"]) for row in found] == [
        *([] if orders.is_mirror else [("d", 5)]),
        ("r", 2),
        ("r", 12),
    ]
    assert orders.is_mirror or found[0]["note"] == "note 5"
    assert orders.is_equal("orders")
    done = read_again(orders, whole(orders))
    assert (done.status, done.rows) == (RequestStatus.DONE, 9)
    assert written(orders, before) == found


def test_a_range_is_read_again_and_no_more(orders: Lake) -> None:
    drifted(orders)
    run = orders.shop.run()
    part = resync_scope(run, [f"{orders.shop.database}.orders"], from_key="2", to_key="5")
    (counted,) = estimate(run, part).tables
    assert (counted.source_rows, counted.sink_rows) == (3, 3)
    assert read_again(orders, part).rows == 3
    (verdict,) = orders.verified("orders").tables
    assert {each.key for each in verdict.samples} == {"5", "12"}


def test_an_interval_is_filled_again_by_the_values_of_either_side(orders: Lake) -> None:
    orders.unlogged(
        "UPDATE orders SET flag = 103 WHERE id = 3",  # leaves
        "UPDATE orders SET flag = 4, note = 'came' WHERE id = 9",
        "DELETE FROM orders WHERE id = 5",
        "UPDATE orders SET note = 'other' WHERE id = 8",  # not of the interval
    )
    scope = interval(orders, "3", "7")
    (counted,) = estimate(orders.shop.run(), scope).tables
    assert (counted.source_rows, counted.sink_rows) == (3, 4)
    before = orders.changes("orders")
    assert read_again(orders, scope).status is RequestStatus.DONE
    found = written(orders, before)
    assert sorted(row["_op"] for row in found) == [*orders.either("drr", "rr")]
    (verdict,) = orders.verified("orders").tables
    assert {each.key for each in verdict.samples} == {"8"}
    assert read_again(orders, scope).status is RequestStatus.DONE
    assert written(orders, before) == found


def test_what_verify_finds_is_repaired_by_ranges_and_by_lists(lake: Lake) -> None:
    make(lake.shop, ["orders", "texts"])
    lake.shop.at_source(
        "ALTER TABLE texts DROP PRIMARY KEY, MODIFY note VARCHAR(40) NOT NULL "
        "COLLATE utf8mb4_general_ci, ADD PRIMARY KEY (note)"
    )
    lake.catch_up()
    drifted(lake)
    lake.unlogged(
        "UPDATE texts SET flag = 70 WHERE id = 7",
        "UPDATE texts SET note = 'NOTE 8' WHERE id = 8",
        "DELETE FROM texts WHERE id = 1",
        "INSERT INTO texts VALUES (20, 'é', 1)",
    )
    report = lake.verified("orders", "texts")
    run = lake.shop.run()
    found = repairs(run, report)
    assert len(found) == 2
    asked = ask_repairs(run, found)
    lake.catch_up()
    assert {known(run, each.request_id).status for each in asked} == {RequestStatus.DONE}
    assert lake.is_equal("orders")
    assert lake.is_equal("texts")


def test_what_a_lake_cannot_find_is_refused_by_name(lake: Lake) -> None:
    make(lake.shop, ["orders", "texts"])
    lake.shop.at_source(
        "ALTER TABLE texts DROP PRIMARY KEY, MODIFY note VARCHAR(40) NOT NULL, "
        "ADD PRIMARY KEY (note)"
    )
    lake.catch_up()
    scope = whole(lake, "texts")
    for refused in (estimate, ask_resync):
        with pytest.raises(
            RefusedError, match=r"the order of these keys .*texts \(note\)"
        ) as error:
            refused(lake.shop.run(), scope)
        assert "`reset` with --table" in str(error.value)
        assert "ask for the others" not in str(error.value)
    run = lake.shop.run()
    with pytest.raises(RefusedError) as error:
        ask_resync(run, resync_scope(run, []))
    assert "ask for the other tables alone" in error.value.remedy
    assert f"{lake.shop.database}.orders" not in error.value.remedy  # it needs no reset
    with pytest.raises(RefusedError, match=r"`reset` with --table .*texts: it is read as a whole"):
        resync_scope(run, [f"{lake.shop.database}.texts"], from_key="a")
    chosen = resync_scope(run, [f"{lake.shop.database}.orders"], where="flag > 3")
    with pytest.raises(RefusedError, match="a lake does not know the source's SQL"):
        ask_resync(run, chosen)
    assert run.store.requests(run.name) == ()


@pytest.mark.parametrize("kind", [RequestKind.RESYNC, RequestKind.BACKFILL])
@pytest.mark.sample(1)
def test_definitions_change_while_rows_are_read_again(
    kind: RequestKind, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments = Moments.of(lake.shop, monkeypatch)
    at = [*((1, case) for case in CHANGES if case != STOPS), *((2, case) for case in AT_ANY_TIME)]
    cases = {f"orders{number}": case for number, case in enumerate(at)}
    make(lake.shop, [*cases, "whole"])
    lake.catch_up()
    run = lake.shop.run()
    for name in (*cases, "whole"):
        lake.unlogged(f"UPDATE {name} SET note = '0'")
        named = f"{lake.shop.database}.{name}"
        if kind is RequestKind.RESYNC:
            ask_resync(run, resync_scope(run, [named]))
        else:
            ask_resync(run, backfill_scope(run, named, "flag", start="-9", end="100000"))
    moments.at = {name: (moment, CHANGES[case]) for name, (moment, case) in cases_at(at).items()}
    lake.catch_up()
    run = lake.catch_up()
    different = [name for name in cases if not lake.verified(name).equal]
    assert {cases[name] for name in different} == set()
    assert lake.is_equal("whole")
    assert {state.phase for state in run.store.tables(run.name)} == {TablePhase.CONSISTENT}
    statuses = {each.status for each in run.store.requests(run.name) if each.kind is kind}
    assert statuses == {RequestStatus.DONE}


def cases_at(at: Sequence[tuple[int, str]]) -> dict[str, tuple[int, str]]:
    return {f"orders{number}": each for number, each in enumerate(at)}


def test_any_writes_while_rows_are_read_again(
    orders: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    print("seed", SEED)
    dice = random.Random(SEED)

    class Writes(Moments):
        """Any writes before each split joins."""

        def before_join(self, name: str) -> None:
            for _ in range(dice.randrange(4)):
                key, other = dice.randrange(14), dice.randrange(14)
                orders.shop.at_source(
                    dice.choice(
                        [
                            f"REPLACE INTO {name} VALUES ({key}, 'x{other}', {other})",
                            f"DELETE FROM {name} WHERE id = {key}",
                            f"UPDATE {name} SET flag = {other} WHERE id = {key}",
                            f"UPDATE IGNORE {name} SET id = {other} WHERE id = {key}",
                        ]
                    )
                )

    Writes.of(orders.shop, monkeypatch)
    for _ in range(6):
        for key in range(14):
            orders.unlogged(
                dice.choice(
                    [
                        f"DELETE FROM orders WHERE id = {key}",
                        f"REPLACE INTO orders VALUES ({key}, 'unlogged', {dice.randrange(14)})",
                    ]
                ),
            )
        scope = dice.choice([whole(orders), interval(orders, None, "1000")])
        assert read_again(orders, scope).status is RequestStatus.DONE
        if dice.randrange(2):
            orders.catch_up()
        assert orders.is_equal("orders")
