"""What changed in the pipeline file since the plan was made.

A plan says what is copied where, and rows are in the sink by it. What the file may change at any
time is obeyed at the next start: readers, batches, writers, server ids, Spark. What would need the
rows of the plan to be other ones is refused with its line: a route, a table that is not picked any
more or is picked anew, what becomes of zero dates, and until the hand-off the kind of backfill.
`add` and `remove` change the plan by single tables; `reset` makes a new one from the file as it
is.

A table that appears at the source and fits a pattern that was in the file all along is not the
file's doing. It is told, again and again, but it stops nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.records import PlanOrigin
from airflow_cdc_provider.pipeline.file.loader import LoadedPipeline
from airflow_cdc_provider.pipeline.file.patterns import TablePattern, sink_table
from airflow_cdc_provider.pipeline.file.problems import Path
from airflow_cdc_provider.pipeline.run import Run

Found = tuple[Path, str, str]
Copied = tuple[TableId, TableId]
"""A table of the source, and the sink's table it is copied to."""
_ANOTHER_NAME = "if this is another pipeline, give it another name; else "
"""Only the sink's ledger knows the plan: it may be one of the same name, from elsewhere."""
RESET = "or `reset`: the next run then reads all tables again, as the file says now"


def require_unchanged(
    run: Run, *, claimed: Iterable[Copied] = (), left_out: Iterable[TableId] = ()
) -> None:
    """Refuse the file if the plan there is does not do what it says.

    `claimed` is what the sink's ledger says is copied where; it stands for a plan that the state
    store does not know. `left_out` are tables that the file picks and the plan has not.
    """
    stored = {(table.table, table.plan.sink_table) for table in run.store.tables(run.name)}
    origin = run.store.origin(run.name)
    found = list(_routes(run.loaded, sorted(stored), origin))
    found += _routes(run.loaded, sorted(set(claimed) - stored), origin, fix=_ANOTHER_NAME)
    if origin is not None:
        handed_off = run.store.is_handed_off(run.name)
        found += _settings(run.loaded, origin, handed_off=handed_off)
        found += _added(run.loaded, origin, left_out)
    if found:
        raise run.loaded.refusal(*found)


def _routes(
    loaded: LoadedPipeline, copied: Sequence[Copied], origin: PlanOrigin | None, *, fix: str = ""
) -> Iterator[Found]:
    model = loaded.model
    # how a plan of an earlier release compared names is not known: either will do
    folds = (False, True) if origin is None else (origin.names_fold_case,)
    for source, sink in copied:
        if not any(model.picks(source, ignore_case=fold) for fold in folds):
            path = _where_dropped(loaded, source, ignore_case=folds[-1])
            what = f"the plan copies {source} to {sink}, and the file does not pick it any more"
            mend = f"{fix}pick it again, `remove` it, {RESET}; the rows in {sink} stay"
            yield path, what, mend
            continue
        targets = [sink_table(source, model.sink.routes, ignore_case=fold) for fold in folds]
        if sink not in targets:
            path = ("sink", "route") if model.sink.route else ("sink",)
            what = f"{source} goes to {targets[0]} now, and the plan copies it to {sink}"
            mend = f"{fix}write the former route, {RESET}, and lets the rows in {sink} be"
            yield path, what, mend


def _where_dropped(loaded: LoadedPipeline, table: TableId, *, ignore_case: bool) -> Path:
    for number, pattern in enumerate(loaded.model.source.excluded):
        if pattern.matches(table, ignore_case=ignore_case):
            return "source", "exclude", number
    return "source", "tables"


def _settings(loaded: LoadedPipeline, origin: PlanOrigin, *, handed_off: bool) -> Iterator[Found]:
    now = loaded.model.source.zero_dates
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


def _added(
    loaded: LoadedPipeline, origin: PlanOrigin, left_out: Iterable[TableId]
) -> Iterator[Found]:
    """Yield the tables that the file did not pick when the plan was made."""
    fold = origin.names_fold_case

    def any_of(patterns: Iterable[str], table: TableId) -> bool:
        return any(TablePattern.parse(p).matches(table, ignore_case=fold) for p in patterns)

    for table in left_out:
        if any_of(origin.tables, table) and not any_of(origin.exclude, table):
            continue
        at = (
            number
            for number, pattern in enumerate(loaded.model.source.patterns)
            if pattern.matches(table, ignore_case=fold)
        )
        yield (
            ("source", "tables", next(at, 0)),
            f"{table} is picked now, and the plan does not copy it",
            f"leave it out, `add` it, which reads it alone, {RESET}",
        )
