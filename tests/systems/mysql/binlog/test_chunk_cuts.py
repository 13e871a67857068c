"""Where the socket happens to cut the log changes nothing of what is read, barriers included."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_cdc_provider.columns.changes import ChangeBatch
from airflow_cdc_provider.systems.mysql.binlog.event_chunks import BatchLimits, EventChunk
from tests.servers.given import SqlServer
from tests.systems.mysql.binlog.captured import CapturedLog, captured_log, decoded, session

EVENTS = 300
"""More than the log below has."""


def flat(batches: list[ChangeBatch]) -> list[Any]:
    """Return all changes and barriers in log order, however they are batched."""
    found: list[Any] = []
    for batch in batches:
        rows = [
            (ordinal, table.table, batch.transactions[number].gtid, op, before, after)
            for table in batch.tables
            for ordinal, number, op, before, after in zip(
                table.ordinal.to_pylist(),
                table.transaction.to_pylist(),
                table.op.to_pylist(),
                table.before.to_pylist(),
                table.after.to_pylist(),
                strict=True,
            )
        ]
        found += [row[1:] for row in sorted(rows, key=lambda row: row[0])]
        if batch.barrier is not None:
            found.append((batch.barrier.sql, batch.barrier.point))
    return found


@dataclass(frozen=True)
class Cuttable:
    """A log in one chunk, and what it says."""

    log: CapturedLog
    whole: EventChunk
    said: list[Any]

    def cut(self, places: set[int]) -> Iterator[EventChunk]:
        ends = [*sorted(place for place in places if place < len(self.whole.starts)), EVENTS]
        for first, last in zip([0, *ends], ends, strict=False):
            cut = slice(first, last)
            yield EventChunk(self.whole.buffer, self.whole.starts[cut], self.whole.ends[cut])


STATEMENTS = (
    "INSERT INTO t VALUES (1, 'a')",
    "INSERT INTO u VALUES (1, 'x')",
    "TRUNCATE TABLE u",
    "INSERT INTO t VALUES (2, 'b')",
    "INSERT INTO u VALUES (2, 'y'), (3, 'z')",
    "BEGIN",
    "INSERT INTO t VALUES (3, 'c')",
    "UPDATE u SET v = 'w' WHERE id = 2",
    "COMMIT",
    "TRUNCATE TABLE u",
    "UPDATE t SET v = 'd'",
    "DROP DATABASE {database}_other",
    "DELETE FROM t WHERE id = 1",
    "ALTER TABLE u ADD COLUMN w INT",
    "INSERT INTO u VALUES (4, 'q', 5)",
    "CREATE TABLE copied (PRIMARY KEY (id)) SELECT * FROM t",
    "INSERT INTO t VALUES (5, 'e')",
    "TRUNCATE TABLE copied",
    "INSERT INTO copied VALUES (6, 'f')",
    "INSERT INTO t VALUES (6, 'f')",
)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("mysql_server", marks=pytest.mark.mysql),
        pytest.param("mariadb_server", marks=pytest.mark.mariadb),
    ],
)
def cuttable(request: pytest.FixtureRequest) -> Cuttable:
    server: SqlServer = request.getfixturevalue(request.param)
    name = "cuts"
    for database in (name, f"{name}_other"):
        server.execute(f"DROP DATABASE IF EXISTS {database}")
        server.execute(f"CREATE DATABASE {database}")
    for table in ("t", "u"):
        server.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, v VARCHAR(20))", database=name)
    with captured_log(server) as log:
        with session(server, name) as run:
            run(*(statement.format(database=name) for statement in STATEMENTS))
        captured = log()
    captured.chunk_bytes = 1 << 30
    (whole,) = captured.chunks()
    assert len(whole.starts) < EVENTS
    singly = [
        EventChunk(whole.buffer, np.array([start]), np.array([end]))
        for start, end in zip(whole.starts, whole.ends, strict=True)
    ]
    return Cuttable(captured, whole, flat(decoded(captured.decoder(), singly)))


def test_a_log_in_one_piece_says_what_its_single_events_say(cuttable: Cuttable) -> None:
    barriers = [each for each in cuttable.said if len(each) == 2]
    assert len(barriers) == 6
    assert flat(decoded(cuttable.log.decoder(), [cuttable.whole])) == cuttable.said


@given(
    places=st.sets(st.integers(1, EVENTS - 1), max_size=12),
    limits=st.sampled_from([BatchLimits(), BatchLimits(changes=2)]),
)
@settings(max_examples=60, deadline=None)
def test_a_log_cut_anywhere_says_the_same(
    cuttable: Cuttable, places: set[int], limits: BatchLimits
) -> None:
    found = flat(decoded(cuttable.log.decoder(limits=limits), cuttable.cut(places)))
    assert found == cuttable.said
