"""The sensor that tells other DAGs of changed tables while a stream flows on and on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk import BaseSensorOperator, Context

from airflow_cdc_provider.hooks.lineage import TellsLineage
from airflow_cdc_provider.hooks.steps import CdcSteps
from airflow_cdc_provider.links.progress import CdcProgressLink
from airflow_cdc_provider.operators.assets import tell_news, told_by, work_of_news
from airflow_cdc_provider.operators.base import airflow_errors, owner_of
from airflow_cdc_provider.triggers.changes import CdcChangesTrigger, activity_of
from airflow_cdc_provider.triggers.places import place_of_state
from airflow_cdc_provider.views.lineage import LineageWork

if TYPE_CHECKING:
    from airflow_cdc_provider.pipeline.steps.table_announcements import TableNews

_US = 1_000_000


class CdcChangesSensor(TellsLineage, BaseSensorOperator):
    """
    Wait until rows of a table have changed, and announce the changed tables.

    It waits without a worker. Changes within a window are announced together, by one event for each
    table in which something changed; a pipeline that is idle, paused or not copied yet is waited
    for. Give it `outlets`: see `airflow_cdc_provider.operators.assets.outlets_of`.

    :param pipeline: path of the pipeline's YAML file (templated).
    :param every_s: seconds that changes are gathered before they are announced.
    :param look_s: seconds after which the ledger is looked into even if no change was heard of,
        for what a stream does not count, such as a TRUNCATE.
    """

    template_fields: Sequence[str] = ("pipeline",)
    operator_extra_links = (CdcProgressLink(),)
    ui_color = "#e8f1f5"

    def __init__(
        self,
        *,
        pipeline: str,
        every_s: float = 300.0,
        look_s: float = 3600.0,
        poke_interval: float = 5.0,
        timeout: float = 10 * 365 * 86400.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(poke_interval=poke_interval, timeout=timeout, **kwargs)
        self.pipeline = pipeline
        self.every_s = every_s
        self.look_s = look_s
        self._news: Sequence[TableNews] | None = None

    def execute(self, context: Context) -> dict[str, Any]:
        """Announce changed tables, or defer until there are some."""
        with (
            airflow_errors(self.pipeline),
            CdcSteps(self.pipeline, owner=owner_of(self.dag_id)) as steps,
        ):
            self.see(steps)
            store, name = steps.run.store, steps.run.name
            activity = activity_of(store, name)  # before the look: what comes then is heard of
            now, due_us = store.now_us(), store.last_told_us(name) + int(self.every_s * _US)
            news = steps.table_news(told_by(context)) if now >= due_us else ()
            if news:
                self._news = news
                return tell_news(self, context, steps, news)
            trigger = CdcChangesTrigger(
                pipeline=str(name),
                state=place_of_state(steps),
                activity=activity if now >= due_us else "",
                due_us=due_us,
                look_us=now + int(self.look_s * _US),
                poll_s=float(self.poke_interval),
            )
        return self._wait(trigger)

    def lineage_work(self) -> LineageWork:
        """Return the task's lineage: all tables, and their changes."""
        return work_of_news(self._news)

    def _wait(self, trigger: CdcChangesTrigger) -> NoReturn:
        """Defer the task until the trigger fires."""
        self.defer(trigger=trigger, method_name=self.execute_complete.__name__)

    def execute_complete(
        self,
        context: Context,
        event: Mapping[str, Any],  # noqa: ARG002 - Airflow passes it; the ledger says what changed
    ) -> dict[str, Any]:
        """Check again for changed tables."""
        return self.execute(context)
