"""A comparison that may not read every row says so, and leaves nothing out unseen."""

from __future__ import annotations

import logging
import time

import pytest

from airflow_cdc_provider.core.errors import RefusedError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.records import NoteKind
from airflow_cdc_provider.pipeline.run import Run, give_back
from airflow_cdc_provider.pipeline.steps import verified
from airflow_cdc_provider.pipeline.steps.table_membership import reset_tables
from airflow_cdc_provider.pipeline.steps.verified import changed_since_verified
from airflow_cdc_provider.pipeline.steps.verify_budget import Budget
from airflow_cdc_provider.pipeline.steps.verifying import verify
from tests.pipeline.conftest import Shop
from tests.pipeline.shop_tables import synced


def changed(run: Run) -> set[str]:
    return {table.table for table in changed_since_verified(run)}


def test_tables_that_did_not_change_since_they_were_found_equal_are_left_out(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verified, "_CLOCKS_US", 0)
    shop.at_source("CREATE TABLE items (id INT PRIMARY KEY, note VARCHAR(9))")
    shop.at_source("INSERT INTO items VALUES (1, 'one')")
    run = synced(shop)
    assert changed(run) == {"orders", "items"}
    only_changed = Budget(only_changed=True)
    assert len(verify(run, budget=only_changed).tables) == 2
    run = synced(shop)  # counts are known from the first run with a stream on
    assert changed(run) == set()
    assert verify(run, budget=only_changed).tables == ()

    time.sleep(1.1)  # a commit's time in the log has whole seconds on some servers
    shop.at_source("UPDATE items SET note = 'two'")
    run = synced(shop)
    assert changed(run) == {"items"}
    (verdict,) = verify(run, budget=only_changed).tables
    assert verdict.table == TableId(shop.database, "items")
    assert verdict.equal
    assert changed(run) == set()
    again = shop.run()
    reset_tables(again, [TableId(shop.database, "orders")])
    give_back(again)
    assert changed(synced(shop)) == {"orders"}


def test_what_changed_within_the_clocks_difference_counts_as_changed(shop: Shop) -> None:
    run = synced(shop)
    shop.at_source("UPDATE orders SET note = 'new'")
    run = synced(shop)
    assert verify(run).equal
    assert changed(run) == {"orders"}


def test_a_sample_compares_some_splits_and_says_so(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    shop.at_source("DELETE FROM orders")
    numbers = ", ".join(f"({number}, 'n')" for number in range(1000))
    shop.at_source(f"INSERT INTO orders (id, note) VALUES {numbers}")
    shop.path.write_text(shop.path.read_text() + "snapshot: {split_rows: 50}\n")
    run = synced(shop)
    (whole,) = [each for each in verify(run).tables if each.table.table == "orders"]
    run.store.keep_note(run.name, NoteKind.VERIFIED, {"tables": {}})
    caplog.set_level(logging.INFO)
    (part,) = verify(run, budget=Budget(percent=10.0, seed=7)).tables
    assert whole.rows_source == 1000
    assert not whole.sampled
    assert part.sampled
    assert 50 <= part.rows_source <= 200
    assert str(part) == f"equal, {part.rows_source} rows of a sample"
    assert "sample: percent=10 seed=7" in caplog.text
    note = run.store.note(run.name, NoteKind.VERIFIED)
    assert note is not None
    assert note.form["tables"] == {}  # a sample proves nothing of the table

    shop.sink.execute("UPDATE orders SET note = 'drifted'", database=shop.target)
    (wrong,) = verify(run, budget=Budget(percent=10.0, seed=7)).tables
    assert (wrong.rows_source, wrong.different) == (part.rows_source, part.rows_source)
    assert not wrong.equal
    (everything,) = verify(run, budget=Budget(percent=100.0)).tables
    assert everything.different == 1000


@pytest.mark.parametrize("percent", [0.0, -1.0, 100.1])
def test_a_sample_of_nothing_or_of_too_much_is_refused(percent: float) -> None:
    with pytest.raises(RefusedError, match="cannot be compared"):
        Budget(percent=percent)
