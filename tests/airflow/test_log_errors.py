"""A task's log, as the worker's process writes it: the error's parts, and no stack around them.

In processes of their own, for logging is set up once for all of a process.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from airflow_cdc_provider.core.errors import RefusedError
from airflow_cdc_provider.hooks.job_log import log_shown_on_failure

_TASK = """
import sys
import structlog
from airflow.sdk.log import configure_logging
from airflow_cdc_provider.core.errors import SourceUnreachableError
from airflow_cdc_provider.operators.base import airflow_errors
from airflow_cdc_provider.operators.log_errors import failure

configure_logging(json_output=True, output=sys.stdout.buffer)
log = structlog.get_logger(logger_name="task")
log.info("bound before the error")

def run():
    with airflow_errors():
        raise {error}

try:
    run()
except Exception:
    log.exception("Task failed with exception")
"""


def logged(error: str) -> list[dict[str, Any]]:
    """Run a task that ends with an error, and return what it wrote to its log."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _TASK.format(error=error)],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def test_an_error_with_a_code_is_told_in_lines_and_without_a_stack() -> None:
    lines = logged("SourceUnreachableError('no answer', 'db:3306', 'none', 'bring it back')")
    assert [(line["level"], line["event"]) for line in lines[1:]] == [
        ("error", "CDC-SRC-001 no answer"),
        ("error", "    where: db:3306"),
        ("error", "    at risk: none"),
        ("error", "    what to do: bring it back"),
        ("error", "Task failed with exception"),
    ]
    assert not [line for line in lines if line.keys() & {"error_detail", "exception", "exc_info"}]


def test_a_remedy_that_names_a_command_is_told_as_what_does_it_in_airflow() -> None:
    lines = logged("SourceUnreachableError('gone', 'here', 'none', '`resume` it')")
    assert "    in Airflow: `resume`: the button Resume on the CDC page" in [
        line["event"] for line in lines
    ]


def test_a_task_that_fails_for_another_reason_says_it_too() -> None:
    lines = logged("failure('the run was given a field that is not known')")
    assert [line["event"] for line in lines[1:]] == [
        "the run was given a field that is not known",
        "Task failed with exception",
    ]
    assert not [line for line in lines if line.keys() & {"error_detail", "exception", "exc_info"}]


def test_a_task_that_fails_for_several_reasons_says_each_on_a_line_of_its_own() -> None:
    lines = logged("failure('late; silent', told=('late', 'silent'))")
    assert [line["event"] for line in lines[1:]] == [
        *("late", "silent"),
        "Task failed with exception",
    ]


def test_any_other_error_keeps_its_stack() -> None:
    lines = logged("ValueError('a defect of ours')")
    assert "a defect of ours" in json.dumps(lines[-1])
    assert "run" in json.dumps(lines[-1]["exception"])


JOB_LOG = """\
2026-11-27 20:02:11,004 INFO airflow_cdc_provider.engine.job table is consistent: shop.orders
26/11/27 20:02:12 WARN SparkContext: an old setting
2026-11-27 20:02:13,100 ERROR airflow_cdc_provider.engine.job it failed
Traceback (most recent call last):
{"outcome": "failed"}
"""


def test_lines_of_a_jobs_log_keep_their_level(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "job.log"
    path.write_text(JOB_LOG)
    log = logging.getLogger("a.task")
    with (
        caplog.at_level(logging.DEBUG, logger=log.name),
        pytest.raises(RefusedError),
        log_shown_on_failure(path, log),
    ):
        raise RefusedError("it failed", where="here", risk="none", remedy="none")
    levels = [record.levelname for record in caplog.records]
    assert levels == ["INFO", "WARNING", "ERROR", "ERROR", "ERROR", "INFO"]
    assert "table is consistent" in caplog.records[0].getMessage()
