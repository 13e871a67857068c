"""Tables that would show what the file hides of another one.

Sections go by name. A table that gets another name, or is made by `CREATE TABLE ... AS SELECT` of
another one, would come with what is masked or left out there. It is known by the names of such
columns. Of a table that is filtered, or of which the file names the columns that are copied, no
such names are known: one is taken for its copy that has all columns which it had all the time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.records import NoteKind, TablePlan
from airflow_cdc_provider.core.table_patterns import TablePattern, name_in
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps.tables import Captured

_NO_SECTION = "no section picks it"
SHOWN_FIX = "give it a section of its own name, or name it in source.tables"


def note_chosen(run: Run) -> None:
    """Note the columns of the plan's tables that are filtered or copied in part.

    Those of tables that are gone by now stay noted: another one may have them. Of one that was
    altered those are noted that it had before, too.
    """
    if not run.model.tables:
        return
    folds = (origin := run.store.origin(run.name)) is not None and origin.names_fold_case
    before, now = _noted(run), {}
    for state in run.store.tables(run.name):
        name = str(state.table)
        columns = {column.name.lower() for column in state.plan.schema.columns}
        if run.model.shape_of(state.table, ignore_case=folds).is_part:
            now[name] = sorted(columns.intersection(before.get(name, columns)) or columns)
    if before != (noted := {**before, **now}):
        run.store.keep_note(run.name, NoteKind.CHOSEN, noted)


class HiddenColumns:
    """What the file hides, and by which columns another table would show it."""

    def __init__(self, run: Run, captured: Captured) -> None:
        self._run, self._captured = run, captured
        self._folds = captured.names_fold_case
        self._hidden = {
            name: frozenset(column.lower() for column in section.shape.hidden)
            for name, section in run.model.tables.items()
        }

    def shown_by(self, plan: TablePlan) -> str:
        """Return why a table would show what a section of others hides; empty if it does not.

        A table that the file names exactly is one that a person wants as it is.
        """
        if not self._hidden:
            return ""
        table, model = plan.schema.table, self._run.model
        own = name_in(model.tables, table, ignore_case=self._folds)
        named = [*model.source.patterns, *(() if own is None else [TablePattern.parse(own)])]
        if any(pattern.is_exact and pattern.matches(table) for pattern in named):
            return ""
        columns = {column.name.lower(): column.name for column in plan.schema.columns}
        shown = columns.keys() - (() if own is None else self._hidden[own])
        whose = f"the section {own}, which is its, does not" if own else _NO_SECTION
        for name, hidden in self._hidden.items():
            if found := hidden & shown:
                return f"{columns[min(found)]} is masked or left out by {name}, and {whose}"
        for name, chosen in self._chosen if own is None else ():
            if columns.keys() >= chosen:
                what = f"it has all columns of {name}, which is copied in part"
                return f"{what}, and {_NO_SECTION}"
        return ""

    @cached_property
    def _chosen(self) -> Sequence[tuple[str, frozenset[str]]]:
        """Return the tables that are filtered or copied in part, with their columns."""
        now = {
            str(plan.schema.table): [column.name.lower() for column in plan.schema.columns]
            for plan in self._captured.plans
        }
        noted = [*now.items(), *_noted(self._run).items()]
        shape_of = self._run.model.shape_of
        return [
            (name, frozenset(columns))
            for name, columns in noted
            if shape_of(TableId.parse(name), ignore_case=self._folds).is_part
        ]


def _noted(run: Run) -> Mapping[str, list[str]]:
    """Return the noted columns of tables."""
    note = run.store.note(run.name, NoteKind.CHOSEN)
    return {} if note is None else note.form
