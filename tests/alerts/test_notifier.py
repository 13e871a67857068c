"""What is sent, when, and how often: a real state store and a real web server."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from airflow_cdc_provider.alerts import sending
from airflow_cdc_provider.alerts.watch import Notifier, NotifyingThread, Watched
from airflow_cdc_provider.core.errors import (
    CdcError,
    LogPurgedError,
    PreflightError,
    RowRefusedError,
    SinkUnreachableError,
    SourceUnreachableError,
    StateUnreachableError,
)
from airflow_cdc_provider.core.lifecycle import Phase, TablePhase, Wanted
from airflow_cdc_provider.core.records import NoteKind
from airflow_cdc_provider.core.requests import Request, RequestKind, RequestStatus, Scope
from airflow_cdc_provider.core.stored_error import StoredError
from airflow_cdc_provider.pipeline.receivers import Webhook
from airflow_cdc_provider.state.store import open_store
from tests.alerts.conftest import (
    ORDERS,
    PATH,
    SHOP,
    TOKEN,
    HttpReceiver,
    ShopState,
    http_receiver,
    until,
)

AWAY = SinkUnreachableError("the sink refused the connection", "db:3306", "rows wait", "start it")
FULL = RowRefusedError("the row does not fit", "shop.orders", "the table", "make room")
PURGED = LogPurgedError("the log is gone", "binlog.000001", "changes", "`reset` the pipeline")


def notifier(shop: ShopState, *receivers: HttpReceiver, **changes: Any) -> Notifier:
    watched = Watched(SHOP, **{"after_s": 60, "link": "https://airflow/cdc", **changes})
    named = ("webhook", "second", "third")
    return Notifier(
        watched,
        shop.store,
        [Webhook(name, each.url) for name, each in zip(named, receivers, strict=False)],
    )


def test_an_outage_is_sent_once_when_it_has_lasted_and_once_when_it_is_over(
    shop: ShopState, receiver: HttpReceiver
) -> None:
    sender = notifier(shop, receiver)
    shop.outage(AWAY, for_s=50)
    sender.look()
    assert receiver.got == []
    shop.later(20)
    for _ in range(3):
        sender.look()
    (told,) = receiver.got
    assert (told["pipeline"], told["kind"], told["over"]) == ("shop", "outage", False)
    assert (told["code"], told["what"]) == ("CDC-SNK-001", AWAY.what)
    assert (told["where"], told["risk"], told["remedy"]) == AWAY.args[1:]
    assert told["link"] == "https://airflow/cdc"
    assert told["since"].endswith("+00:00")
    shop.outage()
    sender.look()
    shop.later(20)
    sender.look()
    assert len(receiver.got) == 1
    shop.later(20)
    for _ in range(3):
        sender.look()
    _, over = receiver.got
    assert (over["over"], over["since"]) == (True, told["since"])
    assert over["id"] != told["id"]
    assert "over after 1 min 10 s" in over["text"]


def test_a_sender_that_starts_again_sends_nothing_twice_and_tells_the_end(
    shop: ShopState, receiver: HttpReceiver
) -> None:
    shop.outage(AWAY)
    notifier(shop, receiver).look()
    shop.outage()
    notifier(shop, receiver).look()
    shop.later(31)
    notifier(shop, receiver).look()
    notifier(shop, receiver).look()
    assert receiver.kinds == [("outage", False), ("outage", True)]


def test_an_outage_that_outlives_its_driver_is_one_outage(
    shop: ShopState, receiver: HttpReceiver
) -> None:
    sender = notifier(shop, receiver)
    shop.outage(AWAY)
    sender.look()
    shop.streaming("another")  # its outages are not noted yet
    sender.look()
    shop.later(20)
    shop.outage(AWAY, for_s=1)
    sender.look()
    shop.later(20)
    sender.look()
    shop.later(100)
    sender.look()
    assert receiver.kinds == [("outage", False)]


def test_two_senders_at_once_send_each_message_once(
    shop: ShopState, receiver: HttpReceiver
) -> None:
    shop.store.mark_table(SHOP, shop.generation, ORDERS, TablePhase.FAILED, StoredError.of(FULL))
    shop.outage(AWAY, SourceUnreachableError("the source is away"))
    stores = [open_store(shop.dsn) for _ in range(4)]
    ready = threading.Barrier(len(stores))

    def look(store: Any) -> None:
        ready.wait()
        Notifier(Watched(SHOP, 60), store, [Webhook("webhook", receiver.url)]).look()

    threads = [threading.Thread(target=look, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for store in stores:
        store.close()
    assert sorted(receiver.kinds) == [("outage", False), ("outage", False), ("table", False)]


def test_a_stopped_table_is_told_and_that_it_is_back(
    shop: ShopState, receiver: HttpReceiver
) -> None:
    sender = notifier(shop, receiver)
    shop.store.mark_table(SHOP, shop.generation, ORDERS, TablePhase.FAILED, StoredError.of(FULL))
    sender.look()
    sender.look()
    shop.store.mark_table(SHOP, shop.generation, ORDERS, TablePhase.PAUSED)
    sender.look()
    shop.later(100)
    sender.look()
    for phase in (TablePhase.CONSISTENT, TablePhase.FAILED, TablePhase.CONSISTENT):
        shop.store.mark_table(SHOP, shop.generation, ORDERS, phase, StoredError.of(FULL))
        sender.look()
        shop.later(20)
    sender.look()
    assert len(receiver.got) == 1
    shop.later(20)
    sender.look()
    sender.look()
    assert receiver.kinds == [("table", False), ("table", True)]
    told = receiver.got[0]
    assert (told["subject"], told["code"]) == ("shop.orders", FULL.code)
    assert "shop.orders is stopped: the row does not fit" in told["text"]
    assert "resume" in told["remedy"]


def test_a_table_that_stops_for_another_reason_is_told_again(
    shop: ShopState, receiver: HttpReceiver
) -> None:
    for error in (FULL, FULL, PURGED):
        shop.store.mark_table(
            SHOP, shop.generation, ORDERS, TablePhase.FAILED, StoredError.of(error)
        )
        notifier(shop, receiver).look()
        notifier(shop, receiver).look()
    assert [one["code"] for one in receiver.got] == [FULL.code, PURGED.code]


def test_an_outage_that_began_long_after_anybody_looked_is_another_one(
    shop: ShopState, receiver: HttpReceiver
) -> None:
    shop.outage(AWAY)
    sender = notifier(shop, receiver)
    for _ in range(20):  # hours of looks at the first
        sender.look()
        shop.later(900)
        shop.outage(AWAY)
    assert len(receiver.got) == 1
    shop.later(86_400)
    shop.outage(AWAY)
    sender.look()
    sender.look()
    assert receiver.kinds == [("outage", False), ("outage", False)]
    assert receiver.got[0]["id"] != receiver.got[1]["id"]


def test_a_message_that_could_not_be_noted_as_sent_is_noted_with_the_next_look(
    shop: ShopState, receiver: HttpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.outage(AWAY)
    sender = notifier(shop, receiver)

    def away(*_: object, **__: object) -> None:
        raise StateUnreachableError("the state store is away")

    with monkeypatch.context() as patched:
        patched.setattr(sender, "_settle", away)
        with pytest.raises(StateUnreachableError):
            sender.look()
    sender.look()
    shop.later(1000)
    notifier(shop, receiver).look()
    assert receiver.kinds == [("outage", False)]


def test_a_table_that_a_person_pauses_is_no_news(shop: ShopState, receiver: HttpReceiver) -> None:
    shop.store.mark_table(SHOP, shop.generation, ORDERS, TablePhase.PAUSED)
    notifier(shop, receiver).look()
    assert receiver.got == []


def test_a_failure_is_in_the_place_of_the_outage_before_it_and_over_when_a_stream_goes_on(
    shop: ShopState, receiver: HttpReceiver
) -> None:
    sender = notifier(shop, receiver)
    shop.outage(AWAY)
    sender.look()
    shop.outage()
    shop.failed(PURGED)
    sender.look()
    shop.later(100)
    sender.look()
    assert receiver.kinds == [("outage", False), ("failed", False)]
    shop.streaming("another")
    sender.look()
    shop.later(40)
    sender.look()
    assert receiver.kinds[2:] == [("failed", True)]


def test_a_run_that_fails_each_time_is_told_once(shop: ShopState, receiver: HttpReceiver) -> None:
    for run in range(3):
        shop.streaming(f"run {run}")
        sender = notifier(shop, receiver)
        sender.look()
        shop.failed(PURGED)
        sender.look(PURGED)
        shop.later(900)
    assert receiver.kinds == [("failed", False)]
    shop.streaming("the last")
    shop.store.move(SHOP, shop.generation, expected=Phase.STREAMING, to=Phase.STOPPED)
    notifier(shop, receiver).look()
    assert receiver.kinds[1:] == [("failed", True)]


def test_what_trying_again_may_mend_is_told_if_it_lasts_or_ends_the_run(
    shop: ShopState, receiver: HttpReceiver
) -> None:
    shop.failed(AWAY)
    notifier(shop, receiver).look()
    assert receiver.got == []
    notifier(shop, receiver).look(AWAY)
    assert receiver.kinds == [("failed", False)]


def test_how_an_earlier_run_ended_is_no_news_to_a_later_one(
    shop: ShopState, receiver: HttpReceiver
) -> None:
    shop.failed(PURGED)
    form = {"step": "preflight", "error": PreflightError("it does not fit").to_json()}
    shop.store.keep_note(SHOP, NoteKind.LAST_TRY, form)
    sender = notifier(shop, receiver)
    shop.ahead_us += 1_000_000
    sender._begun_us = shop.clock_us()
    sender.look()
    shop.generation = shop.store.take_over(SHOP, "the later").generation
    sender.look()
    assert receiver.got == []
    sender.look(PURGED)
    assert receiver.kinds == [("failed", False)]


def test_whatever_is_waited_for_is_told_when_it_has_lasted(
    shop: ShopState, receiver: HttpReceiver
) -> None:
    shop.outage(FULL, for_s=10)
    notifier(shop, receiver).look()
    assert receiver.got == []
    shop.outage(FULL, for_s=61)
    notifier(shop, receiver).look()
    assert receiver.kinds == [("outage", False)]


def test_a_run_that_gives_up_tells_what_the_pipeline_failed_with(
    shop: ShopState, receiver: HttpReceiver
) -> None:
    shop.failed(AWAY)
    shop.later(5)
    sender = notifier(shop, receiver)
    sender._begun_us = shop.clock_us()
    sender.look()
    assert receiver.got == []
    sender.look(CdcError("the stream does not stay alive after 5 restarts"))
    (told,) = receiver.got
    assert (told["kind"], told["code"]) == ("failed", AWAY.code)


def test_a_refused_run_is_told_and_hides_no_outage_of_a_stream_that_goes_on(
    shop: ShopState, receiver: HttpReceiver
) -> None:
    sender = notifier(shop, receiver)
    error = PreflightError("1 thing does not allow a correct copy", "preflight", remedy="mend it")
    form = {"step": "preflight", "error": error.to_json()}
    shop.store.keep_note(SHOP, NoteKind.LAST_TRY, form)
    shop.outage(AWAY)
    sender.look(error)
    assert sorted(receiver.kinds) == [("outage", False), ("refused", False)]
    shop.store.keep_note(SHOP, NoteKind.LAST_TRY, {"step": "preflight", "error": None})
    sender.look()
    assert receiver.kinds[2:] == [("refused", True)]


def test_lag_over_the_target_is_told_and_when_it_is_under_it_again(
    shop: ShopState, receiver: HttpReceiver
) -> None:
    sender = notifier(shop, receiver, freshness_s=300)
    sender.look()
    shop.beat(lag_us=400_000_000)
    sender.look()
    sender.look()
    shop.beat()
    sender.look()
    shop.later(31)
    sender.look()
    assert receiver.kinds == [("lag", False), ("lag", True)]


def test_a_request_that_waits_for_approval_is_told_until_it_does_not(
    shop: ShopState, receiver: HttpReceiver
) -> None:
    sender = notifier(shop, receiver)
    request = Request(
        SHOP, "r1", RequestKind.RESYNC, Scope((ORDERS,)), "ann", 5, RequestStatus.WAITING
    )
    shop.store.ask(request)
    sender.look()
    sender.look()
    (told,) = receiver.got
    assert (told["kind"], told["code"]) == ("approval", "")
    assert "r1 (resync of shop.orders) by ann waits for approval" in told["what"]
    shop.store.approve_request(SHOP, "r1")
    sender.look()
    assert receiver.kinds[1:] == [("approval", True)]


def test_a_pipeline_that_is_paused_on_purpose_has_no_news(
    shop: ShopState, receiver: HttpReceiver
) -> None:
    sender = notifier(shop, receiver)
    shop.outage(AWAY)
    sender.look()
    shop.store.want(SHOP, Wanted.STOP)
    shop.outage(SourceUnreachableError("the source is away"))
    shop.later(100)
    sender.look()
    assert receiver.kinds == [("outage", False)]


def test_a_receiver_that_answers_500_is_tried_again_and_told_of_among_the_events(
    shop: ShopState, receiver: HttpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender = notifier(shop, receiver)
    receiver.answer = 500
    shop.outage(AWAY)
    sender.look()
    sender.look()
    assert receiver.asked == 1
    (text,) = shop.warnings()
    assert "webhook was not notified of outage:CDC-SNK-001: it answered 500; it is tried" in text
    receiver.answer = 200
    shop.later(11)
    notifier(shop, receiver).look()
    assert receiver.kinds == [("outage", False)]


def test_a_receiver_that_never_answers_well_is_given_up_and_hears_of_no_end(
    shop: ShopState, receiver: HttpReceiver
) -> None:
    receiver.answer = 500
    shop.outage(AWAY)
    for _ in range(8):
        notifier(shop, receiver).look()
        shop.later(1000)
    assert receiver.asked == 5
    assert len(shop.warnings()) == 2
    assert "not tried again" in shop.warnings()[0]
    receiver.answer = 200
    shop.outage()
    for _ in range(3):
        notifier(shop, receiver).look()
        shop.later(40)
    assert receiver.got == []


def test_a_problem_that_is_back_is_told_to_all_though_one_did_not_hear_of_its_end(
    shop: ShopState, receiver: HttpReceiver
) -> None:
    with http_receiver() as other:
        sender = notifier(shop, receiver, other)
        shop.outage(AWAY)
        sender.look()
        other.answer = 500
        shop.outage()
        sender.look()
        shop.later(31)
        sender.look()
        other.answer = 200
        shop.later(100)
        shop.outage(AWAY)
        notifier(shop, receiver, other).look()
        assert receiver.kinds == [("outage", False), ("outage", True), ("outage", False)]
        assert other.kinds == [("outage", False), ("outage", False)]


def test_a_redirect_is_no_answer(shop: ShopState, receiver: HttpReceiver) -> None:
    receiver.answer = 302
    shop.outage(AWAY)
    notifier(shop, receiver).look()
    assert "it answered 302" in shop.warnings()[0]


def test_one_receiver_that_fails_keeps_no_other_from_being_told(
    shop: ShopState, receiver: HttpReceiver
) -> None:
    nobody = HttpReceiver(port=9)
    shop.outage(AWAY)
    notifier(shop, nobody, receiver).look()
    assert receiver.kinds == [("outage", False)]
    assert "webhook was not notified" in shop.warnings()[0]


def test_a_message_of_a_sender_that_died_is_sent_by_the_next_one(
    shop: ShopState, receiver: HttpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.outage(AWAY)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("airflow_cdc_provider.alerts.watch.send", killed)
        with pytest.raises(KeyboardInterrupt):
            notifier(shop, receiver).look()
    notifier(shop, receiver).look()
    assert receiver.got == []
    shop.later(181)
    notifier(shop, receiver).look()
    assert receiver.kinds == [("outage", False)]


def watch(shop: ShopState, receiver: HttpReceiver, **changes: Any) -> NotifyingThread:
    hook = Webhook("webhook", receiver.url)
    watched = Watched(SHOP, **{"after_s": 60, **changes})
    return NotifyingThread(watched, lambda: open_store(shop.dsn), [hook], look_s=0.05)


def test_a_receiver_that_hangs_holds_up_nobody_and_shows_no_secret(
    shop: ShopState,
    receiver: HttpReceiver,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(sending, "ANSWER_S", 0.5)
    caplog.set_level(logging.DEBUG)
    receiver.hangs = True
    shop.outage(AWAY)
    watching = watch(shop, receiver)
    began_s = time.monotonic()
    watching.start()
    until(lambda: receiver.asked)
    shop.beat()  # whoever streams goes on
    assert time.monotonic() - began_s < 5
    until(shop.warnings)
    watching.end(wait_s=0.1)
    assert time.monotonic() - began_s < 8
    told = "\n".join((caplog.text, *shop.warnings()))
    assert "timed out" in told
    assert TOKEN not in told
    assert PATH not in told


def test_an_end_waits_no_longer_than_it_may(
    shop: ShopState, receiver: HttpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "ANSWER_S", 3.0)
    receiver.hangs = True
    shop.failed(PURGED)
    watching = watch(shop, receiver)
    watching.start()
    began_s = time.monotonic()
    watching.end(ended_with=PURGED, wait_s=0.5)
    assert time.monotonic() - began_s < 2
    receiver.released.set()
    until(lambda: not watching._thread.is_alive())


def test_the_end_tries_a_few_times_at_once(
    shop: ShopState, receiver: HttpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver.answer = 500
    shop.failed(PURGED)
    watching = watch(shop, receiver)
    watching._look_s = 60
    watching.start()
    threading.Timer(0.5, lambda: setattr(receiver, "answer", 200)).start()
    watching.end(ended_with=PURGED)
    assert receiver.kinds == [("failed", False)]
    assert receiver.asked == 2


def test_a_state_store_that_is_away_ends_nothing(receiver: HttpReceiver, tmp_path: Any) -> None:
    away = f"sqlite:///{tmp_path}/no/such/folder/state.db"
    hook = Webhook("webhook", receiver.url)
    watching = NotifyingThread(Watched(SHOP, 60), lambda: open_store(away), [hook], look_s=0.05)
    watching.start()
    time.sleep(0.3)
    assert watching._thread.is_alive()
    watching.end(ended_with=CdcError("it failed"))
    assert not watching._thread.is_alive()


def test_a_mistake_in_a_look_ends_neither_the_thread_nor_shows_its_text(
    shop: ShopState,
    receiver: HttpReceiver,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def wrong(*_: object, **__: object) -> Callable[[], None]:
        raise TypeError(TOKEN)

    monkeypatch.setattr("airflow_cdc_provider.alerts.watch.seen", wrong)
    watching = watch(shop, receiver)
    watching.start()
    until(lambda: "TypeError" in caplog.text)
    assert watching._thread.is_alive()
    watching.end()
    assert TOKEN not in caplog.text
