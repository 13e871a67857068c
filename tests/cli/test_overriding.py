"""Skip and accept on the command line: what is shown, asked, done and recorded."""

from __future__ import annotations

import pytest

from airflow_cdc_provider.core.identifiers import TableId
from tests.cli.conftest import Say
from tests.pipeline.conftest import Shop
from tests.pipeline.statements_as_text import as_text


def test_a_place_is_shown_confirmed_skipped_and_remembered(shop: Shop, say: Say) -> None:
    assert say("run", "--until", "caught-up").code == 0
    as_text(shop, "UPDATE orders o JOIN orders p ON p.id = o.id SET o.note = 'text'")
    refused = say("run", "--until", "caught-up")
    assert refused.code == 3
    assert "CDC-INT-010 the log holds UPDATE as a statement" in refused.err
    place = refused.err.partition("`skip` with --at ")[2].partition(" ")[0]
    unsure = say("skip", "--at", place, "--reason", "a mass update by hand")
    assert unsure.code == 2
    assert "this was not confirmed" in unsure.err
    assert f"to be read again: {shop.database}.orders" in unsure.err + unsure.out
    for missing in (("--at", place), ("--reason", "why")):
        assert say("skip", *missing, "--yes").code == 2
    said = say("skip", "--at", place, "--reason", "a mass update by hand", "--yes", "--json")
    assert said.form["tables"] == [str(TableId(shop.database, "orders"))]
    assert say("run", "--until", "caught-up").code == 0
    assert shop.sink_rows("SELECT DISTINCT note FROM orders") == [("text",)]
    assert "reason: a mass update by hand" in say("status").out
    (made,) = say("status", "--json").form["overrides"]
    assert made["command"] == "skip"
    assert say("verify", "--settle-s", "0").code == 0


def test_a_source_that_is_ours_is_not_accepted_and_what_is_accepted_is_named(
    say: Say,
) -> None:
    assert say("run", "--until", "caught-up").code == 0
    said = say("accept", "--reason", "why", "--yes")
    assert (said.code, "--source" in said.err) == (2, True)
    said = say("accept", "--source", "--reason", "why", "--yes")
    assert (said.code, "nothing to accept" in said.err) == (2, True)


@pytest.mark.usefixtures("shop")
def test_a_second_value_of_an_option_that_takes_one_is_refused(
    say: Say, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        say("resync", "--from-key", "1", "--from-key", "2")
    assert ended.value.code == 2
    assert "--from-key: it takes one value and is given twice" in capsys.readouterr().err


def test_verify_compares_each_table_that_is_named(shop: Shop, say: Say) -> None:
    shop.at_source("CREATE TABLE others (id INT PRIMARY KEY)")
    shop.at_source("CREATE TABLE thirds (id INT PRIMARY KEY)")
    assert say("run", "--until", "caught-up").code == 0
    shop.sink.execute("DELETE FROM orders", database=shop.target)
    named = [f"{shop.database}.{name}" for name in ("orders", "others")]
    said = say("verify", "--table", named[0], "--table", named[1], "--settle-s", "0", "--json")
    assert said.code == 1
    assert [table["table"] for table in said.form["tables"]] == named
