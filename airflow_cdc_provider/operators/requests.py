"""What a task asks of a pipeline: it asks once, waits without a worker, and tells what came of it.

A try keeps the id of its request before it asks. So a try that comes after a kill goes on with the
same request, and one that comes after the request's end was told, as after a clear, asks anew.

Where somebody is at work on the pipeline the task defers: a trigger waits for the request's end.
Where nobody is, this task takes the pipeline over, carries out what waits and ends, as `--wait` of
the command line does. While the pipeline is paused, or the request waits to be approved, the task
defers too: nothing is lost, and no worker is held.

Whoever ends the task, by marking or clearing it or its run, gives the request up with it.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NoReturn

from airflow.sdk import NEVER_EXPIRE, Context  # type: ignore[attr-defined]  # its stub lacks it
from airflow.sdk.exceptions import AirflowFailException

from airflow_cdc_provider.core.errors import (
    CdcError,
    FencedError,
    LeaseHeldError,
    PausedError,
    TablesStoppedError,
)
from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.requests import Request, RequestStatus, Scope
from airflow_cdc_provider.hooks.lifecycle_hook import tables_of
from airflow_cdc_provider.hooks.request_hook import Asking, CdcRequests, Choice, cancel_request
from airflow_cdc_provider.hooks.steps import CdcSteps
from airflow_cdc_provider.links.early import push_links
from airflow_cdc_provider.operators.jobs import CdcJobOperator
from airflow_cdc_provider.operators.told_to_page import told_to_page
from airflow_cdc_provider.triggers.places import now_us, place_of_state
from airflow_cdc_provider.triggers.requests import CdcRequestTrigger
from airflow_cdc_provider.views.lineage import LineageEntry, LineageWork
from airflow_cdc_provider.views.request_text import (
    estimate_form,
    estimate_lines,
    progress_text,
    request_summary,
    standing_text,
)

_KEPT = "request"
_MOST_TRIES = 5
"""So often this task carries requests out without its own being closed."""
_CANCEL_PATIENCE_S = 1.5
"""Together with a job's patience less than the five seconds that Airflow gives `on_kill`."""
_LATE_KILL_US = 60_000_000
"""A kill of the try before may still give the request up when this one has gone on with it."""
_CONTINUOUS_IDLE_S = 120.0
_SOON_S = 3.0
_LOOK_S = 0.5
_OWNER_LENGTH = 255


@dataclass(frozen=True, slots=True)
class _Kept:
    """The request that an earlier try of the task made, and whether its outcome was returned."""

    id: str
    told: bool = False
    """A try has ended with what became of it."""


