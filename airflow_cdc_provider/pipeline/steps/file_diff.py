"""What changed in the pipeline file since the plan was made.

A plan says what is copied where, and rows are in the sink by it. What the file may change at any
time is obeyed at the next start: readers, batches, writers, server ids, Spark. What would need the
rows of the plan to be other ones is refused with its line: a route, a table's rows, columns and
key, what becomes of zero dates, the topology, and until the hand-off the kind of backfill and a
table that is not picked any more. `reset` begins one table again as the file says now, or makes a
new plan; `remove` leaves one table out.

Tables that are picked anew, or not any more, are what a run follows (`plan_sync`), unless the
kind of sink takes no rows beside its stream. A table that appears at the source and fits a pattern
that was in the file all along is not the file's doing, and stops nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from airflow_cdc_provider.core.identifiers import TableId, table_option
from airflow_cdc_provider.core.records import NoteKind, PlanOrigin, TablePlan
from airflow_cdc_provider.core.requests import RequestKind
from airflow_cdc_provider.core.salts import other_salt
from airflow_cdc_provider.core.table_patterns import TablePattern, name_in, sink_table
from airflow_cdc_provider.core.table_schema import TableSchema
from airflow_cdc_provider.core.topology import Topology
from airflow_cdc_provider.pipeline.file.loader import LoadedPipeline
from airflow_cdc_provider.pipeline.file.problems import Path
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps.sink import sink_of

Found = tuple[Path, str, str]
Copied = tuple[TableId, TableId]
"""A table of the source, and the sink's table it is copied to."""
_ANOTHER_NAME = "if this is another pipeline, give it another name; else "
"""Only the sink's ledger knows the plan: it may be one of the same name, from elsewhere."""
_NO_RULES: dict[str, Any] = {"winner": "", "column": "", "rules": (), "stops": False}
_REMOVE = "or `remove` it with {option}: the others keep what was read of them; "
RESET = "or `reset`: the next run then reads all tables again, as the file says now"


def require_unchanged(
    run: Run,
    *,
    claimed: Iterable[Copied] = (),
    left_out: Iterable[TableId] = (),
    may_have_rules: bool = False,
) -> None:
    """Refuse the file if it says other tables, routes or settings than the stored plan.

    `claimed` is what the sink's ledger says is copied where; it is used in place of a plan that the
    state store does not know. `left_out` are tables that the file picks and the plan has not. With
    `may_have_rules` an edge may have other rules for conflicts.
    """
    stored = {(table.table, table.plan.sink_table) for table in run.store.tables(run.name)}
    origin = run.store.origin(run.name)
    let_be = {*dropped(run), *run.held.begins, *_to_begin_again(run)}
    kept = sorted(copied for copied in stored if copied[0] not in let_be)
    plans = [state.plan for state in run.store.tables(run.name) if state.table not in let_be]
    alone = follows_file(run) and len(stored) > 1
    way_out = _REMOVE if len(stored) > 1 else ""
    found = list(_routes(run.loaded, kept, origin, alone=alone, way_out=way_out))
    found += _shapes(run.loaded, plans, origin, alone=alone)
    found += _keys(run.loaded, plans, origin, alone=alone)
    found += _routes(run.loaded, sorted(set(claimed) - stored), origin, fix=_ANOTHER_NAME)
    if origin is not None:
        handed_off = run.store.is_handed_off(run.name)
        found += _settings(run.loaded, origin, handed_off=handed_off)
        found += _edge(run.loaded.model.edge, origin, may_have_rules=may_have_rules)
        if not may_have_rules:
            found += _taken_in_part(run)
        if not _joins(run):
            found += _added(run.loaded, origin, picked_anew(run, left_out))
    if found:
        raise run.loaded.refusal(*found)


def _to_begin_again(run: Run) -> tuple[TableId, ...]:
    """Return the tables that open requests reset; the file's routes apply to them then."""
    asked = run.store.table_requests(run.name)
    resets = (request.scope.tables for request in asked if request.kind is RequestKind.RESET)
    return tuple(chain.from_iterable(resets))


def follows_file(run: Run) -> bool:
    """Tell whether tables can be added and removed: handed off, and the sink can join rows."""
    return run.store.is_handed_off(run.name) and _joins(run)


def dropped(run: Run) -> tuple[TableId, ...]:
    """Return the planned tables that the file does not pick any more, which a run removes.

    If it picks none of the plan's any more, that is no change of single tables.
    """
    if not follows_file(run):
        return ()
    planned = [state.table for state in run.store.tables(run.name)]
    folds = _folds(run.store.origin(run.name))
    gone = tuple(table for table in planned if not _picks(run.loaded, table, folds))
    return gone if len(gone) < len(planned) else ()


