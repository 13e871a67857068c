"""The rows that requests read beside the stream while a run lasts, added tables among them."""

from __future__ import annotations

from dataclasses import dataclass, field

from airflow_cdc_provider.core.requests import Request
from airflow_cdc_provider.pipeline.run import Run


@dataclass(frozen=True, slots=True)
class ReadBeside:
    """Rows that were read beside the stream, and of how many tables."""

    rows: int
    tables: int


@dataclass(frozen=True, slots=True)
class ReadingsBefore:
    """How far a pipeline's requests were when a run began."""

    requests: dict[str, Request] = field(default_factory=dict)

    @classmethod
    def of(cls, run: Run) -> ReadingsBefore:
        """Note how far the requests are now."""
        return cls({each.ledger_key: each for each in run.store.requests(run.name)})

    def since(self, run: Run) -> ReadBeside:
        """Return what was read since then."""
        rows, tables = 0, set()
        for request in run.store.requests(run.name):
            before = self.requests.get(request.ledger_key)
            splits, known = (before.splits, before.rows) if before is not None else (0, 0)
            if request.kind.reads_rows and request.splits > splits:
                rows += request.rows - known
                tables |= set(request.scope.tables)
        return ReadBeside(rows, len(tables))
