"""The pipeline's claim to the sink's tables, made before it touches them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing

from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.engine.sink.port import Copied
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps.sink import open_targets


def own_tables(run: Run, sink: str) -> frozenset[Copied]:
    """Return the tables whose rows the stored plan has brought, if `sink` is still the same.

    Before there is a plan they are those of a seed.
    """
    origin = run.store.origin(run.name)
    if origin is None or origin.sink != sink:
        return run.held.seeded
    return copied_by(state.plan for state in run.store.tables(run.name))


def copied_by(plans: Iterable[TablePlan]) -> frozenset[Copied]:
    """Return source and sink table of each plan."""
    return frozenset((plan.schema.table, plan.sink_table) for plan in plans)


def claim_tables(
    run: Run,
    generation: int,
    plans: Sequence[TablePlan],
    *,
    known: frozenset[Copied] = frozenset(),
) -> None:
    """Claim the plans' sink tables, or refuse; `known` tables have this pipeline's rows."""
    replace_rows = run.model.sink.existing_rows == "replace"
    with closing(open_targets(run, generation)) as targets:
        taken = targets.claim(plans, known=known, replace_rows=replace_rows)
    for table in taken:
        shared = any(plan.shard for plan in plans if plan.sink_table == table)
        which = "those of its shards are" if shared else "all of them are"
        run.store.tell(
            run.name,
            f"{table} held rows that are not this pipeline's: {which} replaced, because of "
            f"sink.existing_rows{'; others stay' if shared else ''}",
            level="warning",
        )


def release_tables(run: Run, generation: int, *, keep: Sequence[TablePlan] = ()) -> None:
    """Give up the claims of tables that are not in `keep`; their rows stay."""
    with closing(open_targets(run, generation)) as targets:
        targets.release(keep=keep)
