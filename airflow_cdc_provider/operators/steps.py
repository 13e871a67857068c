"""The short steps: preflight, plan, hand-off, finish, verify. They run in the task's process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from airflow_cdc_provider.core.errors import PipelineFileError, StateMovedError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.operators.assets import tell_consistent
from airflow_cdc_provider.operators.base import CdcOperator, skip_if_paused
from airflow_cdc_provider.operators.summaries import (
    check_summary,
    hand_off_summary,
    plan_summary,
    verify_summary,
)

_NO = frozenset({"", "0", "false", "no", "none"})


class CdcPreflightOperator(CdcOperator):
    """
    Check the pipeline file, the source and the sink; fail with every finding and its fix.

    Skips the run while the pipeline is paused. Nothing is changed.

    :param pipeline: path of the pipeline's YAML file (templated).
    """

    def execute(self, context: Context) -> dict[str, Any]:  # noqa: ARG002
        with self.opened() as steps:
            skip_if_paused(steps)
            report = steps.check()
            summary = check_summary(steps.run.name, report)
            for line in summary["findings"]:
                self.log.info("preflight: %s", line)
            report.require_fit()
        return summary


class CdcPlanOperator(CdcOperator):
    """
    Take the pipeline over, choose its tables and create them at the sink.

    Repeated, it goes on with the plan there is. The splits themselves are planned by the snapshot
    job while its readers already read.

    :param pipeline: path of the pipeline's YAML file (templated).
    """

    def execute(self, context: Context) -> dict[str, Any]:  # noqa: ARG002
        with self.opened() as steps:
            skip_if_paused(steps)
            return plan_summary(steps.run.name, steps.plan())


class CdcHandoffOperator(CdcOperator):
    """
    Turn the reports of all splits into the one stream: its start, and each table's watermarks.

    :param pipeline: path of the pipeline's YAML file (templated).
    """

    def execute(self, context: Context) -> dict[str, Any]:  # noqa: ARG002
        with self.opened() as steps:
            skip_if_paused(steps)
            stream = steps.hand_off()
            return hand_off_summary(steps.status().state, stream)


class CdcFinishOperator(CdcOperator):
    """
    Add the sink's unique and foreign keys, and tell the world that the tables are consistent.

    Each target table is an asset of this task; its event carries the position from which on the
    sink equals the source. Fails, and may be retried, while a table is not there yet.

    :param pipeline: path of the pipeline's YAML file (templated).
    """

    def execute(self, context: Context) -> dict[str, Any]:
        with self.opened() as steps:
            waiting = steps.finish_tables()
            if waiting:
                raise StateMovedError(
                    f"not consistent yet: {', '.join(str(table) for table in waiting)}",
                    where=f"pipeline {steps.run.name}",
                    risk="none: no key was added and no asset event sent",
                    remedy="let the stream go on, then run this task again",
                )
            return tell_consistent(context, steps.run.model, steps.status())


class CdcVerifyOperator(CdcOperator):
    """
    Compare source and sink, both ways; fail if they differ.

    Rows that differ are looked at again once the stream has had time to bring them.

    :param pipeline: path of the pipeline's YAML file (templated).
    :param tables: only these tables, as `database.table`; all of them if None (templated).
    :param settle_s: seconds that differing rows get before they count.
    :param enabled: skip the task if this is false or renders to a word for it (templated).
    """

    template_fields: Sequence[str] = ("pipeline", "tables", "enabled")

    def __init__(
        self,
        *,
        tables: Sequence[str] | None = None,
        settle_s: float = 10.0,
        enabled: str | bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.tables = tables
        self.settle_s = settle_s
        self.enabled = enabled

    def execute(self, context: Context) -> dict[str, Any]:  # noqa: ARG002
        if str(self.enabled).strip().lower() in _NO:
            raise AirflowSkipException("this run was asked not to verify")
        with self.opened() as steps:
            report = steps.verify(self._tables(), settle_s=self.settle_s)
            summary = verify_summary(steps.run.name, report)
        if not report.equal:
            raise AirflowFailException(f"source and sink differ: {summary['tables']}")
        return summary

    def _tables(self) -> tuple[TableId, ...] | None:
        try:
            return None if self.tables is None else tuple(map(TableId.parse, self.tables))
        except ValueError as error:
            raise PipelineFileError(
                str(error), where=f"tables of {self.task_id}", remedy="write database.table"
            ) from None
