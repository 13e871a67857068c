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
from airflow_cdc_provider.operators.assets import tell_news, told_by, work_of_news
from airflow_cdc_provider.operators.base import CdcOperator, skip_if_paused
from airflow_cdc_provider.pipeline.steps.left_out import left_out_text
from airflow_cdc_provider.views.lineage import Work
from airflow_cdc_provider.views.summaries import (
    check_summary,
    hand_off_line,
    hand_off_summary,
    plan_line,
    plan_summary,
)
from airflow_cdc_provider.views.told_errors import all_finding_lines

if TYPE_CHECKING:
    from airflow_cdc_provider.pipeline.steps.table_news import TableNews


def _require_alive(steps: CdcSteps) -> None:
    """Refuse to tell of tables whose stream has failed: their position stands still."""
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

    Skips the run while the pipeline is paused. Nothing is changed.

    :param pipeline: path of the pipeline's YAML file (templated).
    :param refused: why the task may do nothing; it then fails with these words.
    """

    def execute(self, context: Context) -> dict[str, Any]:  # noqa: ARG002
        with self.opened() as steps:
            skip_if_paused(steps)
            steps.require_not_ended()
            report = steps.check()
            summary = check_summary(steps.run.name, report)
            for level, line in all_finding_lines(report.findings, file=self.pipeline):
                self.log.log(_LOG_LEVELS[level], "%s", line)
            report.require_fit()
        return summary


class CdcPlanOperator(CdcOperator):
    """
    Take the pipeline over, choose its tables and create them at the sink.

    Repeated, it goes on with the plan there is. The splits themselves are planned by the snapshot
    job while its readers already read.

    :param pipeline: path of the pipeline's YAML file (templated).
    :param refused: why the task may do nothing; it then fails with these words.
    """

    def execute(self, context: Context) -> dict[str, Any]:  # noqa: ARG002
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
    Turn the reports of all splits into the one stream: its start, and each table's watermarks.

    :param pipeline: path of the pipeline's YAML file (templated).
    :param refused: why the task may do nothing; it then fails with these words.
    """

    def execute(self, context: Context) -> dict[str, Any]:  # noqa: ARG002
        with self.opened() as steps:
            skip_if_paused(steps)
            stream = steps.hand_off()
            status = steps.status()
        self.log.info("%s", hand_off_line(status, stream))
        return hand_off_summary(status.state, stream)


class CdcFinishOperator(CdcOperator):
    """
    Add the sink's unique and foreign keys, and tell the world that the tables are consistent.

    Each target table is an asset of this task. An event is sent of those that became consistent, or
    in which rows have changed since the last one, with the position at which the sink equals the
    source. Fails, and may be retried, while a table is not there yet.

    :param pipeline: path of the pipeline's YAML file (templated).
    :param refused: why the task may do nothing; it then fails with these words.
    """

    _news: Sequence[TableNews] | None = None

    def execute(self, context: Context) -> dict[str, Any]:
        with self.opened() as steps:
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
            return tell_news(self, context, steps, self._news)

    def lineage_work(self) -> Work:
        """Tell of all tables, and how much each was changed."""
        return work_of_news(self._news)
