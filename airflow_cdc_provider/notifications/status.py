"""Telling people where a pipeline is, through whatever notifier they use already."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from airflow.sdk import BaseNotifier, Context

from airflow_cdc_provider.hooks.steps import CdcSteps
from airflow_cdc_provider.views.health import status_text

log = logging.getLogger(__name__)


class CdcStatusNotifier(BaseNotifier):
    """
    Say where a pipeline is and what is wrong with it, in the log and through other notifiers.

        on_failure_callback=CdcStatusNotifier(
            pipeline="/dags/pipelines/shop.yaml",
            through=[SlackNotifier(text="{{ cdc_status }}")],
        )

    :param pipeline: path of the pipeline's YAML file (templated).
    :param through: notifiers that are called with `cdc_status`, a few lines, in their context.
    """

    template_fields: Sequence[str] = ("pipeline",)

    def __init__(self, *, pipeline: str, through: Sequence[BaseNotifier] = ()) -> None:
        super().__init__()
        self.pipeline = pipeline
        self.through = tuple(through)

    def notify(self, context: Context) -> None:
        """Say it."""
        text = tell_status(self.pipeline)
        told: Any = {**context, "cdc_status": text}
        for notifier in self.through:
            notifier(told)


def tell_status(pipeline: str, **_context: Any) -> str:
    """Write where a pipeline is to the log, and return it; a callback for deadline alerts.

    :param pipeline: path of the pipeline's YAML file.
    """
    with CdcSteps(pipeline, owner="notifier") as steps:
        text = status_text(steps.status())
    for line in text.splitlines():
        log.warning("%s", line)
    return text
