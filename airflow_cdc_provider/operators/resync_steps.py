"""The steps of a resync before anything is asked: check what the form says, estimate, approve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowSkipException

from airflow_cdc_provider.core.errors import NOTHING_CHANGED, RefusedError
from airflow_cdc_provider.core.requests import Scope
from airflow_cdc_provider.hooks.request_hook import CdcRequests, Choice
from airflow_cdc_provider.operators.base import CdcOperator
from airflow_cdc_provider.operators.params import require_known_params
from airflow_cdc_provider.operators.told_to_page import told_to_page
from airflow_cdc_provider.views.request_text import cost_form, cost_lines

_MOST_LINES = 100


class CdcResyncCheckOperator(CdcOperator):
    """
    Check the form of a resync against source and sink, and return the choice.

    Asks the source and the sink whether it can be done; changes nothing.

    :param pipeline: path of the pipeline's YAML file (templated).
    :param refused: why the task may do nothing; it then fails with these words.
    :param is_run_owner: each run of the DAG is an owner of its own, as one of several pipelines.
    """

    def execute(self, context: Context) -> dict[str, Any]:
        """Check the form, and return the choice for the next tasks."""
        with self.opened() as steps:
            require_known_params(context)
            with told_to_page(context, str(steps.run.name)):
                choice = chosen(context["params"])
                scope = choice.scope(CdcRequests(steps))
        self.log.info("to be read again: %s", scope)
        return choice.to_payload()


class CdcEstimateOperator(CdcOperator):
    """
    Estimate the cost of a resync: rows on both sides, bytes, time, load, deletes.

    :param pipeline: path of the pipeline's YAML file (templated).
    :param refused: why the task may do nothing; it then fails with these words.
    :param choice: what is to be read again, as `CdcResyncCheckOperator` returns it (templated).
    """

    template_fields = ("pipeline", "choice")

    def __init__(self, *, choice: Mapping[str, Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.choice = choice

    def execute(self, context: Context) -> dict[str, Any]:
        """Estimate each table's cost, log it, and return what a person is to approve."""
        # the step brings the drivers with it, which a parse of a DAG must not load
        from airflow_cdc_provider.pipeline.steps.costing import LOAD  # noqa: PLC0415

        choice = Choice.from_payload(self.choice)
        with self.opened() as steps:
            requests, name = CdcRequests(steps), str(steps.run.name)
            with told_to_page(context, name):
                scope = choice.scope(requests)
                found = requests.estimate(scope)
                costs = requests.costs(found)
                most = requests.most_unasked(choice.ask_above_rows)
        lines = {str(cost.table): cost_lines(cost) for cost in costs}
        for line in _told(lines):
            self.log.info("%s", line)
        for line in LOAD.split("; "):
            self.log.info("load: %s", line)
        if choice.dry_run:
            self.log.info("dry run: nothing was asked; run again with it switched off")
        return {
            "pipeline": name,
            "dry_run": choice.dry_run,
            "rows": found.source_rows,
            "most_rows": found.most_rows,
            "tables": [cost_form(cost) for cost in costs[:_MOST_LINES]],
            "load": LOAD,
            "needs_approval": most is not None and found.is_above(most),
            "lines": _told(lines)[:_MOST_LINES],
            "text": _markdown(name, scope, lines, LOAD),
        }


class CdcApprovalOperator(ApprovalOperator):
    """
    Ask a person to approve a resync of more rows than allowed without approval.

    Waiting holds no worker. Rejected, nothing is asked of the pipeline. A dry run ends here.

    :param estimate: what is to be approved, as `CdcEstimateOperator` returns it (templated).
    """

    template_fields: Sequence[str] = ("subject", "body", "estimate")
    ui_color = "#e8f1f5"

    def __init__(self, *, estimate: Mapping[str, Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.estimate = estimate

    def execute(self, context: Context) -> dict[str, Any]:
        """Skip a dry run, pass a small resync, else wait for a person's answer."""
        if self.estimate["dry_run"]:
            raise AirflowSkipException("dry run: nothing is asked")
        if not self.estimate["needs_approval"]:
            self.log.info("few enough rows: nobody has to approve it")
            return {"approved": True, "by": ""}
        self.body = str(self.estimate["text"])
        result: dict[str, Any] = super().execute(context)
        return result

    def execute_complete(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Return who approved the resync; a rejection skips the next tasks."""
        answered = super().execute_complete(context, event)
        person = answered.get("responded_by_user") or {}
        name = str(person.get("name") or person.get("id") or "somebody in Airflow")
        is_approved = answered["chosen_options"] == [self.APPROVE]
        self.log.info("%s by %s", "approved" if is_approved else "rejected", name)
        return {"approved": is_approved, "by": name if is_approved else ""}


def chosen(params: Mapping[str, Any]) -> Choice:
    """Parse the form of a resync; refuse contradictions, or no choice at all."""
    tables = [*(params.get("tables") or ()), *(params.get("more_tables") or ())]
    names = tuple(dict.fromkeys(name.strip() for name in tables if name.strip()))
    is_all = bool(params.get("all_tables"))
    if is_all and names:
        raise _refused(
            "all tables are chosen, and single ones, too",
            "switch `all_tables` off, or choose no table",
        )
    if not is_all and not names:
        raise _refused("no table is chosen", "choose tables, or switch `all_tables` on")
    return Choice(
        names,
        params.get("from_key"),
        params.get("to_key"),
        params.get("where"),
        bool(params.get("dry_run", True)),
        params.get("ask_above_rows"),
    )


def _refused(what: str, remedy: str) -> RefusedError:
    """Return the error for a wrong form."""
    return RefusedError(what, where="what the run was given", risk=NOTHING_CHANGED, remedy=remedy)


def _told(lines: Mapping[str, Sequence[str]]) -> list[str]:
    """Return short log lines: Airflow cuts lines where its window ends."""
    return [
        line for table, told in lines.items() for line in (table, *(f"    {it}" for it in told))
    ]


def _markdown(name: str, scope: Scope, lines: Mapping[str, Sequence[str]], load: str) -> str:
    """Return the text that a person approves, as Markdown; names are shown as code.

    Airflow shows a block of code as one line, so it is a list.
    """
    told = [f"- {_code(table)}: {', '.join(costs)}" for table, costs in lines.items()]
    more = len(told) - _MOST_LINES
    whole = Scope(scope.tables)
    return "\n".join(
        [
            f"Rows of the pipeline **{name}** are read again while its tables flow on. Rows that "
            "the sink has and the source has not are deleted in what is read.",
            "",
            *([] if scope == whole else [f"Only {_code(str(scope))}.", ""]),
            *told[:_MOST_LINES],
            *([f"- and {more} tables more"] if more > 0 else []),
            "",
            f"Load: {load}.",
        ]
    )


def _code(text: str) -> str:
    """Return a text as inline code of Markdown."""
    fence = "`"
    while fence in text:
        fence += "`"
    return f"{fence} {' '.join(text.split())} {fence}"
