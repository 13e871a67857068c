"""A pipeline file that was changed after the plan is obeyed or refused, never ignored."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from airflow_cdc_provider.core.errors import PipelineFileError, SourceIdentityError
from airflow_cdc_provider.core.findings import Level
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps.checking import check
from airflow_cdc_provider.pipeline.steps.handing_off import hand_off
from airflow_cdc_provider.pipeline.steps.planning import plan, preview
from airflow_cdc_provider.pipeline.steps.reset_drop import reset
from airflow_cdc_provider.pipeline.steps.sink import open_ledger
from airflow_cdc_provider.pipeline.steps.start_jobs import start_snapshot, start_stream
from airflow_cdc_provider.pipeline.steps.verifying import verify
from airflow_cdc_provider.views.status import status
from tests.pipeline.conftest import Shop
from tests.pipeline.shop_steps import snapshot_done
from tests.servers.given import SqlServer
from tests.servers.throwaway import MySqlServer

STEPS: tuple[Callable[[Run], object], ...] = (
    check,
    preview,
    plan,
    start_snapshot,
    hand_off,
    start_stream,
    verify,
)


def change(shop: Shop, old: str, new: str) -> None:
    text = shop.path.read_text()
    assert old in text
    shop.path.write_text(text.replace(old, new))


def refusal_of_every_step(shop: Shop) -> str:
    """Run each step; return the one refusal that all of them end with."""
    run, said = shop.run(), set[str]()
    before = run.store.ensure(run.name), open_ledger(run).plan_id()
    for step in STEPS:
        with pytest.raises(PipelineFileError) as refused:
            step(run)
        said.add(refused.value.what)
    assert (run.store.ensure(run.name), open_ledger(run).plan_id()) == before
    (text,) = said
    assert "another name" not in text
    return text


def test_a_changed_route_is_refused_with_its_line_by_every_step(shop: Shop) -> None:
    plan(shop.run())
    change(shop, f'"{shop.target}.*"', '"elsewhere.*"')
    said = refusal_of_every_step(shop)
    assert "shop.yaml:line 7, sink.route: " in said
    assert (
        f"{shop.database}.orders goes to elsewhere.orders now, and the plan copies it to "
        f"{shop.target}.orders" in said
    )
    assert "`reset`" in said


def test_a_table_that_was_taken_out_of_the_file_is_refused(shop: Shop) -> None:
    shop.at_source("CREATE TABLE items (id INT PRIMARY KEY)")
    plan(shop.run())
    change(shop, f'tables: ["{shop.database}.*"]', f'tables: ["{shop.database}.orders"]')
    said = refusal_of_every_step(shop)
    assert f"line 4, source.tables: the plan copies {shop.database}.items to" in said


def test_a_table_that_is_excluded_now_is_refused_at_that_line(shop: Shop) -> None:
    shop.at_source("CREATE TABLE items (id INT PRIMARY KEY)")
    plan(shop.run())
    change(shop, "sink:", f'  exclude: ["nothing.*", "{shop.database}.it*"]\nsink:')
    assert "line 5, source.exclude[1]: the plan copies" in refusal_of_every_step(shop)


def test_a_table_that_the_file_picks_anew_is_told_until_a_stream_can_take_it(shop: Shop) -> None:
    shop.at_source("CREATE TABLE items (id INT PRIMARY KEY)")
    change(shop, f'tables: ["{shop.database}.*"]', f'tables: ["{shop.database}.orders"]')
    plan(shop.run())
    change(
        shop, f'"{shop.database}.orders"]', f'"{shop.database}.orders", "{shop.database}.items"]'
    )
    for _ in range(2):
        assert plan(shop.run()).not_copied == (f"{shop.database}.items",)
    run = shop.run()
    origin = run.store.origin(run.name)
    assert origin is not None
    assert origin.tables == (f"{shop.database}.orders",), "else it would count as known before"


def test_a_table_that_came_later_is_told_everywhere_and_stops_nothing(shop: Shop) -> None:
    plan(shop.run())
    shop.at_source("CREATE TABLE later (id INT PRIMARY KEY)")
    later = f"{shop.database}.later"
    run = shop.run()
    (finding,) = (found for found in check(run).findings if found.code == "table.not_in_plan")
    assert (finding.level, finding.subject) == (Level.WARN, later)
    assert plan(run).not_copied == (later,)
    assert plan(run).not_copied == (later,)
    now = status(run.store, run.name, now_us=run.store.now_us())
    assert now.not_copied == (later,)
    assert len([e for e in now.events if e.level == "warning" and later in e.text]) == 1
    assert [str(table) for table in verify(run, settle_s=0).not_copied] == [later]
    change(shop, "sink:", f'  exclude: ["{later}"]\nsink:')
    assert plan(shop.run()).not_copied == ()


def test_other_zero_dates_than_rows_were_copied_under_are_refused(shop: Shop) -> None:
    plan(shop.run())
    change(shop, "sink:", "  zero_dates: 'null'\nsink:")
    said = refusal_of_every_step(shop)
    assert "line 5, source.zero_dates: zero_dates is null now" in said
    assert "copied under fail" in said


def test_another_backfill_is_refused_until_the_hand_off(shop: Shop) -> None:
    run = shop.run()
    plan(run)
    snapshot_done(shop, run)
    was = shop.path.read_text()
    shop.path.write_text(f"{was}snapshot:\n  backfill: false\n")
    assert "snapshot.backfill: backfill is false now" in refusal_of_every_step(shop)
    shop.path.write_text(was)
    hand_off(run)
    shop.path.write_text(f"{was}snapshot:\n  backfill: false\n")
    assert plan(shop.run()).handed_off


def test_what_can_be_obeyed_at_once_is_not_refused(shop: Shop) -> None:
    made = plan(shop.run())
    more = "snapshot: {split_rows: 7, max_connections: 2}\nstream: {max_batch: {changes: 5}}\n"
    shop.path.write_text(shop.path.read_text() + more)
    assert plan(shop.run()).plan_id == made.plan_id


def test_a_reset_obeys_the_file_as_it_is(shop: Shop) -> None:
    run = shop.run()
    plan(run)
    change(shop, f'"{shop.target}.*"', f'"{shop.target}.n_*"')
    changed = shop.run()
    reset(changed)
    again = plan(changed)
    assert [str(p.sink_table) for p in again.tables] == [f"{shop.target}.n_orders"]
    assert check(changed).blocks == ()


def test_a_file_of_the_same_name_in_another_folder_does_not_take_the_plan_away(
    shop: Shop,
) -> None:
    made = plan(shop.run())
    shop.forget_state()
    shop.at_source("CREATE TABLE items (id INT PRIMARY KEY)")
    change(shop, f'tables: ["{shop.database}.*"]', f'tables: ["{shop.database}.items"]')
    run = shop.run()
    for step in (check, plan):
        with pytest.raises(PipelineFileError, match="does not pick it any more") as refused:
            step(run)
        assert "if this is another pipeline, give it another name" in refused.value.what
    assert open_ledger(run).plan_id() == made.plan_id


def test_another_sink_is_refused_and_a_reset_goes_there(
    shop: Shop, mysql_server: SqlServer
) -> None:
    plan(shop.run())
    shop.environment["DR_DSN"] = mysql_server.dsn()
    mysql_server.execute(f"CREATE DATABASE {shop.target}")
    try:
        for step in (check, plan):
            with pytest.raises(PipelineFileError, match=r"line 6, sink\.dsn_env: the sink is the"):
                step(shop.run())
        reset(shop.run())
        assert not plan(shop.run()).is_new
    finally:
        mysql_server.execute(f"DROP DATABASE {shop.target}")


def test_another_source_is_refused_once_something_was_read(shop: Shop) -> None:
    run = shop.run()
    plan(run)
    snapshot_done(shop, run)
    with MySqlServer() as stranger:
        stranger.execute(f"CREATE DATABASE {shop.database}")
        stranger.execute(
            "CREATE TABLE orders (id INT PRIMARY KEY, note VARCHAR(40), code INT)",
            database=shop.database,
        )
        shop.environment["SHOP_DSN"] = stranger.dsn()
        moved = shop.run()
        assert "source.another_server" in {found.code for found in check(moved).findings}
        with pytest.raises(SourceIdentityError, match="the source is the server"):
            plan(moved)
        assert "new plan" in reset(moved)


def test_another_source_before_anything_was_read_is_planned_anew_and_told(shop: Shop) -> None:
    made = plan(shop.run())
    with MySqlServer() as stranger:
        stranger.execute(f"CREATE DATABASE {shop.database}")
        stranger.execute(
            "CREATE TABLE orders (id INT PRIMARY KEY, note VARCHAR(40), code INT)",
            database=shop.database,
        )
        shop.environment["SHOP_DSN"] = stranger.dsn()
        run = shop.run()
        again = plan(run)
        assert (again.is_new, again.plan_id == made.plan_id) == (True, False)
        assert any("planned anew" in event.text for event in run.store.events(run.name))
