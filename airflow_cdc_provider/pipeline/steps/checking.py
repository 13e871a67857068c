"""Check: everything that speaks against the pipeline, found at once and without changing anything.

What the file alone shows was refused when it was read. Here the servers are asked: first whether
the file fits them (its tables, its routes) and the plan there is, then whether their settings,
tables and privileges allow a correct copy, and whether the sink's tables are this pipeline's.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from airflow_cdc_provider.columns.source_port import PreflightQuestion
from airflow_cdc_provider.core.errors import (
    NOTHING_STARTED,
    AccessDeniedError,
    CdcError,
    PreflightError,
    SchemaMovedError,
)
from airflow_cdc_provider.core.findings import (
    NOT_ADDABLE,
    Finding,
    Level,
    PipelineCode,
    sorted_findings,
)
from airflow_cdc_provider.core.identifiers import TableId, table_option
from airflow_cdc_provider.core.records import NoteKind, PlanOrigin, TablePlan
from airflow_cdc_provider.core.stopped_tables import StoppedTable, with_way_back
from airflow_cdc_provider.core.table_facts import TableKind
from airflow_cdc_provider.engine.sink.port import TargetConflict, Targets
from airflow_cdc_provider.pipeline.file.folder import files_beside
from airflow_cdc_provider.pipeline.receivers import find_receivers
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps.claims import own_tables
from airflow_cdc_provider.pipeline.steps.conflict_findings import conflict_findings
from airflow_cdc_provider.pipeline.steps.ended_stream import ended_with, require_not_ended, way_on
from airflow_cdc_provider.pipeline.steps.file_diff import (
    Copied,
    dropped,
    follows_file,
    require_unchanged,
)
from airflow_cdc_provider.pipeline.steps.hidden_columns import SHOWN_FIX, HiddenColumns
from airflow_cdc_provider.pipeline.steps.last_try import PREFLIGHT, note_refusal, recording_attempt
from airflow_cdc_provider.pipeline.steps.look_again import retry_while_schema_moves
from airflow_cdc_provider.pipeline.steps.servers import origin_now, require_sink
from airflow_cdc_provider.pipeline.steps.shared_ids import is_new, shared_ids
from airflow_cdc_provider.pipeline.steps.sink import (
    isolates_tables,
    open_targets,
    require_sinks_folder,
    sink_of,
    source_of,
)
from airflow_cdc_provider.pipeline.steps.stream_starts import (
    place_findings,
    require_start_as_noted,
)
from airflow_cdc_provider.pipeline.steps.tables import (
    Captured,
    WaitingPattern,
    captured_tables,
    needs_keys,
    require_separate,
    shared_targets,
)
from airflow_cdc_provider.pipeline.steps.throttle_findings import throttle_findings
from airflow_cdc_provider.pipeline.steps.topology_edges import topology_findings
from airflow_cdc_provider.state.desired_state import what_of

log = logging.getLogger(__name__)

_REPLACED = "the snapshot replaces all rows there are"
_SHARDS_REPLACED = "the snapshot replaces the rows of its shards; those of no shard stay"
_KEPT = "they are taken for the source's as of stream.start; nobody looks whether they are"
_LEFT = "no rows are read, and rows that are not the source's would stay"

_MOST_KEPT = 500
"""Findings that are noted one by one; they are counted, too."""


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The result of `check`: the tables that the file picks, and the findings."""

    pipeline: str
    tables: tuple[TablePlan, ...]
    findings: tuple[Finding, ...]
    not_copied: tuple[str, ...] = ()
    """Tables that fit the file but are not in the plan: they came later."""
    gone: tuple[str, ...] = ()
    """Tables of the plan that are not at the source any more."""
    origin: PlanOrigin | None = None
    """What a plan made now would be made from; None where only some tables were looked at."""

    @property
    def blocks(self) -> tuple[Finding, ...]:
        """Return the findings that block the pipeline."""
        return tuple(finding for finding in self.findings if finding.level is Level.BLOCK)

    @property
    def counts(self) -> Mapping[str, int]:
        """Return how many findings there are of each level."""
        return Counter(finding.level.value for finding in self.findings)

    def require_fit(self) -> None:
        """Raise `PreflightError` with every blocking finding and its fix, if there is one."""
        if not self.blocks:
            return
        lines = "\n".join(
            f"  {finding.code} {finding.subject}: {finding.observed}; {finding.why}. "
            f"Fix: {finding.fix}"
            for finding in self.blocks
        )
        count = "1 thing does" if len(self.blocks) == 1 else f"{len(self.blocks)} things do"
        raise PreflightError(
            f"{count} not allow a correct copy:\n{lines}",
            where=f"preflight of {self.pipeline}",
            risk=NOTHING_STARTED,
            remedy="apply the fixes above and check again",
        )

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain values for `--json`; later releases only add fields."""
        return {
            "pipeline": self.pipeline,
            "refused": bool(self.blocks),
            "tables": [
                {"source": str(plan.schema.table), "sink": str(plan.sink_table)}
                for plan in self.tables
            ],
            "findings": [finding.to_json() for finding in self.findings],
            "not_copied": list(self.not_copied),
        }


def check(run: Run) -> CheckReport:
    """Check file, source and sink; return the findings without changing anything.

    The file itself is refused if it does not fit the source, or the plan there is. A table whose
    definition changes between two looks is looked at again for some seconds; one that goes on doing
    so ends the check with `SchemaMovedError`, which is worth another try.
    """
    _, wrong = find_receivers(run.model.notify, run.connections)
    if wrong:
        raise run.loaded.refusal(*wrong)
    return retry_while_schema_moves(lambda: _checked(run))


def _checked(run: Run) -> CheckReport:
    """Check once; raise `SchemaMovedError` if a definition changes meanwhile."""
    require_sinks_folder(run)
    captured = captured_tables(run, purpose="preflight")
    origin = origin_now(run, captured)
    with closing(open_targets(run)) as targets:
        claimed, changing = tuple(targets.routes()), targets.changing()
        stopped = {each.table: each for each in targets.stopped()}
        not_copied, gone = differences(run, captured.plans, claimed=claimed)
        require_unchanged(run, claimed=claimed, left_out=not_copied, may_have_rules=True)
        require_start_as_noted(run)
        require_sink(run, origin.sink, targets.plan_id())
        late = {*not_copied, *_late_versioned(captured, planned_tables(run, claimed))}
        planned = captured.without({*late, *stopped, *captured.unfit})
        later = captured.only(late - captured.unfit.keys())
        require_separate(run.loaded, planned.plans)
        come = [table for table in not_copied if table not in captured.unfit]
        found = [*_ended(run), *_not_as_planned(run, captured, come, gone)]
        found += _stopped(stopped.values())
        found += _waiting(captured.waiting_patterns)
        found += _unfit(captured, late)
        found += _shown(run, captured, late)
        beside = files_beside(run.loaded)
        found += [*shared_ids(run, beside), *topology_findings(run, beside)]
        found += throttle_findings(run)
        found += () if targets.plan_id() else place_findings(run)
        found += _targets(run, targets, planned.plans, own_tables(run, origin.sink))
        found += [*conflict_findings(run, captured.plans, beside), *_backfills(run, captured.plans)]
        of_later = list(_targets(run, targets, later.plans, frozenset()))
        is_planned = not is_new(run.store, run.name) or bool(targets.plan_id())
    found += _preflight(
        run,
        PreflightQuestion(
            planned.plans,
            planned.picked,
            run.model.source.patterns,
            options=run.model.source_options,
            readers=run.model.source.readers(run.model.snapshot.max_connections),
            is_snapshot_done=run.store.is_handed_off(run.name),
            # ids that follow from the pipeline's name are taken by nobody but itself
            is_new=not is_planned and run.model.source.has_written_ids,
            facts=sink_of(run).abilities.facts,
            needs_keys=needs_keys(run.loaded),
            is_planned=bool(planned_tables(run, claimed)),
        ),
        at_sink=_as_planned(run, planned.plans, changing),
    )
    found = list(_without_one_table(run, planned, found))
    if late:
        against = [*of_later, *_preflight_of_later(run, later)]
        found += _if_reset(against, found, later.plans)
    return CheckReport(
        str(run.name),
        captured.plans,
        sorted_findings(found),
        tuple(map(str, not_copied)),
        tuple(map(str, gone)),
        origin,
    )


def require_fit(run: Run) -> CheckReport:
    """Check the pipeline, and raise if a finding blocks it or its stream has ended."""
    require_not_ended(run)
    report = kept_check(run)
    report.require_fit()
    return report


def kept_check(run: Run) -> CheckReport:
    """Check the pipeline, and store the findings or the error for those who look later."""
    with recording_attempt(run, PREFLIGHT):
        report = check(run)
    keep_findings(run, report)
    try:
        report.require_fit()
    except PreflightError as error:
        note_refusal(run, PREFLIGHT, error)
    return report


def keep_findings(run: Run, report: CheckReport) -> None:
    """Store a check's findings as a note of the pipeline."""
    form = {
        "counts": dict(report.counts),
        "findings": [finding.to_json() for finding in report.findings[:_MOST_KEPT]],
    }
    run.store.keep_note(run.name, NoteKind.PREFLIGHT, form)


