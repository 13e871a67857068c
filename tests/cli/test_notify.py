"""A run on real servers notifies a real web server, and shows its URL to nobody."""

from __future__ import annotations

import pytest

from tests.alerts.conftest import PATH, TOKEN, HttpReceiver
from tests.alerts.conftest import receiver as receiver
from tests.cli.conftest import Say
from tests.pipeline.conftest import Shop
from tests.pipeline.isolated_tables import allow_sixes, refuse_sixes

NOTIFY = "notify:\n  webhook:\n    url_env: OPS_WEBHOOK\n"


@pytest.fixture
def notified(shop: Shop, receiver: HttpReceiver, monkeypatch: pytest.MonkeyPatch) -> HttpReceiver:
    shop.at_source("ALTER TABLE orders DROP INDEX code")
    shop.at_source("CREATE TABLE others (id INT PRIMARY KEY)")
    shop.path.write_text(shop.path.read_text() + NOTIFY)
    monkeypatch.setenv("OPS_WEBHOOK", receiver.url)
    return receiver


def test_a_variable_that_is_not_set_is_refused_by_the_check_with_its_line(
    shop: Shop, say: Say
) -> None:
    shop.path.write_text(shop.path.read_text() + NOTIFY)
    said = say("check")
    assert said.code == 2
    assert "line 10, notify.webhook.url_env" in said.err
    assert "OPS_WEBHOOK is not set" in said.err
    assert say("run", "--until", "caught-up").code == 2
    assert say("status", "--json").form["generation"] == 0


def test_a_run_that_is_well_sends_nothing(say: Say, notified: HttpReceiver) -> None:
    assert say("run", "--until", "caught-up").code == 0
    assert notified.asked == 0


def test_a_run_that_is_refused_is_told_once_and_over_with_the_next_that_is_not(
    shop: Shop, say: Say, notified: HttpReceiver
) -> None:
    shop.at_source("CREATE TABLE isam (a INT PRIMARY KEY) ENGINE=MyISAM")
    for _ in range(2):
        assert say("run", "--until", "caught-up").code == 2
    (told,) = notified.got
    assert (told["kind"], told["code"], told["over"]) == ("refused", "CDC-CFG-003", False)
    assert "isam" in told["what"]
    shop.at_source("DROP TABLE isam")
    assert say("run", "--until", "caught-up").code == 0
    assert notified.kinds[1:] == [("refused", True)]


def test_a_run_that_fails_is_told_once_until_one_ends_well(
    shop: Shop, say: Say, notified: HttpReceiver
) -> None:
    shop.at_source("DROP TABLE others")
    assert say("run", "--until", "caught-up").code == 0
    refuse_sixes(shop)  # of the only table
    shop.at_source("INSERT INTO orders VALUES (6, 'six', 60)")
    for _ in range(2):
        assert say("run", "--until", "caught-up").code == 3
    (told,) = notified.got
    assert (told["kind"], told["code"]) == ("failed", "CDC-SNK-003")
    allow_sixes(shop)
    assert say("run", "--until", "caught-up").code == 0
    assert notified.kinds[1:] == [("failed", True)]


def test_a_table_that_stops_in_a_run_is_told_and_that_it_is_copied_again(
    shop: Shop, say: Say, notified: HttpReceiver
) -> None:
    assert say("run", "--until", "caught-up").code == 0
    refuse_sixes(shop)
    shop.at_source("INSERT INTO orders VALUES (6, 'six', 60)")
    say("run", "--until", "caught-up")
    (told,) = notified.got
    assert (told["kind"], told["subject"]) == ("table", f"{shop.database}.orders")
    allow_sixes(shop)
    assert say("run", "--until", "caught-up").code == 0
    assert notified.kinds[1:] == [("table", True)]


@pytest.mark.parametrize("answer", [500, 302])
def test_a_receiver_that_does_not_take_it_fails_no_run_and_its_url_shows_nowhere(
    shop: Shop,
    say: Say,
    notified: HttpReceiver,
    answer: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG")
    notified.answer = answer
    assert say("run", "--until", "caught-up").code == 0
    refuse_sixes(shop)
    shop.at_source("INSERT INTO orders VALUES (6, 'six', 60)")
    said = [say("run", "--until", "caught-up"), say("status"), say("status", "--json")]
    assert notified.asked == 3
    assert f"webhook was not notified of table:{shop.database}.orders: it answered" in said[2].out
    texts = [text for each in said for text in (each.out, each.err)]
    texts += [caplog.text, shop.path.with_suffix(".state.db").read_bytes().decode("latin-1")]
    for text in texts:
        assert TOKEN not in text
        assert PATH not in text
