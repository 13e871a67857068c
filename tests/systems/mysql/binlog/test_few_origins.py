"""Few events of a node that an edge writes to say what the vector steps say of them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_cdc_provider.columns.changes import ChangeBatch
from airflow_cdc_provider.core.codec import dumps, position_to_json
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.markers import EdgeOrigins
from airflow_cdc_provider.systems.mysql.binlog.event_chunks import BatchLimits, EventChunk
from airflow_cdc_provider.systems.mysql.binlog.events.event_types import EventType
from airflow_cdc_provider.systems.mysql.binlog.transactions import few_events
from airflow_cdc_provider.systems.mysql.binlog.transactions.decoder import ColumnDecoder
from airflow_cdc_provider.systems.mysql.positions.position import BinlogPosition, MySqlPosition
from tests.servers.given import SqlServer
from tests.servers.throwaway import MariaDbServer, MySqlServer, ThrowawayServer
from tests.systems.mysql.binlog.captured import (
    CapturedLog,
    all_said,
    captured_log,
    in_columns,
    session,
)

D, LEDGER = "few_origins", "airflow_cdc"
T = TableId(D, "t")
EDGE = EdgeOrigins(TableId(D, "marker"), "a", "b")
"""Reads the log of a, and writes to b."""
OPPOSITE = "shops:b:a"
TABLES = (
    f"CREATE TABLE {D}.marker (data_origin_node VARCHAR(255), src_node VARCHAR(255), "
    "dst_node VARCHAR(255), n BIGINT, PRIMARY KEY (data_origin_node, src_node, dst_node))",
    f"CREATE TABLE {D}.t (id INT PRIMARY KEY, v VARCHAR(20))",
    f"CREATE TABLE {LEDGER}.stream (pipeline VARCHAR(50) PRIMARY KEY, "
    "position LONGTEXT CHARACTER SET utf8mb4, edge VARCHAR(200), changes BIGINT)",
    f"INSERT INTO {LEDGER}.stream VALUES ('back', 'none', '{OPPOSITE}', 0), "
    "('other', 'none', 'shops:c:a', 0), ('plain', 'none', NULL, 0)",
)
ECHO = f"INSERT INTO {D}.marker VALUES ('b', 'b', 'a', 1) ON DUPLICATE KEY UPDATE n = n + 1"
TWO = (
    f"INSERT INTO {D}.marker VALUES ('b', 'b', 'a', 1), ('d', 'b', 'a', 1) "
    "ON DUPLICATE KEY UPDATE n = n + 1"
)
RELAYED = f"INSERT INTO {D}.marker VALUES ('c', 'c', 'a', 1) ON DUPLICATE KEY UPDATE n = n + 1"
HERE, THERE = f"REPLACE INTO {D}.t VALUES ({{k}}, 'here')", f"DELETE FROM {D}.t WHERE id < {{k}}"
MOVED = f"UPDATE {LEDGER}.stream SET position = '{{at}}', changes = {{k}} WHERE pipeline = "
CASES = (
    (HERE,),
    (HERE, THERE),
    (ECHO, HERE, MOVED + "'back'"),
    (ECHO, ECHO, THERE, HERE, MOVED + "'back'"),
    (TWO, HERE, MOVED + "'back'"),
    (MOVED + "'back'",),
    (HERE, ECHO, THERE, HERE),
    (MOVED + "'back'", HERE, ECHO),
    (MOVED + "'back'", ECHO, HERE),
    (MOVED + "'other'", HERE),
    (MOVED + "'plain'", HERE, MOVED + "'back'", MOVED + "'other'"),
    (RELAYED, HERE, MOVED + "'other'"),
    (f"DELETE FROM {D}.marker WHERE n > 0", HERE),
)
OF_A_PAIR = (*CASES[:4], (MOVED + "'back'",))


@dataclass(frozen=True)
class Logged:
    """A log as one chunk."""

    log: CapturedLog
    whole: EventChunk

    def cut(self, places: set[int]) -> Iterator[EventChunk]:
        """Cut the log into chunks before these events."""
        inner = sorted(place for place in places if place < len(self.whole.starts))
        for first, last in zip([0, *inner], [*inner, len(self.whole.starts)], strict=True):
            part = slice(first, last)
            yield EventChunk(self.whole.buffer, self.whole.starts[part], self.whole.ends[part])

    @property
    def ends(self) -> set[int]:
        """Return the places behind each transaction's end."""
        types = [self.whole.buffer[start + 4] for start in self.whole.starts]
        return {place for place, kind in enumerate(types, 1) if kind == EventType.XID}

    def decoder(self, limits: BatchLimits | None = None) -> ColumnDecoder:
        """Return a decoder of what the edge reads."""
        return self.log.decoder(
            captured={T}, origins=EDGE, opposite=OPPOSITE, limits=limits or BatchLimits()
        )


