"""The short steps: preflight, plan, hand-off, finish. They run in the task's own process."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import Context

from airflow_cdc_provider.core.errors import StateMovedError
from airflow_cdc_provider.core.findings import Level
from airflow_cdc_provider.core.lifecycle import Phase
from airflow_cdc_provider.hooks.steps import CdcSteps
from airflow_cdc_provider.operators.assets import announce_tables, told_by, work_of_news
from airflow_cdc_provider.operators.base import CdcOperator, end_without, skip_if_paused
from airflow_cdc_provider.operators.verify import BY_FILE, why_not_verify
from airflow_cdc_provider.pipeline.steps.left_out import left_out_text
from airflow_cdc_provider.views.error_lines import all_finding_lines
from airflow_cdc_provider.views.lineage import LineageWork
from airflow_cdc_provider.views.summaries import (
    check_summary,
    hand_off_line,
    hand_off_summary,
    plan_line,
    plan_summary,
)

if TYPE_CHECKING:
    from airflow_cdc_provider.pipeline.steps.checking import CheckReport
    from airflow_cdc_provider.pipeline.steps.table_announcements import TableAnnouncement


def _require_alive(steps: CdcSteps) -> None:
    """Refuse to announce tables if the stream has failed."""
    steps.require_not_ended()
    state = steps.status().state
    if state.phase is Phase.FAILED:
        raise StateMovedError(
            f"the stream has failed: {state.error}",
            where=f"pipeline {steps.run.name}",
            risk="none: no key was added and no asset event sent",
            remedy="mend what the error says; this task is tried again while the stream is",
        )


_LOG_LEVELS = {
    Level.BLOCK: logging.ERROR,
    Level.WARN: logging.WARNING,
    Level.INFO: logging.INFO,
}


class CdcPreflightOperator(CdcOperator):
    """
    Check the pipeline file, the source and the sink; fail with every finding and its fix.

    Skips the run while the pipeline is paused. Where a run has only to follow the log, or nothing
    to do at all, it skips the tasks that would find that out one after the other. It changes no
    row and no table.

    :param pipeline: path of the pipeline's YAML file (templated).
    :param refused: why the task may do nothing; it then fails with these words.
    :param snapshot_tasks: ids of the tasks that are skipped once the plan is made and read.
    :param stream_tasks: ids of those that are skipped, too, where the sink has all of the log.
    """

    notifies = True
    fails_run = True

    def __init__(
        self,
        *,
        snapshot_tasks: Sequence[str] = (),
        stream_tasks: Sequence[str] = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.snapshot_tasks = tuple(snapshot_tasks)
        self.stream_tasks = tuple(stream_tasks)

    def execute(self, context: Context) -> dict[str, Any]:
        """Check the pipeline, log the findings, and fail if one blocks it."""
        with self.opened() as steps:
            skip_if_paused(steps)
            if ended := steps.has_ended():
                self.log.info("%s; nothing is left to do", ended)
                return self._has_ended(context, steps)
            steps.require_not_ended()
            report = steps.check()
            summary = check_summary(steps.run.name, report)
            for level, line in all_finding_lines(
                report.findings, file=self.pipeline, pipeline=str(steps.run.name)
            ):
                self.log.log(_LOG_LEVELS[level], "%s", line)
            report.require_fit()
            needless = self._needless(steps, report)
        if needless:
            end_without(context, needless, returned=summary)
        return summary

    def _has_ended(self, context: Context, steps: CdcSteps) -> dict[str, Any]:
        """Skip the tasks of a pipeline that has ended, if they are known, and return its name."""
        returned = {"pipeline": str(steps.run.name), "ended": True}
        if left_out := self.snapshot_tasks + self.stream_tasks:
            end_without(context, left_out, returned=returned)
        return returned

    def _needless(self, steps: CdcSteps, report: CheckReport) -> tuple[str, ...]:
        """Return the tasks of this run that have nothing to do."""
        if not self.snapshot_tasks or not steps.is_settled(report):
            return ()
        if not self.stream_tasks or not steps.has_nothing_to_stream():
            self.log.info("nothing to plan or to read: this run only streams")
            return self.snapshot_tasks
        self.log.info("nothing to stream: the sink has all of the source's log")
        return self.snapshot_tasks + self.stream_tasks


class CdcPlanOperator(CdcOperator):
    """
    Take the pipeline over, choose its tables and create them at the sink.

    Repeated, it goes on with the plan there is. The splits themselves are planned by the snapshot
    job while its readers already read.

    :param pipeline: path of the pipeline's YAML file (templated).
    :param refused: why the task may do nothing; it then fails with these words.
    :param is_run_owner: each run of the DAG is an owner of its own, as one of several pipelines.
    """

    notifies = True
    fails_run = True

    def execute(self, context: Context) -> dict[str, Any]:  # noqa: ARG002
        """Make or continue the plan, and return its summary."""
        with self.opened() as steps:
            skip_if_paused(steps)
            summary = plan_summary(steps.run.name, made := steps.plan())
            splits = steps.status().splits_planned
        self.log.info("%s", plan_line(made, splits))
        if summary["warning"]:
            self.log.warning("%s", summary["warning"])
        for text in summary["changed"]:
            self.log.info("%s", text)
        for table in summary["not_copied"]:
            self.log.warning("%s", left_out_text(table))
        return summary


class CdcHandoffOperator(CdcOperator):
    """
    Hand off: turn the reports of all splits into the one stream.

    :param pipeline: path of the pipeline's YAML file (templated).
    :param refused: why the task may do nothing; it then fails with these words.
    :param is_run_owner: each run of the DAG is an owner of its own, as one of several pipelines.
    """

    notifies = True
    fails_run = True

    def execute(self, context: Context) -> dict[str, Any]:  # noqa: ARG002
        """Hand off, and return where the stream starts."""
        with self.opened() as steps:
            skip_if_paused(steps)
            stream = steps.hand_off()
            status = steps.status()
        self.log.info("%s", hand_off_line(status, stream))
        return hand_off_summary(status.state, stream)


class CdcFinishOperator(CdcOperator):
    """
    Add the sink's unique and foreign keys, and announce changed tables as asset events.

    Each target table is an asset of this task. An event is sent of those that became consistent, or
    in which rows have changed since the last one, with the position at which the sink equals the
    source. Fails, and may be retried, while a table is not there yet. In a bounded run it is
    skipped while the pipeline is paused.

    :param pipeline: path of the pipeline's YAML file (templated).
    :param refused: why the task may do nothing; it then fails with these words.
    :param verify_task: id of the task that compares both sides, which is skipped where no table
        is to be compared.
    :param verify: when that one compares, as its `enabled` says (templated).
    """

    notifies = True
    fails_run = True

    template_fields: Sequence[str] = ("pipeline", "verify")
    _news: Sequence[TableAnnouncement] | None = None

    def __init__(
        self, *, verify_task: str = "", verify: str | bool = BY_FILE, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.verify_task = verify_task
        self.verify = verify

    def execute(self, context: Context) -> dict[str, Any]:
        """Add unique and foreign keys, announce changed tables; fail if one is not consistent."""
        with self.opened() as steps:
            if not steps.run.model.stream.is_continuous:
                skip_if_paused(steps)
            _require_alive(steps)
            waiting = steps.finish_tables()
            if waiting:
                raise StateMovedError(
                    f"not consistent yet: {', '.join(str(table) for table in waiting)}",
                    where=f"pipeline {steps.run.name}",
                    risk="none: no key was added and no asset event sent",
                    remedy="let the stream go on, then run this task again",
                )
            self._news = steps.table_news(told_by(context))
            summary = announce_tables(self, context, steps, self._news)
            why = why_not_verify(steps, self.task_id, self.verify) if self.verify_task else ""
        if why:
            self.log.info("nothing to verify: %s", why)
            end_without(context, [self.verify_task], returned=summary)
        return summary

    def lineage_work(self) -> LineageWork:
        """Return the task's lineage: all tables, and their changes."""
        return work_of_news(self._news)
