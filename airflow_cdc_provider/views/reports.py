"""Results of the commands as JSON and as lines for people."""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any

from airflow_cdc_provider.core.identifiers import PipelineName, table_option
from airflow_cdc_provider.core.lifecycle import LEFT_ALONE
from airflow_cdc_provider.core.plurals import counted
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.splits import KeyList
from airflow_cdc_provider.core.table_layout import TableLayout
from airflow_cdc_provider.pipeline.steps.left_out import left_out_text
from airflow_cdc_provider.views.error_lines import all_finding_lines
from airflow_cdc_provider.views.event_forms import event_forms, event_line
from airflow_cdc_provider.views.progress import lag_text, progress_line
from airflow_cdc_provider.views.request_text import request_line
from airflow_cdc_provider.views.status import EVENTS_SHOWN, PipelineStatus

if TYPE_CHECKING:
    from airflow_cdc_provider.core.verify_report import TableVerdict, VerifyReport
    from airflow_cdc_provider.pipeline.file.model import PipelineFile
    from airflow_cdc_provider.pipeline.steps.checking import CheckReport
    from airflow_cdc_provider.pipeline.steps.converging import Convergence
    from airflow_cdc_provider.pipeline.steps.done_in_run import DoneInRun
    from airflow_cdc_provider.pipeline.steps.planning import PlanPreview
    from airflow_cdc_provider.pipeline.steps.repairing import Repair

Form = dict[str, Any]


def check_lines(report: CheckReport) -> list[str]:
    """Return all findings of a check as lines, with their fixes."""
    lines = [line for _, line in all_finding_lines(report.findings)]
    levels = ", ".join(f"{count} {level}" for level, count in report.counts.items())
    verdict = "refused" if report.blocks else "fine"
    lines.append(f"{verdict}: {counted(len(report.tables), 'table')}; findings: {levels or 'none'}")
    return lines


def plan_form(preview: PlanPreview, model: PipelineFile) -> Form:
    """Return what a run would do, as JSON."""
    return {
        "pipeline": str(model.name),
        "would": _would(preview, model),
        "refused": bool(preview.report.blocks),
        "blocks": [finding.to_json() for finding in preview.report.blocks],
        "plan_id": preview.stored_plan_id,
        "tables": [
            {
                "source": str(plan.schema.table),
                "sink": str(plan.sink_table),
                "key": list(plan.schema.primary_key),
                "key_name": plan.schema.key_name,
                "columns": _columns(plan),
                "estimated_rows": plan.estimated_rows,
                "estimated_splits": _splits(plan, model),
            }
            for plan in preview.tables
        ],
        "not_copied": list(preview.not_copied),
        "gone": list(preview.gone),
        "removes": list(preview.removes),
        "max_connections": model.snapshot.max_connections,
        "start": str(model.stream.starts_at),
    }


def _columns(plan: TablePlan) -> str:
    """Return how the sink's columns differ from the source's, empty if they do not."""
    laid = _layout(plan.shape.layout)
    if plan.shape.is_identity:
        return laid.removeprefix(", ")
    outputs = plan.shape.columns_of(plan.schema)
    copied, all_of = [each for each in outputs if each.source], plan.schema.copied_columns
    renamed = [f"{o.source} as {o.name}" for o in copied if o.source != o.name]
    masked = [each.source for each in copied if each.mask is not None]
    shard = plan.shard
    constants = [each.name for each in outputs if not each.source and each != shard]
    types = [f"{o.source} as {o.type}" for o in copied if o.type]
    parts = (("renamed", renamed), ("masked", masked), ("of type", types), ("constant", constants))
    told = "".join(f", {word}: {', '.join(names)}" for word, names in parts if names)
    told += "" if shard is None else f", shard: {shard.name} = {shard.constant}"
    marks = _marks(plan)
    return f"{len({each.source for each in copied})} of {len(all_of)} columns{told}{marks}{laid}"


def _layout(layout: TableLayout) -> str:
    """Return how the sink's files are laid out, empty if the file does not say."""
    parts = (("partitioned by", tuple(map(str, layout.partitions))), ("sorted by", layout.order))
    return "".join(f", {word} {', '.join(names)}" for word, names in parts if names)


