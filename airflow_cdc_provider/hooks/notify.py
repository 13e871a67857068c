"""Notifying from Airflow: by a task for as long as it runs, and by a trigger that watches a stream.

What sends is imported when a task runs; see `steps` for why.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook, get_current_context
from airflow.sdk.exceptions import AirflowNotFoundException
from airflow.sdk.log import mask_secret

from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.core.identifiers import PipelineName
from airflow_cdc_provider.hooks.dsn import fields_of, remembered
from airflow_cdc_provider.hooks.steps import CdcSteps
from airflow_cdc_provider.pipeline.connection_fields import ConnectionFields
from airflow_cdc_provider.pipeline.file.model import NotifySection, Reference
from airflow_cdc_provider.pipeline.receivers import Receiver, find_receivers
from airflow_cdc_provider.views.in_airflow import way_in_airflow

if TYPE_CHECKING:
    from airflow_cdc_provider.alerts.watch import NotifyingThread

log = logging.getLogger(__name__)


@contextmanager
def notifying_task(
    steps: CdcSteps, *, link: str, file: str, fails_run: bool, retried: tuple[type[CdcError], ...]
) -> Iterator[None]:
    """Notify the pipeline's receivers, if it has any, until the block ends.

    An error counts as a failed run if `fails_run`, unless it is one of `retried` and Airflow tries
    the task again.
    """
    if steps.run.model.notify is None:
        yield
        return
    from airflow_cdc_provider.alerts.of_run import notifying  # noqa: PLC0415 - see above

    def ends_run(error: CdcError) -> bool:
        return fails_run and not (isinstance(error, retried) and _is_tried_again())

    way = partial(_way, file, str(steps.run.name))
    with notifying(steps.run, link=_whole(link), way=way, ends_run=ends_run, on_receivers=_mask):
        yield


def notify_arguments(steps: CdcSteps, *, link: str, file: str) -> dict[str, Any]:
    """Return the settings for a trigger that notifies; they name receivers and have no secret."""
    model = steps.run.model
    if model.notify is None:
        return {}
    section = model.notify.model_dump(mode="json", exclude_none=True)
    freshness = {"freshness_s": model.freshness.target_s, "link": _whole(link), "file": file}
    return {"section": section, **freshness}


async def watch_of_trigger(
    pipeline: str, state_dsn: str, arguments: Mapping[str, Any]
) -> NotifyingThread | None:
    """Make the notifying thread of a trigger, not started yet; None if there are no receivers."""
    if not arguments:
        return None
    from airflow_cdc_provider.alerts.of_run import say_wrong  # noqa: PLC0415 - see above
    from airflow_cdc_provider.alerts.watch import NotifyingThread, Watched  # noqa: PLC0415
    from airflow_cdc_provider.state.store import open_store  # noqa: PLC0415

    text = json.dumps(arguments["section"])  # strict JSON: lists become tuples
    section = NotifySection.model_validate_json(text, strict=True)
    receivers, wrong = find_receivers(section, await _fetched(section))
    say_wrong(pipeline, wrong)
    if not receivers:
        return None
    _mask(receivers)
    watched = Watched(
        PipelineName(pipeline),
        section.after_s,
        arguments.get("freshness_s"),
        str(arguments.get("link") or ""),
        partial(_way, str(arguments.get("file") or "FILE"), pipeline),
    )
    return NotifyingThread(watched, lambda: open_store(state_dsn), receivers)


@dataclass(frozen=True, slots=True)
class _Fetched:
    """Connections that were read beforehand in the triggerer's event loop."""

    found: Mapping[str, ConnectionFields] = field(repr=False)

    def __call__(self, reference: Reference) -> str | None:
        """Return the text of the variable that the reference names, None if it is not set."""
        return remembered(os.environ.get(reference.dsn_env or "", "")) or None

    def fields(self, conn_id: str) -> ConnectionFields | None:
        """Return the fields of a connection that was read beforehand, None if there is none."""
        return self.found.get(conn_id)


async def _fetched(section: NotifySection) -> _Fetched:
    """Read the receivers' connections, as only the triggerer's event loop can."""
    found: dict[str, ConnectionFields] = {}
    for part in (section.webhook, section.slack, section.email):
        if part is not None and part.conn_id is not None:
            try:
                connection = await BaseHook.aget_connection(part.conn_id)
            except AirflowNotFoundException:
                continue
            found[part.conn_id] = fields_of(connection, await connection.aextra_dejson())
    return _Fetched(found)


def _mask(receivers: Sequence[Receiver]) -> None:
    """Have Airflow mask the receivers' secrets in logs."""
    for receiver in receivers:
        for secret in receiver.secrets:
            mask_secret(secret)


def _whole(link: str) -> str:
    """Return a link if it is a full URL, else nothing."""
    return link if "://" in link else ""


def _way(file: str, pipeline: str, remedy: str, table: str) -> str:
    """Return what to do in Airflow for the commands of a remedy."""
    return way_in_airflow(remedy, file=file, table=table, pipeline=pipeline)


def _is_tried_again() -> bool:
    """Tell whether Airflow will retry the task if it fails now."""
    try:
        task: Any = get_current_context()["ti"]
    except RuntimeError:  # outside a task
        return False
    return int(task.try_number) <= int(getattr(task, "max_tries", 0))
