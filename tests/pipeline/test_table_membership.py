"""Tables that are added to a pipeline that streams, and taken out, without reading the others."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

from airflow_cdc_provider.core.errors import (
    CdcError,
    FencedError,
    PreflightError,
    RefusedError,
    SinkBusyError,
    SnapshotRequiredError,
    TablesStoppedError,
)
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.requests import RequestKind, RequestStatus
from airflow_cdc_provider.core.stored_error import NO_ERROR
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.engine.ledger.ledger import Ledger
from airflow_cdc_provider.pipeline.run import Run, give_back, take_over
from airflow_cdc_provider.pipeline.steps import table_membership
from airflow_cdc_provider.pipeline.steps.planning import plan
from airflow_cdc_provider.pipeline.steps.range_requests import ask_resync, resync_scope
from airflow_cdc_provider.pipeline.steps.sink import open_ledger, open_targets
from airflow_cdc_provider.pipeline.steps.table_membership import (
    add_tables,
    remove_tables,
    reset_tables,
    targets_of,
)
from airflow_cdc_provider.views.status import status
from tests.pipeline.conftest import Shop
from tests.pipeline.shop_tables import at_sink, at_source, exclude, later, synced


@pytest.fixture(autouse=True)
def _told(shop: Shop) -> None:
    """Leave it to a person to add what comes later."""
    shop.path.write_text(shop.path.read_text().replace("sink:", "  new_tables: tell\nsink:", 1))


def test_a_table_is_added_and_the_others_are_not_read_again(shop: Shop) -> None:
    synced(shop)
    table = later(shop)
    marked = "UPDATE orders SET note = 'only at the sink' WHERE id = 1"
    shop.sink.execute(marked, database=shop.target)
    assert synced(shop).store.requests(shop.run().name) == ()
    run = shop.run()
    assert add_tables(run) == (table,)
    give_back(run)
    (request,) = run.store.requests(run.name)
    assert (request.kind, request.scope.tables) == (RequestKind.ADD, (table,))
    found = status(run.store, run.name, now_us=run.store.now_us())
    assert "later" in {each.source.split(".")[1] for each in found.tables}
    shop.at_source("UPDATE later SET note = 'changed' WHERE id = 2")
    shop.at_source("DELETE FROM later WHERE id = 3")
    ended = synced(shop)
    assert at_sink(shop, "later") == at_source(shop, "later")
    assert at_sink(shop, "orders")[0][1] == "only at the sink"
    (request,) = ended.store.requests(ended.name)
    assert request.status is RequestStatus.DONE
    keys = shop.sink.execute("SHOW INDEX FROM later WHERE Key_name = 'note'", database=shop.target)
    assert len(keys) == 1


def test_a_table_whose_key_only_the_server_compares_is_added(shop: Shop) -> None:
    synced(shop)
    shop.at_source("CREATE TABLE words (id VARCHAR(20) PRIMARY KEY, n INT)")
    shop.at_source("INSERT INTO words VALUES ('a', 1), ('B', 2), ('ö', 3), ('d', 4)")
    run = shop.run()
    add_tables(run)
    give_back(run)
    shop.at_source("UPDATE words SET id = 'b', n = 20 WHERE id = 'B'")
    shop.at_source("DELETE FROM words WHERE id = 'd'")
    synced(shop)
    assert at_sink(shop, "words") == at_source(shop, "words")
    shop.sink.execute("UPDATE words SET n = 99", database=shop.target)
    again = shop.run()
    ask_resync(again, resync_scope(again))
    again.close()
    synced(shop)
    assert at_sink(shop, "words") == at_source(shop, "words")


def test_until_it_is_read_a_table_that_was_added_counts_as_inconsistent(shop: Shop) -> None:
    synced(shop)
    table = later(shop)
    run = shop.run()
    add_tables(run, [table])
    with closing(open_ledger(run)) as ledger:
        stream = ledger.stream()
    assert stream is not None
    stream = stream.passed(stream.start)
    assert (stream.unread, stream.inconsistent) == ((table,), (table,))
    assert not stream.waits_for_positions


def test_what_became_of_the_request_does_not_matter_the_table_is_read(shop: Shop) -> None:
    synced(shop)
    table = later(shop)
    run = shop.run()
    add_tables(run)
    give_back(run)
    (request,) = run.store.requests(run.name)
    run.store.cancel_request(run.name, request.request_id)
    ended = synced(shop)
    assert at_sink(shop, "later") == at_source(shop, "later")
    assert {each.status for each in ended.store.requests(ended.name)} == {
        RequestStatus.CANCELLED,
        RequestStatus.DONE,
    }
    assert table in {state.table for state in ended.store.tables(ended.name)}


def test_a_sink_that_is_busy_when_all_rows_are_in_is_told_again_that_they_are(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced(shop)
    later(shop)
    run = shop.run()
    add_tables(run)
    give_back(run)
    busy, change_tables = (
        [SinkBusyError("deadlock", "sink", "none", "nothing")],
        Ledger.change_tables,
    )

    def once_busy(ledger: Ledger, **tables: Any) -> StreamSplit:
        if "read" in tables and busy:
            raise busy.pop()
        return change_tables(ledger, **tables)

    monkeypatch.setattr(Ledger, "change_tables", once_busy)
    ended = synced(shop)
    assert (busy, at_sink(shop, "later")) == ([], at_source(shop, "later"))
    (request,) = ended.store.requests(ended.name)
    assert (request.status, request.error) == (RequestStatus.DONE, NO_ERROR)


def test_the_state_store_may_be_lost_before_it_is_read(shop: Shop) -> None:
    synced(shop)
    later(shop)
    run = shop.run()
    add_tables(run)
    give_back(run)
    shop.forget_state()
    synced(shop)
    assert at_sink(shop, "later") == at_source(shop, "later")


def test_a_crash_between_ledger_and_state_is_mended_by_adding_again(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced(shop)
    table = later(shop)
    run = shop.run()

    def crash(*_: object, **__: object) -> None:
        raise CdcError("the state store is gone")

    with monkeypatch.context() as patch:
        patch.setattr(type(run.store), "change_plan", crash)
        with pytest.raises(CdcError, match="is gone"):
            add_tables(run)
    give_back(run)
    assert plan(shop.run()).not_copied == (str(table),)
    shop.at_source("INSERT INTO later VALUES (4, 'four')")
    again = shop.run()
    assert add_tables(again) == (table,)
    give_back(again)
    synced(shop)
    assert at_sink(shop, "later") == at_source(shop, "later")


def test_a_table_that_is_taken_out_keeps_its_rows_and_gets_no_more(shop: Shop) -> None:
    table = later(shop)
    synced(shop)
    exclude(shop, table)
    run = shop.run()
    assert remove_tables(run, [table]) == (TableId(shop.target, "later"),)
    give_back(run)
    before = at_sink(shop, "later")
    shop.at_source("DELETE FROM later")
    shop.at_source("INSERT INTO orders VALUES (9, 'nine', 90)")
    synced(shop)
    assert (at_sink(shop, "later"), len(before)) == (before, 3)
    assert at_sink(shop, "orders") == at_source(shop, "orders")


def test_a_table_is_dropped_at_the_sink_only_if_it_is_the_pipeline_s_own(shop: Shop) -> None:
    table = later(shop)
    synced(shop)
    exclude(shop, table)
    run = shop.run()
    target = TableId(shop.target, "later")
    assert targets_of(run, [table]) == {target: 3}
    with closing(open_targets(run, run.store.ensure(run.name).generation)) as targets:
        shop.sink.execute("CREATE TABLE others (id INT PRIMARY KEY)", database=shop.target)
        with pytest.raises(RefusedError, match="is not this pipeline's"):
            targets.drop([target, TableId(shop.target, "others")])
    with closing(open_targets(run, 1)) as fenced, pytest.raises(FencedError):
        fenced.drop([target])
    assert len(at_sink(shop, "later")) == 3
    assert remove_tables(run, [table], drop_targets=True) == (target,)
    give_back(run)
    left = {row[0] for row in shop.sink_rows("SHOW TABLES")}
    assert left == {"orders", "others"}
    synced(shop)
    assert at_sink(shop, "orders") == at_source(shop, "orders")


@pytest.mark.parametrize("step", ["ledger", "plan", "drop"])
def test_a_removal_that_was_cut_off_is_brought_to_its_end_when_it_is_given_again(
    shop: Shop, step: str
) -> None:
    table, target = later(shop), TableId(shop.target, "later")
    synced(shop)
    exclude(shop, table)
    run = shop.run()
    with closing(open_ledger(run)) as ledger:
        generation = take_over(run, ledger).generation
        ledger.change_tables(removed=[table])
        if step != "ledger":
            run.store.change_plan(run.name, generation, removed=[table])
    if step == "drop":
        with closing(open_targets(run, generation)) as targets:
            targets.drop([target])
    give_back(run)
    run = shop.run()
    remove_tables(run, [table], drop_targets=True)
    give_back(run)
    assert {row[0] for row in shop.sink_rows("SHOW TABLES")} == {"orders"}
    assert {state.table.table for state in run.store.tables(run.name)} == {"orders"}
    with closing(open_targets(run)) as targets:
        assert [source.table for source, _ in targets.routes()] == ["orders"]
    assert remove_tables(run, [table], drop_targets=True) == ()
    with pytest.raises(RefusedError, match="not copied"):
        remove_tables(run, [TableId(shop.database, "late")])
    synced(shop)


def test_a_table_that_another_one_refers_to_is_removed_and_not_dropped(shop: Shop) -> None:
    table = later(shop)
    synced(shop)
    exclude(shop, table)
    refers = "CREATE TABLE refers (id INT PRIMARY KEY, FOREIGN KEY (id) REFERENCES later (id))"
    shop.sink.execute(refers, database=shop.target)
    run = shop.run()
    with pytest.raises(CdcError):
        remove_tables(run, [table], drop_targets=True)
    give_back(run)
    assert len(at_sink(shop, "later")) == 3
    assert table not in {state.table for state in synced(shop).store.tables(run.name)}


def test_a_table_that_was_taken_out_is_added_again_and_read_anew(shop: Shop) -> None:
    table = later(shop)
    synced(shop)
    was = shop.path.read_text()
    exclude(shop, table)
    run = shop.run()
    remove_tables(run, [table])
    give_back(run)
    shop.at_source("DELETE FROM later WHERE id = 1")
    shop.path.write_text(was + "\n")
    shop.path.write_text(was.replace("sink:\n", "sink:\n  existing_rows: replace\n", 1))
    run = shop.run()
    add_tables(run)
    give_back(run)
    synced(shop)
    assert at_sink(shop, "later") == at_source(shop, "later")


def test_what_cannot_be_added_or_taken_out_is_refused_and_changes_nothing(shop: Shop) -> None:
    orders = TableId(shop.database, "orders")
    with pytest.raises(SnapshotRequiredError, match="not handed off"):
        add_tables(shop.run())
    run = synced(shop)
    before = plan_of(run)
    with pytest.raises(RefusedError, match="no table that is not copied"):
        add_tables(shop.run())
    with pytest.raises(RefusedError, match="copied already"):
        add_tables(shop.run(), [orders])
    with pytest.raises(RefusedError, match="does not pick"):
        add_tables(shop.run(), [TableId("elsewhere", "t")])
    with pytest.raises(RefusedError, match="still picks"):
        remove_tables(shop.run(), [orders])
    with pytest.raises(RefusedError, match="not copied"):
        remove_tables(shop.run(), [TableId("elsewhere", "t")])
    shop.at_source("CREATE TABLE engine (id INT PRIMARY KEY) ENGINE=MyISAM")
    with pytest.raises(PreflightError):
        add_tables(shop.run())
    assert plan_of(shop.run()) == before


def plan_of(run: Run) -> tuple[object, ...]:
    with closing(open_ledger(run)) as ledger:
        stream = ledger.stream()
    assert stream is not None
    return tuple(state.table for state in run.store.tables(run.name)), stream.tables


def test_a_changed_table_is_begun_again_alone(shop: Shop) -> None:
    with shop.path.open("a") as file:
        file.write("schema_changes: {add_column: stop}\n")
    table = later(shop)
    synced(shop)
    shop.sink.execute("UPDATE orders SET note = 'only at the sink'", database=shop.target)
    shop.at_source("INSERT INTO later VALUES (4, 'before')")
    shop.at_source("ALTER TABLE later ADD COLUMN more INT DEFAULT 7")
    shop.at_source("UPDATE later SET more = 8, note = 'moves' WHERE id = 1")
    shop.at_source("ALTER TABLE later ADD COLUMN most INT FIRST")
    shop.at_source("INSERT INTO later VALUES (9, 5, 'one', 9)")
    shop.at_source("INSERT INTO orders VALUES (9, 'nine', 90)")
    with pytest.raises(TablesStoppedError, match="add_column: stop"):
        synced(shop)
    shop.sink.execute("DROP TABLE later", database=shop.target)
    assert reset_tables(shop.run(), [table]) == (table,)
    synced(shop)
    assert at_sink(shop, "later") == at_source(shop, "later")
    notes = {row[0]: row[1] for row in at_sink(shop, "orders")}
    assert (notes[1], notes[9]) == ("only at the sink", "nine")


def test_a_reset_that_was_cut_off_is_not_gone_on_from(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = later(shop)
    synced(shop)

    def crash(*_: object) -> None:
        raise CdcError("cut off")

    run = shop.run()
    with monkeypatch.context() as patch:
        patch.setattr(table_membership, "catch_up", crash)
        with pytest.raises(CdcError, match="cut off"):
            reset_tables(run, [table])
    give_back(run)
    shop.at_source("DELETE FROM later WHERE id = 1")
    with pytest.raises(RefusedError, match=f"--table {table}"):
        synced(shop)
    again = shop.run()
    reset_tables(again, [table])
    give_back(again)
    synced(shop)
    assert at_sink(shop, "later") == at_source(shop, "later")


def test_a_reset_of_a_table_ends_what_was_asked_of_it_before(shop: Shop) -> None:
    table = later(shop)
    synced(shop)
    run = shop.run()
    asked = ask_resync(run, resync_scope(run, [str(table)]))
    assert reset_tables(run, [table]) == (table,)
    found = run.store.request(run.name, asked.request_id)
    assert found is not None
    assert (found.status, "the reset of" in str(found.error)) == (RequestStatus.CANCELLED, True)
    give_back(run)
    synced(shop)
    assert at_sink(shop, "later") == at_source(shop, "later")
