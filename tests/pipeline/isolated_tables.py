"""What several tests need of `test_isolated_tables`."""

from __future__ import annotations

from airflow_cdc_provider.core.lifecycle import TablePhase
from tests.pipeline.conftest import Shop


def refuse_sixes(shop: Shop) -> None:
    """Have the sink's table without a partition for a row that the source will have."""
    shop.sink.execute(
        "ALTER TABLE orders PARTITION BY LIST (id) (PARTITION few VALUES IN (1, 2, 3, 4, 5, 7, 8))",
        database=shop.target,
    )


def allow_sixes(shop: Shop) -> None:
    shop.sink.execute("ALTER TABLE orders REMOVE PARTITIONING", database=shop.target)


def phases(shop: Shop) -> dict[str, TablePhase]:
    run = shop.run()
    return {state.table.table: state.phase for state in run.store.tables(run.name)}
