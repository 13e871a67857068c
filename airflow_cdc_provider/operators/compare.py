"""What `<pipeline>__verify` is made of: source and sink compared, and what becomes of a difference.

    compare > approve > repair > verdict

A task that fails sends no asset event, and one that differs has to be told of too. So `compare`
ends well whatever it finds, and `verdict`, at the end, fails by name if tables still differ.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import Asset, AssetAlias, Context
from airflow.sdk.exceptions import AirflowSkipException

from airflow_cdc_provider.core.errors import LeaseHeldError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.requests import Scope, scope_from_json
from airflow_cdc_provider.hooks.request_hook import CdcRequests
from airflow_cdc_provider.hooks.steps import CdcSteps
from airflow_cdc_provider.operators.base import skip_if_paused
from airflow_cdc_provider.operators.jobs import CdcJobOperator
from airflow_cdc_provider.operators.log_errors import failure
from airflow_cdc_provider.operators.params import require_known_params
from airflow_cdc_provider.operators.requests import CdcRequestOperator
from airflow_cdc_provider.operators.verify import compared_work, tables_of
from airflow_cdc_provider.pipeline.steps.left_out import left_out_text
from airflow_cdc_provider.views.comparisons import (
    come_back_text,
    comparison_counts,
    comparison_form,
    difference_text,
    repair_forms,
    standing_of,
)
from airflow_cdc_provider.views.lineage import LineageWork
from airflow_cdc_provider.views.reports import told_lines

if TYPE_CHECKING:
    from airflow_cdc_provider.core.verify_report import VerifyReport

_MOST_REPAIRS = 500
"""Each is a task of its own; Airflow has at most 1,024 of a kind."""
_OTHERS_POLL_S = 2.0
_ASK = (
    "trigger the DAG with repair: ask, which shows what it would read again and waits for your word"
)
_WHAT_TO_DO = f"the log and the XCom of the task that compared them have keys; {_ASK}"
_NEXT = {
    "never": f"nothing is read again in this run; {_ASK}",
    "ask": "the task `approve` asks a person whether this is read again",
    "always": "the task `repair` has this read again",
}
_REJECTED = "rejected"


def verify_asset(name: str) -> Asset:
    """Return the asset whose events carry the results of a pipeline's comparisons."""
    return Asset(name=f"cdc-verify/{name}", uri=f"cdc://verify/{quote(name)}")