def picked_anew(run: Run, left_out: Iterable[TableId]) -> tuple[TableId, ...]:
    """Return those tables that the file did not pick when the plan was made."""
    origin = run.store.origin(run.name)
    if origin is None:
        return ()
    fold = origin.names_fold_case

    def any_of(patterns: Iterable[str], table: TableId) -> bool:
        return any(TablePattern.parse(p).matches(table, ignore_case=fold) for p in patterns)

    return tuple(
        table
        for table in left_out
        if not any_of(origin.tables, table) or any_of(origin.exclude, table)
    )


def _joins(run: Run) -> bool:
    """Tell whether the sink can take rows beside its stream."""
    return sink_of(run).abilities.joins


def _folds(origin: PlanOrigin | None) -> tuple[bool, ...]:
    """Return how the plan compares names by case; both ways for a plan that did not say."""
    return (False, True) if origin is None else (origin.names_fold_case,)


def _picks(loaded: LoadedPipeline, table: TableId, folds: Iterable[bool]) -> bool:
    """Tell whether the file picks a table, by any of the ways to compare names."""
    return any(loaded.model.picks(table, ignore_case=fold) for fold in folds)


def _routes(
    loaded: LoadedPipeline,
    copied: Sequence[Copied],
    origin: PlanOrigin | None,
    *,
    fix: str = "",
    alone: bool = False,
    way_out: str = "",
) -> Iterator[Found]:
    """Yield tables that the file routes elsewhere or no longer picks.

    `alone`: a table may begin again by itself. `way_out`: how one alone is removed.
    """
    model, folds = loaded.model, _folds(origin)
    for source, sink in copied:
        if not _picks(loaded, source, folds):
            path = _where_dropped(loaded, source, ignore_case=folds[-1])
            what = f"the plan copies {source} to {sink}, and the file does not pick it any more"
            way = f"{way_out.format(option=table_option(source))}{RESET}"
            yield path, what, f"{fix}pick it again, {way}; the rows in {sink} stay"
            continue
        targets = [sink_table(source, model.sink.routes, ignore_case=fold) for fold in folds]
        if sink not in targets:
            path = ("sink", "route") if model.sink.route else ("sink",)
            what = f"{source} goes to {targets[0]} now, and the plan copies it to {sink}"
            way = _alone(source) if alone else RESET
            yield path, what, f"{fix}write the former route, {way}; the rows in {sink} stay"


def _shapes(
    loaded: LoadedPipeline, plans: Sequence[TablePlan], origin: PlanOrigin | None, *, alone: bool
) -> Iterator[Found]:
    """Yield tables that the file has other columns for than their rows were copied by."""
    model, folds = loaded.model, _folds(origin)
    for plan in plans:
        table = plan.schema.table
        shapes = (model.shape_of(table, ignore_case=fold) for fold in folds)
        same = [shape for shape in shapes if shape.is_same_for(plan.schema, plan.shape)]
        is_same, is_laid = bool(same), any(s.layout == plan.shape.layout for s in same)
        other = other_salt(plan.shape)
        if is_laid and not other:
            continue
        name = name_in(model.tables, table, ignore_case=folds[-1])
        path: Path = ("tables",) if name is None else ("tables", name)
        what = f"the rows and columns of {table} are others now than those that were copied"
        fix = "write what was there before"
        if other and is_same:
            what = f"{other} has another value now than the one by which {table} was masked"
            fix = "give it the former value"
        elif is_same:
            what = f"the files of {table} are to be laid out otherwise than those that it has"
        way = _alone(table) if alone else RESET
        yield path, what, f"{fix}, {way}"


def _keys(
    loaded: LoadedPipeline, plans: Sequence[TablePlan], origin: PlanOrigin | None, *, alone: bool
) -> Iterator[Found]:
    """Yield tables that the file names another key for than their rows were copied by."""
    model, folds = loaded.model, _folds(origin)
    for schema in (plan.schema for plan in plans):
        table = schema.table
        keys = [model.named_keys.of(table, ignore_case=fold) for fold in folds]
        if any(_is_key_of(schema, key) for key in keys):
            continue
        name = name_in(model.tables, table, ignore_case=folds[-1])
        path: Path = ("tables",) if name is None else ("tables", name)
        was = schema.key_name or ("its primary key" if schema.has_key else "all of their columns")
        what = f"the rows of {table} are told apart by {was}, and the file names "
        what += f"{keys[-1] or 'no key'} now"
        right = f"write key: {schema.named_key}" if schema.named_key else "remove it"
        way = _alone(table) if alone else RESET
        yield (*path, "key") if keys[-1] else path, what, f"{right}, {way}"