def logged(server: SqlServer, cases: list[tuple[str, ...]]) -> Logged:
    """Run transactions and return the log of them."""
    for database in (D, LEDGER):
        server.execute(f"DROP DATABASE IF EXISTS {database}")
        server.execute(f"CREATE DATABASE {database}")
    for statement in TABLES:
        server.execute(statement)
    with captured_log(server) as log:
        with session(server, D) as run:
            for key, statements in enumerate(cases, start=1):
                place = MySqlPosition("other", BinlogPosition.of("bin.000001", key))
                where = dumps(position_to_json(place))
                run("BEGIN", *(each.format(k=key, at=where) for each in statements), "COMMIT")
        captured = log()
    captured.chunk_bytes = 1 << 30
    (whole,) = captured.chunks()
    return Logged(captured, whole)


@pytest.fixture(scope="module", params=[MySqlServer, MariaDbServer], ids=["mysql", "mariadb"])
def server(request: pytest.FixtureRequest) -> Iterator[SqlServer]:
    kind: type[ThrowawayServer] = request.param
    with kind() as started:
        yield started


@pytest.fixture(scope="module")
def mixed(server: SqlServer) -> Logged:
    """A log of all cases, and then of any."""
    seed = random.randrange(1 << 20)
    print(f"seed {seed}")
    return logged(server, [*CASES, *random.Random(seed).choices(CASES, k=25)])


def said(decoder: ColumnDecoder, chunks: Iterator[EventChunk], *, flush: bool) -> list[Any]:
    """Return all that a decoder says, and what it is asked in between."""
    found: list[ChangeBatch] = []
    asides: list[Any] = []
    for chunk in chunks:
        found += decoder.feed(chunk)
        last = decoder.flush() if flush else None
        found += [] if last is None else [last]
        asides.append((decoder.position.exact, decoder.has_changes, decoder.in_transaction))
    last = decoder.flush()
    found += [] if last is None else [last]
    return [all_said(found), [(batch.origins, batch.knew) for batch in found], asides]


@settings(max_examples=80, deadline=None)
@given(
    places=st.sets(st.integers(1, 500), max_size=60),
    limits=st.sampled_from([BatchLimits(), BatchLimits(changes=2)]),
    flush=st.booleans(),
    at_ends=st.booleans(),
)
@pytest.mark.sample(1)
def test_both_ways_say_the_same_wherever_the_log_is_cut(
    mixed: Logged, places: set[int], limits: BatchLimits, flush: bool, at_ends: bool
) -> None:
    places = places | mixed.ends if at_ends else places
    vector = said(in_columns(mixed.decoder(limits)), mixed.cut(places), flush=flush)
    assert said(mixed.decoder(limits), mixed.cut(places), flush=flush) == vector


def test_what_an_edge_of_a_pair_reads_is_followed_event_by_event(
    server: SqlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = logged(server, [*OF_A_PAIR, *OF_A_PAIR, *OF_A_PAIR])
    followed: list[bool] = []
    take = few_events.SmallChunks.take

    def noted(self: few_events.SmallChunks, chunk: EventChunk, **options: Any) -> Any:
        found = take(self, chunk, **options)
        followed.append(found is not None)
        return found

    monkeypatch.setattr(few_events.SmallChunks, "take", noted)
    said(pair.decoder(), pair.cut(pair.ends), flush=True)
    assert all(followed[len(OF_A_PAIR) : -1]), followed
