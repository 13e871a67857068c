"""Plans that an earlier version stored stay readable and keep their fingerprints.

A type was stored by its name in MySQL alone then; a fingerprint that changed would stop every
pipeline there is.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from airflow_cdc_provider.core.identifiers import PipelineName
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.schema_codec import plan_to_json
from airflow_cdc_provider.core.table_schema import TypeKind
from airflow_cdc_provider.databases.engines import open_engine
from airflow_cdc_provider.state.store import open_store
from tests.behaviours.state_behaviours import plan_of

SHOP = PipelineName("shop")
STORED = sorted((Path(__file__).parents[1] / "data" / "plans").glob("*.json"))


@pytest.fixture(params=STORED, ids=lambda path: path.stem)
def stored(request: pytest.FixtureRequest) -> dict[str, Any]:
    return dict(json.loads(request.param.read_text()))


def read_back(dsn: str, form: dict[str, Any]) -> TablePlan:
    """The plan as a store gives it that holds it in this form."""
    store = open_store(dsn)
    generation = store.take_over(SHOP, "test").generation
    store.start_plan(SHOP, generation, "one", [plan_of()])
    with open_engine(dsn).begin() as connection:
        connection.execute(text("UPDATE cdc_table SET plan = :form"), {"form": json.dumps(form)})
    (table,) = store.tables(SHOP)
    store.close()
    return table.plan


def test_a_plan_of_old_keeps_its_fingerprint(stored: dict[str, Any], tmp_path: Path) -> None:
    plan = read_back(f"sqlite:///{tmp_path}/state.db", stored["plan"])
    assert plan.schema.fingerprint == stored["fingerprint"]


def test_a_plan_of_old_orders_its_keys_as_it_did(stored: dict[str, Any], tmp_path: Path) -> None:
    schema = read_back(f"sqlite:///{tmp_path}/state.db", stored["plan"]).schema
    assert {c.name: c.type.key_kind.value for c in schema.columns} == stored["orders"]
    assert schema.column("c_enum").type.no_member == stored["no_member"]


def test_a_plan_of_old_knows_what_its_columns_hold(stored: dict[str, Any], tmp_path: Path) -> None:
    schema = read_back(f"sqlite:///{tmp_path}/state.db", stored["plan"]).schema
    kinds = {column.name: column.type.kind for column in schema.columns}
    assert kinds["c_bit"] is TypeKind.BITS
    assert kinds["c_mariadb_json"] is kinds["c_json"] is TypeKind.JSON
    assert TypeKind.POINT is kinds["c_point"] is not kinds["c_polygon"]


def test_a_plan_of_old_that_is_stored_again_is_the_same(
    stored: dict[str, Any], tmp_path: Path
) -> None:
    dsn = f"sqlite:///{tmp_path}/state.db"
    plan = read_back(dsn, stored["plan"])
    assert read_back(dsn, json.loads(json.dumps(plan_to_json(plan)))) == plan
