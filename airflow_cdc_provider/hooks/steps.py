"""The pipeline's steps as operators call them: with Airflow's connections and under its name.

The steps bring Arrow and the drivers with them. A DAG file that is parsed every few seconds must
not pay for that, so they are imported when a task runs, all of them here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from airflow.sdk import BaseHook, conf
from airflow.sdk.exceptions import TaskDeferred

from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.lifecycle import Wanted
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.hooks.dsn import AirflowDsns, fields_of
from airflow_cdc_provider.pipeline.file.loader import load_pipeline
from airflow_cdc_provider.views.status import PipelineStatus, status

if TYPE_CHECKING:
    from airflow_cdc_provider.core.verify_report import VerifyReport
    from airflow_cdc_provider.pipeline.run import Run
    from airflow_cdc_provider.pipeline.steps.checking import CheckReport
    from airflow_cdc_provider.pipeline.steps.jobs import JobProcess, SparkOptions
    from airflow_cdc_provider.pipeline.steps.new_table_watch import NewTableWatch
    from airflow_cdc_provider.pipeline.steps.planning import PlanSummary
    from airflow_cdc_provider.pipeline.steps.repairing import Repair
    from airflow_cdc_provider.pipeline.steps.small_work import InProcessJob
    from airflow_cdc_provider.pipeline.steps.table_announcements import TableAnnouncement

log = logging.getLogger(__name__)
CONFIG_SECTION = "cdc"


class CdcSteps:
    """One pipeline's steps, for the time of a task; a context manager."""

    def __init__(self, pipeline: str, *, owner: str) -> None:
        from airflow_cdc_provider.pipeline.run import open_run  # noqa: PLC0415 - see above

        self.run: Run = open_run(
            load_pipeline(Path(pipeline)), AirflowDsns(), owner=owner, in_airflow=True
        )

    def __enter__(self) -> CdcSteps:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, *rest: object
    ) -> None:
        """Close the pipeline; give the lease back if the task failed.

        One that did its part leaves it to the next task, or to the job it started.
        """
        from airflow_cdc_provider.pipeline.run import give_back  # noqa: PLC0415 - see above

        if kind is not None and not issubclass(kind, TaskDeferred):
            give_back(self.run)
        self.run.__exit__(kind, error, *rest)

    def give_back(self) -> None:
        """Give the lease back, over a state store connection of its own."""
        from airflow_cdc_provider.state.store import open_store  # noqa: PLC0415 - see above

        run = self.run
        if run.held.generation:
            with suppress(CdcError), closing(open_store(run.servers.state_dsn)) as store:
                store.release_lease(run.name, run.held.generation)

    def status(self) -> PipelineStatus:
        """Return the pipeline's status from the state store."""
        store = self.run.store
        target_s = self.run.model.freshness.target_s
        return status(store, self.run.name, now_us=store.now_us(), freshness_s=target_s)

    @property
    def is_paused(self) -> bool:
        """Tell whether the pipeline is paused."""
        return self.run.store.ensure(self.run.name).wanted is Wanted.STOP

    def has_ended(self) -> str:
        """Say that the pipeline has ended at a stop, or with its snapshot; empty if not."""
        from airflow_cdc_provider.pipeline.steps.stream_ends import (  # noqa: PLC0415 - see above
            ended_stream,
            ended_text,
            note_ended,
        )

        stream = ended_stream(self.run)
        if stream is None:
            return ""
        note_ended(self.run, stream)
        return ended_text(self.run, stream)

    def why_not_comparable(self, tables: Collection[TableId] | None = None) -> str:
        """Explain why source and sink, or some tables, cannot be compared; empty if they can."""
        from airflow_cdc_provider.pipeline.steps.stream_ends import (  # noqa: PLC0415 - see above
            why_not_comparable,
        )

        return why_not_comparable(self.run, tables)

    def require_not_ended(self) -> None:
        """Refuse a pipeline whose stream ended for good."""
        from airflow_cdc_provider.pipeline.steps.ended_stream import (  # noqa: PLC0415 - see above
            require_not_ended,
        )

        require_not_ended(self.run)

    def check(self) -> CheckReport:
        """Check file, source and sink; return the findings."""
        from airflow_cdc_provider.pipeline.steps.checking import (  # noqa: PLC0415 - see above
            kept_check,
        )

        return kept_check(self.run)

    def is_settled(self, report: CheckReport) -> bool:
        """Tell whether a run has only to follow the log, by a check made just now."""
        from airflow_cdc_provider.pipeline.steps.settled import (  # noqa: PLC0415 - see above
            is_settled,
        )

        return is_settled(self.run, report)

    def has_nothing_to_stream(self) -> bool:
        """Tell whether the sink has all of the log; False if an error prevents the query."""
        from airflow_cdc_provider.pipeline.steps.start_jobs import (  # noqa: PLC0415 - see above
            has_nothing_to_stream,
        )

        try:
            return has_nothing_to_stream(self.run)
        except CdcError as error:
            log.info("left to the stream: pipeline=%s cause=%s", self.run.name, error.what)
            return False

    def plan(self) -> PlanSummary:
        """Make or continue the plan."""
        from airflow_cdc_provider.pipeline.steps.planning import plan  # noqa: PLC0415 - see above

        return plan(self.run)

    def seed(self, opposite: str = "") -> tuple[bool, str]:
        """Begin the pipeline with the rows that the opposite edge has copied; describe that.

        False where that edge is not consistent yet. Its file is looked for beside this one if it
        is not named.
        """
        from airflow_cdc_provider.pipeline.run import open_run  # noqa: PLC0415 - see above
        from airflow_cdc_provider.pipeline.steps.seeding import (  # noqa: PLC0415 - see above
            opposite_file,
            seed_if_consistent,
        )

        loaded = load_pipeline(opposite or opposite_file(self.run))
        with open_run(loaded, AirflowDsns(), in_airflow=True) as there:
            return seed_if_consistent(self.run, there)

    def later_tables(self, *, every_s: float | None = None) -> NewTableWatch:
        """Return the watch for requests and new tables that need a plan step."""
        from airflow_cdc_provider.pipeline.steps.new_table_watch import (  # noqa: PLC0415 - see above
            NewTableWatch,
        )

        return NewTableWatch(self.run, every_s)

    def end_for_tables(self) -> bool:
        """End the stream if tables are to be added, removed or reset; tell whether.

        It is ended by taking the pipeline over; planning then changes the tables.
        """
        later = self.later_tables(every_s=0.0)
        later.look()
        return later.is_found

    def go_on_with(self, later: NewTableWatch) -> PlanSummary:
        """Plan the changes of tables for which the stream was ended, by the file as it was then."""
        self.run = later.run
        return self.plan()

    def start_snapshot(self) -> JobProcess | InProcessJob | None:
        """Start the snapshot job; None if the pipeline is already handed off."""
        from airflow_cdc_provider.pipeline.steps.start_jobs import (  # noqa: PLC0415 - see above
            start_snapshot,
        )

        return start_snapshot(self.run, self.spark_options())

    def hand_off(self) -> StreamSplit:
        """Hand off: turn the snapshot's reports into the stream."""
        from airflow_cdc_provider.pipeline.steps.handing_off import (  # noqa: PLC0415 - see above
            hand_off,
        )

        return hand_off(self.run)

    def start_stream(self, *, mode: str | None = None) -> JobProcess:
        """Start the stream job; `mode` overrides the file's."""
        from airflow_cdc_provider.pipeline.steps.start_jobs import (  # noqa: PLC0415 - see above
            start_stream,
        )

        return start_stream(self.run, self.spark_options(), mode=mode)

    def start_catching_up(self) -> JobProcess | InProcessJob | None:
        """Start a stream job up to the log's end; None if the sink has all of the log."""
        from airflow_cdc_provider.pipeline.steps.jobs import JobEnd  # noqa: PLC0415 - see above
        from airflow_cdc_provider.pipeline.steps.start_jobs import (  # noqa: PLC0415
            start_catching_up,
        )

        started = start_catching_up(self.run, self.spark_options())
        return None if isinstance(started, JobEnd) else started

    def finish_tables(self) -> tuple[TableId, ...]:
        """Add the sink's unique and foreign keys; return the tables not consistent yet."""
        from airflow_cdc_provider.pipeline.steps.finishing import (  # noqa: PLC0415 - see above
            finish_tables,
        )

        return finish_tables(self.run)

    def table_news(self, told_by: str) -> tuple[TableAnnouncement, ...]:
        """Return the tables whose changes are to be announced; none before the hand-off."""
        from airflow_cdc_provider.pipeline.steps.table_announcements import (  # noqa: PLC0415 - see above
            table_news,
        )

        return table_news(self.run, told_by)

    def store_announced(self, news: Sequence[TableAnnouncement], told_by: str) -> None:
        """Store what was announced, and by whom."""
        from airflow_cdc_provider.pipeline.steps.table_announcements import (  # noqa: PLC0415 - see above
            store_announced,
        )

        store_announced(self.run, news, told_by)

    def verify(
        self,
        tables: Sequence[TableId] | None,
        *,
        settle_s: float,
        catch_up: Callable[[], None] | None = None,
        values: bool = False,
        only_changed: bool = False,
        percent: float = 100.0,
    ) -> VerifyReport:
        """Compare source and sink tables; see the step for its arguments."""
        from airflow_cdc_provider.pipeline.steps.verify_budget import (  # noqa: PLC0415 - see above
            Budget,
        )
        from airflow_cdc_provider.pipeline.steps.verifying import (  # noqa: PLC0415 - see above
            verify,
        )

        return verify(
            self.run,
            tables=tables,
            settle_s=settle_s,
            catch_up=catch_up,
            values=values,
            budget=Budget(only_changed, percent),
        )

    def to_verify(self) -> tuple[TableId, ...]:
        """Return the tables not found equal since they were read as a whole or defined."""
        from airflow_cdc_provider.pipeline.steps.verified import (  # noqa: PLC0415 - see above
            to_verify,
        )

        return to_verify(self.run)

    def repairs(self, report: VerifyReport) -> tuple[Repair, ...]:
        """Return the repairs of differing tables, except isolated ones."""
        from airflow_cdc_provider.pipeline.steps.repairing import (  # noqa: PLC0415 - see above
            repairs,
        )

        flowing = tuple(each for each in report.tables if each.table not in report.stopped)
        return repairs(self.run, replace(report, tables=flowing))

    def spark_options(self) -> SparkOptions:
        """Return the Spark settings of jobs: master, launcher, log folder."""
        from airflow_cdc_provider.hooks.spark_submit import launcher_of  # noqa: PLC0415
        from airflow_cdc_provider.pipeline.connections import spark_master  # noqa: PLC0415
        from airflow_cdc_provider.pipeline.steps.jobs import (  # noqa: PLC0415 - see above
            SparkOptions,
        )

        model = self.run.model
        master = spark_master(self.run.loaded, _any_master)
        launcher = None
        if master is not None and model.spark.conn_id is not None:
            connection = BaseHook.get_connection(model.spark.conn_id)
            launcher = launcher_of(connection, fields_of(connection, connection.extra_dejson))
        folder = conf.get(CONFIG_SECTION, "job_log_folder", fallback="")
        logs = Path(folder) if folder else None
        return SparkOptions.of(model, master=master, log_folder=logs, launcher=launcher)


def find_spark_master(conn_id: str) -> str | None:
    """Return a connection's Spark master for the command line, whose jobs are not submitted.

    None if there is no such connection; one that asks for more than a master is refused.
    """
    fields = AirflowDsns().fields(conn_id)
    return None if fields is None else fields.own_master()


def _any_master(conn_id: str) -> str | None:
    """Return the Spark master that a connection names, None if there is no connection."""
    fields = AirflowDsns().fields(conn_id)
    return None if fields is None else fields.spark_master()