def _marks(plan: TablePlan) -> str:
    """Return which columns say of rows what became of them, empty if there are none."""
    flag, metadata = plan.shape.deleted_flag, plan.shape.metadata.named
    told = f", deleted rows are kept, marked in {flag}" if flag else ""
    if metadata:
        named = (f"{kind} in {name}" for kind, name in metadata.items())
        told += f", metadata: {', '.join(named)}"
    return told


def _key_text(table: Mapping[str, Any]) -> str:
    """Return the key of a plan's table as text, with its name if it is no primary key."""
    name = f" {table['key_name']}" if table["key_name"] else ""
    return f"key{name} ({', '.join(table['key'])})" if table["key"] else "no key"


def plan_lines(form: Mapping[str, Any]) -> list[str]:
    """Return a plan as lines; estimates have a ~."""
    lines = [
        f"{table['source']} -> {table['sink']}: {_key_text(table)}, "
        f"~{table['estimated_rows']:,} rows, ~{table['estimated_splits']:,} splits"
        + (f"; {table['columns']}" if table["columns"] else "")
        for table in form["tables"]
    ]
    rows = sum(table["estimated_rows"] for table in form["tables"])
    lines.append(
        f"{len(form['tables'])} tables, ~{rows:,} rows, at most {form['max_connections']} "
        "connections to the source"
    )
    lines += [f"warning: {left_out_text(table)}" for table in form["not_copied"]]
    lines += [f"in the plan, no longer there: {table}" for table in form["gone"]]
    lines += [
        f"to be removed, as the file does not pick it: {table}; its rows at the sink stay"
        for table in form["removes"]
    ]
    lines += [
        f"[block] {found['subject']}: {found['observed']}; {found['why']}. Fix: {found['fix']}"
        for found in form["blocks"]
    ]
    lines.append(f"run would {form['would']}; nothing was changed")
    return lines


def _would(preview: PlanPreview, model: PipelineFile) -> str:
    """Describe what a run would do."""
    if preview.report.blocks:
        return "refuse to start"
    if not preview.stored_plan_id and model.stream.starts_at:
        place = model.stream.starts_at.as_written
        return f"make this plan, read no rows, and stream from {place} on"
    if not preview.stored_plan_id:
        return "make this plan, read the tables, hand off and stream"
    if preview.handed_off:
        return f"go on streaming under plan {preview.stored_plan_id}"
    return f"go on reading under plan {preview.stored_plan_id}"


def _splits(plan: TablePlan, model: PipelineFile) -> int:
    """Estimate how many splits a table makes."""
    return max(1, math.ceil(plan.estimated_rows / model.split_size.rows_of(plan)))


def run_form(done: Convergence, status: PipelineStatus, seconds: float, in_all: DoneInRun) -> Form:
    """Return what a run did, and the pipeline's state after it, as JSON."""
    standing = [table.source for table in status.tables if table.phase in LEFT_ALONE]
    return {
        "pipeline": str(status.state.name),
        "seconds": round(seconds, 3),
        "plan_id": done.plan.plan_id,
        "new_plan": done.plan.is_new,
        "changed": list(done.plan.changed),
        "not_copied": list(done.plan.not_copied),
        "snapshot": None if done.snapshot is None else dict(done.snapshot.result),
        "stream": {
            **done.stream.result,
            # the last job's, if it was not the only one
            "changes": max(in_all.changes, int(done.stream.result.get("changes", 0))),
            "transactions": max(
                in_all.transactions, int(done.stream.result.get("transactions", 0))
            ),
            "job": done.stream.is_needed,
        },
        "beside": {"rows": in_all.rows, "tables": in_all.tables},
        "failed_requests": [
            {
                "id": each.request_id,
                "kind": each.kind.value,
                "tables": [str(table) for table in each.scope.tables],
                "error": str(each.error),
            }
            for each in in_all.failed
        ],
        "consistent": not (done.inconsistent or standing)
        and done.stream.result.get("consistent") is not False
        and (status.started is None or status.is_consistent),
        "standing": standing,
        "inconsistent": [str(table) for table in done.inconsistent],
        "status": dict(status.to_json()),
    }