class CdcComparingOperator(CdcJobOperator):
    """
    The base of operators that compare source and sink and report the result.

    :param pipeline: path of the pipeline's YAML file (templated).
    :param refused: why the task may do nothing; it then fails with these words.
    :param settle_s: seconds that a running stream gets, each time, to bring differing rows.
    :param others_s: seconds that another owner of the pipeline gets to end, where this task has to
        catch up with the log.
    :param progress_every_s: seconds between lines of progress while it catches up.
    """

    def __init__(self, *, settle_s: float = 30.0, others_s: float = 600.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.settle_s = settle_s
        self.others_s = others_s
        self._report: VerifyReport | None = None

    def compared(
        self,
        context: Context,
        steps: CdcSteps,
        tables: tuple[TableId, ...] | None,
        **options: Any,
    ) -> VerifyReport:
        """Compare tables, catching up with the log if rows may only be late; return the report."""
        steps.require_not_ended()
        self._report = steps.verify(
            tables,
            settle_s=self.settle_s,
            catch_up=lambda: self._catch_up_when_free(context, steps),
            **options,
        )
        return self._report

    def lineage_work(self) -> LineageWork | None:
        """Return the task's lineage: the compared tables and results."""
        return None if self._report is None else compared_work(None, self._report)

    def told(self, context: Context, steps: CdcSteps, report: VerifyReport) -> dict[str, Any]:
        """Log the report, and put its counts into the asset events; return it as plain values."""
        tell = self.log.info if report.equal else self.log.warning
        for line in told_lines(report):
            tell("%s", line)
        for stopped in report.stopped:
            self.log.warning("%s", come_back_text([str(stopped)], file=self.pipeline))
        for later in report.not_copied:
            self.log.warning("%s", left_out_text(later))
        stream = steps.status().stream
        position = "" if stream is None else str(stream.position)
        asset = verify_asset(str(steps.run.name))
        counts = comparison_counts(steps.run.name, report, position)
        for outlet in self.outlets:
            if outlet == asset:
                context["outlet_events"][asset].extra = counts
            elif isinstance(outlet, AssetAlias):
                context["outlet_events"][outlet].add(asset, extra=counts)
        return comparison_form(steps.run.name, report, position)

    def _catch_up_when_free(self, context: Context, steps: CdcSteps) -> None:
        """Wait until no other process owns the pipeline, then apply the log to the source's end."""
        deadline = time.monotonic() + self.others_s
        while True:
            try:
                self.log.info("rows differ and no stream is at work: catching up before they count")
                self.catch_up(context, steps)
            except LeaseHeldError as held:
                if time.monotonic() >= deadline:
                    raise
                self.log.info("waiting: %s", held.what)
                time.sleep(_OTHERS_POLL_S)
            else:
                return


class CdcCompareOperator(CdcComparingOperator):
    """
    Compare source and sink both ways and return the result; a difference is no failure.

    Fails only if they could not be compared: what becomes of a difference is for the tasks behind
    it. Skips the run while the pipeline is paused, and before its snapshot is done. With
    `verify_asset` among its outlets, the asset's event has the counts. The run's parameters
    `only_changed` and `percent` leave tables and rows out.

    :param pipeline: path of the pipeline's YAML file (templated).
    :param refused: why the task may do nothing; it then fails with these words.
    :param tables: only these tables, as `database.table` (templated); without, those of the run's
        parameter `tables`, or all.
    :param values: write the values that differ into the log, too, as the run's parameter `values`
        does; the XCom never has them.
    :param settle_s: seconds that a running stream gets, each time, to bring differing rows.
    :param others_s: seconds that another owner of the pipeline gets to end, where this task has to
        catch up with the log.
    :param progress_every_s: seconds between lines of progress while it catches up.
    """

    template_fields: Sequence[str] = ("pipeline", "tables")

    def __init__(
        self, *, tables: Sequence[str] | None = None, values: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.tables = tables
        self.values = values

    def lineage_work(self) -> LineageWork:
        """Return the task's lineage: the compared tables and results."""
        return compared_work(tables_of(self.task_id, self.tables or None), self._report)

    def execute(self, context: Context) -> dict[str, Any]:
        """Compare, log the result, and return it with the possible repairs."""
        with self.opened() as steps:
            require_known_params(context)
            skip_if_paused(steps)
            if not steps.run.store.is_handed_off(steps.run.name):
                raise AirflowSkipException(
                    f"the snapshot of {steps.run.name} is not done: nothing can be compared yet"
                )
            params = context["params"]
            report = self.compared(
                context,
                steps,
                tables_of(self.task_id, self.tables or params.get("tables") or None),
                values=self.values or bool(params.get("values")),
                only_changed=bool(params.get("only_changed")),
                percent=float(params.get("percent") or 100.0),
            )
            form = self.told(context, steps, report)
            repairs = [] if report.equal else repair_forms(steps.repairs(report))
        for each in repairs:
            self.log.warning("%s", each["text"])
        if repairs:
            self.log.warning("%s", self._what_comes_next(context, str(form["pipeline"])))
        if len(repairs) > _MOST_REPAIRS:
            self.log.warning("a run repairs %d of these tables", _MOST_REPAIRS)
        return {**form, "repairs": repairs[:_MOST_REPAIRS]}

    def _what_comes_next(self, context: Context, name: str) -> str:
        """Describe what the rest of the run, or a person, does about a difference."""
        whole = f"to have whole tables read again, trigger the DAG `{name}__resync`"
        repair = context["params"].get("repair")
        if repair not in _NEXT:  # a DAG of the user's own
            return f"to have these rows read again, run `{name}__verify` with repair: ask; {whole}"
        return _NEXT[repair] if repair != "never" else f"{_NEXT[repair]}; {whole}"


class CdcApproveRepairOperator(ApprovalOperator):
    """
    Ask a person whether differing rows are to be read again; waiting takes no worker.

    Skipped where nothing differs, or nothing is to be repaired. Returns what is to be repaired.

    :param repair: `never`, `ask` or `always` (templated).
    :param compare_task: id of the task that compared source and sink.
    """

    template_fields = (*ApprovalOperator.template_fields, "repair")

    def __init__(
        self, *, repair: str = "ask", compare_task: str = "compare", **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.repair = repair
        self.compare_task = compare_task

    def execute(self, context: Context) -> Any:
        """Skip if nothing differs; else return the repairs, or wait for a person's answer."""
        found = self._found(context)
        if not found:
            raise AirflowSkipException(self._why_nothing(context))
        if self.repair == "never":
            raise AirflowSkipException("rows differ, and repair is never: nothing is read again")
        if self.repair == "always":
            return found
        return super().execute(context)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        """Return the repairs if the person approved them, else none."""
        person = event.get("responded_by_user") or {}
        by = str(person.get("name") or person.get("id") or "")
        if event.get("chosen_options") == [self.REJECT]:  # what follows ends the task at once
            self.log.info("rejected by %s", by or "nobody: no answer came in time")
            context["ti"].xcom_push(key=_REJECTED, value={"by": by})
        answer = super().execute_complete(context, event)
        if answer["chosen_options"] != [self.APPROVE]:
            return []
        by = by or "a person"
        self.log.info("approved by %s", by)
        return [{**each, "approved_by": by} for each in self._found(context)]

    def _found(self, context: Context) -> list[dict[str, Any]]:
        """Return the repairs that the comparing task found."""
        return list(self._compared(context).get("repairs", ()))

    def _compared(self, context: Context) -> Mapping[str, Any]:
        """Return what the comparing task returned."""
        return context["ti"].xcom_pull(task_ids=self.compare_task) or {}

    def _why_nothing(self, context: Context) -> str:
        """Explain why there is nothing to repair."""
        standing = standing_of(self._compared(context))
        if not standing:
            return "there is nothing to repair"
        return f"all that differs stands still: {come_back_text(standing)}"


class CdcRepairOperator(CdcRequestOperator):
    """
    Read one table's differing rows again, as `verify --repair` does, and wait for that.

    :param pipeline: path of the pipeline's YAML file (templated).
    :param refused: why the task may do nothing; it then fails with these words.
    :param repair: what the task that compared the table returned about it.
    :param idle_s: for how many seconds no process may run the pipeline before this task
        carries the request out itself; None is 0 of bounded pipelines and 120 of continuous ones.
    :param poll_s: seconds between looks at the request while the task is deferred.
    :param progress_every_s: seconds between lines of progress in the log, while it does the work.
    """

    template_fields = (*CdcRequestOperator.template_fields, "repair")
    kind = "repair"

    def __init__(self, *, repair: Mapping[str, Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.repair = repair

    def scope(self, requests: CdcRequests) -> Scope:  # noqa: ARG002 - it was found by comparing
        """Return the scope of the repair."""
        self.approved_by = str(self.repair.get("approved_by", self.approved_by))
        return scope_from_json(self.repair["scope"])

    def asked_tables(self) -> tuple[TableId, ...]:
        """Return the tables of the repair."""
        return scope_from_json(self.repair["scope"]).tables


class CdcVerdictOperator(CdcComparingOperator):
    """
    Fail if tables that were found different still are; compares again after repairs.

    The error names the tables. With an alias among its outlets, the asset of the pipeline's
    comparisons then gets an event with the counts.

    :param pipeline: path of the pipeline's YAML file (templated).
    :param refused: why the task may do nothing; it then fails with these words.
    :param compare_task: id of the task that compared them.
    :param repair_task: id of the task, mapped or not, that repaired what differed.
    :param approve_task: id of the task that asked a person whether to repair it.
    :param settle_s: seconds that a running stream gets, each time, to bring differing rows.
    :param others_s: seconds that another owner of the pipeline gets to end, where this task has to
        catch up with the log.
    :param progress_every_s: seconds between lines of progress while it catches up.
    """

    def __init__(
        self,
        *,
        compare_task: str = "compare",
        repair_task: str = "repair",
        approve_task: str = "approve",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.approve_task = approve_task
        self.compare_task = compare_task
        self.repair_task = repair_task

    def execute(self, context: Context) -> dict[str, Any]:
        """Compare repaired tables again, and fail if any table differs."""
        found = context["ti"].xcom_pull(task_ids=self.compare_task)
        if found is None:
            raise AirflowSkipException("nothing was compared")
        if not found["equal"] and any(context["ti"].xcom_pull(task_ids=self.repair_task) or ()):
            self.log.info("comparing again what was repaired")
            with self.opened() as steps:
                tables = tables_of(self.task_id, found["differing"])
                found = self.told(context, steps, self.compared(context, steps, tables))
        if not found["equal"]:
            text = difference_text(found)
            raise failure(text, told=(text, *self._what_to_do(context, found)))
        return {name: value for name, value in found.items() if name != "repairs"}

    def _what_to_do(self, context: Context, found: Mapping[str, Any]) -> Iterator[str]:
        """Yield advice on isolated tables, and on those that a repair can make equal."""
        standing = standing_of(found)
        if standing:
            yield f"what to do: {come_back_text(standing, file=self.pipeline)}"
        if len(standing) == len(found["differing"]):
            return
        rejected = context["ti"].xcom_pull(task_ids=self.approve_task, key=_REJECTED)
        if rejected is None:
            yield f"what to do: {_WHAT_TO_DO}"
        else:
            why = f"by {rejected['by']}" if rejected["by"] else "because nobody answered in time"
            yield f"the repair was rejected {why}: nothing was read again"
            yield f"what to do: if it is wanted after all, {_ASK} once more"
