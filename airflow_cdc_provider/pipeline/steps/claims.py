"""The pipeline's claim to the sink's tables, made before it touches them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps.sink import open_targets


def own_tables(run: Run, sink: str) -> frozenset[TableId]:
    """Return the sink tables that the stored plan has filled, if `sink` is still the same.

    Before there is a plan they are those of a seed.
    """
    origin = run.store.origin(run.name)
    if origin is None or origin.sink != sink:
        return run.held.seeded
    return frozenset(state.plan.sink_table for state in run.store.tables(run.name))


def claim_tables(
    run: Run,
    generation: int,
    plans: Sequence[TablePlan],
    *,
    known: frozenset[TableId] = frozenset(),
) -> None:
    """Claim the plans' sink tables, or refuse; `known` tables have this pipeline's rows."""
    replace_rows = run.model.sink.existing_rows == "replace"
    with closing(open_targets(run, generation)) as targets:
        taken = targets.claim(plans, known=known, replace_rows=replace_rows)
    for table in taken:
        run.store.tell(
            run.name,
            f"{table} held rows that are not this pipeline's: all of them are replaced, because "
            "of sink.existing_rows",
            level="warning",
        )


def release_tables(run: Run, generation: int, *, keep: Sequence[TablePlan] = ()) -> None:
    """Give up the claims of tables that are not in `keep`; their rows stay."""
    with closing(open_targets(run, generation)) as targets:
        targets.release(keep=keep)