@dataclass(frozen=True, slots=True)
class _Wait:
    """What a waiting task carries over a deferral."""

    request_id: str
    adopted_us: int = 0
    """When this try went on with a request of an earlier one; 0 if it asked itself."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """The request to be cancelled if the task is killed."""

    state_dsn: str = field(repr=False)
    pipeline: PipelineName
    request_id: str


class CdcRequestOperator(CdcJobOperator):
    """
    The base of operators that request rows to be read again, and wait for that.

    :param pipeline: path of the pipeline's YAML file (templated).
    :param refused: why the task may do nothing; it then fails with these words.
    :param only_estimate: only say how many rows both sides have; off by a word for no (templated).
    :param approve_above_rows: a request about more rows waits to be approved; the file's own limit
        holds beside it.
    :param approved_by: who approved it already; then it needs no approval (templated).
    :param idle_s: for how many seconds no process may run the pipeline before this task
        carries the request out itself; None is 0 of bounded pipelines and 120 of continuous ones,
        whose stream may be starting again.
    :param poll_s: seconds between looks at the request while the task is deferred.
    :param progress_every_s: seconds between lines of progress in the log, while it does the work.
    """

    template_fields: Sequence[str] = ("pipeline", "only_estimate", "approved_by")
    kind = "request"
    """The beginning of the ids of its requests."""

    def __init__(
        self,
        *,
        only_estimate: bool | str = False,
        approve_above_rows: int | None = None,
        approved_by: str = "",
        idle_s: float | None = None,
        poll_s: float = 5.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.only_estimate = only_estimate
        self.approve_above_rows = approve_above_rows
        self.approved_by = approved_by
        self.idle_s = idle_s
        self.poll_s = poll_s
        self._asked: _Asked | None = None
        self._request: Request | None = None

    def scope(self, requests: CdcRequests) -> Scope:
        """Return the rows that the request is about; refuse what cannot be read again."""
        raise NotImplementedError

    def execute(self, context: Context) -> dict[str, Any]:
        """Make the request, or take up an earlier try's, and wait for its end or defer."""
        push_links(context, self)
        with self._opened(context) as steps:
            requests = CdcRequests(steps)
            if is_yes(self.only_estimate):
                with told_to_page(context, str(steps.run.name)):
                    return self._estimated(requests, self.scope(requests))
            scope = self.scope(requests)
            wait = self._adopted(context, requests, scope) or self._ask(context, requests, scope)
            return self._through(context, steps, wait, may_begin=self._idle_s(steps) <= 0)

    def execute_complete(
        self, context: Context, event: Mapping[str, Any], wait: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Continue after the trigger: the request has ended, or no process owns the pipeline."""
        adopted_us = int((wait or {}).get("adopted_us", 0))  # `dag.test` loses what was given
        waiting = _Wait(str(event["request_id"]), adopted_us)
        self.log.info("request %s: %s", waiting.request_id, event.get("detail", ""))
        with self._opened(context) as steps:
            return self._through(context, steps, waiting, may_begin=True)

    def on_kill(self) -> None:
        """Cancel the request, and stop the job if this task runs it."""
        self._is_killed = True
        if self._asked is not None:
            # over other connections, and in a thread: what was interrupted may hold its own
            thread = threading.Thread(target=_give_up, args=(self._asked,), daemon=True)
            thread.start()
            thread.join(_CANCEL_PATIENCE_S)
        super().on_kill()

    def lineage_work(self) -> LineageWork | None:
        """Return the request's tables for a lineage service; None for an estimate."""
        if is_yes(self.only_estimate):
            return None
        if self._request is None:
            return LineageWork(self.asked_tables())
        return work_of_request(self._request)

    def asked_tables(self) -> Collection[TableId] | None:
        """Return the tables that the request will be about, None for all."""
        return None

    def _opened(self, context: Context) -> AbstractContextManager[CdcSteps]:
        """Open the pipeline under an owner's name that only tries of this task share."""
        task = f"airflow task {self.dag_id}.{self.task_id}"[: _OWNER_LENGTH - 20]
        return self.opened(owner=f"{task} {_hash_of(context)}")

    def _estimated(self, requests: CdcRequests, scope: Scope) -> dict[str, Any]:
        """Log the estimated rows and return them, without a request."""
        found = requests.estimate(scope)
        for line in estimate_lines(found):
            self.log.info("%s", line)
        self.log.info("only an estimate was wanted: nothing was asked")
        return {
            "pipeline": str(requests.name),
            "request": None,
            "estimate": estimate_form(found),
        }

    def _adopted(self, context: Context, requests: CdcRequests, scope: Scope) -> _Wait | None:
        """Take up the request of an earlier try, if its end was not returned yet."""
        kept = _kept(context)
        found = None if kept is None or kept.told else requests.find(kept.id)
        if found is None:
            return None
        if found.status is RequestStatus.CANCELLED or found.is_cancel_wanted:
            self.log.info("an earlier try was ended, and gave up: %s", found.request_id)
            return None
        if found.scope != scope:
            self.log.info("given up, as other rows are asked for now: %s", found.request_id)
            requests.cancel(found.request_id)
            return None
        self.log.info("going on with the request of an earlier try: %s", found.request_id)
        return _Wait(found.request_id, adopted_us=now_us())

    def _ask(self, context: Context, requests: CdcRequests, scope: Scope) -> _Wait:
        """Store a new id, then make the request under it."""
        request_id = self._new_id(context, requests)
        _keep(context, _Kept(request_id))
        self._asked = _Asked(requests.state_dsn, requests.name, request_id)
        estimated = requests.estimate(scope)
        for line in estimate_lines(estimated):
            self.log.info("%s", line)
        asking = Asking(request_id, _who(context), self.approve_above_rows, self.approved_by)
        asked = requests.ask(scope, asking, estimated)
        self.log.info(
            "asked: request=%s %s; %s", asked.request_id, asked.scope, requests.who(asked)
        )
        return _Wait(asked.request_id)

    def _new_id(self, context: Context, requests: CdcRequests) -> str:
        """Return an id for a request that is derived from this task and not taken."""
        first, number = f"{self.kind}-{_hash_of(context)}", 1
        while requests.find(request_id := first if number == 1 else f"{first}.{number}"):
            number += 1
        return request_id

    def _through(
        self, context: Context, steps: CdcSteps, wait: _Wait, *, may_begin: bool
    ) -> dict[str, Any]:
        """Wait for the request's end and return it; one cancelled by a kill is repeated."""
        requests = CdcRequests(steps)
        request = self._until_closed(context, steps, wait, may_begin=may_begin)
        if self._was_given_up_by_the_try_before(request, wait):
            wait = self._ask(context, requests, self.scope(requests))
            request = self._until_closed(context, steps, wait, may_begin=may_begin)
        return self._told(context, requests, request)

    def _until_closed(
        self, context: Context, steps: CdcSteps, wait: _Wait, *, may_begin: bool
    ) -> Request:
        """Return the request once it is closed; defer while another process carries it out."""
        requests, tries = CdcRequests(steps), 0
        self._asked = _Asked(requests.state_dsn, requests.name, wait.request_id)
        while (request := requests.known(wait.request_id)).status.is_open:
            if self._is_killed:
                requests.cancel(wait.request_id)
                raise AirflowFailException("the task was ended, and its request given up")
            if not (may_begin and requests.may_begin(request)):
                if self._is_done_soon(requests, request):
                    continue
                self._watch(steps, wait, request)
            if tries == _MOST_TRIES:
                raise requests.left(request)
            tries += 1
            self._carry_out(context, steps, request)
        return request

    def _carry_out(self, context: Context, steps: CdcSteps, request: Request) -> None:
        """Own the pipeline and carry out its open requests, with a job up to the log's end."""
        requests, last = CdcRequests(steps), ""
        self.log.info("nobody is at work on %s: this task does what waits", requests.name)

        def tell() -> None:
            nonlocal last
            now = requests.known(request.request_id)
            text = f"request {now.request_id}: {standing_text(now)}"
            if text != last:
                self.log.info("%s", text)
            last = text

        # another one may be faster, or come in between: then it does the work
        with suppress(LeaseHeldError, FencedError, TablesStoppedError, PausedError):
            job = self.start_job(context, steps.start_catching_up)
            if job is not None:
                job.wait(on_tick=tell, every_s=self.progress_every_s)

    def _is_done_soon(self, requests: CdcRequests, request: Request) -> bool:
        """Wait briefly for the stream to finish the request, so that the task need not defer.

        Airflow takes a task for failed that is resumed before its scheduler has heard that the
        process which deferred it ended.
        """
        if not (request.status.is_to_do and requests.is_streamed()):
            return False
        deadline = time.monotonic() + _SOON_S
        while time.monotonic() < deadline and not self._is_killed:
            time.sleep(_LOOK_S)
            if not requests.known(request.request_id).status.is_open:
                return True
        return self._is_killed

    def _watch(self, steps: CdcSteps, wait: _Wait, request: Request) -> NoReturn:
        """Defer the task until the request ends, without a worker."""
        requests = CdcRequests(steps)
        self.log.info("waiting without a worker: %s", requests.who(request))
        trigger = CdcRequestTrigger(
            pipeline=str(requests.name),
            request_id=wait.request_id,
            state=place_of_state(steps),
            poll_s=float(self.poll_s),
            idle_s=self._idle_s(steps),
            cancel_on_kill=True,
        )
        self.defer(
            trigger=trigger,
            method_name=self.execute_complete.__name__,
            kwargs={"wait": asdict(wait)},
        )

    def _idle_s(self, steps: CdcSteps) -> float:
        """Return how long the pipeline must be without an owner before this task takes it over."""
        if self.idle_s is not None:
            return self.idle_s
        return _CONTINUOUS_IDLE_S if steps.run.model.stream.is_continuous else 0.0

    @staticmethod
    def _was_given_up_by_the_try_before(request: Request, wait: _Wait) -> bool:
        """Tell whether the kill of an earlier try cancelled the request."""
        is_cancelled = request.status is RequestStatus.CANCELLED
        return is_cancelled and 0 < wait.adopted_us > request.changed_us - _LATE_KILL_US

    def _told(self, context: Context, requests: CdcRequests, request: Request) -> dict[str, Any]:
        """Return a summary of the request, or fail with its error."""
        self._request = request
        kept = _kept(context)
        if kept is not None:
            _keep(context, replace(kept, told=True))
        requests.require_done(request)
        self.log.info("done: request=%s %s", request.request_id, progress_text(request))
        return request_summary(request)


class CdcResyncOperator(CdcRequestOperator):
    """
    Read rows again while their tables flow on, and wait for that.

    :param pipeline: path of the pipeline's YAML file (templated).
    :param refused: why the task may do nothing; it then fails with these words.
    :param tables: only these, as `database.table`; all of them if there is none (templated).
    :param from_key: the first key of the one table that is read (templated).
    :param to_key: the first key of the one table that is not read any more (templated).
    :param where: a condition in the source's SQL, on the columns of the one table (templated).
    :param choice: all of these at once, and the limit, as `CdcResyncCheckOperator` returns them;
        it goes before the others (templated).
    :param only_estimate: only say how many rows both sides have; off by a word for no (templated).
    :param approve_above_rows: a request about more rows waits to be approved; the file's own limit
        holds beside it.
    :param approved_by: who approved it already; then it needs no approval (templated).
    :param idle_s: for how many seconds no process may run the pipeline before this task
        carries the request out itself; None is 0 of bounded pipelines and 120 of continuous ones.
    :param poll_s: seconds between looks at the request while the task is deferred.
    :param progress_every_s: seconds between lines of progress in the log, while it does the work.
    """

    template_fields = (
        *CdcRequestOperator.template_fields,
        "tables",
        "from_key",
        "to_key",
        "where",
        "choice",
    )
    kind = "resync"

    def __init__(
        self,
        *,
        tables: Sequence[str] | None = None,
        from_key: str | None = None,
        to_key: str | None = None,
        where: str | None = None,
        choice: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.tables = tables
        self.from_key = from_key
        self.to_key = to_key
        self.where = where
        self.choice = choice

    def scope(self, requests: CdcRequests) -> Scope:
        """Return the scope of the chosen tables, keys and condition."""
        if self.choice is None:
            return requests.resync_scope(
                tuple(self.tables or ()),
                from_key=self.from_key,
                to_key=self.to_key,
                where=self.where,
            )
        chosen = Choice.from_payload(self.choice)
        self.approve_above_rows = chosen.ask_above_rows
        return chosen.scope(requests)

    def asked_tables(self) -> Collection[TableId] | None:
        """Return the chosen tables, None for all."""
        names = Choice.from_payload(self.choice or {"tables": self.tables}).tables
        return tables_of(names) or None


def work_of_request(request: Request) -> LineageWork | None:
    """Return the lineage of a request; None for one that reads no rows."""
    if not request.kind.reads_rows:
        return None
    tables = request.scope.tables
    rows = request.rows if len(tables) == 1 else None  # they are counted together
    return LineageWork(tables, {table: LineageEntry(rows=rows) for table in tables})


_NO = frozenset({"", "0", "false", "no", "none"})


def is_yes(value: bool | str) -> bool:  # noqa: FBT001 - what a template rendered
    """Tell whether a templated parameter is anything but empty, 0, false, no or none."""
    return str(value).strip().lower() not in _NO


def _hash_of(context: Context) -> str:
    """Return a short hash of this task and run, the same for all tries."""
    ti = context["ti"]
    text = "\n".join((ti.dag_id, ti.run_id, ti.task_id, str(ti.map_index)))
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def _who(context: Context) -> str:
    """Return who makes the request: the task, and the person who triggered its run."""
    ti, run = context["ti"], context.get("dag_run")
    person = getattr(run, "triggering_user_name", None)
    task = f"airflow task {ti.dag_id}.{ti.task_id} of {ti.run_id}"
    return f"{person} by {task}" if person else task


def _kept(context: Context) -> _Kept | None:
    """Read the request of an earlier try from the task's store."""
    found = context["task_state_store"].get(_KEPT)
    if not isinstance(found, Mapping):
        return None
    return _Kept(str(found["id"]), bool(found.get("told", False)))


def _keep(context: Context, kept: _Kept) -> None:
    """Store the request for the next try of the task."""
    context["task_state_store"].set(_KEPT, asdict(kept), retention=NEVER_EXPIRE)


def _give_up(asked: _Asked) -> None:
    """Cancel a request, ignoring errors."""
    with suppress(CdcError):  # the next look of this task, if there is one, does it
        cancel_request(asked.state_dsn, asked.pipeline, asked.request_id)