def require_addable(run: Run, later: Captured) -> None:
    """Refuse tables that preflight would block in a new plan."""
    findings = sorted_findings([*_preflight_of_later(run, later)])
    CheckReport(str(run.name), later.plans, findings).require_fit()


def require_copyable(run: Run, changed: Captured) -> None:
    """Refuse tables whose definition changed to one that preflight would block."""
    question = PreflightQuestion(changed.plans, changed.picked, needs_keys=needs_keys(run.loaded))
    findings = _preflight(run, question, at_sink=())
    CheckReport(str(run.name), changed.plans, sorted_findings(findings)).require_fit()


def differences(
    run: Run, tables: Sequence[TablePlan], *, claimed: Iterable[Copied] = ()
) -> tuple[tuple[TableId, ...], tuple[TableId, ...]]:
    """Return the tables picked but not in the plan, and those in the plan but gone.

    `claimed` is what the sink's ledger says is copied where; it is used in place of a plan that the
    state store does not know. Without a plan there are none of either.
    """
    planned = planned_tables(run, claimed)
    if not planned:
        return (), ()
    now = {plan.schema.table for plan in tables}
    return tuple(sorted(now - planned)), tuple(sorted(planned - now))


def planned_tables(run: Run, claimed: Iterable[Copied] = ()) -> frozenset[TableId]:
    """Return the tables of the current plan, or else of the sink's claims."""
    planned = frozenset(state.table for state in run.store.tables(run.name))
    return planned or frozenset(source for source, _ in claimed)


