"""How far a snapshot is."""

from __future__ import annotations

from tests.spark.pipelines import Pipeline


def finished_splits(pipeline: Pipeline) -> int:
    return sum(table.splits_finished for table in pipeline.store.tables(pipeline.name))
