"""A check looks again at a table whose definition changes between its looks."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest

from airflow_cdc_provider.core.backoff import BackOff
from airflow_cdc_provider.core.errors import SchemaMovedError
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps import checking, look_again
from airflow_cdc_provider.pipeline.steps.checking import check, require_fit
from airflow_cdc_provider.pipeline.steps.tables import Captured, captured_tables
from tests.pipeline.conftest import Shop


@pytest.fixture
def changed(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Statements to be executed behind the looks at the catalogue, one behind each."""
    statements: list[str] = []
    left: Iterator[str] = iter(statements)

    def then_changed(run: Run, *, purpose: str) -> Captured:
        found = captured_tables(run, purpose=purpose)
        for statement in left:
            shop.at_source(statement)
            break
        return found

    monkeypatch.setattr(checking, "captured_tables", then_changed)
    return statements


def renames(count: int) -> list[str]:
    """Return statements that give a column a longer name each."""
    names = ["code" + "_" * number for number in range(count + 1)]
    return [f"ALTER TABLE orders CHANGE {old} {new} INT" for old, new in pairwise(names)]


def test_a_column_that_goes_while_it_is_checked_does_not_refuse_the_pipeline(
    shop: Shop, changed: list[str]
) -> None:
    changed.append("ALTER TABLE orders DROP COLUMN note")
    report = require_fit(shop.run())
    (plan,) = report.tables
    assert [column.name for column in plan.schema.columns] == ["id", "code"]


def test_what_a_table_became_while_it_is_checked_is_checked(shop: Shop, changed: list[str]) -> None:
    changed.append("ALTER TABLE orders DROP COLUMN note, ENGINE = MyISAM")
    assert [finding.code for finding in check(shop.run()).blocks] == ["table.engine"]


def test_a_table_that_goes_while_it_is_checked_is_not_in_the_report(
    shop: Shop, changed: list[str]
) -> None:
    shop.at_source("CREATE TABLE other (id INT PRIMARY KEY)")
    changed.append("RENAME TABLE other TO orders_2")
    report = require_fit(shop.run())
    assert [plan.schema.table.table for plan in report.tables] == ["orders", "orders_2"]


def test_a_table_that_changes_for_some_seconds_is_looked_at_until_it_stands_still(
    shop: Shop, changed: list[str]
) -> None:
    changed += [
        f"ALTER TABLE orders CHANGE code{'_' * n} code{'_' * (n + 1)} INT" for n in range(6)
    ]
    (plan,) = check(shop.run()).tables
    assert "code" + "_" * 6 in [column.name for column in plan.schema.columns]


def test_a_table_that_never_stands_still_is_left_to_the_next_try(
    shop: Shop, changed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    changed += [
        f"ALTER TABLE orders CHANGE code{'_' * n} code{'_' * (n + 1)} INT" for n in range(60)
    ]
    monkeypatch.setattr(look_again, "PATIENCE", BackOff(first_s=0.1, give_up_s=0.5))
    with pytest.raises(SchemaMovedError, match="is being changed right now"):
        check(shop.run())
