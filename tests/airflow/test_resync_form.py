"""The form of a resync: what it offers, what Airflow itself refuses, and what `check` refuses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, ParamValidationError
from airflow.serialization.serialized_objects import DagSerialization

from airflow_cdc_provider.core.errors import RefusedError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.keys import KeyRange
from airflow_cdc_provider.core.requests import Scope
from airflow_cdc_provider.hooks.request_hook import Choice
from airflow_cdc_provider.operators.dags import cdc_dags
from airflow_cdc_provider.operators.resync_dag import resync_dag
from airflow_cdc_provider.operators.resync_steps import _markdown, chosen

if TYPE_CHECKING:
    from airflow.sdk import DAG
    from airflow.sdk.definitions.param import ParamsDict

FILE = """
pipeline: shop
source: {conn_id: shop_source, tables: [TABLES]}
sink: {conn_id: shop_sink}
state: {conn_id: shop_state}
"""
EXACT, PATTERN = '"shop.orders", "shop.items"', '"shop.old_*"'


def dag_of(tmp_path: Path, tables: str, more: str = "") -> DAG:
    path = tmp_path / "shop.yaml"
    path.write_text(FILE.replace("TABLES", tables) + more, encoding="utf-8")
    return resync_dag(path)


def refuses(dag: DAG, **values: Any) -> bool:
    """Tell whether Airflow refuses a run with these values, before it begins."""
    params: ParamsDict = dag.params.__class__(dag.params)
    try:
        params.update(values)
        params.validate()
    except ParamValidationError:
        return True
    return False


def test_tables_that_the_file_names_are_picked_from_a_list(tmp_path: Path) -> None:
    dag = dag_of(tmp_path, EXACT)
    field = dag.params.get_param("tables").schema
    assert field["examples"] == ["shop.orders", "shop.items"]
    assert "more_tables" not in dag.params
    assert not refuses(dag, tables=["shop.items"])
    assert refuses(dag, tables=["shop.item"])


def test_tables_of_a_pattern_are_written(tmp_path: Path) -> None:
    dag = dag_of(tmp_path, PATTERN)
    assert "examples" not in dag.params.get_param("tables").schema
    assert not refuses(dag, tables=["shop.old_ones"])


def test_a_file_with_both_has_a_list_and_a_field(tmp_path: Path) -> None:
    dag = dag_of(tmp_path, f"{EXACT}, {PATTERN}")
    assert dag.params.get_param("tables").schema["examples"] == ["shop.orders", "shop.items"]
    assert not refuses(dag, more_tables=["shop.old_ones"])
    page = f"/cdc/page?dag_id={dag.dag_id}) has all tables in a list"
    assert page in dag.params.get_param("more_tables").schema["description_md"]


def test_the_first_thing_is_a_dry_run_and_nothing_is_chosen(tmp_path: Path) -> None:
    params = dag_of(tmp_path, EXACT).params.dump()
    assert (params["dry_run"], params["tables"], params["all_tables"]) == (True, [], False)


def test_what_every_run_needs_is_in_the_section_that_airflow_opens(tmp_path: Path) -> None:
    """It opens its own, of the fields without one; all others are closed until somebody clicks."""
    fields = dag_of(tmp_path, f"{EXACT}, {PATTERN}").params
    closed = [name for name in fields if fields.get_param(name).schema.get("section")]
    assert closed == ["from_key", "to_key", "where"]


def test_a_field_that_was_emptied_again_is_as_good_as_an_untouched_one(tmp_path: Path) -> None:
    """Airflow's form gives null for a list in which nothing is chosen any more."""
    dag = dag_of(tmp_path, f"{EXACT}, {PATTERN}")
    assert not refuses(dag, tables=None, more_tables=None, all_tables=True)


@pytest.mark.parametrize(
    ("more", "limit"), [("", 1_000_000), ("requests: {approve_above_rows: 500}\n", 500)]
)
def test_one_is_asked_above_the_files_own_limit(tmp_path: Path, more: str, limit: int) -> None:
    assert dag_of(tmp_path, EXACT, more).params["ask_above_rows"] == limit


