"""What all operators of a pipeline share: the file, the owner's name, and errors by remedy."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, NoReturn

from airflow.sdk import BaseOperator, BaseOperatorLink, Context, get_current_context
from airflow.sdk.bases.xcom import BaseXCom
from airflow.sdk.exceptions import AirflowSkipException, DownstreamTasksSkipped

from airflow_cdc_provider.core.errors import (
    CdcError,
    FencedError,
    RetryableError,
    StateMovedError,
)
from airflow_cdc_provider.hooks.lineage import LineageMixin
from airflow_cdc_provider.hooks.notify import notifying_task
from airflow_cdc_provider.hooks.steps import CdcSteps
from airflow_cdc_provider.links.page import CdcPageLink, page_url
from airflow_cdc_provider.links.progress import CdcProgressLink
from airflow_cdc_provider.operators.log_errors import (
    CdcTaskError,
    CdcTaskFailure,
    failure,
    leave_out_stacks,
)
from airflow_cdc_provider.views.error_lines import error_lines

log = logging.getLogger(__name__)
# Another owner took over, or moved things on, in the middle: the next try starts from what is.
WORTH_A_RETRY = (RetryableError, FencedError, StateMovedError)


class CdcOperator(LineageMixin, BaseOperator):
    """
    The base of all operators: one step of a pipeline.

    :param pipeline: path of the pipeline's YAML file (templated).
    :param refused: why the task may do nothing, such as a clash of two pipeline files; it then
        fails with these words.
    :param is_run_owner: each run of the DAG is an owner of its own, as one of several pipelines.
    """

    template_fields: Sequence[str] = ("pipeline",)
    operator_extra_links: Collection[BaseOperatorLink] = (CdcPageLink(), CdcProgressLink())
    ui_color = "#e8f1f5"
    notifies: ClassVar[bool] = False
    """Receivers of the pipeline file's `notify` hear of problems while the task runs."""
    fails_run: ClassVar[bool] = False
    """An error of the task is told them as one of the pipeline's run."""

    def __init__(
        self, *, pipeline: str, refused: str = "", is_run_owner: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline
        self.refused = refused
        self.is_run_owner = is_run_owner

    @contextmanager
    def opened(self, *, owner: str = "") -> Iterator[CdcSteps]:
        """Open the pipeline for a task; errors become Airflow's, which retry or fail the task."""
        if self.refused:
            raise failure(self.refused)
        owner = owner or self._owner
        with airflow_errors(self.pipeline), CdcSteps(self.pipeline, owner=owner) as steps:
            self.see(steps)
            named = airflow_errors(self.pipeline, name=str(steps.run.name))
            with named, self._notifying(steps):
                yield steps

    @contextmanager
    def _notifying(self, steps: CdcSteps) -> Iterator[None]:
        """Notify receivers of the task's errors, if this kind of task does."""
        if not self.notifies:
            yield
            return
        with notifying_task(
            steps,
            link=page_url(self.dag_id),
            file=self.pipeline,
            fails_run=self.fails_run,
            retried=WORTH_A_RETRY,
        ):
            yield

    @property
    def _owner(self) -> str:
        """Return the name under which the task owns the pipeline."""
        owner = owner_of(self.dag_id)
        return f"{owner}, run {get_current_context()['run_id']}" if self.is_run_owner else owner


def owner_of(dag_id: str) -> str:
    """Return the name under which a DAG owns its pipeline.

    All runs and tries of a DAG are one owner, so that a retried task, a cleared one and the next
    run take over at once from what was killed, and need not wait for a lease to end.
    """
    return f"airflow dag {dag_id}"


@contextmanager
def airflow_errors(pipeline: str = "FILE", *, name: str = "") -> Iterator[None]:
    """Turn an error into one that lets Airflow retry the task, or fail it at once.

    Its parts are logged, a line each; Airflow adds no stack to them. Where a remedy names commands,
    a line says what does that in Airflow; `pipeline` is the path of the file they are about, `name`
    that of the pipeline, if it is known.
    """
    try:
        yield
    except CdcError as error:
        leave_out_stacks()
        for line in error_lines(error, file=pipeline, pipeline=name):
            log.error("%s", line)
        kind = CdcTaskError if isinstance(error, WORTH_A_RETRY) else CdcTaskFailure
        raise kind(str(error)) from error


def skip_if_paused(steps: CdcSteps) -> None:
    """Skip the task, and with it the rest of the run, if the pipeline is paused."""
    if steps.is_paused:
        raise AirflowSkipException(
            f"pipeline {steps.run.name} is paused; Resume on the CDC page, or `resume`, lets the "
            "next run go on from there"
        )


def end_without(context: Context, tasks: Sequence[str], *, returned: Mapping[str, Any]) -> NoReturn:
    """End the task as a success with a return value, and skip other tasks at once.

    They are not skipped again when they are cleared: then they run.
    """
    context["ti"].xcom_push(key=BaseXCom.XCOM_RETURN_KEY, value=dict(returned))
    raise DownstreamTasksSkipped(tasks=[*tasks])  # type: ignore[no-untyped-call]