def run_lines(form: Mapping[str, Any]) -> list[str]:
    """Return what a run did, as lines."""
    lines = []
    if form["snapshot"] is not None:
        read = form["snapshot"]
        seconds = float(read.get("seconds", 0)) or 1.0
        rows = int(read.get("rows", 0))
        lines.append(
            f"snapshot: {counted(rows, 'row')} in {counted(int(read.get('splits', 0)), 'split')}, "
            f"{seconds:.1f} s ({rows / seconds:,.0f} rows/s)"
        )
    stream = form["stream"]
    if stream.get("job"):
        counts = f"{counted(int(stream.get('changes', 0)), 'change')} in "
        counts += counted(int(stream.get("transactions", 0)), "transaction")
    elif form["status"]["ended"] is not None:
        counts = "nothing to do, it has ended for good"
    else:
        counts = "nothing to do, the sink has all of the source's log"
    lines.append(f"stream: {counts}, at {stream.get('position', '')}")
    beside = form["beside"]
    if beside["tables"]:
        read_rows = counted(beside["rows"], "row")
        lines.append(f"beside the stream: {read_rows} of {counted(beside['tables'], 'table')} read")
    lines += [
        f"warning: the request {each['id']} ({each['kind']} of {', '.join(each['tables'])}) "
        f"failed: {each['error']}"
        for each in form["failed_requests"]
    ]
    lines += [f"warning: {left_out_text(table)}" for table in form["not_copied"]]
    waiting = ", ".join(form["inconsistent"])
    state = f"not consistent yet: {waiting}" if waiting else "the sink is consistent"
    if not waiting and form["status"]["started"] is not None and not form["status"]["consistent"]:
        state = "the sink has each change since the start, and rows of before as they were there"
    if form["standing"]:
        state += f", but for tables that stand still: {', '.join(form['standing'])}"
    if not waiting and form["status"]["ended"] is not None:
        state = form["status"]["ended"]["text"]
    lines.append(f"{form['pipeline']}: {stream.get('outcome', '')} in {form['seconds']} s; {state}")
    return lines


def status_lines(status: PipelineStatus) -> list[str]:
    """Return a pipeline's status as lines."""
    lines, waiting = [progress_line(status)], status.waiting_tables
    for table in status.tables:
        more = "" if table.planning_done else "+"
        error = f" - {table.error}" if table.error else ""
        again = f", read again by {', '.join(table.requests)}" if table.requests else ""
        done = f"{table.splits_finished}/{table.splits_planned}{more}"
        read = "" if table.by_request else f", splits {done}, {counted(table.rows, 'row')}"
        waits = ", waits at the sink" if str(table.source) in waiting else ""
        lines.append(f"  {table.source} -> {table.sink}: {table.phase}{waits}{read}{again}{error}")
    if status.started is not None:
        lines.append(f"  {status.started.text}")
    if status.ended is not None:
        lines.append(f"  {status.ended.text}")
    elif status.stream is not None:
        lines.append(f"  stream at {status.stream.position}, lag {lag_text(status)}")
    if status.published_age_s is not None:
        lines.append(f"  tables have what was committed {status.published_age_s:.0f} s ago")
    if status.throttle is not None and status.throttle.text:
        lines.append(f"  {status.throttle.text}")
    lines += [f"  {request_line(request)}" for request in status.requests]
    lines += [f"  warning: {left_out_text(table)}" for table in status.not_copied]
    if status.state.error:
        lines.append(f"  error: {status.state.error}")
    owner = status.state.owner or "nobody"
    held = "at work" if status.is_owned else "not at work"
    if status.doubt:
        held = f"{status.doubt}; nobody may be at work"
    lines.append(f"  owner: {owner} ({held}), generation {status.state.generation}")
    return lines + [f"  {event_line(form)}" for form in event_forms(status.events)[:EVENTS_SHOWN]]


def verify_form(name: PipelineName, report: VerifyReport) -> Form:
    """Return a comparison's report as JSON."""
    return {"pipeline": str(name), **report.to_json()}