def _is_key_of(schema: TableSchema, named: str) -> bool:
    """Tell whether a key that the file names, or none, is the one that a table was copied by."""
    if named.casefold() in {schema.named_key.casefold(), schema.key_name.casefold()}:
        return True  # it may name the one that is the table's key anyway
    return not named and not schema.key_name  # its primary key came later


def _alone(table: TableId) -> str:
    """Return how one table alone begins again."""
    return f"or `reset` it with {table_option(table)}: only that is read again"


def _where_dropped(loaded: LoadedPipeline, table: TableId, *, ignore_case: bool) -> Path:
    """Return the path in the file of the pattern that drops a table."""
    for number, pattern in enumerate(loaded.model.source.excluded):
        if pattern.matches(table, ignore_case=ignore_case):
            return "source", "exclude", number
    return "source", "tables"


def _settings(loaded: LoadedPipeline, origin: PlanOrigin, *, handed_off: bool) -> Iterator[Found]:
    """Yield settings that changed since rows were copied under them."""
    now = loaded.model.source.zero_date_policy
    if now != origin.zero_dates:
        yield (
            ("source", "zero_dates"),
            f"zero_dates is {now} now, and rows were copied under {origin.zero_dates}",
            f"write zero_dates: {origin.zero_dates}, {RESET}",
        )
    backfill = loaded.model.snapshot.backfill
    if backfill != origin.backfill and not handed_off:
        was = str(origin.backfill).lower()
        yield (
            ("snapshot", "backfill"),
            f"backfill is {str(backfill).lower()} now, and splits were read under {was}",
            f"write backfill: {was} until the hand-off, {RESET}",
        )


def edge_text(edge: Topology | None) -> str:
    """Return a pipeline's place in a topology as a plan keeps it; empty if it has none."""
    return "" if edge is None else json.dumps(edge.to_json(), sort_keys=True)


def edge_of(text: str) -> Topology | None:
    """Read a pipeline's place in a topology from what a plan keeps."""
    return Topology.from_json(json.loads(text)) if text else None


def differs_by_rules(edge: Topology, before: Topology) -> bool:
    """Tell whether an edge is another than before by its rules for conflicts alone."""
    one, other = (replace(each, **_NO_RULES) for each in (edge, before))
    return edge != before and one == other and edge.is_guarded and before.is_guarded


def _edge(edge: Topology | None, origin: PlanOrigin, *, may_have_rules: bool) -> Iterator[Found]:
    """Yield the problem that rows were copied by a pipeline that was another edge, or none."""
    before = edge_of(origin.topology)
    if edge == before:
        return
    if edge is not None and before is not None and differs_by_rules(edge, before):
        if not may_have_rules:
            yield (
                ("topology", "conflicts"),
                "its rules for conflicts are others now than those that it went by so far: "
                f"{edge.rules_since(before)}",
                "write the former ones, or begin a whole run, which changes them for both edges",
            )
        return
    yield (
        ("topology",),
        f"the pipeline is {edge or 'in no topology'} now, and its rows were copied while it was "
        f"{before or 'in no topology'}: other transactions have a marker, and others were left out",
        "write what was there before; the page 'Two nodes' says how a node is copied anew",
    )


def is_taking_rules(run: Run) -> bool:
    """Tell whether a run was ended while it took other rules for both edges of a pair."""
    note = run.store.note(run.name, NoteKind.RULES)
    return note is not None and bool(note.form)


def _taken_in_part(run: Run) -> Iterator[Found]:
    """Yield the problem that a run was ended while it took other rules."""
    if is_taking_rules(run):
        yield (
            ("topology", "conflicts"),
            "a run was ended while it took other rules for conflicts, which the edge back may have",
            "begin a whole run, which ends that first",
        )


def _added(
    loaded: LoadedPipeline, origin: PlanOrigin, left_out: Iterable[TableId]
) -> Iterator[Found]:
    """Yield tables that the file picks now, for a sink that cannot take them alone."""
    fold = origin.names_fold_case
    for table in left_out:
        at = (
            number
            for number, pattern in enumerate(loaded.model.source.patterns)
            if pattern.matches(table, ignore_case=fold)
        )
        yield (
            ("source", "tables", next(at, 0)),
            f"{table} is picked now, and the plan does not copy it",
            f"leave it out, make another pipeline for it, {RESET}",
        )
