"""lineitem to a table of a lake: snapshot job, hand-off and the table's commit, local[2]."""

from __future__ import annotations

import os

from airflow_cdc_provider.engine.sink.port import CommitsLater
from airflow_cdc_provider.pipeline.steps.handing_off import hand_off
from airflow_cdc_provider.pipeline.steps.jobs import snapshot_spec
from airflow_cdc_provider.pipeline.steps.sink import sink_of
from airflow_cdc_provider.spark.main import run_job
from airflow_cdc_provider.spark.session import close_session, open_session
from tests.benchmarks import subject
from tests.benchmarks.ours.copy import planned_run, warm


def main() -> None:
    given = subject.arguments()
    with planned_run(given, sink=f"type: {given['form']}, path: {given['out']}") as run:
        os.environ.update(run.servers.environment())
        spec = snapshot_spec(run.model, run.store.ensure(run.name).generation)
        spark = open_session("benchmark", master="local[2]")
        spark.range(0, 4, 1, 4).mapInArrow(warm, "id long").collect()

        def copy() -> int:
            result = run_job(spec, spark)
            hand_off(run)
            sink = sink_of(run, run.store.ensure(run.name).generation)
            assert isinstance(sink, CommitsLater)
            sink.publish_tables()
            if result.error or result.rows != given["rows"] or sink.has_unpublished():
                raise SystemExit(f"the snapshot did not bring all rows: {result}")
            return int(result.rows)

        subject.work(copy)
        close_session()


if __name__ == "__main__":
    main()
