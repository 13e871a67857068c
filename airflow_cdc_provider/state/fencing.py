"""How writes are fenced by the pipeline's generation.

The fence is the first statement of each write: `UPDATE cdc_pipeline ... WHERE name = ? AND
generation = ?`. It locks the pipeline's row, so writers of one pipeline queue up behind each
other on every database; it touches no row if a newer owner has taken over, and then nothing is
written. What the write checks after that (a phase, a split's status) cannot change before it
commits. Take-over updates the same row: it waits for a write under way, and every later write of
the old owner is refused.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, Engine, update

from airflow_cdc_provider.core.errors import NOTHING_CHANGED, FencedError, StateMovedError
from airflow_cdc_provider.core.identifiers import PipelineName
from airflow_cdc_provider.core.records import PipelineState
from airflow_cdc_provider.databases.engines import begin_writing
from airflow_cdc_provider.state.database_errors import explained
from airflow_cdc_provider.state.reader import SqlStateReader, find_pipeline
from airflow_cdc_provider.state.tables import pipelines

Clock = Callable[[], int]


def clock_us() -> int:
    """Return this machine's time, in microseconds since the epoch."""
    return time.time_ns() // 1000


class FencedStore(SqlStateReader):
    """The part of the state store that refuses writes of an old generation."""

    def __init__(self, engine: Engine, clock: Clock = clock_us) -> None:
        super().__init__(engine)
        self._clock = clock

    def now_us(self) -> int:
        """Return the time by which leases are measured, in microseconds since the epoch."""
        return self._clock()

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        """Open a write transaction; database errors become the product's errors."""
        with (
            explained(self._engine),
            begin_writing(self._engine.connect()) as connection,
            connection.begin(),
        ):
            yield connection

    @contextmanager
    def _fenced(
        self, name: PipelineName, generation: int, **changes: object
    ) -> Iterator[Connection]:
        """Open a transaction that locks the pipeline's row; `FencedError` for an old generation."""
        mine = pipelines.c.name == str(name), pipelines.c.generation == generation
        fence = update(pipelines).where(*mine).values(updated_us=self._clock(), **changes)
        with self._writing() as connection:
            if connection.execute(fence).rowcount == 0:
                raise _fenced_out(name, generation, find_pipeline(connection, name))
            yield connection


def known_pipeline(connection: Connection, name: PipelineName) -> PipelineState:
    """Read the pipeline's row in the caller's transaction; raise if there is none."""
    state = find_pipeline(connection, name)
    if state is None:
        raise StateMovedError(
            f"pipeline {name} is no longer in the state store",
            where="state",
            risk=NOTHING_CHANGED,
            remedy="someone removed its row; run the pipeline again",
        )
    return state


def _fenced_out(name: PipelineName, generation: int, found: PipelineState | None) -> FencedError:
    """Return the error for a writer whose generation is not the pipeline's."""
    owner = "nobody" if found is None else f"{found.owner!r} with generation {found.generation}"
    return FencedError(
        f"generation {generation} of {name} may not write any more: the owner is {owner}",
        where=f"state of {name}",
        risk="none: nothing was written",
        remedy="stop this run; the newer one goes on",
    )
