"""How much of a table a split holds: few rows are quick to read again, many make a large file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_cdc_provider.core.records import TablePlan

_LEAST_SPLITS = 12
"""Of a table whose splits hold more than the rows asked for: readers share it."""
_MOST_ROWS = 1_000_000


@dataclass(frozen=True, slots=True)
class SplitSize:
    """How much a split holds, about."""

    rows: int = 50_000
    bytes: int = 0
    """As many rows as the source stores in so many bytes, if those are more; 0: `rows`."""

    def rows_of(self, plan: TablePlan) -> int:
        """Return the rows of a table's splits; where its size is not known, `rows`.

        The size is the source's estimate. A wrong one makes splits of another size, and no more.
        """
        if not plan.estimated_bytes:
            return self.rows
        by_bytes = plan.estimated_rows * self.bytes // plan.estimated_bytes
        return max(self.rows, min(by_bytes, plan.estimated_rows // _LEAST_SPLITS, _MOST_ROWS))
