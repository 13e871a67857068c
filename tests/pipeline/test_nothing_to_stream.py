"""A catch-up that has nothing to do starts no job; whatever is in doubt is left to the job.

Spark's master answers nowhere here, so a job that is started is refused before its process is.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

import pytest

from airflow_cdc_provider.core.errors import CdcError, RefusedError
from airflow_cdc_provider.core.lifecycle import Phase, Wanted
from airflow_cdc_provider.core.log_reach import LogReach
from airflow_cdc_provider.core.records import NoteKind
from airflow_cdc_provider.pipeline.steps.converging import run_until_caught_up
from airflow_cdc_provider.pipeline.steps.handing_off import hand_off
from airflow_cdc_provider.pipeline.steps.sink import open_ledger
from airflow_cdc_provider.pipeline.steps.start_jobs import catch_up, start_snapshot
from airflow_cdc_provider.views.status import status
from tests.pipeline.conftest import FILE, Shop
from tests.pipeline.without_spark import handed_off, of_another_log, options, refused_job
from tests.servers.given import SqlServer


@pytest.fixture
def shop(empty_shop: Shop) -> Shop:
    source, sink = empty_shop.database, empty_shop.target
    empty_shop.path.write_text(FILE.format(name=f"quiet_{sink}", source=source, sink=sink))
    empty_shop.at_source("CREATE TABLE orders (id INT PRIMARY KEY, note VARCHAR(40))")
    empty_shop.at_source("INSERT INTO orders VALUES (1, 'one'), (2, 'two'), (3, NULL)")
    return empty_shop


def test_a_run_with_nothing_to_do_starts_no_job_and_leaves_the_state_as_one_would(
    shop: Shop,
) -> None:
    handed_off(shop)
    run = shop.run()
    done = run_until_caught_up(run, options(shop))
    assert done.snapshot is None
    assert (done.stream.outcome, done.stream.log) == ("finished", None)
    assert (done.stream.result["changes"], done.stream.result["consistent"]) == (0, True)
    assert not (shop.path.parent / "logs").exists()
    found = status(run.store, run.name, now_us=run.store.now_us())
    assert found.state.phase is Phase.STOPPED
    assert found.is_consistent
    assert found.stream is not None
    assert (found.stream.lag_us, found.stream.generation) == (0, found.state.generation)
    assert found.state.lease_until_us == 0
    assert any("nothing to stream" in event.text for event in found.events)


def test_it_notes_how_far_the_log_reaches_back(shop: Shop) -> None:
    run = handed_off(shop)
    run_until_caught_up(run, options(shop))
    note = run.store.note(run.name, NoteKind.LOG_REACH)
    assert note is not None
    files = [int(row[1]) for row in shop.source.execute("SHOW BINARY LOGS")]
    reach = LogReach(**note.form)
    assert reach.files == len(files)
    assert reach.applied_bytes is not None
    assert 0 < reach.applied_bytes <= reach.kept_bytes <= sum(files)
    kept_s = shop.source.execute("SELECT @@global.binlog_expire_logs_seconds")[0][0]
    assert reach.kept_s == kept_s


def test_steps_before_the_stream_leave_one_alone_that_is_at_work(shop: Shop) -> None:
    """As when such a task is cleared by itself: it has nothing to do, and must not fence it."""
    run = handed_off(shop)
    state = run.store.ensure(run.name)
    run.store.move(run.name, state.generation, expected=state.phase, to=Phase.STREAMING)
    streaming = run.store.ensure(run.name)
    again = shop.run(owner=run.owner)
    assert start_snapshot(again, options(shop)) is None
    with closing(open_ledger(again)) as ledger:
        assert hand_off(again) == ledger.stream()
        assert ledger.generation() == streaming.generation
    now = run.store.ensure(run.name)
    assert (now.generation, now.phase) == (streaming.generation, Phase.STREAMING)


def test_it_does_nothing_again_and_again_each_time_as_the_newest_owner(shop: Shop) -> None:
    first = handed_off(shop)
    generations = []
    for _ in range(2):
        run = shop.run()
        assert catch_up(run, options(shop)).log is None
        generations.append(run.store.ensure(run.name).generation)
    assert generations == sorted({*generations})
    assert generations[0] > first.held.generation


def test_a_change_that_waits_needs_a_job(shop: Shop) -> None:
    run = handed_off(shop)
    shop.at_source("INSERT INTO orders VALUES (4, 'four')")
    refused_job(shop, run)


def test_a_log_that_grew_by_what_is_not_ours_is_read(
    shop: Shop, fresh_database: Callable[[SqlServer], str]
) -> None:
    run = handed_off(shop)
    fresh_database(shop.source)
    refused_job(shop, run)


def test_a_table_that_is_not_consistent_needs_a_job(shop: Shop) -> None:
    run = handed_off(shop, between=lambda: shop.at_source("INSERT INTO orders VALUES (4, 'four')"))
    refused_job(shop, run)


def test_a_log_that_is_not_known_again_is_the_jobs_to_tell(shop: Shop) -> None:
    """Law 10: nothing is to be read, and the log is still compared with what was read."""
    refused_job(shop, handed_off(shop, of_another_log))


def test_a_source_that_does_not_answer_is_the_jobs_to_tell(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = handed_off(shop)
    servers = replace(run.servers, source=replace(run.servers.source, port=1))
    refused_job(shop, replace(run, servers=servers))


def test_a_paused_pipeline_is_refused_though_nothing_is_to_do(shop: Shop) -> None:
    run = handed_off(shop)
    run.store.want(run.name, Wanted.STOP)
    with pytest.raises(RefusedError, match="paused"):
        catch_up(run, options(shop))


def test_a_changed_file_is_refused_though_nothing_is_to_do(shop: Shop) -> None:
    handed_off(shop)
    shop.path.write_text(shop.path.read_text().replace(f"{shop.target}.*", f"{shop.target}.x_*"))
    with pytest.raises(CdcError, match="route"):
        catch_up(shop.run(), options(shop))
