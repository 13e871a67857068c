"""A run compares what was not found equal since it was read or defined."""

from __future__ import annotations

from itertools import pairwise

import pytest

from airflow_cdc_provider.core.errors import RefusedError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.keys import KeyRange
from airflow_cdc_provider.core.requests import RequestStatus, Scope
from airflow_cdc_provider.pipeline.run import Run, give_back
from airflow_cdc_provider.pipeline.steps.range_requests import ask_resync
from airflow_cdc_provider.pipeline.steps.table_membership import reset_tables
from airflow_cdc_provider.pipeline.steps.verified import to_verify
from airflow_cdc_provider.pipeline.steps.verifying import verify
from airflow_cdc_provider.views.reports import compared_line
from tests.pipeline.conftest import Shop
from tests.pipeline.shop_tables import synced


def names(run: Run) -> set[str]:
    return {table.table for table in to_verify(run)}


def read_by_request(run: Run, part: KeyRange) -> None:
    """Have a request that has read rows of `orders` again, as far as the state says."""
    (table,) = (each.table for each in run.store.tables(run.name) if each.table.table == "orders")
    scope = Scope((table,), () if part == KeyRange() else (part,))
    request = ask_resync(run, scope)
    generation = run.store.take_over(run.name, "a test").generation
    for former, to in pairwise((RequestStatus.ASKED, RequestStatus.READING, RequestStatus.DONE)):
        run.store.move_request(run.name, generation, request.request_id, expected=former, to=to)
    run.store.release_lease(run.name, generation)


def test_rows_that_differ_while_log_waits_for_a_stream_may_only_be_late(shop: Shop) -> None:
    run = synced(shop)
    assert not verify(run).may_be_late
    shop.at_source("INSERT INTO orders VALUES (9, 'waits', 90)")
    found = verify(run)
    assert (found.equal, found.may_be_late) == (False, True)
    assert "rows may only be late" in compared_line(found)
    synced(shop)
    shop.sink.execute("UPDATE orders SET note = 'drifted'", database=shop.target)
    found = verify(run)
    assert (found.equal, found.may_be_late) == (False, False)
    assert "late" not in compared_line(found)


def test_a_column_that_is_on_its_way_is_waited_for_before_a_table_is_compared(shop: Shop) -> None:
    run = synced(shop)
    shop.at_source("ALTER TABLE orders ADD COLUMN more INT NOT NULL DEFAULT 7")
    with pytest.raises(RefusedError, match="lacks the columns more"):
        verify(run, refuse_late=True)

    def catch_up() -> None:
        synced(shop)

    assert verify(run, catch_up=catch_up).equal
    shop.sink.execute("ALTER TABLE orders DROP COLUMN more", database=shop.target)
    with pytest.raises(RefusedError, match="lacks the columns more"):
        verify(run, catch_up=lambda: None)


def test_tables_are_compared_until_they_are_equal_and_again_when_they_are_read_or_altered(
    shop: Shop,
) -> None:
    shop.at_source("CREATE TABLE items (id INT PRIMARY KEY, note VARCHAR(9))")
    run = synced(shop)
    assert names(run) == {"orders", "items"}
    assert verify(run, tables=[TableId(shop.database, "items")]).equal
    assert names(run) == {"orders"}

    shop.sink.execute("UPDATE orders SET note = 'drifted'", database=shop.target)
    assert not verify(run).equal
    assert names(run) == {"orders"}  # for it differs still
    shop.sink.execute("UPDATE orders SET note = 'two' WHERE id = 2", database=shop.target)
    shop.sink.execute("UPDATE orders SET note = 'one' WHERE id = 1", database=shop.target)
    shop.sink.execute("UPDATE orders SET note = NULL WHERE id = 3", database=shop.target)
    assert verify(run).equal
    assert names(run) == set()

    shop.at_source("UPDATE orders SET note = 'streamed'")
    assert names(synced(shop)) == set()  # what the stream brings is no reason
    shop.at_source("ALTER TABLE items ADD COLUMN more INT")
    shop.at_source("INSERT INTO items VALUES (1, 'one', 1)")
    assert names(synced(shop)) == {"items"}
    assert verify(run).equal
    read_by_request(run, KeyRange())
    assert names(run) == {"orders"}
    assert verify(run).equal
    read_by_request(run, KeyRange((1,), (2,)))  # some rows are no reason
    assert names(run) == set()
    again = shop.run()
    reset_tables(again, [TableId(shop.database, "orders")])
    give_back(again)
    assert names(synced(shop)) == {"orders"}
