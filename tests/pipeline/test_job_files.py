"""The files of jobs: no run meets another one's, and no other user's."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_cdc_provider.core.errors import CdcError, RefusedError
from airflow_cdc_provider.core.identifiers import PipelineName
from airflow_cdc_provider.core.jobspec import JobKind, JobSpec
from airflow_cdc_provider.pipeline.connections import EnvironmentDsns
from airflow_cdc_provider.pipeline.file.loader import load_pipeline
from airflow_cdc_provider.pipeline.job_logs import default_folder
from airflow_cdc_provider.pipeline.run import Run, open_run
from airflow_cdc_provider.pipeline.steps.job_files import (
    KEEP_DAYS,
    JobFiles,
    make_job_files,
)
from airflow_cdc_provider.pipeline.steps.jobs import (
    JobProcess,
    SparkOptions,
    job_result,
    snapshot_spec,
    submit,
)

SPEC = JobSpec(PipelineName("shop"), 3, JobKind.STREAM)
FILE = """\
pipeline: {name}
source: {{dsn_env: A, tables: ["a.*"]}}
sink: {{dsn_env: B}}
snapshot: {{split_rows: {rows}}}
"""


def made(folder: Path, spec: JobSpec = SPEC) -> JobFiles:
    files, log = make_job_files(folder, spec)
    log.close()
    return files


def a_run(stack: ExitStack, folder: Path, name: str, rows: int) -> Run:
    """Open a run whose jobs end at once: nothing answers where its state store should be."""
    folder.mkdir()
    path = folder / "pipeline.yaml"
    path.write_text(FILE.format(name=name, rows=rows))
    dead = "mysql://u:p@127.0.0.1:1/"
    run = stack.enter_context(
        open_run(load_pipeline(path), EnvironmentDsns({"A": dead, "B": dead}), owner="test")
    )
    return replace(run, servers=replace(run.servers, state_dsn=f"{dead}state"))


def ended(job: JobProcess) -> None:
    with pytest.raises(CdcError):
        job.wait()


@pytest.mark.parametrize("names", [("first", "second"), ("same", "same")])
def test_two_runs_that_share_a_folder_each_run_their_own_job(
    tmp_path: Path, names: tuple[str, str]
) -> None:
    options = SparkOptions("local[1]", log_folder=tmp_path / "logs")
    with ExitStack() as stack:
        runs = [a_run(stack, tmp_path / f"r{n}", name, 10 + n) for n, name in enumerate(names)]
        jobs = [submit(run, snapshot_spec(run.model, 1), options) for run in runs]
        with ThreadPoolExecutor() as threads:
            list(threads.map(ended, jobs))
    for job, name, rows in zip(jobs, names, (10, 11), strict=True):
        assert (job_result(job.log) or {})["pipeline"] == name
        assert json.loads(job.log.with_suffix(".json").read_text())["split_rows"] == rows
    assert jobs[0].log != jobs[1].log


def test_no_two_jobs_ever_have_a_file_in_common(tmp_path: Path) -> None:
    files = [made(tmp_path) for _ in range(50)]
    assert len({file.log for file in files} | {file.spec for file in files}) == 100


def test_a_job_refuses_a_specification_that_was_not_written_for_it(tmp_path: Path) -> None:
    files = made(tmp_path)
    files.spec.write_text(replace(SPEC, pipeline=PipelineName("other")).to_json())
    words = ["-m", "airflow_cdc_provider.spark.main", "--job", f"@{files.spec}"]
    done = subprocess.run(
        [sys.executable, *words, "--digest", files.digest],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "not the one that was written for this job" in done.stderr


def test_files_and_folder_are_for_this_user_only(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        files = made(tmp_path / "logs")
    finally:
        os.umask(old)
    assert [stat.S_IMODE(file.stat().st_mode) for file in (files.spec, files.log)] == [0o600] * 2
    assert stat.S_IMODE(files.log.parent.stat().st_mode) == 0o700


def test_a_symbolic_link_in_the_folders_place_is_refused_and_not_followed(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir(mode=0o700)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "shop").symlink_to(theirs)
    with pytest.raises(RefusedError, match="symbolic link"):
        made(tmp_path / "logs")
    assert list(theirs.iterdir()) == []


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_a_folder_to_which_others_may_write_is_refused(tmp_path: Path, mode: int) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop").chmod(mode)
    with pytest.raises(RefusedError, match="others may write to it"):
        made(tmp_path)
    assert list((tmp_path / "shop").iterdir()) == []


def test_a_parent_in_which_anyone_may_rename_is_refused_and_a_sticky_one_is_not(
    tmp_path: Path,
) -> None:
    parent = tmp_path / "parent"
    parent.mkdir()
    parent.chmod(0o777)
    with pytest.raises(RefusedError, match="anyone may rename"):
        made(parent)
    parent.chmod(0o1777)
    assert made(parent).log.exists()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir(mode=0o700)
    os.chown(tmp_path / "shop", 12345, -1)
    with pytest.raises(RefusedError, match="belongs to user 12345"):
        made(tmp_path)


def test_a_file_where_the_folder_should_be_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("")
    with pytest.raises(RefusedError, match="--log-folder"):
        made(tmp_path / "logs")


def test_the_default_is_the_users_own_state_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert default_folder() == Path("/state/airflow-provider-cdc/jobs")
    monkeypatch.setenv("HOME", "/home/someone")
    for unusable in ("", "relative"):
        monkeypatch.setenv("XDG_STATE_HOME", unusable)
        assert default_folder() == Path("/home/someone/.local/state/airflow-provider-cdc/jobs")


def aged(files: JobFiles, *, days: float) -> JobFiles:
    moment = files.log.stat().st_mtime - days * 24 * 3600
    for file in (files.spec, files.log):
        os.utime(file, (moment, moment))
    return files


def test_old_files_go_when_the_next_job_starts_and_younger_ones_stay(tmp_path: Path) -> None:
    old = aged(made(tmp_path), days=KEEP_DAYS + 1)
    young = aged(made(tmp_path), days=KEEP_DAYS - 1)
    new = made(tmp_path)
    assert not old.log.exists()
    assert not old.spec.exists()
    assert young.log.exists()
    assert new.log.exists()


def test_the_log_of_a_job_that_still_runs_stays_however_old_it_is(tmp_path: Path) -> None:
    files, log = make_job_files(tmp_path, SPEC)
    with log:
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=-1, stdout=log)
    aged(files, days=KEEP_DAYS + 1)
    made(tmp_path)
    assert files.log.exists()
    child.communicate(b"\n")
    made(tmp_path)
    assert not files.log.exists()
