"""The steps on real servers; Spark's part is played by writing its reports into the ledger."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

import pytest

from airflow_cdc_provider.core.errors import (
    AccessDeniedError,
    FencedError,
    LeaseHeldError,
    LogPurgedError,
    NotStoppedYetError,
    RefusedError,
    RetryableError,
    StepMissingError,
    TableChangedError,
)
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.lifecycle import Phase, SplitStatus, Wanted
from airflow_cdc_provider.core.requests import RequestKind
from airflow_cdc_provider.core.stored_error import StoredError
from airflow_cdc_provider.pipeline.run import Run, take_over
from airflow_cdc_provider.pipeline.steps.checking import check, require_fit
from airflow_cdc_provider.pipeline.steps.finishing import inconsistent_tables, not_consistent
from airflow_cdc_provider.pipeline.steps.handing_off import hand_off
from airflow_cdc_provider.pipeline.steps.pausing import pause, resume
from airflow_cdc_provider.pipeline.steps.planning import plan, preview
from airflow_cdc_provider.pipeline.steps.reset_drop import drop, reset
from airflow_cdc_provider.pipeline.steps.sink import open_ledger
from airflow_cdc_provider.pipeline.steps.start_jobs import start_snapshot, start_stream
from airflow_cdc_provider.pipeline.steps.verifying import verify
from airflow_cdc_provider.state.desired_state import want
from airflow_cdc_provider.views.status import status
from tests.behaviours.state_behaviours import at
from tests.pipeline.conftest import Shop
from tests.pipeline.shop_steps import planned_splits, publish, report_of, snapshot_done


def test_a_plan_is_made_once_and_gone_on_with(shop: Shop) -> None:
    run = shop.run()
    made = plan(run)
    assert made.is_new
    assert not made.handed_off
    assert made.created == (f"{shop.target}.orders",)
    assert shop.sink_rows("SHOW TABLES") == [("orders",)]
    again = plan(shop.run())
    assert (again.is_new, again.plan_id, again.created) == (False, made.plan_id, ())
    assert again.generation > made.generation
    assert run.store.ensure(run.name).phase is Phase.PLANNING


def test_tables_that_come_or_go_after_the_plan_are_told(shop: Shop) -> None:
    plan(shop.run())
    shop.at_source("CREATE TABLE later (id INT PRIMARY KEY)")
    again = plan(shop.run())
    assert again.not_copied == (f"{shop.database}.later",)
    assert preview(shop.run()).not_copied == again.not_copied
    assert [str(p.schema.table) for p in again.tables] == [f"{shop.database}.orders"]


def test_the_hand_off_waits_for_every_split(shop: Shop) -> None:
    run = shop.run()
    plan(run)
    with pytest.raises(StepMissingError, match="not done"):
        hand_off(run)
    splits = planned_splits(run)
    publish(shop, run, [(splits[0], report_of(run, splits[0]))])
    with pytest.raises(StepMissingError, match=splits[1].split_id):
        hand_off(run)
    assert open_ledger(run).stream() is None


def test_the_hand_off_starts_at_the_smallest_h_and_may_be_repeated(shop: Shop) -> None:
    run = shop.run()
    plan(run)
    snapshot_done(shop, run)
    stream = hand_off(run)
    assert stream.start == at(105)
    assert {s.status for s in run.store.splits(run.name)} == {SplitStatus.FINISHED}
    assert hand_off(shop.run()) == stream
    assert run.store.hand_off(run.name) == stream
    assert run.store.ensure(run.name).phase is Phase.HANDED_OFF
    assert plan(shop.run()).handed_off
    assert len(inconsistent_tables(run)) == 1


def test_a_log_read_to_its_end_names_the_splits_that_are_still_to_pass(shop: Shop) -> None:
    run = shop.run()
    plan(run)
    snapshot_done(shop, run)
    hand_off(run)
    told = not_consistent(run, stopped=False)
    assert f"{shop.database}.orders#1" in told.what
    assert f"{shop.database}.orders#0" not in told.what  # the stream starts at its H
    assert str(at(106)) in told.what


def test_rows_of_another_definition_are_not_handed_off_but_read_again(shop: Shop) -> None:
    run = shop.run()
    plan(run)
    state = run.store.ensure(run.name)
    run.store.move(run.name, state.generation, expected=state.phase, to=Phase.SNAPSHOT)
    splits = planned_splits(run)
    reports = [(split, report_of(run, split)) for split in splits]
    reports[1] = (splits[1], replace(reports[1][1], fingerprint="other"))
    publish(shop, run, reports)
    assert hand_off(run).unread == (TableId(shop.database, "orders"),)
    with closing(open_ledger(run)) as ledger:
        assert ledger.reports() == []
    (request,) = run.store.requests(run.name)
    assert (request.kind, request.scope.tables) == (RequestKind.ADD, hand_off(run).unread)


def test_a_reset_state_store_is_rebuilt_from_a_ledger_that_streams(shop: Shop) -> None:
    run = shop.run()
    made = plan(run)
    snapshot_done(shop, run)
    stream = hand_off(run)
    shop.forget_state()
    rebuilt = shop.run()
    again = plan(rebuilt)
    assert (again.is_new, again.plan_id, again.handed_off) == (False, made.plan_id, True)
    assert again.generation > made.generation
    assert rebuilt.store.hand_off(rebuilt.name) == stream
    assert rebuilt.store.ensure(rebuilt.name).phase is Phase.HANDED_OFF


def test_a_reset_state_store_before_the_hand_off_reads_again(shop: Shop) -> None:
    run = shop.run()
    made = plan(run)
    publish(shop, run, [(s, report_of(run, s)) for s in planned_splits(run)[:1]])
    shop.forget_state()
    rebuilt = shop.run()
    again = plan(rebuilt)
    assert again.is_new
    assert again.plan_id != made.plan_id
    assert open_ledger(rebuilt).reports() == []


def test_an_older_run_is_fenced_in_state_and_ledger(shop: Shop) -> None:
    run = shop.run()
    old = plan(run).generation
    splits = planned_splits(run)
    plan(shop.run())
    with pytest.raises(FencedError):
        run.store.mark_split(run.name, old, splits[0], SplitStatus.READING)
    ledger = open_ledger(run)
    with pytest.raises(FencedError):
        ledger.take_over(old)


def test_a_live_lease_of_another_owner_is_respected(shop: Shop) -> None:
    plan(shop.run("dag a"))
    with pytest.raises(LeaseHeldError, match="dag a"):
        plan(shop.run("dag b"))
    run = shop.run("dag a")
    run.store.release_lease(run.name, run.store.ensure(run.name).generation)
    plan(shop.run("dag b"))


def test_a_lease_of_a_process_that_is_gone_is_not_waited_for(shop: Shop) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    host = socket.gethostname()
    plan(shop.run(f"process {gone.pid} on {host}"))
    plan(shop.run(f"process {os.getpid()} on {host}"))
    with pytest.raises(LeaseHeldError):
        plan(shop.run("someone else"))


def test_a_paused_pipeline_starts_no_job(shop: Shop) -> None:
    run = shop.run()
    plan(run)
    with pytest.raises(NotStoppedYetError, match="has not stopped yet"):
        pause(run)
    assert run.store.ensure(run.name).wanted is Wanted.STOP
    with pytest.raises(RefusedError, match="paused"):
        start_snapshot(run)
    resume(run)
    with pytest.raises(StepMissingError, match="not handed off"):
        start_stream(run)


def test_what_never_ran_is_not_said_to_have_rows_and_a_position(shop: Shop) -> None:
    run = shop.run()
    assert "has not run yet" in pause(run)
    assert "has not run yet" in resume(run)
    assert "had no plan" in reset(run)
    assert "is forgotten" in drop(run)
    assert "had no plan" in drop(run)
    assert "had no plan" in reset(run)


def test_after_the_hand_off_there_is_no_snapshot_job(shop: Shop) -> None:
    run = shop.run()
    plan(run)
    snapshot_done(shop, run)
    hand_off(run)
    assert start_snapshot(run) is None


def test_a_reset_forgets_splits_and_stream_and_keeps_the_sink_s_tables(shop: Shop) -> None:
    run = shop.run()
    made = plan(run)
    snapshot_done(shop, run)
    hand_off(run)
    assert "new plan" in reset(run)
    ledger = open_ledger(run)
    assert (ledger.stream(), ledger.reports()) == (None, [])
    assert ledger.plan_id() == run.store.ensure(run.name).plan_id != made.plan_id
    assert run.store.hand_off(run.name) is None
    assert shop.sink_rows("SHOW TABLES") == [("orders",)]


def test_a_dropped_pipeline_is_forgotten_and_old_owners_stay_fenced(shop: Shop) -> None:
    run = shop.run()
    old = plan(run).generation
    snapshot_done(shop, run)
    hand_off(run)
    drop(run)
    assert status(run.store, run.name, now_us=run.store.now_us()).summary == "new"
    assert open_ledger(run).stream() is None
    with pytest.raises(FencedError):
        run.store.renew_lease(run.name, old)
    assert plan(run).is_new


def test_generations_grow_even_if_the_state_store_was_reset(shop: Shop) -> None:
    run = shop.run()
    with closing(open_ledger(run)) as ledger:
        last = [take_over(run, ledger).generation for _ in range(3)][-1]
    shop.forget_state()
    rebuilt = shop.run()
    with closing(open_ledger(rebuilt)) as ledger:
        assert take_over(rebuilt, ledger).generation == last + 1


def streamed_until(shop: Shop, error: StoredError) -> Run:
    """Bring a pipeline to where its stream failed."""
    run = shop.run()
    plan(run)
    snapshot_done(shop, run)
    hand_off(run)
    generation = run.store.ensure(run.name).generation
    for before, after in ((Phase.HANDED_OFF, Phase.STREAMING), (Phase.STREAMING, Phase.FAILED)):
        run.store.move(run.name, generation, expected=before, to=after, error=error)
    return run


@pytest.mark.parametrize("step", [require_fit, plan, hand_off, start_snapshot, start_stream])
def test_a_stream_that_ended_for_good_is_not_gone_on_with(
    shop: Shop, step: Callable[[Run], object]
) -> None:
    purged = LogPurgedError("the log is purged; at risk: none", risk="rows", remedy="accept it")
    run = streamed_until(shop, StoredError.of(purged))
    before = run.store.ensure(run.name)
    with pytest.raises(
        RefusedError,
        match=r"CDC-LOG-002 the log is purged; at risk: none; .*what to do: accept it$",
    ):
        step(run)
    assert run.store.ensure(run.name) == before
    (found,) = check(run).blocks
    assert found.code == "pipeline.ended"


def test_the_next_run_tries_a_stream_again_that_the_page_resumed(shop: Shop) -> None:
    run = streamed_until(shop, StoredError("CDC-INT-008 shop.orders was changed"))
    run.store.release_lease(run.name, run.store.ensure(run.name).generation)
    want(run.store, run.name, Wanted.RUN, by="somebody")
    assert run.store.ensure(run.name).phase is Phase.FAILED
    assert not check(run).blocks
    assert plan(run).handed_off
    assert run.store.ensure(run.name).phase is Phase.HANDED_OFF


def test_a_reset_and_a_resume_let_a_stream_that_ended_go_on(shop: Shop) -> None:
    run = streamed_until(shop, StoredError("CDC-INT-008 shop.orders was changed"))
    assert "met again" in resume(run)
    assert plan(run).handed_off
    generation = run.store.ensure(run.name).generation
    run.store.move(
        run.name,
        generation,
        expected=Phase.HANDED_OFF,
        to=Phase.FAILED,
        error=StoredError.of(TableChangedError("y")),
    )
    reset(run)
    assert not plan(run).handed_off


def test_a_stream_that_lacked_a_grant_needs_no_reset(shop: Shop) -> None:
    run = streamed_until(shop, StoredError.of(AccessDeniedError("a grant is missing")))
    assert plan(run).handed_off


def test_rows_still_on_their_way_are_not_called_different(shop: Shop) -> None:
    run = shop.run()
    plan(run)
    snapshot_done(shop, run)
    hand_off(run)
    generation = run.store.ensure(run.name).generation
    run.store.move(run.name, generation, expected=Phase.HANDED_OFF, to=Phase.STREAMING)
    with pytest.raises(RetryableError, match="did not pass"):
        verify(run, settle_s=0.5)
    run.store.release_lease(run.name, generation)
    report = verify(run, settle_s=60)
    assert (report.equal, report.tables[0].missing) == (False, 3)


def test_only_tables_of_the_plan_are_verified(shop: Shop) -> None:
    run = shop.run()
    with pytest.raises(RefusedError, match="no plan"):
        verify(run)
    plan(run)
    with pytest.raises(RefusedError, match="not in the plan"):
        verify(run, tables=[TableId(shop.database, "other")])
