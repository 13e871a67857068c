"""What a comparison leaves out, where it may not read every row of both servers.

*Changed* leaves out tables that were found equal and of which nothing changed since: no row by the
stream, no row by a request, and not the definition. *Sample* compares some of a table's ranges,
chosen by chance: those that the snapshot read, so that choosing them reads no row.
"""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from airflow_cdc_provider.core.errors import RefusedError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.keys import KeyRange
from airflow_cdc_provider.core.lifecycle import SplitStatus
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps.verified import changed_since_verified

log = logging.getLogger(__name__)
Ranges = Mapping[TableId, Sequence[KeyRange]]


@dataclass(frozen=True, slots=True)
class Budget:
    """How much a comparison reads: changed tables only, or a share of the rows."""

    only_changed: bool = False
    percent: float = 100.0
    """About how many of a table's ranges, at least one; more than 0."""
    seed: int | None = None
    """By which they are chosen; any if None."""

    def __post_init__(self) -> None:
        if not 0 < self.percent <= 100:
            raise RefusedError(
                f"a sample of {self.percent:g} percent cannot be compared",
                where="verify",
                risk="none: nothing was compared",
                remedy="give more than 0 and at most 100",
            )

    def tables_of(self, run: Run, tables: Iterable[TableId]) -> tuple[TableId, ...]:
        """Return the tables to be compared, of those asked for."""
        if not self.only_changed:
            return tuple(tables)
        changed = changed_since_verified(run)
        return tuple(table for table in tables if table in changed)

    def ranges_of(self, run: Run, plans: Iterable[TablePlan]) -> Ranges:
        """Return a random sample of each table's key ranges; tables left out are compared whole."""
        if self.percent == 100.0:
            return {}
        seed = random.SystemRandom().randrange(1 << 32) if self.seed is None else self.seed
        log.info("sample: percent=%g seed=%d", self.percent, seed)
        dice = random.Random(seed)  # noqa: S311 - a sample is no secret
        return {
            plan.schema.table: found
            for plan in plans
            if (found := _some(_ranges(run, plan), self.percent, dice))
        }


EVERY_ROW = Budget()


def _ranges(run: Run, plan: TablePlan) -> list[KeyRange]:
    """Return the ranges of the table's finished splits; none if they do not cover the table."""
    schema = plan.schema
    if not all(kind.splittable for kind in schema.key_kinds):
        return []
    states = run.store.splits(run.name, schema.table)
    read = [state.split.keys for state in states if state.status is SplitStatus.FINISHED]
    starts = {keys.start for keys in read}
    covers = None in starts and all(keys.end is None or keys.end in starts for keys in read)
    return read if covers else []


def _some(ranges: Sequence[KeyRange], percent: float, dice: random.Random) -> list[KeyRange]:
    """Return a random share of ranges; none if that is all of them."""
    count = math.ceil(len(ranges) * percent / 100)
    if count == len(ranges):
        return []
    chosen = sorted(dice.sample(range(len(ranges)), count))
    return [ranges[number] for number in chosen]
