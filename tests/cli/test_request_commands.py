"""Resync, requests and cancel on real servers: what is shown, asked and stored."""

from __future__ import annotations

import re

import pytest

from airflow_cdc_provider.core.requests import RequestStatus
from airflow_cdc_provider.pipeline.steps.handing_off import hand_off
from airflow_cdc_provider.pipeline.steps.planning import plan
from airflow_cdc_provider.pipeline.steps.range_requests import ask_resync, resync_scope
from tests.cli.conftest import Say
from tests.pipeline.conftest import Shop
from tests.pipeline.shop_steps import snapshot_done


@pytest.fixture
def orders(shop: Shop) -> str:
    """The one table of a pipeline that is handed off, and that nobody runs."""
    run = shop.run()
    plan(run)
    snapshot_done(shop, run)
    hand_off(run)
    run.store.release_lease(run.name, run.store.ensure(run.name).generation)
    return f"{shop.database}.orders"


def test_a_dry_run_shows_what_it_is_about_and_asks_for_nothing(say: Say, orders: str) -> None:
    said = say("resync", "--table", orders, "--from-key", "2", "--dry-run")
    assert said.code == 0, said.err
    assert f"{orders}: about 2 rows at the source, about 0 rows at the sink" in said.out
    assert "nothing was asked" in said.out
    form = say("resync", "--dry-run", "--json").form
    assert form["request"] is None
    assert form["estimate"] == [{"table": orders, "source_rows": 3, "sink_rows": 0}]
    assert say("requests").out.splitlines()[-1] == "nothing was asked"


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_without_an_answer_nothing_is_asked(say: Say, orders: str, options: list[str]) -> None:
    refused = say("resync", *options)
    assert refused.code == 2
    assert "--yes" in refused.err
    assert say("requests", "--json").form["requests"] == []


def test_all_tables_are_asked_for_by_the_pipelines_name(
    shop: Shop, say: Say, orders: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def answer(question: str) -> str:
        asked.append(question)
        return "n"

    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("builtins.input", answer)
    assert say("resync").code == 2
    assert say("resync", "--table", orders, "--to-key", "9").code == 2
    name = f"p_{shop.database}"
    assert f"all 1 tables of {name}" in asked[0]
    assert f"{orders} (-inf, 9)" in asked[1]


def test_what_is_asked_is_listed_and_shown_until_it_is_cancelled(say: Say, orders: str) -> None:
    said = say("resync", "--table", orders, "--from-key", "2", "--yes")
    assert said.code == 0, said.err
    assert "nobody is at work: the next run carries it out" in said.out
    found = re.search(r"request (resync-\w{6}):", said.out)
    assert found is not None
    line = f"{found[1]}: resync of {orders} [2, +inf), asked; 0 of about 2 rows in 0 splits"
    for command in ("requests", "status"):
        assert line in say(command).out
    (form,) = say("status", "--json").form["requests"]
    assert (form["id"], form["from_key"], form["to_key"]) == (found[1], [2], None)
    cancelled = say("cancel", found[1], "--json").form["request"]
    assert (cancelled["status"], cancelled["cancel_wanted"]) == ("cancelled", True)
    assert say("status", "--json").form["requests"] == []
    assert f"{orders} [2, +inf), cancelled" in say("requests").out


def test_what_is_being_read_again_is_shown_by_its_table(shop: Shop, say: Say, orders: str) -> None:
    run = shop.run()
    asked = ask_resync(run, resync_scope(run), asked_by="ann")
    generation = run.store.take_over(run.name, "the stream").generation
    run.store.move_request(
        run.name,
        generation,
        asked.request_id,
        expected=RequestStatus.ASKED,
        to=RequestStatus.READING,
    )
    said = say("status")
    assert re.search(rf"{orders} -> .* rows, read again by {asked.request_id}\n", said.out)
    assert "asked by ann at " in said.out
    (table,) = say("status", "--json").form["tables"]
    assert table["requests"] == [asked.request_id]
    assert "to be cancelled" in say("cancel", asked.request_id).out
    again = say("resync", "--yes")
    assert "the stream is at work" in again.out


def test_open_requests_come_first_and_then_the_newest(say: Say, orders: str) -> None:
    for request_id in ("one", "two", "three"):
        assert say("resync", "--yes", "--id", request_id).code == 0
    for request_id in ("two", "one"):
        say("cancel", request_id)
    listed = [each["id"] for each in say("requests", "--json").form["requests"]]
    assert listed == ["three", "two", "one"]


def test_asking_twice_under_one_id_asks_once(say: Say, orders: str) -> None:
    first = say("resync", "--yes", "--id", "nightly", "--json").form["request"]
    assert say("resync", "--yes", "--id", "nightly", "--json").form["request"] == first
    refused = say("resync", "--yes", "--id", "nightly", "--table", orders, "--to-key", "7")
    assert refused.code == 2
    assert "(-inf, 7)" in refused.err


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (["--table", "orders"], "write database.table"),
        (["--from-key", "1"], "--table"),
        (["--id", "a b"], "no id of a request"),
    ],
)
def test_what_is_wrong_is_refused_with_what_to_do(
    say: Say, orders: str, options: list[str], what: str
) -> None:
    refused = say("resync", "--yes", *options)
    assert refused.code == 2
    assert what in refused.err
    assert say("requests", "--json").form["requests"] == []


def test_requests_of_a_pipeline_that_never_ran_are_none_and_make_no_state(
    shop: Shop, say: Say
) -> None:
    assert "nothing was asked" in say("requests").out
    assert [file.name for file in shop.path.parent.iterdir()] == [shop.path.name]
    refused = say("cancel", "resync-abcdef")
    assert refused.code == 2
    assert "`requests` lists those it has" in refused.err
    assert "`run` it first" in say("resync", "--yes").err


def test_while_the_pipeline_is_paused_it_is_asked_for_and_not_waited_for(
    say: Say, orders: str
) -> None:
    say("pause")
    assert "is paused: the first run after `resume`" in say("resync", "--yes").out
    said = say("resync", "--yes", "--wait", "--id", "later")
    assert said.code == 3
    assert "CDC-REQ-002 request later is stored, and" in said.err
    assert "it begins with the first run after `resume`" in said.err
    assert len(say("status", "--json").form["requests"]) == 2


def test_a_large_request_waits_is_shown_so_and_is_approved(shop: Shop, say: Say) -> None:
    assert say("run", "--until", "caught-up").code == 0
    orders = f"{shop.database}.orders"
    shop.path.write_text(shop.path.read_text() + "requests: {approve_above_rows: 2}\n")
    said = say("resync", "--yes", "--id", "large")
    assert said.code == 0, said.err
    assert "it is about more than 2 rows, and waits: `approve` lets it begin" in said.out
    assert f"large: resync of {orders}, waiting;" in say("status").out
    ran = say("run", "--until", "caught-up")
    assert ran.code == 0, ran.err
    assert say("requests", "--json").form["requests"][0]["status"] == "waiting"
    assert "nobody is at work" in say("approve", "large").out
    assert say("run", "--until", "caught-up").code == 0
    assert say("requests", "--json").form["requests"][0]["status"] == "done"
    assert say("approve", "none").code == 2