def test_a_run_begins_by_hand_or_by_another_dag_and_several_may(tmp_path: Path) -> None:
    dag = dag_of(tmp_path, EXACT)
    assert dag.schedule is None
    assert not dag.catchup
    assert dag.max_active_runs > 1
    kinds: Any = dag.allowed_run_types
    assert {kind.value for kind in kinds} == {"manual", "operator_triggered"}


def test_the_dag_survives_airflows_serialization(tmp_path: Path) -> None:
    dag = dag_of(tmp_path, f"{EXACT}, {PATTERN}")
    stored = DagSerialization.from_dict(DagSerialization.to_dict(dag))
    assert set(stored.task_dict) == {"check", "estimate", "approve", "resync"}
    assert stored.params.dump() == dag.params.dump()


def folder(tmp_path: Path, text: str, **options: Any) -> dict[str, DAG]:
    tmp_path.joinpath("shop.yaml").write_text(text, encoding="utf-8")
    return cdc_dags(tmp_path, {}, **options)


def test_a_folders_pipelines_have_one_beside_their_sync(tmp_path: Path) -> None:
    text = FILE.replace("TABLES", EXACT)
    assert {"shop__sync", "shop__resync"} <= set(folder(tmp_path, text))
    assert "shop__resync" not in folder(tmp_path, text, resync=False)


def test_a_change_log_takes_no_rows_again_and_has_none(tmp_path: Path) -> None:
    text = FILE.replace("TABLES", EXACT).replace(
        "{conn_id: shop_sink}", "{type: changelog, path: /data/changes}"
    )
    assert "shop__resync" not in folder(tmp_path, text)


@pytest.mark.parametrize("text", ["pipeline: shop\n  - [", FILE.replace("TABLES", EXACT) + "x: 1"])
def test_a_wrong_file_keeps_it_and_it_says_what_is_wrong(tmp_path: Path, text: str) -> None:
    dag = folder(tmp_path, text)["shop__resync"]
    assert "broken" in dag.tags
    assert set(dag.task_dict) == {"check", "estimate", "approve", "resync"}
    check: Any = dag.task_dict["check"]
    with pytest.raises(AirflowFailException, match=r"shop\.yaml"):
        check.execute({})


@pytest.mark.parametrize(
    ("params", "why"),
    [
        ({}, "no table is chosen"),
        ({"tables": [], "more_tables": None}, "no table is chosen"),
        ({"all_tables": True, "tables": ["shop.a"]}, "all tables are chosen, and single ones"),
        ({"all_tables": True, "more_tables": ["shop.a"]}, "all tables are chosen, and single"),
    ],
)
def test_a_form_that_says_nothing_or_two_things_is_refused(
    params: dict[str, Any], why: str
) -> None:
    with pytest.raises(RefusedError, match=why):
        chosen(params)


def test_what_is_to_be_approved_is_a_list_in_which_no_name_is_markup() -> None:
    """Airflow shows a block of code as one line without end."""
    table = TableId("shop", "a`*b*")
    text = _markdown("shop", Scope((table,)), {str(table): ["about 5 rows", "1 MB"]}, "a reader")
    assert "- `` shop.a`*b* ``: about 5 rows, 1 MB" in text.splitlines()
    assert "Only" not in text
    some = Scope((table,), (KeyRange((1,), (9,)),))
    assert "Only `` " in _markdown("shop", some, {}, "a reader")


def test_what_is_chosen_twice_is_read_once() -> None:
    given = {"tables": ["shop.a"], "more_tables": [" shop.a ", "shop.b", ""]}
    assert chosen(given).tables == ("shop.a", "shop.b")


def test_a_choice_is_handed_on_as_json_and_read_by_other_releases() -> None:
    choice = Choice(("shop.a",), "1", None, "id = 2", dry_run=True, ask_above_rows=5)
    assert Choice.from_payload(choice.to_payload()) == choice
    assert Choice.from_payload({**choice.to_payload(), "later": 1}) == choice
    assert Choice.from_payload({"tables": ["shop.a"]}) == Choice(("shop.a",))