def repair_line(repair: Repair) -> str:
    """Describe what is read again for one table, and what that changes at the sink."""
    verdict, ranges = repair.verdict, len(repair.scope.ranges)
    where = f"{ranges} ranges of its key" if ranges > 1 else "one range of its key"
    if isinstance(repair.scope.chosen, KeyList):
        ranges = len(repair.scope.chosen.keys)
        where = f"{ranges:,} rows by their keys" if ranges > 1 else "one row by its key"
    elif not ranges:
        why = "too many rows differ to be listed"
        if verdict.truncated:
            why = "not all of it was compared"
        elif verdict.differing_keys:
            why = "it has no key"
        where = f"the whole table, because {why}"
    rows = "not counted" if repair.rows is None else f"about {repair.rows:,}"
    verb = "are" if ranges > 1 else "is"
    return (
        f"to repair {verdict.table}: {where} ({rows} rows) {verb} read again; "
        f"{counted(verdict.missing + verdict.different, 'row')} written, {verdict.extra:,} deleted"
    )


class Mending(Enum):
    """What makes a table equal again."""

    RESYNC = "the rows that differ, or the table, are read again"
    RESET = "the table is read again as a whole"
    BY_HAND = "a person corrects the rows"


def verify_lines(report: VerifyReport, mending: Mending = Mending.RESYNC) -> list[str]:
    """Return a comparison's report as lines, with some keys of differing rows."""
    lines: list[str] = []
    for table in report.tables:
        lines += verdict_lines(table)
        if table.table in report.stopped:
            lines.append(f"    a stream leaves it alone: resume {table_option(table.table)}")
        elif table.equal:
            continue
        elif mending is Mending.BY_HAND:
            lines.append("    correct by hand, at one of the nodes, the rows that differ")
        else:
            is_reset = mending is Mending.RESET or table.table in report.by_reset
            verb = "reset" if is_reset else "resync"
            lines.append(f"    to read it again: {verb} {table_option(table.table)}")
            if mending is Mending.RESYNC and not table.unrepairable:
                lines.append("    to read only what differs again: verify --repair")
    lines += [f"warning: {left_out_text(table)}" for table in report.not_copied]
    lines.append(compared_line(report))
    return lines


def told_lines(report: VerifyReport) -> list[str]:
    """Return a comparison's report for a task's log: the tables that are equal share a line."""
    lines = [line for table in report.tables if not table.equal for line in verdict_lines(table)]
    if not report.equal and any(table.equal for table in report.tables):
        lines.append(equal_tables_line(report))
    return [*lines, compared_line(report)]


def verdict_lines(table: TableVerdict) -> list[str]:
    """Return one table's comparison as lines, with some keys of differing rows."""
    lines = [f"{table.table} -> {table.sink_table}: {table}"]
    if table.why_digest:
        lines.append(f"    compared by columns: {table.why_digest}")
    for sample in table.samples:
        at_source = f", at the source {sample.source_key}" if sample.source_key else ""
        lines.append(f"    {sample.kind.value}: key {sample.key}{at_source}")
        lines += [f"        {column}" for column in sample.columns]
    if table.unrepairable:
        lines.append(f"    no repair by keys is possible: {table.unrepairable}")
    return lines


def equal_tables_line(report: VerifyReport) -> str:
    """Return how many tables are equal, as one line."""
    equal = [table for table in report.tables if table.equal]
    rows = sum(table.rows_source for table in equal)
    unsettled = sum(table.unsettled for table in equal)
    changing = f", {counted(unsettled, 'row')} still changing" if unsettled else ""
    tables = counted(len(report.tables), "table")
    found = f"{len(equal)} of {tables} equal, {counted(rows, 'row')}{changing}"
    return f"{found}, {report.seconds:.1f} s"


def compared_line(report: VerifyReport) -> str:
    """Return a comparison's overall result as one line."""
    rows = sum(table.rows_source for table in report.tables)
    size = sum(table.bytes for table in report.tables)
    verdict = "equal" if report.equal else "DIFFERENT"
    late = ""
    if report.may_be_late and not report.equal:
        late = "; log of the source waits, and no stream is at work: rows may only be late, so run "
        late += "the pipeline before you mend any"
    return (
        f"{verdict}: {counted(len(report.tables), 'table')}, {counted(rows, 'row')}, "
        f"{size / 1e6:,.1f} MB compared in {report.seconds:.1f} s{late}"
    )
