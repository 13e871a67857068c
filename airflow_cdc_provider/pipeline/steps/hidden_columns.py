"""Tables that would show what the file hides of another one, and that no section of it picks.

Sections go by name. A table that gets another name, or is made by `CREATE TABLE ... AS SELECT` of
another one, would come with what is masked or left out there. It is known by the names of such
columns. Of a table that is filtered, or of which the file names the columns that are copied, no
such names are known: one is taken for its copy that has all columns which it had all the time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.records import NoteKind, TablePlan
from airflow_cdc_provider.core.table_patterns import TablePattern
from airflow_cdc_provider.core.table_shape import TableShape
from airflow_cdc_provider.pipeline.file.table_choice import name_in
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps.tables import Captured

SHOWN_FIX = "give it a section of its own name, or name it in source.tables"


def note_chosen(run: Run) -> None:
    """Note the columns of the plan's tables that are filtered or copied in part.

    Those of tables that are gone by now stay noted: another one may have them. Of one that was
    altered those are noted that it had before, too.
    """
    folds = (origin := run.store.origin(run.name)) is not None and origin.names_fold_case
    before, now = _noted(run), {}
    for state in run.store.tables(run.name):
        name = str(state.table)
        columns = {column.name.lower() for column in state.plan.schema.columns}
        if _chooses(run.model.shape_of(state.table, ignore_case=folds)):
            now[name] = sorted(columns.intersection(before.get(name, columns)) or columns)
    if before != (noted := {**before, **now}):
        run.store.keep_note(run.name, NoteKind.CHOSEN, noted)


@dataclass(frozen=True, slots=True)
class HiddenColumns:
    """What the file hides, and by which columns another table would show it."""

    run: Run
    captured: Captured

    def shown_by(self, plan: TablePlan) -> str:
        """Return why a table would show what a section of others hides; empty if it does not.

        A table that the file names exactly is one that a person wants as it is.
        """
        table, model = plan.schema.table, self.run.model
        own = name_in(model.tables, table, ignore_case=self._folds)
        named = [*model.source.patterns, *(() if own is None else [TablePattern.parse(own)])]
        if any(pattern.is_exact and pattern.matches(table) for pattern in named):
            return ""
        whose = (
            "no section picks it" if own is None else f"the section {own}, which is its, does not"
        )
        hidden = frozenset[str]() if own is None else _hidden(model.tables[own].shape)
        columns = {
            c.name.lower(): c.name for c in plan.schema.columns if c.name.lower() not in hidden
        }
        for name, section in model.tables.items():
            if found := _hidden(section.shape).intersection(columns):
                shown = columns[min(found)]
                return f"{shown} is masked or left out by the section {name}, and {whose}"
        for name, chosen in self._chosen() if own is None else ():
            if columns.keys() >= {*chosen}:
                what = f"it has all columns of {name}, which is copied in part"
                return f"{what}, and no section picks it"
        return ""

    @property
    def _folds(self) -> bool:
        """Tell whether the source ignores case when it compares names."""
        return self.captured.names_fold_case

    def _chosen(self) -> Iterator[tuple[str, Collection[str]]]:
        """Yield the tables that are filtered or copied in part, with their columns."""
        for plan in self.captured.plans:
            if _chooses(self.run.model.shape_of(plan.schema.table, ignore_case=self._folds)):
                yield str(plan.schema.table), [each.name.lower() for each in plan.schema.columns]
        for name, columns in _noted(self.run).items():
            table = TableId.parse(name)
            if _chooses(self.run.model.shape_of(table, ignore_case=self._folds)):
                yield name, columns


def _noted(run: Run) -> Mapping[str, list[str]]:
    """Return the noted columns of tables."""
    note = run.store.note(run.name, NoteKind.CHOSEN)
    return {} if note is None else note.form


def _hidden(shape: TableShape) -> frozenset[str]:
    """Return the columns of which the sink does not get the values, in lower case."""
    masked = (each.source for each in shape.columns if each.mask is not None)
    return frozenset(name.lower() for name in (*masked, *shape.left_out))


def _chooses(shape: TableShape) -> bool:
    """Tell whether the sink gets a part of the rows, or named columns alone."""
    return not shape.takes_others or shape.where is not None
