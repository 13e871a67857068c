"""Rows of `cdc_sample`: how a pipeline was, fine for an hour and coarse for a day.

Each sample goes into two buckets at once, one of ten seconds and one of five minutes, so that
nothing has to be added up later: what is too old is deleted, when a coarse bucket begins. A store
writes the first beat of each fine bucket and a stream's last one, and rows that were read at most
once a second.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, case, delete, func, insert, select, update

from airflow_cdc_provider.core.identifiers import PipelineName
from airflow_cdc_provider.core.records import Sample
from airflow_cdc_provider.state.rows import Values
from airflow_cdc_provider.state.tables import samples

FINE_S, COARSE_S = 10, 300
KEPT_S = {FINE_S: 3600, COARSE_S: 25 * 3600}
_ROWS_EVERY_US = 1_000_000


@dataclass(slots=True)
class SampleNotes:
    """When this process last sampled each pipeline, and its rows read since; thread-safe."""

    _fine: dict[PipelineName, int] = field(default_factory=dict)
    _unwritten: dict[PipelineName, int] = field(default_factory=dict)
    _rows_us: dict[PipelineName, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def is_due(self, name: PipelineName, now_us: int) -> bool:
        """Tell whether this is the first heartbeat of its time bucket."""
        bucket = _bucket(FINE_S, now_us)
        with self._lock:
            if self._fine.get(name) == bucket:
                return False
            self._fine[name] = bucket
            return True

    def add(self, name: PipelineName, rows: int) -> None:
        """Add rows that a snapshot has read, for the next sample of its speed."""
        with self._lock:
            self._unwritten[name] = self._unwritten.get(name, 0) + rows

    def rows_due(self, name: PipelineName, now_us: int, *, all_of_them: bool = False) -> int:
        """Return the rows to be written to a sample now, and forget them; 0 if it is too soon."""
        with self._lock:
            if not all_of_them and now_us - self._rows_us.get(name, 0) < _ROWS_EVERY_US:
                return 0
            self._rows_us[name] = now_us
            return self._unwritten.pop(name, 0)


def write_sample(
    connection: Connection,
    name: PipelineName,
    now_us: int,
    *,
    lag_us: int | None = None,
    changes: int | None = None,
    rows: int = 0,
) -> None:
    """Add a sample to its fine and coarse bucket; the caller's transaction has the lock."""
    greatest: ColumnElement[int | None] = samples.c.lag_us
    if lag_us is not None:
        less = func.coalesce(samples.c.lag_us, -1) < lag_us
        greatest = case((less, lag_us), else_=samples.c.lag_us)
    for step_s in KEPT_S:
        place: Values = {
            "pipeline": str(name),
            "step_s": step_s,
            "at_us": _bucket(step_s, now_us),
        }
        mine = [samples.c[column] == value for column, value in place.items()]
        change = update(samples).where(*mine)
        values: Values = {"lag_us": greatest, "rows_read": samples.c.rows_read + rows}
        if changes is not None:
            values["changes"] = changes
        if connection.execute(change.values(values)).rowcount == 0:
            fresh = {**place, "lag_us": lag_us, "changes": changes, "rows_read": rows}
            connection.execute(insert(samples).values(fresh))
            if step_s == COARSE_S:
                _drop_old(connection, name, now_us)


def _drop_old(connection: Connection, name: PipelineName, now_us: int) -> None:
    """Delete samples that are older than they are kept."""
    for step_s, kept_s in KEPT_S.items():
        mine = samples.c.pipeline == str(name), samples.c.step_s == step_s
        old = samples.c.at_us < now_us - kept_s * 1_000_000
        connection.execute(delete(samples).where(*mine, old))


def find_samples(connection: Connection, name: PipelineName, since_us: int) -> tuple[Sample, ...]:
    """Read a pipeline's samples, oldest first: coarse ones up to where fine ones begin."""
    mine = samples.c.pipeline == str(name), samples.c.at_us >= since_us
    query = select(samples).where(*mine).order_by(samples.c.at_us)
    found = [sample_of(row) for row in connection.execute(query)]
    fine = [each for each in found if each.step_s == FINE_S]
    coarse = [each for each in found if each.step_s == COARSE_S]
    if fine:
        coarse = [each for each in coarse if each.at_us + COARSE_S * 1_000_000 <= fine[0].at_us]
    return (*coarse, *fine)


def sample_of(row: Row[Any]) -> Sample:
    """Make a sample from a row of `cdc_sample`."""
    return Sample(row.at_us, row.step_s, row.lag_us, row.changes, row.rows_read)


def _bucket(step_s: int, now_us: int) -> int:
    """Return the start of the time bucket of so many seconds."""
    return now_us - now_us % (step_s * 1_000_000)
