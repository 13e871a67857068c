"""What goes into XCom: references and summaries, never rows, secrets or thousands of splits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow_cdc_provider.core.identifiers import PipelineName
from airflow_cdc_provider.core.plurals import counted
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.records import PipelineState
from airflow_cdc_provider.core.stream_split import StreamSplit, TableProgress
from airflow_cdc_provider.views.progress import progress_line
from airflow_cdc_provider.views.status import PipelineStatus

if TYPE_CHECKING:
    from airflow_cdc_provider.core.verify_report import TableVerdict, VerifyReport
    from airflow_cdc_provider.pipeline.steps.checking import CheckReport
    from airflow_cdc_provider.pipeline.steps.planning import PlanSummary

PROGRESS_KEY = "progress"
_MOST = 200
"""Tables or findings that a summary names one by one; it says how many there are more."""
_LONGEST_POSITION = 400
_US = 1_000_000


def check_summary(name: PipelineName, report: CheckReport) -> dict[str, Any]:
    """Return the summary of a preflight, for XCom."""
    return {
        "pipeline": str(name),
        "tables": len(report.tables),
        "counts": dict(report.counts),
        "findings": [
            f"[{found.level}] {found.subject}: {found.observed}"
            for found in report.findings[:_MOST]
        ],
    }


def plan_summary(name: PipelineName, plan: PlanSummary) -> dict[str, Any]:
    """Return the summary of a plan, for XCom."""
    return {
        "pipeline": str(name),
        "generation": plan.generation,
        "plan_id": plan.plan_id,
        "is_new": plan.is_new,
        "handed_off": plan.handed_off,
        "tables": len(plan.tables),
        "routes": {str(table.schema.table): str(table.sink_table) for table in plan.tables[:_MOST]},
        "created": list(plan.created[:_MOST]),
        "not_copied": list(plan.not_copied[:_MOST]),
        "changed": list(plan.changed),
        "gone": list(plan.gone[:_MOST]),
        "warning": plan.warning,
    }


def plan_line(plan: PlanSummary, splits: int) -> str:
    """Return a plan step's result as one line; `splits` are those planned so far."""
    rows = sum(table.estimated_rows for table in plan.tables)
    made = "made" if plan.is_new else "was there already"
    parts = [counted(len(plan.tables), "table"), f"about {counted(rows, 'row')}"]
    parts += [f"{counted(splits, 'split')} planned so far"] if splits else []
    created = counted(len(plan.created), "table")
    parts += [f"{created} created at the sink"] if plan.created else []
    began = plan.handed_off and plan.is_new
    parts += ["no rows are read"] if began else ["the snapshot is done"] if plan.handed_off else []
    return f"plan {plan.plan_id} {made}: {', '.join(parts)}"


def snapshot_summary(status: PipelineStatus, *, ran: bool) -> dict[str, Any]:
    """Return the summary of a snapshot, for XCom; `ran` is False if nothing was left to read."""
    return {
        **_reference(status.state),
        "ran": ran,
        "rows": status.rows,
        "splits": status.splits_finished,
        "tables": {
            table.source: {"splits": table.splits_finished, "rows": table.rows}
            for table in status.tables[:_MOST]
        },
    }


def hand_off_summary(state: PipelineState, stream: StreamSplit) -> dict[str, Any]:
    """Return the summary of a hand-off, for XCom: the start, and each table's watermarks."""
    return {
        **_reference(state),
        "start": _text(stream.start),
        "tables": {str(table.table): _watermarks(table) for table in stream.tables[:_MOST]},
    }


def hand_off_line(status: PipelineStatus, stream: StreamSplit) -> str:
    """Return where the stream starts, and from how many splits, as one line."""
    splits = sum(len(table.finished) for table in stream.tables)
    return (
        f"{counted(len(stream.tables), 'table')}, {counted(splits, 'split')}, "
        f"{counted(status.rows, 'row')} read; "
        f"the stream starts at {_text(stream.start)}"
    )


def stream_summary(status: PipelineStatus) -> dict[str, Any]:
    """Return the summary of the stream's progress, for XCom."""
    stream = status.stream
    if stream is None:
        return _reference(status.state)
    return {
        **_reference(status.state),
        "position": _text(stream.position),
        "changes": stream.changes,
        "transactions": stream.transactions,
        "lag_s": None if stream.lag_us is None else stream.lag_us / _US,
        "consistent": status.is_consistent,
    }


def verify_summary(name: PipelineName, report: VerifyReport) -> dict[str, Any]:
    """Return the summary of a comparison, for XCom."""
    return {
        "pipeline": str(name),
        "equal": report.equal,
        "tables": {str(table.table): _numbers(table) for table in report.tables[:_MOST]},
        "tables_equal": sum(table.equal for table in report.tables),
        "tables_different": sum(not table.equal for table in report.tables),
        "rows": sum(table.rows_source for table in report.tables),
        "unsettled": report.unsettled,
        "seconds": round(report.seconds, 3),
        "not_copied": [str(table) for table in report.not_copied[:_MOST]],
    }


def _numbers(table: TableVerdict) -> dict[str, Any]:
    """Return one table's counts of a comparison."""
    return {
        "equal": table.equal,
        "rows_source": table.rows_source,
        "rows_sink": table.rows_sink,
        "missing": table.missing,
        "extra": table.extra,
        "different": table.different,
        "unsettled": table.unsettled,
        "seconds": round(table.seconds, 3),
    }


def progress(status: PipelineStatus, text: str = "") -> dict[str, Any]:
    """Return a pipeline's progress as a few values, with one line for people as `text`."""
    stream = status.stream
    picture: dict[str, Any] = {
        "phase": status.state.phase.value,
        "generation": status.state.generation,
        "splits_finished": status.splits_finished,
        "splits_planned": status.splits_planned,
        "rows": status.rows,
    }
    if stream is not None:
        lag_s = None if stream.lag_us is None else stream.lag_us / _US
        picture |= {"changes": stream.changes, "lag_s": lag_s, "position": _text(stream.position)}
    return {**picture, "text": text or progress_line(status)}


def _reference(state: PipelineState) -> dict[str, Any]:
    """Return what identifies a pipeline's state: name, generation, plan, phase."""
    return {
        "pipeline": str(state.name),
        "generation": state.generation,
        "plan_id": state.plan_id,
        "phase": state.phase.value,
    }


def _watermarks(table: TableProgress) -> dict[str, Any]:
    """Return a table's positions at hand-off."""
    highs: Sequence[LogPosition] = table.consistent_at
    return {
        "splits": len(table.finished),
        "from": _text(table.applied_through),
        "consistent_at": _text(_largest(highs)),
    }


def _largest(positions: Sequence[LogPosition]) -> LogPosition | None:
    """Return the position that covers every other, None if none does."""
    covering = (one for one in positions if all(one.covers(other) for other in positions))
    return next(covering, None)


def _text(position: LogPosition | None) -> str:
    """Return a position as text; a long GTID set is cut."""
    text = "" if position is None else str(position)
    return text if len(text) <= _LONGEST_POSITION else f"{text[:_LONGEST_POSITION]}..."
