"""The health task and the notifier: what is wrong with a pipeline, from its state alone."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk import BaseNotifier
from airflow.sdk.exceptions import AirflowFailException

from airflow_cdc_provider.core.errors import IntegrityError, PreflightError
from airflow_cdc_provider.core.lifecycle import Phase, Wanted
from airflow_cdc_provider.core.records import NoteKind
from airflow_cdc_provider.core.stored_error import StoredError
from airflow_cdc_provider.notifications.status import CdcStatusNotifier, tell_status
from airflow_cdc_provider.operators.health import CdcHealthOperator
from tests.airflow.conftest import SHOP, beat, streaming

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from airflow_cdc_provider.state.store import SqlStateStore

BROKEN = StoredError.of(IntegrityError("broken"))


class Collects(BaseNotifier):
    """A notifier of somebody's own."""

    template_fields = ("text",)

    def __init__(self) -> None:
        super().__init__()
        self.text = "{{ cdc_status }}"
        self.sent: list[str] = []

    def notify(self, context: Any) -> None:
        self.sent.append(self.text)


def health(path: Path, context: Any, **limits: float) -> Any:
    return CdcHealthOperator(task_id="health", pipeline=str(path), **limits).execute(context)


def stopped(store: SqlStateStore, *, lag_us: int) -> None:
    """Leave a stream at rest that was heard of with this lag."""
    generation = streaming(store)
    beat(store, generation, lag_us=lag_us)
    store.move(SHOP, generation, expected=Phase.STREAMING, to=Phase.STOPPED)


def test_a_stream_that_lags_less_than_allowed_is_well(
    store: SqlStateStore, pipeline_file: Callable[..., Path], context: Any
) -> None:
    beat(store, streaming(store), lag_us=59_000_000)
    returned = health(pipeline_file(), context, max_lag_s=60, max_silence_s=60)
    assert returned["lag_s"] == 59


def test_a_bounded_pipeline_between_its_runs_has_no_lag_to_judge(
    store: SqlStateStore, pipeline_file: Callable[..., Path], context: Any
) -> None:
    stopped(store, lag_us=61_000_000)
    bounded = pipeline_file("bounded")
    health(bounded, context, max_lag_s=60)
    with pytest.raises(AirflowFailException, match="longer than 0 s"):
        health(bounded, context, max_lag_s=60, max_silence_s=0)


def test_a_pipeline_whose_next_run_cannot_begin_is_red(
    store: SqlStateStore, pipeline_file: Callable[..., Path], context: Any
) -> None:
    """It rests well where its last run left it, and the next ones fail before they start."""
    stopped(store, lag_us=0)
    bounded = pipeline_file("bounded")
    refused = PreflightError("binlog_format is MIXED").to_json()
    store.keep_note(SHOP, NoteKind.LAST_TRY, {"step": "preflight", "error": refused})
    with pytest.raises(AirflowFailException, match="CDC-CFG-003 binlog_format is MIXED"):
        health(bounded, context)
    store.keep_note(SHOP, NoteKind.LAST_TRY, {"step": "preflight", "error": None})
    health(bounded, context)


def test_a_continuous_pipeline_without_a_stream_at_work_is_red(
    store: SqlStateStore, pipeline_file: Callable[..., Path], context: Any
) -> None:
    stopped(store, lag_us=0)
    with pytest.raises(AirflowFailException, match="its lag is not known"):
        health(pipeline_file("continuous"), context, max_lag_s=60)


@pytest.mark.parametrize(
    ("beats", "words"),
    [
        ({"lag_us": 61_000_000}, "lags 61.0 s behind, more than 60 s"),
        ({"lag_us": None}, "its lag is not known"),
        ({"lag_us": 0, "heartbeat_us": 1}, "longer than 60 s"),
    ],
)
def test_a_stream_that_is_late_or_silent_is_red(
    beats: Any, words: str, store: SqlStateStore, pipeline_file: Callable[..., Path], context: Any
) -> None:
    beat(store, streaming(store), **beats)
    with pytest.raises(AirflowFailException, match=words):
        health(pipeline_file(), context, max_lag_s=60, max_silence_s=60)


def test_a_failed_pipeline_is_red_with_its_error_and_a_paused_one_is_well(
    store: SqlStateStore, pipeline_file: Callable[..., Path], context: Any
) -> None:
    generation = streaming(store)
    store.move(SHOP, generation, expected=Phase.STREAMING, to=Phase.FAILED, error=BROKEN)
    with pytest.raises(AirflowFailException, match="CDC-INT-001 broken"):
        health(pipeline_file(), context)
    store.want(SHOP, Wanted.STOP)
    health(pipeline_file(), context, max_lag_s=60)


def test_the_notifier_tells_through_others_and_in_the_log(
    store: SqlStateStore, pipeline_file: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    generation = streaming(store)
    store.move(SHOP, generation, expected=Phase.STREAMING, to=Phase.FAILED, error=BROKEN)
    mine = Collects()
    with caplog.at_level(logging.WARNING):
        CdcStatusNotifier(pipeline=str(pipeline_file()), through=[mine])({"dag": None})
    (text,) = mine.sent
    assert "- the pipeline failed: CDC-INT-001 broken" in text.splitlines()
    assert "shop: failed" in caplog.text
    assert tell_status(str(pipeline_file()), context={}) == text


def test_a_copy_that_is_older_than_the_file_allows_is_red_also_between_runs(
    store: SqlStateStore, pipeline_file: Callable[..., Path], context: Any
) -> None:
    generation = streaming(store)
    beat(store, generation, lag_us=0, heartbeat_us=store.now_us() - 1_000_000_000)
    store.move(SHOP, generation, expected=Phase.STREAMING, to=Phase.STOPPED)
    path = pipeline_file("bounded")
    health(path, context)
    text = path.read_text(encoding="utf-8")
    path.write_text(f"{text}\nfreshness: {{target: 15m}}\n", encoding="utf-8")
    with pytest.raises(
        AirflowFailException, match="the copy is 16 min 40 s old, and may be 15 min"
    ):
        health(path, context)
    path.write_text(f"{text}\nfreshness: {{target: 1h}}\n", encoding="utf-8")
    health(path, context)
    path.write_text(f"{text}\nfreshness: {{target: 15m}}\n", encoding="utf-8")
    store.want(SHOP, Wanted.STOP)
    health(path, context)
