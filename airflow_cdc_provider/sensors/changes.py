"""The sensor that tells other DAGs of changed tables while a stream flows on and on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk import BaseSensorOperator, Context

from airflow_cdc_provider.core.backoff import FOR_A_DAY
from airflow_cdc_provider.core.errors import SinkUnreachableError
from airflow_cdc_provider.hooks.lineage import LineageMixin
from airflow_cdc_provider.hooks.steps import CdcSteps
from airflow_cdc_provider.links.progress import CdcProgressLink
from airflow_cdc_provider.operators.assets import announce_tables, told_by, work_of_news
from airflow_cdc_provider.operators.base import airflow_errors, owner_of
from airflow_cdc_provider.triggers.changes import CdcChangesTrigger, activity_of
from airflow_cdc_provider.triggers.places import place_of_state
from airflow_cdc_provider.views.lineage import LineageWork

if TYPE_CHECKING:
    from airflow_cdc_provider.pipeline.steps.table_announcements import TableAnnouncement

_US = 1_000_000
_AWAY_S = 60.0
"""Between two tries while the sink is away; each takes a worker for a moment."""


class CdcChangesSensor(LineageMixin, BaseSensorOperator):
    """
    Wait until rows of a table have changed, and announce the changed tables.

    It waits without a worker, also for a sink that is away, that for a day at most. Changes within
    a window are announced together, by one event for each table in which something changed; a
    pipeline that is idle, paused or not copied yet is waited for. Give it `outlets`: see
    `airflow_cdc_provider.operators.assets.outlets_of`.

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
        self._news: Sequence[TableAnnouncement] | None = None

    def execute(self, context: Context) -> dict[str, Any]:
        """Announce changed tables, or defer until there are some."""
        return self._look(context, away_since_us=0)

    def _look(self, context: Context, *, away_since_us: int) -> dict[str, Any]:
        """Announce changed tables, or defer.

        `away_since_us` is since when the sink is away, 0 if it is not.
        """
        with (
            airflow_errors(self.pipeline),
            CdcSteps(self.pipeline, owner=owner_of(self.dag_id)) as steps,
        ):
            self.see(steps)
            store, name = steps.run.store, steps.run.name
            activity = activity_of(store, name)  # before the look: what comes then is heard of
            now, due_us = store.now_us(), store.last_told_us(name) + int(self.every_s * _US)
            try:
                news = steps.table_news(told_by(context)) if now >= due_us else ()
            except SinkUnreachableError as error:
                away_since_us = away_since_us or now
                if FOR_A_DAY.is_over((now - away_since_us) / _US):
                    raise
                self.log.warning("waiting: pipeline=%s %s", name, error)
                due_us = now + int(_AWAY_S * _US)
                self._wait(self._trigger(steps, activity="", due_us=due_us), away_since_us)
            if news:
                self._news = news
                return announce_tables(self, context, steps, news)
            heard = activity if now >= due_us else ""
            trigger = self._trigger(steps, activity=heard, due_us=due_us)
        return self._wait(trigger)

    def lineage_work(self) -> LineageWork:
        """Return the task's lineage: all tables, and their changes."""
        return work_of_news(self._news)

    def _trigger(self, steps: CdcSteps, *, activity: str, due_us: int) -> CdcChangesTrigger:
        """Return the trigger that waits for more than `activity`, and until `due_us`."""
        return CdcChangesTrigger(
            pipeline=str(steps.run.name),
            state=place_of_state(steps),
            activity=activity,
            due_us=due_us,
            look_us=steps.run.store.now_us() + int(self.look_s * _US),
            poll_s=float(self.poke_interval),
        )

    def _wait(self, trigger: CdcChangesTrigger, away_since_us: int = 0) -> NoReturn:
        """Defer the task until the trigger fires."""
        kept = {"away_since_us": away_since_us} if away_since_us else None
        self.defer(trigger=trigger, method_name=self.execute_complete.__name__, kwargs=kept)

    def execute_complete(
        self,
        context: Context,
        event: Mapping[str, Any],  # noqa: ARG002 - Airflow passes it; the ledger says what changed
        away_since_us: int = 0,
    ) -> dict[str, Any]:
        """Check again for changed tables."""
        return self._look(context, away_since_us=away_since_us)
