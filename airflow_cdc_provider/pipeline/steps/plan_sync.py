"""Tables come and go with the file, and at the source: what a run does about it by itself.

- A table that the file does not pick any more is removed: the stream leaves it alone, its rows at
  the sink stay.
- A table that the file picks anew is added: the stream follows it, and its rows are read beside.
- A table that appeared at the source and fits a pattern that was there all along is added too, if
  the file says `new_tables: add`. The copies that pt-online-schema-change and gh-ost make of a
  table are left alone: they take its place in the end, or go.

What speaks against a table, such as a missing key, is told and stops nothing. Each is done as `add`
and `remove` do it, so a crash in between is mended as theirs is.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain

from airflow_cdc_provider.core.errors import (
    CdcError,
    RefusedError,
    RetryableError,
    SchemaMovedError,
)
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.shards import clashes
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps.checking import differences
from airflow_cdc_provider.pipeline.steps.file_diff import dropped, follows_file, picked_anew
from airflow_cdc_provider.pipeline.steps.hidden_columns import (
    SHOWN_FIX,
    HiddenColumns,
    shows_text,
)
from airflow_cdc_provider.pipeline.steps.look_again import retry_while_schema_moves
from airflow_cdc_provider.pipeline.steps.sink import open_ledger, open_targets
from airflow_cdc_provider.pipeline.steps.table_catch_up import CatchUp
from airflow_cdc_provider.pipeline.steps.table_membership import (
    add_tables,
    remove_tables,
    require_these_addable,
)
from airflow_cdc_provider.pipeline.steps.tables import (
    Captured,
    captured_tables,
    picked_now,
    routed,
)

_GONE = "it is not at the source any more"
_COPY_OF_A_TABLE = re.compile(r"_+(.+?)(_\d{14})?_(new|old|gho|ghc|del)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Followed:
    """The tables that a run added and removed, as lines for people."""

    lines: tuple[str, ...] = ()


def follow_file(run: Run, captured: Captured, *, reach: CatchUp | None = None) -> Followed:
    """Add and remove tables as the file or the source changed since the plan was made."""
    looks = chain([captured], iter(lambda: captured_tables(run), None))
    gone, wanted = dropped(run), retry_while_schema_moves(lambda: tables_to_add(run, next(looks)))
    if not (gone or wanted) or not _streams_this_plan(run):
        return Followed()
    lines = []
    if gone:
        targets = ", ".join(map(str, remove_tables(run, gone)))
        names = ", ".join(map(str, gone))
        lines.append(f"removed: {names}, which the file does not pick; the rows in {targets} stay")
    if wanted:
        may_go = set(wanted) - set(picked_anew(run, wanted))
        added = add_tables(run, wanted, may_go=may_go, reach=reach)
        for table in sorted(may_go - set(added)):
            _tell_once(run, table, _GONE)
        if added:
            names = ", ".join(map(str, added))
            lines.append(f"added: {names}; the rows there are will be read beside the stream")
    return Followed(tuple(lines))


def tables_to_add(run: Run, captured: Captured) -> tuple[TableId, ...]:
    """Return the tables that a run adds: picked by the file since the plan, or made since."""
    if not follows_file(run) or run.model.edge is not None:
        return ()
    left_out, _ = differences(run, captured.plans)
    if run.model.source.new_tables == "tell" or run.model.stream.stops_at:
        left_out = picked_anew(run, left_out)
    return addable(run, captured, left_out)


def _streams_this_plan(run: Run) -> bool:
    """Tell whether the ledger streams the stored plan.

    If the ledger was lost, all is read again, new tables too.
    """
    with closing(open_ledger(run)) as ledger:
        return (
            ledger.plan_id() == run.store.ensure(run.name).plan_id and ledger.stream() is not None
        )


def addable(run: Run, captured: Captured, tables: Iterable[TableId]) -> tuple[TableId, ...]:
    """Return those of the tables that can be added; the others are reported."""
    planned = {state.table for state in run.store.tables(run.name)}
    beside = [routed(state.plan) for state in run.store.tables(run.name)]
    plans = {plan.schema.table: plan for plan in captured.plans}
    hidden = HiddenColumns(run, captured)
    fit = []
    for table in tables:
        one = routed(plans[table])
        others = [each for each in beside if each.target == one.target]
        if is_copy_of(table, planned):
            _tell_once(run, table, "it is the copy that a schema change tool makes of a table")
        elif table in captured.unfit:
            _, what, _ = captured.unfit[table]
            _tell_once(run, table, what)
        elif shown := hidden.shown_by(plans[table]):
            _tell_once(run, table, f"{shows_text(shown)}; {SHOWN_FIX}, or `add` it as it is")
        elif clash := next(clashes([*others, one]), None):
            _tell_once(run, table, clash.what)
        else:
            beside.append(one)
            fit.append(table)
    if not fit or not _why_not(run, captured, fit):  # asked of all at once, as there may be many
        return tuple(fit)
    added: list[TableId] = []
    for table in fit:
        sharing = [each for each in added if plans[each].sink_table == plans[table].sink_table]
        if why := _why_not(run, captured, [*sharing, table]):
            _tell_once(run, table, why)
        else:
            added.append(table)
    return tuple(added)


def is_copy_of(table: TableId, planned: Iterable[TableId]) -> bool:
    """Tell whether a table has the name of a copy that a schema change tool makes."""
    found = _COPY_OF_A_TABLE.fullmatch(table.table)
    return found is not None and TableId(table.database, found.group(1)) in set(planned)


def _why_not(run: Run, captured: Captured, tables: Sequence[TableId]) -> str:
    """Return the reason why some of these tables cannot be added; empty if all can."""
    try:
        require_these_addable(run, captured, tables)
        _require_free(run, captured, tables)
    except SchemaMovedError:
        if set(tables) <= set(picked_now(run)):
            raise
        return _GONE
    except RetryableError:
        raise
    except CdcError as refused:
        return refused.what
    return ""


def _require_free(run: Run, captured: Captured, tables: Collection[TableId]) -> None:
    """Refuse tables whose sink tables belong to another pipeline, or have other rows."""
    plans = [plan for plan in captured.plans if plan.schema.table in tables]
    with closing(open_targets(run)) as targets:
        conflicts = targets.conflicts(plans, known=frozenset())
    replaces = run.model.sink.existing_rows == "replace"
    for conflict in conflicts:
        if conflict.pipeline or not replaces:
            raise RefusedError(conflict.text, str(conflict.table), remedy=conflict.remedy)


def _tell_once(run: Run, table: TableId, why: str) -> None:
    """Record once why a table is not added."""
    how = "was added to the file" if picked_anew(run, [table]) else "came later"
    text = f"{table} {how} and is not added: {why}"
    if all(event.text != text for event in run.store.events(run.name, 1000)):
        run.store.tell(run.name, text, level="warning")
