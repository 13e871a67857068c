"""A job that an earlier try left is found and ended, and nothing else is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_cdc_provider.core.identifiers import PipelineName
from airflow_cdc_provider.core.jobspec import JobKind, JobSpec
from airflow_cdc_provider.hooks.job_handle import (
    JobHandle,
    args_hash,
    end_earlier_job,
    remember,
    stop_group,
)
from tests.airflow.conftest import TaskState

if TYPE_CHECKING:
    from collections.abc import Iterator

SPEC = JobSpec(PipelineName("shop"), 3, JobKind.SNAPSHOT)
# A leader with a child, as a driver has its JVM; it does not end when asked to.
STUBBORN = (
    "import signal, subprocess, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']); "
    "print(child.pid, flush=True); time.sleep(60)"
)


def is_running(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


@pytest.fixture
def job() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE, start_new_session=True
    )
    yield process
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def child_of(job: subprocess.Popen[bytes]) -> int:
    assert job.stdout is not None
    return int(job.stdout.readline())


def test_a_job_left_behind_is_ended_with_all_it_started(job: subprocess.Popen[bytes]) -> None:
    child = child_of(job)
    store = TaskState()
    remember(store, JobHandle.of(SPEC, job.pid, Path("job.log")))
    left = end_earlier_job(store, patience_s=0.2)
    assert left is not None
    assert job.wait(5) == -signal.SIGKILL
    deadline = time.monotonic() + 5
    while is_running(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_running(child)


def test_a_process_that_only_has_the_number_is_left_alone(job: subprocess.Popen[bytes]) -> None:
    child_of(job)
    handle = JobHandle.of(SPEC, job.pid, Path("job.log"))
    other = replace(handle, job_id=f"{handle.job_id}1")  # it started at another moment
    assert not other.stop(patience_s=0.1)
    assert job.poll() is None


def test_a_job_of_another_machine_is_left_alone(job: subprocess.Popen[bytes]) -> None:
    child_of(job)
    handle = JobHandle.of(SPEC, job.pid, Path("job.log"))
    elsewhere = replace(handle, job_id=f"elsewhere{handle.job_id}")
    assert elsewhere.pid is None
    assert not elsewhere.stop(patience_s=0.1)
    assert job.poll() is None


def test_a_process_that_is_gone_is_no_error(job: subprocess.Popen[bytes]) -> None:
    job.kill()
    job.wait()
    stop_group(job.pid, patience_s=0.1)


def test_nothing_remembered_is_nothing_to_end() -> None:
    assert end_earlier_job(TaskState(), patience_s=0.1) is None


def test_a_handle_comes_back_equal_from_its_payload() -> None:
    handle = JobHandle("host:1:2", 3, "abc", "job.log")
    assert JobHandle.from_payload(handle.to_payload()) == handle


@pytest.mark.parametrize("payload", [None, "text", {}, {"other": 1}])
def test_what_is_not_a_handle_is_none(payload: object) -> None:
    assert JobHandle.from_payload(payload) is None


def test_a_job_that_was_told_something_else_is_told_apart(job: subprocess.Popen[bytes]) -> None:
    child_of(job)
    left = JobHandle.of(SPEC, job.pid, Path("job.log"))
    again, changed = (
        JobHandle.of(replace(SPEC, generation=4, split_rows=rows), job.pid, Path("job.log"))
        for rows in (SPEC.split_rows, 1)
    )
    assert left.does_the_same_as(again)
    assert not left.does_the_same_as(changed)
    assert replace(left, args_hash="").does_the_same_as(changed)


def test_the_hash_tells_jobs_apart_and_owners_not() -> None:
    assert args_hash(SPEC) == args_hash(replace(SPEC, generation=4))
    assert args_hash(SPEC) != args_hash(replace(SPEC, split_rows=1))
