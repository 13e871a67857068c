"""What several tests need of `test_changed_sink_tables`."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.core.lifecycle import Wanted
from airflow_cdc_provider.engine.job import Job, remembered_failure
from airflow_cdc_provider.engine.stream.follow import run_stream
from airflow_cdc_provider.engine.stream.own_follower import OwnFollower
from airflow_cdc_provider.pipeline.run import Run, give_back
from airflow_cdc_provider.pipeline.steps.small_work import _job
from airflow_cdc_provider.pipeline.steps.start_jobs import _stream_to_do
from tests.pipeline.conftest import Shop


@contextmanager
def continuous(shop: Shop) -> Iterator[tuple[Run, list[CdcError]]]:
    """Stream in a thread of this process until the end of the block, or until it fails."""
    run, failures = shop.run(), list[CdcError]()
    job: Job = _job(run, _stream_to_do(run, "continuous"), threading.Event())

    def work() -> None:
        try:
            with remembered_failure(job):
                run_stream(job, OwnFollower)
        except CdcError as failure:
            failures.append(failure)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield run, failures
    finally:
        run.store.want(run.name, Wanted.STOP)
        thread.join(timeout=120)
        run.store.want(run.name, Wanted.RUN)
        give_back(run)