def _late_versioned(captured: Captured, planned: Collection[TableId]) -> Iterator[TableId]:
    """Yield system-versioned tables that came after the plan; they are never planned."""
    for fact in captured.picked:
        if planned and fact.kind is TableKind.VERSIONED and fact.table not in planned:
            yield fact.table


def _preflight(
    run: Run, question: PreflightQuestion, at_sink: Sequence[TablePlan] | None = None
) -> tuple[Finding, ...]:
    """Return the findings of source and sink on their settings and tables."""
    plans, sink = question.plans if at_sink is None else at_sink, sink_of(run)
    question = replace(
        question,
        needs_defaults=sink.abilities.has_defaults,
        instead_of_keys=run.model.sink.instead_of_keys,
        finds_rows=sink.abilities.upserts,
    )
    seen = source_of(run).preflight(question)
    return (*seen.findings, *sink.preflight(plans, seen))


def _as_planned(
    run: Run, plans: Sequence[TablePlan], changing: Collection[TableId]
) -> tuple[TablePlan, ...]:
    """Return the plans as stored, since the sink gets a source's changes later.

    Tables in the middle of a change are left out: the sink may have them either way.
    """
    known = {state.table: state.plan for state in run.store.tables(run.name)}
    return tuple(
        known.get(plan.schema.table, plan) for plan in plans if plan.schema.table not in changing
    )


def _preflight_of_later(run: Run, later: Captured) -> Sequence[Finding]:
    """Return preflight's findings on tables that came after the plan."""
    try:
        why = needs_keys(run.loaded)
        return _preflight(run, PreflightQuestion(later.plans, later.picked, needs_keys=why))
    except SchemaMovedError:
        raise
    except CdcError as error:
        return [
            Finding(
                PipelineCode.TABLE_NOT_IN_PLAN,
                Level.BLOCK,
                str(plan.schema.table),
                error.what,
                "a table that can be copied",
                error.risk,
                error.remedy,
            )
            for plan in later.plans
        ]


def _if_reset(
    findings: Iterable[Finding], found: Collection[Finding], plans: Sequence[TablePlan]
) -> Iterator[Finding]:
    """Turn findings that would block a later table into warnings, except those already known."""
    tables: dict[str, str] = {}
    for plan in plans:
        sink, source = str(plan.sink_table), str(plan.schema.table)
        # what is said of a table that several share is about each of them
        tables[sink] = "" if sink in tables else source
    for finding in findings:
        if finding.level is Level.BLOCK and finding not in found:
            only = finding.only or tables.get(finding.subject, "")
            why = f"{NOT_ADDABLE}: {finding.why}"
            yield replace(finding, level=Level.WARN, why=why, only=only)


