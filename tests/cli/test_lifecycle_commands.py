"""Commands for one pipeline and for all of a folder: what is asked, done, and said."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_cdc_provider.cli.main import main
from airflow_cdc_provider.core.errors import AccessDeniedError, SourceUnreachableError
from airflow_cdc_provider.core.lifecycle import Phase, Wanted
from airflow_cdc_provider.core.stored_error import NO_ERROR, StoredError
from airflow_cdc_provider.pipeline.run import give_back
from airflow_cdc_provider.pipeline.steps.converging import run_until_caught_up
from airflow_cdc_provider.pipeline.steps.jobs import SparkOptions
from airflow_cdc_provider.pipeline.steps.pausing import restart
from airflow_cdc_provider.pipeline.steps.planning import plan
from airflow_cdc_provider.views.display import Screen
from tests.cli.conftest import Say
from tests.pipeline.conftest import FILE, Shop
from tests.pipeline.shop_tables import exclude, later
from tests.pipeline.without_spark import NO_SPARK
from tests.said import Said

SayOfFolder = Callable[..., Said]


@pytest.fixture
def folder(shop: Shop) -> Path:
    """Return a folder with two pipelines, of which the second has a wrong password."""
    text = FILE.format(name=f"q_{shop.database}", source=shop.database, sink=shop.target)
    text = text.replace("SHOP_DSN", "WRONG_DSN").replace("DR_DSN", "WRONG_DSN")
    text = text.replace("sink:", "  server_id: 5600-5699\nsink:", 1)
    (shop.path.parent / "wrong.yaml").write_text(text)
    return shop.path.parent


@pytest.fixture
def say_of_folder(
    shop: Shop,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> SayOfFolder:
    dsns = {**shop.environment, "WRONG_DSN": shop.environment["DR_DSN"].replace("://", "://no_")}
    for name, dsn in dsns.items():
        monkeypatch.setenv(name, dsn)

    def run(command: str, *options: str) -> Said:
        capsys.readouterr()
        code = main([command, str(folder), *options])
        out, err = capsys.readouterr()
        return Said(int(code), out, err)

    return run


def test_show_names_wanted_and_actual_state_and_what_is_wrong(
    shop: Shop, say: Say, say_of_folder: SayOfFolder, folder: Path
) -> None:
    plan(shop.run())
    (folder / "bad.yaml").write_text("pipeline: bad\nsauce: 1\n")
    run = shop.run()
    run.store.want(run.name, Wanted.RESTART)
    assert say("status", "--json").form["summary"] == "restarting"
    run.store.want(run.name, Wanted.STOP)
    lines = say_of_folder("show").out.splitlines()
    (line,) = (line for line in lines if line.startswith(f"{run.name}: "))
    assert ", wanted stop, 0/1 tables consistent, 0 open requests, lag unknown" in line
    (at,) = (number for number, line in enumerate(lines) if line.startswith("bad: "))
    assert "3 problems" in lines[at + 1]
    said = say_of_folder("show", "--json")
    assert said.code == 2
    forms = {each["pipeline"]: each for each in said.form["pipelines"]}
    assert forms[str(run.name)]["status"]["wanted"] == "stop"
    assert "sauce" in forms["bad"]["problem"]["what"]
    (one,) = say("show", "--json").form["pipelines"]
    assert one["status"]["phase"] == "planning"


def test_one_pipeline_that_cannot_does_not_keep_the_others_from_being_done(
    shop: Shop, say_of_folder: SayOfFolder
) -> None:
    made = plan(shop.run())
    run = shop.run()
    run.store.release_lease(run.name, made.generation)
    refused = say_of_folder("drop")
    assert refused.code == 2
    assert "--yes" in refused.err
    assert run.store.ensure(run.name).plan_id == made.plan_id
    said = say_of_folder("drop", "--yes")
    assert said.code == 2, said.out
    assert f"{run.name} is forgotten" in said.out
    assert f"q_{shop.database}: CDC-CFG-" in said.out
    assert run.store.ensure(run.name).plan_id == ""


def test_a_folder_is_paused_and_resumed_once_that_is_confirmed(
    shop: Shop, say_of_folder: SayOfFolder, folder: Path
) -> None:
    run = shop.run()
    assert say_of_folder("pause").code == 2
    said = say_of_folder("pause", "--yes", "--json")
    assert said.code == 0, said.err
    names = {str(run.name), f"q_{shop.database}"}
    assert {each["pipeline"] for each in said.form["pipelines"]} == names
    assert run.store.ensure(run.name).wanted is Wanted.STOP
    assert say_of_folder("resume", "--yes").code == 0
    assert run.store.ensure(run.name).wanted is Wanted.RUN
    for file in folder.glob("*.yaml"):
        file.unlink()
    assert "no pipeline file" in say_of_folder("resume", "--yes").err


def test_a_restart_keeps_the_failure_that_it_meets(shop: Shop) -> None:
    made, run = plan(shop.run()), shop.run()
    refused = StoredError.of(AccessDeniedError("the sink answered error 1045"))

    def fail() -> None:
        phase = run.store.ensure(run.name).phase
        run.store.move(run.name, made.generation, expected=phase, to=Phase.FAILED, error=refused)
        run.store.release_lease(run.name, made.generation)

    with pytest.raises(AccessDeniedError, match="1045"):
        restart(run, wait_s=30, on_tick=fail)
    state = run.store.ensure(run.name)
    assert (state.phase, state.wanted, state.error) == (Phase.FAILED, Wanted.RUN, refused)
    assert "may run again" in restart(run)  # without an owner it is set aside
    assert not run.store.ensure(run.name).error


def test_a_table_is_not_asked_of_a_folder(say_of_folder: SayOfFolder) -> None:
    said = say_of_folder("reset", "--yes", "--table", "a.b")
    assert (said.code, "one pipeline's" in said.err) == (2, True)


@pytest.mark.parametrize("answers", [[False], [True, False], [True, True]])
def test_a_reset_is_asked_twice(
    shop: Shop, say: Say, monkeypatch: pytest.MonkeyPatch, answers: list[bool]
) -> None:
    run = shop.run()
    made = plan(run)
    give_back(run)
    left = list(answers)
    monkeypatch.setattr(Screen, "ask", lambda *_: left.pop(0))
    assert (say("reset").code == 0) is all(answers)
    assert left == []
    assert (run.store.ensure(run.name).plan_id != made.plan_id) is all(answers)


def test_a_restart_where_nobody_is_at_work_clears_what_failed(shop: Shop, say: Say) -> None:
    run = shop.run()
    generation = plan(run).generation
    run.store.move(
        run.name,
        generation,
        expected=Phase.PLANNING,
        to=Phase.FAILED,
        error=StoredError.of(SourceUnreachableError("away")),
    )
    give_back(run)
    assert say("status", "--json").form["summary"] == "failed"
    assert "goes on from its last committed position" in say("restart").out
    state = run.store.ensure(run.name)
    assert (state.phase, state.error, state.wanted) == (Phase.PLANNING, NO_ERROR, Wanted.RUN)


@pytest.mark.parametrize("command", ["restart", "resume"])
def test_a_pipeline_that_nothing_runs_after_it_was_let_go_on_says_so(
    shop: Shop, say: Say, command: str
) -> None:
    run = shop.run()
    away = StoredError.of(SourceUnreachableError("away"))
    generation = plan(run).generation
    run.store.move(run.name, generation, expected=Phase.PLANNING, to=Phase.FAILED, error=away)
    give_back(run)
    nobody = "problem: it is wanted to run, and nothing runs it"
    assert nobody not in say("show").out
    assert say(command).code == 0
    for look in ("show", "status"):
        assert nobody in say(look).out
        assert "nothing runs it" in str(say(look, "--json").form)
    run.store.want(run.name, Wanted.STOP)
    assert nobody not in say("show").out
    run.store.want(run.name, Wanted.RUN)
    run.store.take_over(run.name, "somebody")
    assert nobody not in say("show").out


def test_a_pipeline_that_runs_now_and_then_rests_without_a_problem(shop: Shop, say: Say) -> None:
    shop.path.write_text(shop.path.read_text() + "stream: {mode: bounded}\n")
    run = shop.run()
    plan(run)
    give_back(run)
    assert "nothing runs it" not in say("show").out


def test_a_table_is_dropped_at_the_sink_once_its_rows_were_told_and_it_was_confirmed(
    shop: Shop, say: Say
) -> None:
    table = later(shop)
    run = shop.run()
    run_until_caught_up(run, SparkOptions(NO_SPARK))
    give_back(run)
    exclude(shop, table)
    asked = ("--table", str(table), "--drop-target")
    refused = say("remove", *asked)
    assert refused.code == 2
    assert f"to be dropped at the sink: {shop.target}.later, with its 3 rows" in refused.out
    assert len(shop.sink_rows("SHOW TABLES")) == 2
    assert f"{shop.target}.later is dropped" in say("remove", *asked, "--yes").out
    assert shop.sink_rows("SHOW TABLES") == [("orders",)]


def test_a_table_is_paused_and_resumed_alone(shop: Shop, say: Say) -> None:
    later(shop)
    run = shop.run()
    run_until_caught_up(run, SparkOptions(NO_SPARK))
    give_back(run)
    table = f"{shop.database}.later"
    refused = say("pause", "--table", table, "--table", f"{shop.database}.orders")
    assert refused.code == 2
    assert "no table would be left" in refused.err
    said = say("pause", "--table", table)
    assert said.code == 0, said.err
    assert "nobody is at work, and the next run does it" in said.out
    run_until_caught_up(run, SparkOptions(NO_SPARK))
    give_back(run)
    assert {row["source"]: row["phase"] for row in say("status", "--json").form["tables"]} == {
        table: "paused",
        f"{shop.database}.orders": "consistent",
    }
    assert not say("status", "--json").form["consistent"]
    assert "a person paused it" in say("check").out
    assert "the stream leaves" in say("resync", "--table", table, "--yes").err
    assert say("verify").code == 0  # it stands where the source still is
    assert say("resume", "--table", table).code == 0
    run_until_caught_up(run, SparkOptions(NO_SPARK))
    assert say("status", "--json").form["consistent"]


def test_the_throttle_is_shown_changed_and_given_back_to_the_file(say: Say) -> None:
    assert "throttle: no limit (from the file)" in say("throttle").out
    said = say("throttle", "--rows-per-second", "5000", "--max-threads-running", "40")
    assert "throttle: 5,000 rows/s, up to 40 running threads (from the file, " in said.out
    assert "nobody runs the pipeline now; who does next takes it up" in said.out
    assert "throttle: 5,000 rows/s, up to 40 running threads" in say("status").out
    said = say("throttle", "--critical-threads-running", "40")
    assert (said.code, "40 ends the snapshot before max_threads_running" in said.err) == (2, True)
    for wrong in ("0", "-1", "fast", "nan", "inf"):
        assert say("throttle", f"--mb-per-second={wrong}").code == 2
    assert say("throttle", "--off", "--mb-per-second", "1").code == 2
    form = say("throttle", "--rows-per-second", "none", "--json").form["throttle"]
    assert form["limits"]["rows_per_second"] is None
    assert form["limits"]["max_threads_running"] == 40
    assert "throttle: no limit (set by " in say("throttle", "--off").out
    assert "throttle: no limit (from the file)" in say("throttle", "--from-file").out
    assert "throttle: " not in say("status").out.split("owner:")[0]
