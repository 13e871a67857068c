"""A table that came after the plan stops nothing, whatever is wrong with it; a planned one does."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from airflow_cdc_provider.core.errors import CdcError, PipelineFileError
from airflow_cdc_provider.core.findings import NOT_ADDABLE, Finding, Level
from airflow_cdc_provider.pipeline.steps.checking import check, require_fit
from airflow_cdc_provider.pipeline.steps.handing_off import hand_off
from airflow_cdc_provider.pipeline.steps.planning import plan, preview
from airflow_cdc_provider.pipeline.steps.reset_drop import reset
from airflow_cdc_provider.pipeline.steps.verifying import verify
from tests.pipeline.conftest import Shop
from tests.pipeline.new_table_watch import (
    WRONG,
    of_another_engine,
    with_another_definition_at_the_sink,
)
from tests.pipeline.shop_steps import snapshot_done
from tests.servers.given import SqlServer


@pytest.fixture(autouse=True)
def _told(shop: Shop) -> None:
    """Leave it to a person to add what comes later."""
    shop.path.write_text(shop.path.read_text().replace("sink:", "  new_tables: tell\nsink:", 1))


def of_later(shop: Shop, findings: tuple[Finding, ...]) -> list[Finding]:
    names = {f"{shop.database}.later", f"{shop.target}.later"}
    return [finding for finding in findings if finding.subject in names]


@pytest.mark.parametrize("make", WRONG, ids=lambda make: str(make.__name__))
def test_a_later_table_with_a_fault_is_told_and_stops_nothing(
    shop: Shop, make: Callable[[Shop], None]
) -> None:
    run = shop.run()
    plan(run)
    snapshot_done(shop, run)
    hand_off(run)
    make(shop)
    report = require_fit(shop.run())
    told = of_later(shop, report.findings)
    assert "table.not_in_plan" in {finding.code for finding in told}
    assert any("`add`" in f"{finding.why} {finding.fix}" for finding in told)
    assert len(told) > 1, "what is wrong with it is not told"
    against = {each.only or each.subject for each in told if each.why.startswith(NOT_ADDABLE)}
    assert against == {f"{shop.database}.later"}
    assert {finding.level for finding in told} <= {Level.WARN, Level.INFO}
    went_on = plan(shop.run())
    assert (went_on.is_new, went_on.not_copied) == (False, (f"{shop.database}.later",))
    assert preview(shop.run()).not_copied == went_on.not_copied
    assert [str(table) for table in verify(run, settle_s=0).not_copied] == [*went_on.not_copied]


def test_a_later_table_of_another_engine_stops_nothing_where_the_state_was_lost(shop: Shop) -> None:
    run = shop.run()
    made = plan(run)
    snapshot_done(shop, run)
    hand_off(run)
    run.close()
    shop.forget_state()
    of_another_engine(shop)
    adopted = plan(shop.run())
    assert (adopted.plan_id, adopted.handed_off) == (made.plan_id, True)


def test_a_later_table_with_the_target_of_another_stops_nothing(shop: Shop) -> None:
    text = shop.path.read_text()
    shop.path.write_text(
        text.replace(
            f'"{shop.database}.*": "{shop.target}.*"',
            f'"{shop.database}.*": "{shop.target}.orders"',
        )
    )
    plan(shop.run())
    shop.at_source("CREATE TABLE later (id INT PRIMARY KEY)")
    run = shop.run()
    assert plan(run).not_copied == (f"{shop.database}.later",)
    (told,) = of_later(shop, require_fit(run).findings)
    assert "`add`" in told.why
    with pytest.raises(PipelineFileError, match="both go to"):
        reset(run)


def test_a_later_table_with_system_versioning_stops_nothing(
    mariadb_server: SqlServer, mariadb_database: str, shop: Shop
) -> None:
    """No plan is made of such a table, so it is not among those that came later by name."""
    shop.source, old = mariadb_server, shop.database
    shop.database = mariadb_database
    shop.environment["SHOP_DSN"] = mariadb_server.dsn()
    shop.path.write_text(shop.path.read_text().replace(old, mariadb_database))
    shop.at_source("CREATE TABLE orders (id INT PRIMARY KEY)")
    shop.at_source("CREATE TABLE stays (id INT PRIMARY KEY)")
    versioned = "CREATE TABLE later (id INT PRIMARY KEY) WITH SYSTEM VERSIONING"
    plan(shop.run())
    assert check(shop.run()).blocks == ()
    shop.at_source(versioned)
    (told,) = of_later(shop, require_fit(shop.run()).findings)
    assert (told.level, told.code) == (Level.WARN, "table.kind")
    shop.at_source("DROP TABLE later")
    shop.at_source("ALTER TABLE orders ADD SYSTEM VERSIONING")
    assert [finding.code for finding in check(shop.run()).blocks] == ["table.kind"]


def test_reset_asks_for_the_later_table_and_is_refused(shop: Shop) -> None:
    run = shop.run()
    plan(run)
    with_another_definition_at_the_sink(shop)
    with pytest.raises(CdcError, match="later"):
        reset(run)
    assert plan(shop.run()).is_new is False


@pytest.mark.parametrize(
    "statements",
    [
        ("DROP TABLE orders", "CREATE TABLE orders (id INT PRIMARY KEY) ENGINE=MyISAM"),
        ("ALTER TABLE orders ENGINE=MyISAM",),
    ],
)
def test_a_planned_table_that_cannot_be_copied_any_more_still_blocks(
    shop: Shop, statements: tuple[str, ...]
) -> None:
    run = shop.run()
    plan(run)
    snapshot_done(shop, run)
    hand_off(run)
    for statement in statements:
        shop.at_source(statement)
    with pytest.raises(CdcError, match="orders"):
        require_fit(shop.run())
