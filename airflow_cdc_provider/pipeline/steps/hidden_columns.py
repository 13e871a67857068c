"""Tables that look like one whose columns the file hides, and that no section of it picks.

Sections go by name. A table that gets another name, or is made by `CREATE TABLE ... AS SELECT *`,
has all the columns of the one that it was, and would come with what is masked or left out there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.records import NoteKind, TablePlan
from airflow_cdc_provider.core.table_shape import TableShape
from airflow_cdc_provider.pipeline.file.table_choice import name_in
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps.tables import Captured

SHOWN_FIX = "give it a section of `tables`, or name it in source.tables"


def shows_text(subject: str) -> str:
    """Return what speaks against a table with the columns of one that is not copied as it is."""
    return f"it has all columns of {subject}, which is not copied as it is, and no section picks it"


def note_hidden(run: Run) -> None:
    """Note the columns of the plan's tables that are not copied as they are.

    Those of tables that are gone by now stay noted: another one may have them.
    """
    folds = (origin := run.store.origin(run.name)) is not None and origin.names_fold_case
    before = _noted(run)
    now = {
        str(state.table): sorted(column.name.lower() for column in state.plan.schema.columns)
        for state in run.store.tables(run.name)
        if _hides(run.model.shape_of(state.table, ignore_case=folds))
    }
    if before != (noted := {**before, **now}):
        run.store.keep_note(run.name, NoteKind.HIDDEN, noted)


@dataclass(frozen=True, slots=True)
class HiddenColumns:
    """What the file hides, and by which columns another table would show it."""

    run: Run
    captured: Captured

    def shown_by(self, plan: TablePlan) -> str:
        """Return whose columns a table would show that no section picks; empty if none's."""
        table, model = plan.schema.table, self.run.model
        is_named = any(p.is_exact and p.matches(table) for p in model.source.patterns)
        if is_named or name_in(model.tables, table, ignore_case=self._folds) is not None:
            return ""
        columns = {column.name.lower() for column in plan.schema.columns}
        return next((name for name, hidden in self._hidden() if columns.issuperset(hidden)), "")

    @property
    def _folds(self) -> bool:
        """Tell whether the source ignores case when it compares names."""
        return self.captured.names_fold_case

    def _hidden(self) -> Iterator[tuple[str, Collection[str]]]:
        """Yield the tables that are not copied as they are, with their columns in lower case."""
        for plan in self.captured.plans:
            if _hides(self.run.model.shape_of(plan.schema.table, ignore_case=self._folds)):
                yield str(plan.schema.table), [each.name.lower() for each in plan.schema.columns]
        for name, columns in _noted(self.run).items():
            table = TableId.parse(name)
            if _hides(self.run.model.shape_of(table, ignore_case=self._folds)):
                yield name, columns


def _noted(run: Run) -> Mapping[str, list[str]]:
    """Return the noted columns of tables."""
    note = run.store.note(run.name, NoteKind.HIDDEN)
    return {} if note is None else note.form


def _hides(shape: TableShape) -> bool:
    """Tell whether the sink does not get all values of all rows."""
    masks = any(each.mask is not None for each in shape.columns)
    return masks or bool(shape.left_out) or not shape.takes_others or shape.where is not None
