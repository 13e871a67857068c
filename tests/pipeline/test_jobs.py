"""What a job left behind becomes its result or its error."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_cdc_provider.core.errors import CdcError, FencedError, LogPurgedError
from airflow_cdc_provider.core.jobspec import ApplyMode, JobKind, JobSpec, StreamMode
from airflow_cdc_provider.pipeline.file.loader import parse_pipeline
from airflow_cdc_provider.pipeline.steps.jobs import (
    SparkOptions,
    job_error,
    job_result,
    snapshot_spec,
    stream_spec,
)
from tests.pipeline.pipeline_files import FULL, SMALL


def failed(error: CdcError) -> dict[str, Any]:
    return {"outcome": "failed", "facts": error.to_json()}


@pytest.mark.parametrize(
    "error",
    [
        LogPurgedError("log is gone; really", "source", "changes", "take a snapshot"),
        FencedError("a newer one is there"),
    ],
)
def test_an_error_comes_back_in_its_own_class(error: CdcError, tmp_path: Path) -> None:
    back = job_error(failed(error), tmp_path / "job.log")
    assert type(back) is type(error)
    assert (back.what, back.risk, back.remedy) == (error.what, error.risk, error.remedy)
    assert "job.log" in back.where


def test_the_result_is_the_last_line_that_is_one(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    lines = ["{not json}", json.dumps({"outcome": "finished", "rows": 3}), "Spark says bye {x}"]
    log.write_text("\n".join(lines))
    assert job_result(log) == {"outcome": "finished", "rows": 3}


def test_a_log_without_a_result_has_none(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_bytes(b"\xff Killed\n")
    assert job_result(log) is None


def test_a_spec_of_an_earlier_release_has_its_sources_options_in_one_place() -> None:
    spec = snapshot_spec(parse_pipeline(FULL).model, 7)
    form = json.loads(spec.to_json())
    options = form.pop("source_options")
    first, last = options["server_ids"]
    form |= {"server_id_first": first, "server_id_last": last, "zero_dates": "text"}
    read = JobSpec.from_json(json.dumps(form))
    assert read == replace(spec, source_options={**options, "zero_dates": "text"})


def test_the_specs_carry_what_the_file_says() -> None:
    text = FULL.replace("mode: continuous", "mode: bounded").replace(
        "apply: transactions", "apply: merged\n  writers: 3"
    )
    model = parse_pipeline(text).model
    spec = snapshot_spec(model, 7)
    assert (spec.kind, spec.generation, spec.split_rows) == (JobKind.SNAPSHOT, 7, 50_000)
    assert spec.source_options == {"server_ids": [5400, 5499], "zero_dates": "fail"}
    assert JobSpec.from_json(spec.to_json()) == spec
    stream = stream_spec(model, 8)
    assert (stream.kind, stream.stream_mode) == (JobKind.STREAM, StreamMode.BOUNDED)
    assert (stream.apply, stream.writers) == (ApplyMode.MERGED, 3)
    continuous = stream_spec(model, 8, mode="continuous")
    assert continuous.stream_mode is StreamMode.CONTINUOUS


def test_the_master_is_the_caller_s_then_the_file_s_then_local() -> None:
    with_conf = SMALL + "spark:\n  conf: {spark.master: 'local[2]', spark.ui.enabled: false}\n"
    model = parse_pipeline(with_conf).model
    options = SparkOptions.of(model)
    assert (options.master, options.conf) == ("local[2]", {"spark.ui.enabled": "false"})
    assert SparkOptions.of(model, master="spark://h:7077").master == "spark://h:7077"
    assert SparkOptions.of(parse_pipeline(SMALL).model).master == "local[*]"
