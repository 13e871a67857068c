"""What became of a pipeline while a run lasted: its stream's counts, and its requests."""

from __future__ import annotations

from dataclasses import dataclass, field

from airflow_cdc_provider.core.requests import Request, RequestStatus
from airflow_cdc_provider.pipeline.run import Run


@dataclass(frozen=True, slots=True)
class DoneInRun:
    """What streams and requests did in a run, those of tables that were added among them."""

    changes: int
    transactions: int
    rows: int
    """That were read beside the stream."""
    tables: int
    """Of which rows were read beside the stream."""
    failed: tuple[Request, ...]
    """Requests that failed."""


@dataclass(frozen=True, slots=True)
class BeforeRun:
    """How far a pipeline's stream and requests were when a run began."""

    changes: int = 0
    transactions: int = 0
    requests: dict[str, Request] = field(default_factory=dict)

    @classmethod
    def of(cls, run: Run) -> BeforeRun:
        """Note how far stream and requests are now."""
        return cls(*_counts(run), {each.ledger_key: each for each in run.store.requests(run.name)})

    def since(self, run: Run) -> DoneInRun:
        """Return what was done since then."""
        rows, tables, failed = 0, set(), []
        for request in run.store.requests(run.name):
            before = self.requests.get(request.ledger_key)
            splits, known = (before.splits, before.rows) if before is not None else (0, 0)
            if request.kind.reads_rows and request.splits > splits:
                rows += request.rows - known
                tables |= set(request.scope.tables)
            has_failed = request.status is RequestStatus.FAILED
            if has_failed and (before is None or before.status is not RequestStatus.FAILED):
                failed.append(request)
        changes, transactions = _counts(run)
        if changes >= self.changes:  # else they were counted anew
            changes, transactions = changes - self.changes, transactions - self.transactions
        return DoneInRun(changes, transactions, rows, len(tables), tuple(failed))


def _counts(run: Run) -> tuple[int, int]:
    """Return the changes and transactions of the stream so far."""
    stream = run.store.stream(run.name)
    return (0, 0) if stream is None else (stream.changes, stream.transactions)