def _waiting(patterns: Iterable[WaitingPattern]) -> Iterator[Finding]:
    """Yield a warning for each pattern that fits no table yet."""
    for each in patterns:
        yield Finding(
            PipelineCode.PATTERN_FITS_NOTHING,
            Level.WARN,
            f"{each.where}: {each.pattern}",
            "no table fits it yet, or the account may not see it",
            "a pattern that fits tables",
            "tables that come and fit it are added; if its name is wrong, none is copied",
            each.fix,
        )


def _unfit(captured: Captured, late: Collection[TableId]) -> Iterator[Finding]:
    """Yield a warning for each table that the file's columns do not fit.

    Those of the stream it stops; it does not have those that came `late`.
    """
    streamed = "it is not looked at here; the stream stops it where that matters, and it alone"
    for table, (path, what, fix) in captured.unfit.items():
        yield Finding(
            PipelineCode.TABLE_COLUMNS,
            Level.WARN,
            str(table),
            what,
            "columns that the file's `tables` fits",
            "it is not copied" if table in late else streamed,
            f"correct {'.'.join(map(str, path))}: {fix}",
        )


def _shown(run: Run, captured: Captured, late: Collection[TableId]) -> Iterator[Finding]:
    """Yield a warning for each table that shows what is hidden of another."""
    hidden = HiddenColumns(run, captured)
    for plan in captured.plans:
        table = plan.schema.table
        if shown := hidden.shown_by(plan):
            yield Finding(
                PipelineCode.TABLE_SHOWN,
                Level.WARN,
                str(table),
                shown,
                "a section for each table that hides something",
                "it is not copied by itself" if table in late else "it is copied as it is",
                SHOWN_FIX,
            )


def _stopped(tables: Iterable[StoppedTable]) -> Iterator[Finding]:
    """Yield a warning for each isolated table."""
    for each in tables:
        told = each.error.read()
        yield Finding(
            PipelineCode.TABLE_STOPPED,
            Level.WARN,
            str(each.table),
            "a person paused it" if each.is_paused else f"it stopped with {told.code} {told.what}",
            "a table that flows",
            "its rows stand still at the sink; it is not looked at here",
            f"`resume` with {table_option(each.table)}"
            if each.is_paused
            else with_way_back(each.error, each.table).remedy,
        )


def _without_one_table(
    run: Run, planned: Captured, findings: Iterable[Finding]
) -> Iterator[Finding]:
    """Turn a finding that blocks one table of a stream into a warning, if others can flow."""
    found = list(findings)
    broken = {finding.only for finding in found if finding.level is Level.BLOCK} - {""}
    is_streamed = isolates_tables(run) and run.store.is_handed_off(run.name)
    others = any(str(plan.schema.table) not in broken for plan in planned.plans)
    # a table of a node that is ahead of the log comes back by it, also the only one
    may_flow = is_streamed and (others or run.model.edge is not None)
    for finding in found:
        if may_flow and finding.level is Level.BLOCK and finding.only:
            why = f"{finding.why}; a run stops this table, and the others flow on"
            yield replace(finding, level=Level.WARN, why=why)
        else:
            yield finding


def _backfills(run: Run, plans: Sequence[TablePlan]) -> Iterable[Finding]:
    """Return the findings on the file's backfills."""
    if not run.model.backfill:
        return ()
    # Windows of time bring requests and time zones, which few files ask for.
    from airflow_cdc_provider.pipeline.steps.windows import backfill_findings  # noqa: PLC0415

    return backfill_findings(run, plans)


def _ended(run: Run) -> Iterator[Finding]:
    """Yield a blocking finding if the stream ended for good."""
    error = ended_with(run)
    if error:
        yield Finding(
            PipelineCode.PIPELINE_ENDED,
            Level.BLOCK,
            str(run.name),
            f"its stream ended with {what_of(error)}",
            "a stream that can go on",
            "a new one would end at the same place of the log",
            way_on(run),
        )


