"""A job's log on the page: the newest job's own file, and nothing else of this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_cdc_provider.core.identifiers import PipelineName
from airflow_cdc_provider.core.job_log import JobLog
from airflow_cdc_provider.core.records import PipelineEvent
from airflow_cdc_provider.pipeline.job_logs import end_of_log
from airflow_cdc_provider.state.store import SqlStateStore
from tests.web.shop import (
    ROLES,
    SHOP,
    SHOP_DAG,
    Page,
    job_log_of,
    pipeline_dags,
    streaming,
    told_job_log,
)

ONE = f"/api/pipelines/{SHOP_DAG}/{SHOP}"


def events(*texts: str) -> list[PipelineEvent]:
    return [PipelineEvent(1, "info", text) for text in texts]


@pytest.fixture
def log(store: SqlStateStore) -> Iterator[Path]:
    """The log of a stream's job."""
    made = job_log_of(store, streaming(store), "first line\nlast line\n")
    yield made
    made.unlink(missing_ok=True)


@pytest.mark.parametrize("role", ROLES)
def test_who_may_read_the_dags_logs_reads_the_jobs(page: Page, log: Path, role: str) -> None:
    told = page.get(ONE, role=role).json()["job_log"]
    assert told == {"path": str(log), "host": "worker-7", "is_here": True}
    answer = page.get(f"{ONE}/job_log", role=role)
    assert (answer.status_code, answer.text) == (200, "first line\nlast line\n")
    assert answer.headers["content-type"].startswith("text/plain")


def test_a_job_that_began_many_events_ago_has_its_links(
    page: Page, store: SqlStateStore, log: Path
) -> None:
    generation = store.ensure(SHOP).generation
    store.tell(SHOP, f"spark application app-7 under generation {generation}, ui http://a:4040")
    for number in range(120):
        store.tell(SHOP, f"something else {number}")
    told = page.get(ONE).json()
    assert told["job_log"]["path"] == str(log)
    assert told["spark"] is not None
    assert len(told["events"]) == 100
    assert page.get(f"{ONE}/job_log").text == "first line\nlast line\n"


@pytest.mark.parametrize("path", [f"{ONE}/job_log", ONE])
def test_nobody_reads_a_log_without_a_token(page: Page, log: Path, path: str) -> None:
    assert page.get(path, role=None).status_code == 401


def test_a_log_of_another_machine_is_named_and_not_read(page: Page, store: SqlStateStore) -> None:
    generation = streaming(store)
    assert page.get(ONE).json()["job_log"] is None
    answer = page.get(f"{ONE}/job_log")
    assert (answer.status_code, answer.json()["detail"].split(":")[0]) == (
        404,
        "no job was started",
    )
    far = Path("/logs/web_shop/web_shop-stream-1-ff.log")
    told_job_log(store, generation, far)
    told = page.get(ONE).json()["job_log"]
    assert told == {"path": str(far), "host": "worker-7", "is_here": False}
    answer = page.get(f"{ONE}/job_log")
    assert (answer.status_code, "is not on this machine" in answer.text) == (404, True)


def test_no_other_file_is_read_whatever_the_state_store_says(
    page: Page, store: SqlStateStore, log: Path, tmp_path: Path
) -> None:
    generation = store.ensure(SHOP).generation
    link = log.with_name(f"{SHOP}-stream-1-link.log")
    link.symlink_to("/etc/passwd")
    other = log.with_name("another-stream-1-ab.log")
    spec = log.with_suffix(".json")
    outside = tmp_path / log.name
    pipe = log.with_name(f"{SHOP}-stream-1-pipe.log")
    for path in (other, spec, outside):
        path.write_text("not for the page")
    os.mkfifo(pipe)
    made = (link, other, spec, outside, pipe)
    above = log.parent / ".." / str(SHOP) / log.name
    try:
        for path in (*made, above, log.parent, Path("/etc/passwd")):
            told_job_log(store, generation, path)
            assert page.get(ONE).json()["job_log"]["path"] == str(path)
            assert page.get(f"{ONE}/job_log").status_code == 404, path
    finally:
        for path in made:
            path.unlink()


def test_the_newest_job_of_the_generation_is_the_one() -> None:
    told = events(
        "the stream goes on",
        "stream job started under generation 7 on spark://a:1,b:2, log /logs/a b.log on host w",
        "snapshot job started under generation 7 on local[*], log /logs/old.log on host w",
        "stream job started under generation 6 on local[*], log /logs/older.log",
    )
    assert JobLog.find(told, 7) == JobLog("/logs/a b.log", "w")
    assert JobLog.find(told, 6) == JobLog("/logs/older.log")
    assert JobLog.find(told, 5) is None


def test_of_a_long_log_whole_lines_of_its_end_are_given(tmp_path: Path) -> None:
    log = tmp_path / "shop" / "shop-stream-1-ab.log"
    log.parent.mkdir()
    log.write_text("".join(f"line {number:03}\n" for number in range(100)))
    end = end_of_log(log, tmp_path, "shop", most_bytes=30)
    assert end == b"line 097\nline 098\nline 099\n"
    assert end_of_log(log, tmp_path, "sho", most_bytes=30) is None


def test_to_ask_for_the_log_of_one_that_never_ran_stores_nothing(
    page: Page, store: SqlStateStore, tmp_path: Path
) -> None:
    name = PipelineName("web_unborn")
    pipeline_dags(tmp_path, [str(name)])
    answer = page.get(f"/api/pipelines/{name}__sync/{name}/job_log")
    assert (answer.status_code, answer.json()["detail"]) == (404, f"{name} has not run yet")
    assert store.pipeline(name) is None
