"""A snapshot whose sink takes no rows says so at once, until a split is published."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.engine.in_process import OwnReader
from airflow_cdc_provider.engine.job_result import JobResult, Outcome
from airflow_cdc_provider.engine.ownership import kept_lease
from airflow_cdc_provider.engine.snapshot.reader_task import ReaderTask
from airflow_cdc_provider.engine.snapshot.snapshot_run import run_snapshot
from airflow_cdc_provider.pipeline.steps.planning import plan
from airflow_cdc_provider.pipeline.steps.small_work import _job
from airflow_cdc_provider.pipeline.steps.start_jobs import _snapshot_to_do
from airflow_cdc_provider.systems.file_log.layout import table_folder
from airflow_cdc_provider.views.progress import progress_line
from airflow_cdc_provider.views.reports import status_lines
from airflow_cdc_provider.views.status import PipelineStatus, status
from tests.pipeline.change_logs import Logged
from tests.pipeline.conftest import Shop
from tests.pipeline.lakes import Lake
from tests.servers.patience import wait_until

FULL = "File exists"
"""What the sink's file system says."""


@dataclass(frozen=True)
class FillingReader(OwnReader):
    """Fills the sink before the first split is read."""

    fill: Callable[[], None]

    def run(self, task: ReaderTask, count: int) -> CdcError | None:
        self.fill()
        return super().run(task, count)


@dataclass
class FullSink:
    """A shop that has a plan, and a sink that takes no rows of its table until it is freed."""

    shop: Shop
    folder: Path
    copied: Lake | Logged
    stop: threading.Event = field(default_factory=threading.Event)

    def fill(self) -> None:
        self._table.parent.mkdir(parents=True, exist_ok=True)
        self._table.write_text("a file where the table's folder is to be")

    def free(self) -> None:
        if self._table.is_file():
            self._table.unlink()

    @property
    def _table(self) -> Path:
        return self.folder / table_folder(TableId(self.shop.database, "orders"))

    def read(self) -> JobResult:
        run = self.shop.run()
        spec = _snapshot_to_do(run)
        assert spec is not None
        with kept_lease(run.store, run.name, spec.generation):
            return run_snapshot(_job(run, spec, self.stop), FillingReader(self.fill))

    def seen(self) -> PipelineStatus:
        run = self.shop.run()
        return status(run.store, run.name, now_us=run.store.now_us())

    def events(self) -> list[str]:
        run = self.shop.run()
        return [event.text for event in reversed(run.store.events(run.name))]


@pytest.fixture(params=["changelog", "iceberg", "delta"])
def sink(shop: Shop, request: pytest.FixtureRequest) -> FullSink:
    if request.param == "changelog":
        logged = Logged.of(shop)
        made = FullSink(shop, Path(logged.place.path), logged)
    else:
        lake = Lake.of(shop, request.param)
        made = FullSink(shop, lake.folder, lake)
    plan(shop.run())
    return made


@contextmanager
def reading(sink: FullSink) -> Iterator[Future[JobResult]]:
    """Read in a thread; the test goes on when the sink has failed it twice."""
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(sink.read)
        try:
            wait_until(lambda: running.done() or _tries(sink) > 1, seconds=30)
            assert not running.done()
            yield running
        finally:
            sink.stop.set()
            sink.free()


def _tries(sink: FullSink) -> int:
    return max((outage.tries for outage in sink.seen().outages), default=0)


def test_it_is_held_up_until_its_split_is_published(sink: FullSink) -> None:
    with reading(sink) as running:
        seen = sink.seen()
        assert seen.summary == "snapshot, held up"
        line = progress_line(seen)
        assert f"{FULL} (CDC-SNK-001), since " in line
        assert "tried " in line
        assert sink.events()[-1].startswith(f"a split is tried again: CDC-SNK-001 {FULL}")
        sink.free()
        assert running.result(timeout=60).outcome is Outcome.FINISHED
    assert sink.events()[-1].endswith(f" s: {FULL}")
    assert sink.events()[-1].startswith("over, after ")
    assert sink.seen().outages == ()
    sink.copied.catch_up()
    assert sink.copied.is_equal("orders")


def test_who_stops_it_meanwhile_does_not_wait_and_sees_why_it_was_held_up(sink: FullSink) -> None:
    with reading(sink) as running:
        sink.stop.set()
        assert running.result(timeout=60).outcome is Outcome.STOPPED
    assert any(f"CDC-SNK-001 {FULL}" in line for line in status_lines(sink.seen()))
    sink.copied.catch_up()
    assert sink.copied.is_equal("orders")
