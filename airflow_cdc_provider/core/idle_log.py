"""Log that was read and holds nothing for the sink, so that nothing of it has to be committed.

Each commit moves the sink's ledger. Where sink and source are one server, or where pipelines go
round, that is new log to read: committed again, it would never end. So a batch without changes is
passed over. That a stretch of the log holds nothing is true of the log whoever reads it: a batch
that begins behind such a stretch follows on a ledger that stands at its beginning, and the ledger
may move to its end at any time.
"""

from __future__ import annotations

from dataclasses import dataclass

from airflow_cdc_provider.core.errors import IncomparablePositionsError
from airflow_cdc_provider.core.known_log import KnownLog
from airflow_cdc_provider.core.positions import LogPosition


@dataclass(frozen=True, slots=True)
class IdleRange:
    """A range of the log between two positions without changes of the pipeline's tables."""

    start: LogPosition
    end: LogPosition
    only_ledgers: bool
    """It holds commits of pipelines' ledgers and nothing else."""
    knew: KnownLog | None = None
    """See `ChangeBatch.knew`, at the end; None if that is what it was at the start."""

    def then(self, other: IdleRange) -> IdleRange:
        """Return this range joined with a later one; `other` alone if they do not touch."""
        if not (_reaches(self.end, other.start) and _reaches(other.start, self.start)):
            return other
        only_ledgers = self.only_ledgers and other.only_ledgers
        return IdleRange(self.start, other.end, only_ledgers, other.knew or self.knew)

    def leads(self, position: LogPosition, to: LogPosition) -> bool:
        """Tell whether only idle log, if any, is between a position and a later one."""
        return _reaches(position, self.start) and _reaches(self.end, to)

    def moves(self, position: LogPosition) -> bool:
        """Tell whether a ledger at `position` may move to the range's end, and is not there yet."""
        return self.leads(position, self.end) and not _reaches(position, self.end)

    def leaves_file(self, position: LogPosition) -> bool:
        """Tell whether the log file of `position` is one that the server may have purged by now."""
        return position.may_be_purged(self.end)


def _reaches(position: LogPosition, other: LogPosition) -> bool:
    """Tell whether a position equals or covers another; False if they cannot be compared."""
    try:
        return position == other or position.covers(other)
    except IncomparablePositionsError:
        return False
