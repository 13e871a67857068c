"""The sensor that waits for a request, whoever asked it: a person, a page, or another task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from airflow.sdk import BaseSensorOperator, Context
from airflow.sdk.exceptions import AirflowSensorTimeout

from airflow_cdc_provider.core.requests import Request
from airflow_cdc_provider.hooks.lineage import LineageMixin
from airflow_cdc_provider.hooks.request_hook import CdcRequests
from airflow_cdc_provider.hooks.steps import CdcSteps
from airflow_cdc_provider.links.page import CdcPageLink
from airflow_cdc_provider.links.progress import CdcProgressLink
from airflow_cdc_provider.operators.base import airflow_errors, owner_of
from airflow_cdc_provider.operators.requests import work_of_request
from airflow_cdc_provider.triggers.places import now_us, place_of_state
from airflow_cdc_provider.triggers.requests import (
    CdcRequestTrigger,
    RequestEvent,
    RequestVerdict,
)
from airflow_cdc_provider.views.lineage import LineageWork
from airflow_cdc_provider.views.request_text import request_summary

_US = 1_000_000


class CdcRequestSensor(LineageMixin, BaseSensorOperator):
    """
    Wait, without a worker, until a request is done; fail with its error if it is not.

    It only waits: the pipeline's owner carries the request out. Ending this task leaves the
    request as it is.

    :param pipeline: path of the pipeline's YAML file (templated).
    :param request_id: id of the request, as `requests` shows it (templated).
    """

    template_fields: Sequence[str] = ("pipeline", "request_id")
    operator_extra_links = (CdcPageLink(), CdcProgressLink())
    ui_color = "#e8f1f5"

    def __init__(
        self,
        *,
        pipeline: str,
        request_id: str,
        poke_interval: float = 5.0,
        timeout: float = 7 * 86400.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(poke_interval=poke_interval, timeout=timeout, **kwargs)
        self.pipeline = pipeline
        self.request_id = request_id
        self._request: Request | None = None

    def execute(self, context: Context) -> dict[str, Any]:  # noqa: ARG002
        """Check the request, and defer if it is still open."""
        with airflow_errors(self.pipeline), self._open() as steps:
            return self._look(steps)

    def execute_complete(
        self,
        context: Context,  # noqa: ARG002
        event: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Check the request again, or fail if the time is up."""
        told = RequestEvent.from_payload(event)
        if told.verdict is RequestVerdict.TIMEOUT:
            raise AirflowSensorTimeout(
                f"request {told.request_id} of {told.pipeline}: {told.detail}"
            )
        with airflow_errors(self.pipeline), self._open() as steps:
            return self._look(steps)

    def lineage_work(self) -> LineageWork | None:
        """Return the request's tables for a lineage service, once the request was read."""
        return None if self._request is None else work_of_request(self._request)

    def _open(self) -> CdcSteps:
        """Open the pipeline as its DAG."""
        return CdcSteps(self.pipeline, owner=owner_of(self.dag_id))

    def _look(self, steps: CdcSteps) -> dict[str, Any]:
        """Return the summary of a request that is done; defer if open, fail with its error."""
        self.see(steps)
        requests = CdcRequests(steps)
        request = self._request = requests.known(self.request_id)
        if request.status.is_open:
            self.log.info("request %s: %s", self.request_id, requests.who(request))
            self._watch(steps)
        requests.require_done(request)
        return request_summary(request)

    def _watch(self, steps: CdcSteps) -> NoReturn:
        """Defer the task until the request has ended."""
        trigger = CdcRequestTrigger(
            pipeline=str(steps.run.name),
            request_id=self.request_id,
            state=place_of_state(steps),
            poll_s=float(self.poke_interval),
            deadline_us=now_us() + int(self.timeout * _US),
        )
        self.defer(trigger=trigger, method_name=self.execute_complete.__name__)
