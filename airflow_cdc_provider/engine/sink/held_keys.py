"""How many keys of a split a sink lists at once."""

from __future__ import annotations

from airflow_cdc_provider.core.errors import SplitTooBigError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.splits import SnapshotSplit

MOST_HELD_KEYS = 1_000_000
"""Of one split."""


def too_many_keys(split: SnapshotSplit, sink_table: TableId, where: str) -> SplitTooBigError:
    """Return the error for a split of which a sink has more keys than it lists."""
    return SplitTooBigError(
        f"the sink holds more than {MOST_HELD_KEYS:,} rows of split {split.split_id}",
        where=f"table {sink_table} on {where}",
        risk="none: what was read is dropped",
        remedy="the split is cut in two",
    )
