"""What a run notes for those who look later: the reach of the source's log, and preflight."""

from __future__ import annotations

import time

import pytest

from airflow_cdc_provider.core.errors import CdcError, LeaseHeldError, PreflightError
from airflow_cdc_provider.core.log_reach import LogReach
from airflow_cdc_provider.core.overview import TableOverview
from airflow_cdc_provider.core.records import NoteKind
from airflow_cdc_provider.engine.stream import heartbeat
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps.checking import require_fit
from airflow_cdc_provider.pipeline.steps.planning import plan
from airflow_cdc_provider.systems.mysql.source.log_end import MySqlLogEnd
from airflow_cdc_provider.views.overview import Shown, overview_form, overview_lines
from airflow_cdc_provider.views.page import list_row
from airflow_cdc_provider.views.remarks import remark_lines
from airflow_cdc_provider.views.status import status
from tests.pipeline.altered_tables import begin, catch_up, change
from tests.pipeline.conftest import Shop


def reach_of(run: Run) -> LogReach:
    note = run.store.note(run.name, NoteKind.LOG_REACH)
    assert note is not None
    return LogReach(**note.form)


def test_a_stream_notes_how_far_the_log_reaches_back(shop: Shop) -> None:
    begin(shop, ["orders"])
    change(shop, "orders", ["UPDATE orders SET note = 'more'"])
    before = reach_of(catch_up(shop))
    shop.source.execute("FLUSH BINARY LOGS")
    change(shop, "orders", ["UPDATE orders SET note = 'most'"])
    after = reach_of(catch_up(shop))
    assert after.files == before.files + 1
    assert before.applied_bytes is not None
    assert after.applied_bytes is not None
    assert before.applied_bytes < after.applied_bytes <= after.kept_bytes


def test_a_stream_asks_for_the_reach_once_in_a_while(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(shop, ["orders"])
    ask, asked = MySqlLogEnd.reach, []

    def counted(self: MySqlLogEnd, start: object) -> LogReach:
        asked.append(start)
        return ask(self, start)  # type: ignore[arg-type]

    monkeypatch.setattr(MySqlLogEnd, "reach", counted)
    monkeypatch.setattr(heartbeat.Heartbeat.__init__, "__kwdefaults__", {"every_s": 0.05})
    change(shop, "orders", ["UPDATE orders SET note = 'more'"])
    catch_up(shop)
    assert len(asked) == 2  # before the stream, which has something to do, and in it


def orders_of(run: Run) -> TableOverview:
    tables = run.store.table_overviews(run.name, run.store.now_us())
    return next(table for table in tables if table.source.endswith(".orders"))


def test_a_stream_counts_what_it_changed_in_each_table_today(shop: Shop) -> None:
    begin(shop, ["orders"])
    change(
        shop,
        "orders",
        [
            "INSERT INTO orders (id, note) VALUES (901, 'a'), (902, 'b')",
            "UPDATE orders SET note = 'c' WHERE id = 901",
            "DELETE FROM orders WHERE id = 902",
        ],
    )
    started_us = time.time_ns() // 1000
    table = orders_of(catch_up(shop))
    assert (table.inserts, table.updates, table.deletes) == (2, 1, 1)
    assert table.changed_us is not None
    assert 0 <= started_us - table.changed_us < 60_000_000
    change(shop, "orders", ["DELETE FROM orders WHERE id = 901"])
    table = orders_of(catch_up(shop))
    assert (table.inserts, table.updates, table.deletes) == (2, 1, 2)


def test_that_the_reach_cannot_be_told_ends_no_run(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: object) -> LogReach:
        raise CdcError("not granted")

    monkeypatch.setattr(MySqlLogEnd, "reach", denied)
    begin(shop, ["orders"])
    run = catch_up(shop)
    assert run.store.note(run.name, NoteKind.LOG_REACH) is None


def test_what_ends_a_try_is_shown_until_one_gets_past_it(shop: Shop) -> None:
    right = shop.environment["SHOP_DSN"]
    shop.environment["SHOP_DSN"] = shop.source.dsn(user="nobody", password="planted-Xq7vKz")
    run = shop.run()

    def refused() -> list[str]:
        """Look as `status`, `show` and the page's list do, before anything was planned too."""
        seen = status(run.store, run.name, now_us=run.store.now_us())
        (found,) = run.store.overviews([run.name], run.store.now_us())
        row = list_row(str(run.name), found, run.store.now_us())
        shown = overview_form([Shown(str(run.name), "shop.yaml", seen)])["pipelines"][0]["problem"]
        forms = [*row["problems"], seen.to_json()["problem"], shown]
        assert "planted" not in str(forms)
        lines = [*overview_lines([Shown(str(run.name), "shop.yaml", seen)]), *remark_lines(seen)]
        assert sum("problem: CDC-" in line for line in lines) == 2 * bool(row["problems"])
        return [form["code"] + form["where"] for form in forms if form is not None]

    with pytest.raises(CdcError) as denied:
        require_fit(run)
    assert len(refused()) == 3
    for told in refused():
        assert told.startswith(denied.value.code)
        assert "the last preflight, 20" in told
    with pytest.raises(CdcError):
        plan(run)
    assert "the last plan, 20" in refused()[0]
    shop.environment["SHOP_DSN"] = right
    shop.at_source("CREATE TABLE isam (a INT PRIMARY KEY) ENGINE=MyISAM")
    run = shop.run()
    with pytest.raises(PreflightError):
        require_fit(run)
    assert refused()[0].startswith(PreflightError.code)
    shop.at_source("DROP TABLE isam")
    require_fit(run)
    plan(run)
    assert refused() == []


def test_that_somebody_else_is_at_work_is_no_trouble(shop: Shop) -> None:
    plan(shop.run(owner="one"))
    other = shop.run(owner="another")
    with pytest.raises(LeaseHeldError):
        plan(other)
    assert other.store.note(other.name, NoteKind.LAST_TRY) is None


def test_a_plan_notes_what_preflight_found(shop: Shop) -> None:
    begin(shop, ["orders"])
    run = shop.run()
    note = run.store.note(run.name, NoteKind.PREFLIGHT)
    assert note is not None
    assert sum(note.form["counts"].values()) == len(note.form["findings"])
    for found in note.form["findings"]:
        assert found.keys() >= {"code", "level", "subject", "observed", "why", "fix"}
