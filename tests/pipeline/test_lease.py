"""The lease is kept during a step without a job, and only by whose it is."""

from __future__ import annotations

import time
from contextlib import closing

import pytest

from airflow_cdc_provider.core.errors import LeaseHeldError
from airflow_cdc_provider.pipeline.run import Run, give_back, take_over
from airflow_cdc_provider.pipeline.steps.lease import KeptLease
from airflow_cdc_provider.pipeline.steps.sink import open_ledger
from tests.pipeline.conftest import Shop


def owned(run: Run, *, lease_s: float) -> int:
    """Take the pipeline over with a lease of `lease_s`; returns the generation."""
    with closing(open_ledger(run)) as ledger:
        generation = take_over(run, ledger).generation
    run.store.renew_lease(run.name, generation, lease_s)
    return generation


def lease_left_s(run: Run) -> float:
    return (run.store.ensure(run.name).lease_until_us - run.store.now_us()) / 1e6


def test_a_long_step_keeps_others_out(shop: Shop) -> None:
    mine, other = shop.run("mine"), shop.run("other")
    owned(mine, lease_s=1.5)
    with KeptLease(mine, every_s=0.2):
        time.sleep(2)
        with closing(open_ledger(other)) as ledger, pytest.raises(LeaseHeldError):
            take_over(other, ledger)
    assert lease_left_s(mine) > 30


def test_another_runs_lease_is_left_alone(shop: Shop) -> None:
    mine, other = shop.run("mine"), shop.run("other")
    owned(other, lease_s=20)
    with KeptLease(mine, every_s=0.05):
        time.sleep(0.3)
    assert lease_left_s(mine) < 20


def test_a_job_of_the_same_run_may_take_over_in_between(shop: Shop) -> None:
    mine = shop.run("mine")
    first = owned(mine, lease_s=5)
    with KeptLease(mine, every_s=0.1):
        second = owned(mine, lease_s=5)
        time.sleep(0.5)
    assert second > first
    assert mine.store.ensure(mine.name).generation == second
    assert lease_left_s(mine) > 30


def test_a_lease_that_ended_is_not_taken_back(shop: Shop) -> None:
    mine = shop.run("mine")
    owned(mine, lease_s=-1)
    with KeptLease(mine, every_s=0.05):
        time.sleep(0.3)
    assert lease_left_s(mine) < 0


def test_a_lease_that_a_job_gave_back_is_kept_for_the_step_and_given_back_again(
    shop: Shop,
) -> None:
    mine, other = shop.run("mine"), shop.run("other")
    generation = owned(mine, lease_s=5)
    mine.store.release_lease(mine.name, generation)
    with closing(open_ledger(other)) as ledger:
        with KeptLease(mine, every_s=0.1), pytest.raises(LeaseHeldError):
            take_over(other, ledger)
        assert mine.store.ensure(mine.name).lease_until_us == 0
        take_over(other, ledger)


def test_a_run_gives_its_own_lease_back_and_no_newer_one(shop: Shop) -> None:
    mine, again = shop.run("mine"), shop.run("mine")
    owned(mine, lease_s=20)
    held = owned(again, lease_s=20)
    give_back(mine)
    assert lease_left_s(mine) > 10
    give_back(again)
    assert mine.store.ensure(mine.name).generation == held
    assert mine.store.ensure(mine.name).lease_until_us == 0


def test_an_owner_that_took_nothing_over_gives_nothing_back(shop: Shop) -> None:
    owned(shop.run("mine"), lease_s=20)
    onlooker = shop.run("mine")
    give_back(onlooker)
    assert lease_left_s(onlooker) > 10
