"""What errors say of commands, as whoever is in Airflow can do it."""

from __future__ import annotations

import shlex

import pytest

from airflow_cdc_provider.cli.arguments import COMMANDS
from airflow_cdc_provider.core.errors import RefusedError
from airflow_cdc_provider.core.findings import Finding, Level, PipelineCode
from airflow_cdc_provider.core.identifiers import TableId, table_option
from airflow_cdc_provider.hooks.lifecycle_hook import Action
from airflow_cdc_provider.views import in_airflow
from airflow_cdc_provider.views.error_lines import error_lines, finding_lines
from airflow_cdc_provider.views.in_airflow import way_in_airflow


@pytest.mark.parametrize(
    ("remedy", "way"),
    [
        ("`resume` it and run it", "`resume`: the button Resume on the CDC page"),
        (
            "`resume` with --table shop.orders brings it back; ask again then",
            "`resume`: Change… beside the table on the CDC page, the DAG `<pipeline>__tables`, or "
            "`airflow cdc resume a.yaml --table shop.orders`",
        ),
        (
            "`reset` it with --table shop.orders: only that is read again",
            "`reset`: Change… beside the table on the CDC page, the DAG `<pipeline>__tables`, or "
            "`airflow cdc reset a.yaml --table shop.orders`",
        ),
        ("`run` it first, against the same state", "`run`: trigger the DAG `<pipeline>__sync`"),
        ("`cancel` gives it up", "`cancel`: the button Cancel of the request, on the CDC page"),
        (
            "`verify` the table",
            "`verify`: trigger the DAG `<pipeline>__verify`; where there is none, "
            "`airflow cdc verify a.yaml`",
        ),
        (
            "give the smaller key as --from-key; --to-key is not read itself",
            "`--from-key`: the field `from_key` of the run or the task; "
            "`--to-key`: the field `to_key` of the run or the task",
        ),
        ("grant it: `GRANT SELECT ON shop.* TO cdc`; or pip install --force-reinstall x", ""),
        ("see what stands there with `log`", "`log`: `airflow cdc log a.yaml`"),
        (
            "`run` this one with --seeded-from its file",
            "`--seeded-from`: trigger the DAG `<pipeline>__seed`, which finds the file itself, and "
            "then the DAG `<pipeline>__sync`",
        ),
        ("`accept` the source with --source", "`accept`: `airflow cdc accept a.yaml`"),
    ],
)
def test_a_remedy_that_names_a_command_has_its_way_in_airflow(remedy: str, way: str) -> None:
    assert way_in_airflow(remedy, file="a.yaml") == way


def test_dags_have_the_name_of_the_pipeline_where_that_is_known() -> None:
    way = way_in_airflow("`run` this one with --seeded-from its file", pipeline="back")
    assert way == (
        "`--seeded-from`: trigger the DAG `back__seed`, which finds the file itself, and then the "
        "DAG `back__sync`"
    )
    error = RefusedError("gone", where="here", risk="none", remedy="`run` it")
    assert error_lines(error, file="a.yaml", pipeline="shop")[-1].endswith("`shop__sync`")


def test_a_name_in_a_shells_quotes_stays_in_them() -> None:
    table = TableId("shop", "a b; `run` it's")
    remedy = f"`resume` it with {table_option(table)}: it comes back"
    way = way_in_airflow(remedy, file="a.yaml")
    assert way.startswith("`resume`: ")
    assert way.endswith(f"or `airflow cdc resume a.yaml {table_option(table)}`")
    assert shlex.split(table_option(table)) == ["--table", str(table)]
    assert "__sync" not in way


def test_what_is_about_one_table_is_done_to_that_alone() -> None:
    way = way_in_airflow("mend it, then `resume`", file="a.yaml", table="shop.orders")
    assert way.endswith("or `airflow cdc resume a.yaml --table shop.orders`")
    assert way_in_airflow("`run` it", table="shop.orders") == way_in_airflow("`run` it")
    way = way_in_airflow("`reset` with --table, if it is one of ours", table="shop.orders")
    assert way.endswith("or `airflow cdc reset FILE --table shop.orders`")


def test_an_option_is_told_wherever_an_error_names_it() -> None:
    said = way_in_airflow("write the key", "--from-key: 'x' is no number")
    assert said == "`--from-key`: the field `from_key` of the run or the task"


def test_only_commands_and_actions_that_there_are_are_named() -> None:
    named = {*in_airflow.BUTTONS, *in_airflow.REQUEST_BUTTONS, *in_airflow.ACTIONS}
    assert named | {*in_airflow.DAGS, *in_airflow.LOOKS} <= COMMANDS.keys()
    assert {*in_airflow.ACTIONS} == {action.value for action in Action}
    options = {flag for _, group in COMMANDS.values() for option in group for flag in option.flags}
    assert in_airflow.FIELDS.keys() <= options


def test_an_error_and_a_finding_tell_it_on_a_line_of_its_own_where_it_is_asked_for() -> None:
    error = RefusedError("gone", where="here", risk="none", remedy="`drop` the pipeline")
    line = "    in Airflow: `drop`: "
    assert error_lines(error, file="a.yaml")[-1].startswith(line)
    assert not [each for each in error_lines(error) if each.startswith(line)]
    found = Finding(
        PipelineCode.PIPELINE_ENDED,
        Level.WARN,
        "shop.a",
        "it is gone",
        "",
        "",
        "`drop` the pipeline",
    )
    assert finding_lines(found, file="a.yaml")[-1].startswith(line)
    assert not [each for each in finding_lines(found) if each.startswith(line)]
