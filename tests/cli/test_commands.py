"""The commands on real servers: exit codes, words for people, JSON for programs, no secrets."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace

import pytest

from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.lifecycle import Phase
from airflow_cdc_provider.pipeline.steps.handing_off import hand_off
from airflow_cdc_provider.pipeline.steps.planning import plan
from tests.cli.conftest import Say
from tests.pipeline.conftest import Shop
from tests.pipeline.shop_steps import planned_splits, publish, report_of, snapshot_done
from tests.systems.mysql.read_logs import position_of


def test_a_fit_pipeline_passes_the_check(say: Say) -> None:
    said = say("check")
    assert said.code == 0
    assert "fine: 1 table;" in said.out
    assert said.err == ""


def test_a_check_that_blocks_names_the_fix_and_exits_with_2(shop: Shop, say: Say) -> None:
    shop.at_source("CREATE TABLE isam (a INT PRIMARY KEY) ENGINE=MyISAM")
    said = say("check")
    assert said.code == 2
    assert "[block]" in said.out
    assert "ALTER TABLE" in said.out
    assert "Traceback" not in said.err
    form = say("check", "--json").form
    assert form["refused"]
    assert [f["code"] for f in form["findings"] if f["level"] == "block"] == ["table.engine"]


def test_a_run_of_a_blocked_pipeline_starts_nothing(shop: Shop, say: Say) -> None:
    shop.at_source("CREATE TABLE isam (a INT PRIMARY KEY) ENGINE=MyISAM")
    assert say("run", "--until", "caught-up").code == 2
    assert say("status", "--json").form["generation"] == 0


def test_a_plan_shows_what_a_run_would_do_and_changes_nothing(shop: Shop, say: Say) -> None:
    said = say("plan", "--json")
    assert said.code == 0
    (table,) = said.form["tables"]
    assert (table["source"], table["sink"]) == (f"{shop.database}.orders", f"{shop.target}.orders")
    assert (table["key"], table["estimated_splits"]) == (["id"], 1)
    assert shop.sink_rows("SHOW TABLES") == []
    assert say("status", "--json").form["plan_id"] == ""


def test_json_is_all_there_is_on_standard_output(say: Say) -> None:
    said = say("status", "--json")
    assert said.form["summary"] == "new"
    assert "the file names no state" in said.err


def test_the_default_state_is_a_file_beside_the_pipeline_file_and_is_said(
    shop: Shop, say: Say
) -> None:
    state = shop.path.with_suffix(".state.db")
    assert f"state: {state}" in say("resume").out
    assert state.exists()


def test_commands_that_only_look_make_no_state(shop: Shop, say: Say) -> None:
    for command in ("check", "plan", "status"):
        assert say(command).code == 0
        assert f"state: {shop.path.with_suffix('.state.db')}" in say(command).out
    refused = say("verify")
    assert refused.code == 2
    assert "has no plan" in refused.err
    shop.at_source("CREATE TABLE isam (a INT PRIMARY KEY) ENGINE=MyISAM")
    assert say("check").code == 2
    assert [file.name for file in shop.path.parent.iterdir()] == [shop.path.name]


def test_status_shows_tables_splits_and_stream(shop: Shop, say: Say) -> None:
    run = shop.run()
    plan(run)
    snapshot_done(shop, run)
    hand_off(run)
    said = say("status")
    assert f"{shop.database}.orders -> {shop.target}.orders" in said.out
    assert re.search(r"splits 2/2, 2 rows", said.out)
    form = say("status", "--json").form
    assert (form["phase"], form["splits_finished"], form["planning_done"]) == (
        "handed_off",
        2,
        True,
    )


def test_the_log_is_shown_around_what_the_sink_has(shop: Shop, say: Say) -> None:
    shop.at_source("INSERT INTO orders VALUES (4, 'a hidden note', 40)")
    run = shop.run()
    plan(run)
    state = run.store.ensure(run.name)
    run.store.move(run.name, state.generation, expected=state.phase, to=Phase.SNAPSHOT)
    here = position_of(shop.source)
    reports = [
        (split, replace(report_of(run, split), low=here, high=here))
        for split in planned_splits(run)
    ]
    publish(shop, run, reports)
    hand_off(run)
    shop.at_source("INSERT INTO orders VALUES (5, 'a hidden note', 50)")
    said = say("log")
    assert said.code == 0, said.err
    assert "hidden" not in said.out
    mark = said.out.index(f"=> {here.binlog}")
    assert said.out.index("WRITE_ROWS") < mark < said.out.rindex("WRITE_ROWS")
    assert said.out.count(f"1 row  {shop.database}.orders") == 2
    form = say("log", "--json", "--values", "--at", str(here.binlog)).form
    assert form["position"] == str(here.binlog)
    assert "a hidden note" in str(form["events"])


def test_the_log_s_end_is_shown_before_there_is_a_stream(shop: Shop, say: Say) -> None:
    said = say("log", "--events", "5")
    assert said.code == 0, said.err
    assert said.out.splitlines()[-1].startswith("=> ")
    assert f"{shop.database}.orders" in said.out
    for wrong in (("--at", "nonsense"), ("--at", ""), ("--events", "0")):
        refused = say("log", *wrong)
        assert refused.code == 2
        assert wrong[0] in refused.err


def test_a_run_says_how_many_rows_of_new_tables_it_read(shop: Shop, say: Say) -> None:
    assert "beside" not in say("run", "--until", "caught-up").out
    for name in ("first", "second"):
        shop.at_source(f"CREATE TABLE {name} (id INT PRIMARY KEY)")
        shop.at_source(f"INSERT INTO {name} VALUES (1), (2)")
    said = say("run", "--until", "caught-up")
    assert "beside the stream: 4 rows of 2 tables read" in said.out
    assert "beside" not in say("run", "--until", "caught-up").out
    shop.at_source("CREATE TABLE third (id INT PRIMARY KEY)")
    for key in (7, 8, 9):
        shop.at_source(f"INSERT INTO orders VALUES ({key}, 'more', {key}0)")
    form = say("run", "--until", "caught-up", "--json").form
    assert form["beside"] == {"rows": 0, "tables": 1}
    assert (form["stream"]["changes"], form["stream"]["transactions"]) == (3, 3)


def test_a_run_says_which_requests_failed_in_it(shop: Shop, say: Say) -> None:
    say("run", "--until", "caught-up")
    orders = f"{shop.database}.orders"
    words = ("--table", orders, "--column", "code", "--from", "1", "--to", "9", "--yes")
    assert say("backfill", *words, "--id", "of-code").code == 0
    shop.at_source("ALTER TABLE orders DROP COLUMN code")
    said = say("run", "--until", "caught-up")
    (line,) = [each for each in said.out.splitlines() if "of-code" in each]
    assert line.startswith(f"warning: the request of-code (backfill of {orders}) failed: CDC-")
    assert "of-code" not in say("run", "--until", "caught-up").out


def test_pause_and_resume_are_heard(shop: Shop, say: Say) -> None:
    assert "is paused" in say("pause").out
    assert say("status", "--json").form["summary"] == "paused"
    refused = say("run", "--until", "caught-up")
    assert refused.code == 2
    assert "resume it first" in refused.err
    assert "may run again" in say("resume").out


@pytest.mark.parametrize("command", ["reset", "drop"])
def test_what_cannot_be_undone_is_asked_for(shop: Shop, say: Say, command: str) -> None:
    run = shop.run()
    made = plan(run)
    run.store.release_lease(run.name, made.generation)
    refused = say(command)
    assert refused.code == 2
    assert "--yes" in refused.err
    assert run.store.ensure(run.name).plan_id == made.plan_id
    assert say(command, "--yes").code == 0
    assert run.store.ensure(run.name).plan_id != made.plan_id


def test_a_wrong_file_is_refused_with_its_line(shop: Shop, say: Say) -> None:
    shop.path.write_text(shop.path.read_text().replace("tables:", "tabels:"))
    said = say("check")
    assert said.code == 2
    assert "line 4, source.tabels: unknown key 'tabels'. Fix: did you mean 'tables'?" in said.err


def test_a_source_that_does_not_answer_is_a_failure_and_not_a_refusal(
    shop: Shop, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_DSN", "mysql://cdc:planted-secret@127.0.0.1:1/")
    said = say("check")
    assert said.code == 3
    assert "what to do:" in said.err
    assert "planted-secret" not in said.out + said.err
    assert "Traceback" not in said.err


def test_a_wrong_password_is_refused_and_never_shown(
    shop: Shop, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Endpoint.parse(shop.environment["SHOP_DSN"])
    monkeypatch.setenv(
        "SHOP_DSN", f"mysql://{source.user}:planted-secret@{source.host}:{source.port}/"
    )
    for options in ([], ["--json"]):
        said = say("check", *options)
        assert said.code == 2
        assert "planted-secret" not in said.out + said.err


def test_a_master_that_no_connection_names_is_refused_with_its_line(shop: Shop, say: Say) -> None:
    shop.path.write_text(shop.path.read_text() + "spark:\n  conn_id: my_spark\n")
    said = say("run", "--until", "caught-up")
    assert said.code == 2
    assert "no connection 'my_spark'" in said.err
    assert "line 9, spark.conn_id" in said.err


@pytest.mark.parametrize("arguments", [[], ["nothing"], ["check"], ["run", "f", "--until", "noon"]])
def test_a_wrong_command_line_exits_with_2(arguments: list[str]) -> None:
    command = [sys.executable, "-m", "airflow_cdc_provider", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "usage:" in done.stderr


def test_what_a_run_would_refuse_a_plan_refuses_too(shop: Shop, say: Say) -> None:
    shop.sink.execute("CREATE TABLE orders (id INT PRIMARY KEY)", database=shop.target)
    said = say("plan")
    assert said.code == 2
    assert "run would refuse to start" in said.out
    assert f"[block] {shop.target}.orders: column note is missing" in said.out
    assert say("plan", "--json").form["refused"]


def test_a_table_that_came_later_is_warned_of_by_every_command(shop: Shop, say: Say) -> None:
    run = shop.run()
    made = plan(run)
    shop.at_source("CREATE TABLE later (id INT PRIMARY KEY)")
    plan(run)
    run.store.release_lease(run.name, run.store.ensure(run.name).generation)
    warning = f"warning: {shop.database}.later fits source.tables and is not in the plan"
    assert f"[warn] {shop.database}.later" in say("check").out
    for command in ("plan", "status"):
        assert warning in say(command).out
    assert warning in say("verify", "--settle-s", "0").out
    assert say("verify", "--json").form["not_copied"] == [f"{shop.database}.later"]
    assert say("status", "--json").form["plan_id"] == made.plan_id


def test_resume_says_what_begins_a_run_where_nothing_does_and_start_is_refused(
    shop: Shop, say: Say
) -> None:
    said = say("resume")
    assert "Nothing runs it now" in said.out
    assert "airflow cdc start" in said.out
    refused = say("start")
    assert refused.code == 2
    assert "no Airflow here" in refused.err
    assert "`run` it in this process" in refused.err
