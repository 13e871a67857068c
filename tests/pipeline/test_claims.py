"""No two pipelines write to one table of the sink, and rows of others are not deleted silently."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from airflow_cdc_provider.core.errors import RefusedError
from airflow_cdc_provider.core.findings import Level
from airflow_cdc_provider.pipeline.connections import EnvironmentDsns
from airflow_cdc_provider.pipeline.file.loader import load_pipeline
from airflow_cdc_provider.pipeline.run import Run, open_run
from airflow_cdc_provider.pipeline.steps.checking import check
from airflow_cdc_provider.pipeline.steps.planning import plan, preview
from airflow_cdc_provider.pipeline.steps.reset_drop import drop, reset
from airflow_cdc_provider.pipeline.steps.sink import open_ledger, open_targets
from airflow_cdc_provider.pipeline.steps.start_jobs import start_snapshot
from tests.pipeline.conftest import Shop
from tests.pipeline.shop_steps import snapshot_done


@pytest.fixture
def other(shop: Shop, tmp_path: Path) -> Iterator[Run]:
    """A second pipeline of the same source, onto the first one's tables."""
    path = tmp_path / "other.yaml"
    path.write_text(shop.path.read_text().replace(f"p_{shop.database}", f"o_{shop.database}"))
    loaded = load_pipeline(path)
    with open_run(loaded, EnvironmentDsns(shop.environment), owner="other") as run:
        yield run


def blocks(run: Run) -> dict[str, str]:
    return {found.code: found.observed for found in check(run).findings if found.level == "block"}


def fill(shop: Shop) -> None:
    shop.sink.execute(
        "CREATE TABLE orders (id INT PRIMARY KEY, note VARCHAR(40), code INT)", database=shop.target
    )
    shop.sink.execute("INSERT INTO orders VALUES (77, 'theirs', 1)", database=shop.target)


def let_rows_be_replaced(shop: Shop) -> None:
    text = shop.path.read_text()
    shop.path.write_text(text.replace("  route:", "  existing_rows: replace\n  route:"))


def test_a_table_that_another_pipeline_owns_is_refused(shop: Shop, other: Run) -> None:
    plan(shop.run())
    said = f"{shop.target}.orders belongs to the pipeline p_{shop.database}"
    assert said in blocks(other)["sink.owner"]
    assert preview(other).report.blocks
    with pytest.raises(RefusedError, match=said) as refused:
        plan(other)
    assert f"`drop` the pipeline p_{shop.database}" in refused.value.remedy
    assert open_ledger(other).plan_id() == ""
    assert other.store.tables(other.name) == ()
    assert blocks(shop.run()) == {}


def test_a_dropped_pipeline_frees_its_tables(shop: Shop, other: Run) -> None:
    run = shop.run()
    plan(run)
    drop(run)
    assert blocks(other) == {}
    assert plan(other).is_new
    with pytest.raises(RefusedError, match=f"belongs to the pipeline o_{shop.database}"):
        plan(run)


def test_of_two_pipelines_that_come_at_once_one_is_refused(shop: Shop, other: Run) -> None:
    run, outcomes = shop.run(), list[str]()
    both = threading.Barrier(2)

    def come(each: Run) -> None:
        both.wait()
        try:
            plan(each)
            outcomes.append("taken")
        except RefusedError:
            outcomes.append("refused")

    threads = [threading.Thread(target=come, args=(each,)) for each in (run, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["refused", "taken"]


def test_the_snapshot_does_not_start_on_a_table_that_was_taken_meanwhile(
    shop: Shop, other: Run
) -> None:
    run = shop.run()
    plan(run)
    with closing(open_targets(run, run.store.ensure(run.name).generation)) as targets:
        targets.release()
    plan(other)
    with pytest.raises(RefusedError, match=f"belongs to the pipeline o_{shop.database}"):
        start_snapshot(run)


def test_rows_of_nobody_are_refused_and_stay(shop: Shop) -> None:
    fill(shop)
    run = shop.run()
    assert "holds rows" in blocks(run)["sink.existing_rows"]
    with pytest.raises(RefusedError, match="holds rows") as refused:
        plan(run)
    assert "existing_rows: replace" in refused.value.remedy
    assert shop.sink_rows("SELECT id FROM orders") == [(77,)]
    shop.sink.execute("DELETE FROM orders", database=shop.target)
    assert plan(run).is_new


def test_rows_of_nobody_are_replaced_only_where_the_file_says_so_and_that_is_told(
    shop: Shop,
) -> None:
    fill(shop)
    let_rows_be_replaced(shop)
    run = shop.run()
    (found,) = (f for f in check(run).findings if f.code == "sink.existing_rows")
    assert found.level is Level.WARN
    assert plan(run).is_new
    (told,) = (e for e in run.store.events(run.name) if "all of them are replaced" in e.text)
    assert told.level == "warning"


def test_what_another_pipeline_owns_is_not_replaced_even_so(shop: Shop, other: Run) -> None:
    plan(other)
    let_rows_be_replaced(shop)
    with pytest.raises(RefusedError, match="belongs to the pipeline"):
        plan(shop.run())


def test_a_reset_takes_its_own_filled_tables_again(shop: Shop) -> None:
    run = shop.run()
    plan(run)
    shop.sink.execute("INSERT INTO orders VALUES (1, 'ours', 1)", database=shop.target)
    assert "new plan" in reset(run)
    assert blocks(run) == {}


def test_rows_that_only_the_plan_knows_of_are_ours_after_the_ledger_was_lost(shop: Shop) -> None:
    run = shop.run()
    made = plan(run)
    shop.sink.execute("INSERT INTO orders VALUES (1, 'ours', 1)", database=shop.target)
    for table in ("pipeline", "target", "finished_split", "stream", "stream_table"):
        shop.sink.execute(f"DELETE FROM airflow_cdc.{table} WHERE pipeline = '{run.name}'")
    again = plan(run)
    assert again.is_new
    assert again.plan_id != made.plan_id


def test_a_reset_refused_for_an_unfit_table_leaves_the_plan_and_its_rows_known(
    shop: Shop,
) -> None:
    run = shop.run()
    made = plan(run)
    snapshot_done(shop, run)
    shop.at_source("CREATE TABLE later (id INT PRIMARY KEY, name VARCHAR(40))")
    shop.sink.execute("CREATE TABLE later (id INT PRIMARY KEY)", database=shop.target)
    with pytest.raises(RefusedError, match=r"later: .*name"):
        reset(run)
    with closing(open_ledger(run)) as ledger:
        assert ledger.plan_id() == made.plan_id
        assert len(ledger.reports()) == 2
    with closing(open_targets(run)) as targets:
        assert len(targets.routes()) == 1


def test_a_refused_reset_leaves_the_plan_as_it_was(shop: Shop, other: Run) -> None:
    run = shop.run()
    made = plan(run)
    shop.at_source("CREATE TABLE later (id INT PRIMARY KEY)")
    shop.sink.execute("CREATE TABLE later (id INT PRIMARY KEY)", database=shop.target)
    shop.sink.execute("INSERT INTO later VALUES (1)", database=shop.target)
    with pytest.raises(RefusedError, match="later holds rows"):
        reset(run)
    assert open_ledger(run).plan_id() == made.plan_id
    with closing(open_targets(run)) as targets:
        assert len(targets.routes()) == 1