def _not_as_planned(
    run: Run, captured: Captured, not_copied: Iterable[TableId], gone: Iterable[TableId]
) -> Iterator[Finding]:
    """Yield a finding for each table that is picked but not planned, or planned but gone."""
    not_copied = tuple(not_copied)
    planned = captured.without({*not_copied, *captured.unfit})
    plans = (*planned.plans, *captured.only(not_copied).plans)
    shared = {table: what for table, (_, what, _) in shared_targets(run.loaded, plans)}
    adds = run.model.source.new_tables == "add" and follows_file(run) and not run.model.edge
    by_run = "`run` adds it behind its preflight, if nothing speaks against it; " if adds else ""
    for table in not_copied:
        why = "it is not copied yet" if adds else "it is not copied"
        yield Finding(
            PipelineCode.TABLE_NOT_IN_PLAN,
            Level.WARN,
            str(table),
            "it fits source.tables, and came after the plan was made",
            "a plan that has it",
            f"{NOT_ADDABLE}: {shared[table]}" if table in shared else why,
            f"{by_run}`add` it, which reads it alone, or put it into source.exclude"
            if run.model.edge is None
            else "put it into source.exclude, or into a topology of its own",
        )
    dropped_from_file = dropped(run)
    for table in dropped_from_file:
        yield Finding(
            PipelineCode.TABLE_GONE,
            Level.WARN,
            str(table),
            "it is in the plan, and the file does not pick it any more",
            "the tables of the plan",
            "the next `run` removes it: its rows at the sink stay as they are then",
            "pick it again if that is not meant",
        )
    for table in (table for table in gone if table not in dropped_from_file):
        yield Finding(
            PipelineCode.TABLE_GONE,
            Level.WARN,
            str(table),
            "it is in the plan, and not at the source any more",
            "the tables of the plan",
            "the snapshot cannot read it; where the log says that it went, the stream lets go of "
            "it, or stops, as schema_changes says",
            "bring it back if that is not meant; without a stream `reset` the pipeline: all tables "
            "are read again",
        )
    origin = run.store.origin(run.name)
    if origin is not None and origin.source != captured.server_uuid:
        yield Finding(
            PipelineCode.SOURCE_ANOTHER_SERVER,
            Level.WARN,
            str(run.servers.source),
            f"it is the server {captured.server_uuid}",
            f"{origin.source}, which the plan was made from",
            "it is refused unless its history contains what was read of that one",
            "name the former server, or `reset` the pipeline to read all tables from this one",
        )


def _targets(
    run: Run, targets: Targets, plans: Sequence[TablePlan], known: Collection[Copied]
) -> Iterator[Finding]:
    """Yield findings on sink tables that others own or that have rows already."""
    try:
        conflicts = targets.conflicts(plans, known=known)
    except AccessDeniedError as denied:
        yield Finding(
            PipelineCode.SINK_UNSEEN,
            Level.BLOCK,
            str(run.servers.sink),
            f"cannot tell whether the sink's tables are free to be written to: {denied.what}",
            "to be seen by the account",
            "rows of others could be replaced",
            "give the account the rights that sink.privileges names, or those of the page "
            "'Rights at the servers' (docs/rights.md)",
        )
        return
    policy = run.model.sink.existing_rows
    is_refused = policy == "refuse"
    for conflict in conflicts:
        if conflict.pipeline:
            yield Finding(
                PipelineCode.SINK_OWNER,
                Level.BLOCK,
                str(conflict.table),
                conflict.text,
                "a table that no other pipeline writes to",
                "each would delete the other's rows",
                conflict.remedy,
            )
        else:
            yield Finding(
                PipelineCode.SINK_EXISTING_ROWS,
                Level.BLOCK if is_refused else Level.WARN,
                str(conflict.table),
                conflict.text,
                "an empty table, or one of this pipeline",
                _fate_of_rows(run, conflict),
                _way_out(run, conflict) if is_refused else "",
            )


def _fate_of_rows(run: Run, conflict: TargetConflict) -> str:
    """Return what becomes of rows of unknown origin if the table is taken."""
    if run.model.sink.existing_rows == "keep":
        return _KEPT
    if run.model.stream.starts_at:
        return _LEFT
    return _SHARDS_REPLACED if conflict.is_shared else _REPLACED


def _way_out(run: Run, conflict: TargetConflict) -> str:
    """Return the advice for a table of the sink that holds rows of nobody."""
    if run.model.edge is not None:
        return run.model.edge.way_to_seed
    if run.model.stream.starts_at:
        return "empty the table; or write existing_rows: keep under sink, if they are the source's"
    return conflict.remedy
