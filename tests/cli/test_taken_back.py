"""A pause that is taken back, or not reached in time: what each command says, and its exit code."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

import pytest

from airflow_cdc_provider.cli.main import ExitCode
from airflow_cdc_provider.core.errors import (
    NotRestartedYetError,
    NotStoppedYetError,
    PauseTakenBackError,
)
from airflow_cdc_provider.core.lifecycle import Wanted
from airflow_cdc_provider.engine import ownership
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps.pausing import pause, resume
from tests.cli.conftest import Say
from tests.pipeline.changed_sink_tables import continuous
from tests.pipeline.conftest import Shop
from tests.pipeline.shop_tables import at_sink, at_source, synced
from tests.servers.patience import wait_until

NOBODY = "Nothing runs it now"


@pytest.fixture
def streaming(shop: Shop) -> Iterator[Run]:
    """A pipeline that streams in a thread."""
    synced(shop)
    with continuous(shop) as (run, failures):
        shop.at_source("INSERT INTO orders (id) VALUES (9)")
        wait_until(lambda: at_sink(shop, "orders") == at_source(shop, "orders"))
        yield run
    assert not failures


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Owners that begin now look less often what is wanted of them."""
    monkeypatch.setattr(ownership, "_LOOK_EVERY_S", 8.0)


@contextmanager
def held_up(shop: Shop) -> Iterator[None]:
    """Hold the stream up in the middle of a transaction."""
    with closing(shop.sink.connect(shop.target, autocommit=False)) as other:
        other.cursor().execute("INSERT INTO orders (id) VALUES (77)")
        shop.at_source("INSERT INTO orders (id) VALUES (77)")
        time.sleep(1)
        yield
        other.rollback()


def test_a_pause_ends_as_soon_as_it_is_taken_back(slow: None, streaming: Run, shop: Shop) -> None:
    with ThreadPoolExecutor(1) as pool:
        pausing = pool.submit(pause, shop.run("somebody"), wait_s=60)
        wait_until(lambda: streaming.store.ensure(streaming.name).wanted is Wanted.STOP)
        began_s = time.monotonic()
        resume(streaming)
        with pytest.raises(PauseTakenBackError, match="taken back by `resume`"):
            pausing.result(timeout=30)
        assert time.monotonic() - began_s < 3


def test_exit_codes_tell_a_pause_that_was_reached_from_others(
    slow: None, streaming: Run, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = say("pause", "--wait-s", "0")
    assert (said.code, NotStoppedYetError.code in said.err) == (ExitCode.NOT_YET, True)
    streaming.store.want(streaming.name, Wanted.RUN)
    said = say("restart", "--wait-s", "0")
    assert (said.code, NotRestartedYetError.code in said.err) == (ExitCode.NOT_YET, True)
    want = type(streaming.store).want

    def taken_back(store: object, name: object, wanted: Wanted) -> None:
        want(streaming.store, streaming.name, wanted)
        want(streaming.store, streaming.name, Wanted.RUN)

    with monkeypatch.context() as patch:
        patch.setattr(type(streaming.store), "want", taken_back)
        said = say("pause")
    assert (said.code, PauseTakenBackError.code in said.err) == (ExitCode.TAKEN_BACK, True)


def test_a_stream_that_never_heard_of_a_pause_is_said_to_run(
    slow: None, streaming: Run, say: Say
) -> None:
    streaming.store.want(streaming.name, Wanted.STOP)
    told = say("resume").out
    assert f"{streaming.owner} runs it." in told
    assert NOBODY not in told


def test_a_stream_that_has_heard_of_a_pause_is_said_to_end(
    streaming: Run, shop: Shop, say: Say
) -> None:
    with held_up(shop):
        streaming.store.want(streaming.name, Wanted.STOP)
        time.sleep(1.5)
        told = say("resume").out
    assert f"{streaming.owner} is about to end, and nothing runs it then" in told
    assert f"{streaming.owner} runs it." not in told


def test_a_restart_that_takes_a_pause_back_does_not_contradict_itself(
    slow: None, streaming: Run, say: Say
) -> None:
    streaming.store.want(streaming.name, Wanted.STOP)
    told = say("restart").out
    assert f"has begun again, from its last committed position: {streaming.owner}." in told
    assert NOBODY not in told
