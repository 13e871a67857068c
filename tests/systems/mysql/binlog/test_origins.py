"""Transactions are judged by the marker they begin with, wherever the log happens to be cut."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_cdc_provider.columns.changes import ChangeBatch
from airflow_cdc_provider.core.errors import IntegrityError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.markers import EdgeOrigins
from airflow_cdc_provider.systems.mysql.binlog.event_chunks import BatchLimits, EventChunk
from tests.servers.given import SqlServer
from tests.servers.throwaway import MariaDbServer, MySqlServer, ThrowawayServer
from tests.systems.mysql.binlog.captured import (
    CapturedLog,
    captured_log,
    decoded,
    in_columns,
    log_of,
    rows_after,
    session,
)

D = "origins"
MARKER = TableId(D, "marker")
EDGE = EdgeOrigins(MARKER, "a", "b")
"""Reads the log of a, and writes to b."""
TABLES = (
    "CREATE TABLE marker (data_origin_node VARCHAR(255), src_node VARCHAR(255), "
    "dst_node VARCHAR(255), n BIGINT, PRIMARY KEY (data_origin_node, src_node, dst_node))",
    "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))",
    "CREATE TABLE u (id INT PRIMARY KEY)",
    "CREATE TABLE m (id INT PRIMARY KEY) ENGINE=MyISAM",
)
EVENTS = 400


def marks(*origins: str, src: str = "b", dst: str = "a") -> str:
    rows = ", ".join(f"('{origin}', '{src}', '{dst}', 1)" for origin in origins)
    return f"INSERT INTO marker VALUES {rows} ON DUPLICATE KEY UPDATE n = n + 1"


ECHO = marks("b")
RELAYED = marks("c", src="c")
CASES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("kept", ("BEGIN", "INSERT INTO t VALUES ({k}, 'here')", "COMMIT")),
    ("kept", ("INSERT INTO t VALUES ({k}, 'alone')",)),
    ("out", ("BEGIN", ECHO, "INSERT INTO t VALUES ({k}, 'echo')", "COMMIT")),
    ("kept", ("BEGIN", RELAYED, "INSERT INTO t VALUES ({k}, 'relayed')", "COMMIT")),
    ("out", ("BEGIN", marks("b", "d"), "INSERT INTO t VALUES ({k}, 'two')", "COMMIT")),
    (
        "out",
        ("BEGIN", ECHO, marks("e"), "INSERT INTO t VALUES ({k}, 'two events')", "COMMIT"),
    ),
    # a marker that is not first marks nothing, and is no change either
    ("kept", ("BEGIN", "INSERT INTO u VALUES ({k})", ECHO, "INSERT INTO t VALUES ({k}, 'late')")),
    ("kept", ("COMMIT",)),
    # a person removes a marker
    ("kept", ("BEGIN", "DELETE FROM marker", "INSERT INTO t VALUES ({k}, 'deleted')", "COMMIT")),
    ("kept", (ECHO,)),
    (
        "out",
        (
            "XA START 'x{k}'",
            ECHO,
            "INSERT INTO t VALUES ({k}, 'xa echo')",
            "XA END 'x{k}'",
            "XA PREPARE 'x{k}'",
            "XA COMMIT 'x{k}'",
        ),
    ),
    (
        "kept",
        (
            "XA START 'x{k}'",
            RELAYED,
            "INSERT INTO t VALUES ({k}, 'xa relayed')",
            "XA END 'x{k}'",
            "XA COMMIT 'x{k}' ONE PHASE",
        ),
    ),
    ("kept", ("INSERT INTO m VALUES ({k})",)),
    ("out", ("BEGIN", ECHO, "UPDATE t SET v = 'overwritten' WHERE id = 1", "COMMIT")),
    (
        "out",
        (
            "BEGIN",
            ECHO,
            "INSERT INTO t SELECT {k} * 1000 + id, REPEAT('y', 20) FROM t",
            "DELETE FROM t WHERE id >= {k} * 1000",
            "COMMIT",
        ),
    ),
)


@dataclass(frozen=True)
class Judged:
    """A log of marked and unmarked transactions, and which rows of `t` are for the sink."""

    log: CapturedLog
    whole: EventChunk
    wanted: list[tuple[int, str]]

    def cut(self, places: set[int]) -> Iterator[EventChunk]:
        ends = [*sorted(place for place in places if place < len(self.whole.starts)), EVENTS]
        for first, last in zip([0, *ends], ends, strict=False):
            part = slice(first, last)
            yield EventChunk(self.whole.buffer, self.whole.starts[part], self.whole.ends[part])


def make_tables(server: SqlServer) -> None:
    server.execute(f"DROP DATABASE IF EXISTS {D}")
    server.execute(f"CREATE DATABASE {D}")
    for statement in TABLES:
        server.execute(statement, database=D)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((MySqlServer, {}), id="mysql"),
        pytest.param((MySqlServer, {"binlog-transaction-compression": "ON"}), id="mysql-payload"),
        pytest.param((MariaDbServer, {}), id="mariadb"),
        pytest.param(
            (MariaDbServer, {"log-bin-compress": "ON", "log-bin-compress-min-len": 10}),
            id="mariadb-compressed",
        ),
    ],
)
def judged(request: pytest.FixtureRequest) -> Iterator[Judged]:
    kind: type[ThrowawayServer] = request.param[0]
    with kind(request.param[1]) as server:
        make_tables(server)
        chosen = random.Random(20267)
        cases = [*CASES, *(chosen.choice(CASES[:6]) for _ in range(10))]
        wanted: list[tuple[int, str]] = []
        with captured_log(server) as log:
            for key, (verdict, statements) in enumerate(cases, start=1):
                with session(server, D) as run:
                    run(*(statement.format(k=key) for statement in statements), "COMMIT")
                texts = [each.split("'")[1] for each in statements if "INTO t VALUES" in each]
                wanted += [(key, text) for text in texts if verdict == "kept"]
            captured = log()
        captured.chunk_bytes = 1 << 30
        (whole,) = captured.chunks()
        assert len(whole.starts) < EVENTS
        yield Judged(captured, whole, wanted)


def rows_of_t(batches: Any) -> list[tuple[int, str]]:
    return [(row["id"], row["v"]) for row in rows_after(batches, "t")]


def test_without_a_rule_every_transaction_is_there(judged: Judged) -> None:
    assert len(rows_of_t(judged.log.batches())) > len(judged.wanted)


def test_transactions_that_came_from_the_sinks_node_are_left_out_whole(judged: Judged) -> None:
    batches = judged.log.batches(origins=EDGE)
    assert rows_of_t(batches) == judged.wanted
    assert not rows_after(batches, "marker")
    assert batches[-1].end == judged.log.batches()[-1].end


@given(
    places=st.sets(st.integers(1, EVENTS - 1), max_size=40),
    limits=st.sampled_from([BatchLimits(), BatchLimits(changes=1)]),
    by_columns=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_a_log_cut_anywhere_leaves_out_the_same(
    judged: Judged, places: set[int], limits: BatchLimits, by_columns: bool
) -> None:
    decoder = judged.log.decoder(origins=EDGE, limits=limits)
    if by_columns:
        decoder = in_columns(decoder)
    found = decoded(decoder, judged.cut(places))
    assert rows_of_t(found) == judged.wanted
    for batch in found:
        assert batch.origins == origins_in(batch)


def origins_in(batch: ChangeBatch) -> set[str]:
    """Return where a batch's changes were written, by what they say of themselves."""
    rows = [row for changes in batch.tables for row in changes.after.to_pylist()]
    earlier = [row for changes in batch.tables for row in changes.before.to_pylist()]
    texts = [str(row.get("v", "")) for row in (*rows, *earlier) if row["id"] is not None]
    return {"c" if "relayed" in text else "a" for text in texts}


def test_single_events_leave_out_the_same(judged: Judged) -> None:
    found = decoded(judged.log.decoder(origins=EDGE), judged.cut(set(range(1, EVENTS))))
    assert rows_of_t(found) == judged.wanted


def test_without_a_rule_nothing_is_said_of_origins(judged: Judged) -> None:
    assert {batch.origins for batch in judged.log.batches()} == {frozenset()}


def test_a_marker_with_a_token_behind_the_sinks_name_marks_the_same(server: SqlServer) -> None:
    own = marks("b", dst="a#0f3c")
    log = log_of(server, D, "BEGIN", own, "INSERT INTO t VALUES (1, 'x')", "COMMIT")
    assert not rows_of_t(log.batches(origins=EDGE))


@pytest.mark.parametrize("cuts", [False, True], ids=["whole", "singly"])
def test_a_marker_that_no_edge_writes_is_refused_only_with_rows_behind_it(
    server: SqlServer, cuts: bool
) -> None:
    strange = marks("x", src="y", dst="z")
    kept = "INSERT INTO t VALUES (1, 'x')"
    alone = log_of(server, D, strange, kept)
    alone.chunk_bytes = 200 if cuts else 1 << 30
    assert rows_of_t(alone.batches(origins=EDGE)) == [(1, "x")]
    with_rows = log_of(server, D, "BEGIN", strange, "INSERT INTO t VALUES (2, 'y')", "COMMIT")
    with_rows.chunk_bytes = 200 if cuts else 1 << 30
    with pytest.raises(IntegrityError, match="marked as written at another node"):
        with_rows.batches(origins=EDGE)


def test_rows_that_are_left_out_are_never_decoded(judged: Judged) -> None:
    decoder = in_columns(judged.log.decoder(origins=EDGE))
    counted: list[int] = []
    pending: Any = decoder._assembly.pending
    add = pending.add

    def count_and_add(piece: Any) -> None:
        counted.append(len(piece.op))
        add(piece)

    pending.add = count_and_add
    batches = decoded(decoder, [judged.whole])
    assert sum(counted) == sum(batch.changes for batch in batches)


def test_a_rule_that_brings_no_unmarked_transaction_leaves_them_out(judged: Judged) -> None:
    relay_only = replace(EDGE, ignore_nodes=frozenset({"a"}))
    found = rows_of_t(judged.log.batches(origins=relay_only))
    assert found
    assert {text for _, text in found} == {"relayed", "xa relayed"}


# --- what is refused ------------------------------------------------------------------------------


@pytest.fixture(
    params=[
        pytest.param("mysql_server", marks=pytest.mark.mysql),
        pytest.param("mariadb_server", marks=pytest.mark.mariadb),
    ]
)
def server(request: pytest.FixtureRequest) -> SqlServer:
    found: SqlServer = request.getfixturevalue(request.param)
    make_tables(found)
    return found


@pytest.mark.parametrize("cuts", [False, True], ids=["whole", "singly"])
@pytest.mark.parametrize(
    "first",
    [
        (marks("b", "c", src="d"),),
        (marks("c", src="d"), marks("b", src="d").replace("'b'", "'z'", 1)),
    ],
    ids=["one event", "two events"],
)
def test_a_transaction_of_which_some_origins_are_left_out_is_refused(
    server: SqlServer, first: tuple[str, ...], cuts: bool
) -> None:
    log = log_of(server, D, "BEGIN", *first, "INSERT INTO t VALUES (1, 'x')", "COMMIT")
    log.chunk_bytes = 200 if cuts else 1 << 30
    narrowed = replace(EDGE, dst_node="x", ignore_nodes=frozenset({"b", "z"}))
    with pytest.raises(IntegrityError, match="several origins"):
        log.batches(origins=narrowed)


def test_a_marker_table_without_the_names_columns_is_refused(server: SqlServer) -> None:
    log = log_of(server, D, "INSERT INTO u VALUES (1)")
    wrong = replace(EDGE, marker=TableId(D, "u"))
    with pytest.raises(IntegrityError, match="lacks a column data_origin_node"):
        log.batches(origins=wrong)


@pytest.mark.parametrize("name", ["NULL", r"'b\0b'"])
def test_a_marker_whose_names_are_none_is_refused(server: SqlServer, name: str) -> None:
    server.execute(
        f"CREATE TABLE {D}.loose (data_origin_node VARCHAR(9), src_node VARCHAR(9), "
        "dst_node VARCHAR(9))"
    )
    log = log_of(server, D, f"INSERT INTO loose VALUES ({name}, 'b', 'a')")
    with pytest.raises(IntegrityError, match="lacks a name in a row"):
        log.batches(origins=replace(EDGE, marker=TableId(D, "loose")))


def test_a_marked_transaction_that_rolled_back_to_a_savepoint_is_refused(
    mariadb_server: SqlServer,
) -> None:
    make_tables(mariadb_server)
    log = log_of(
        mariadb_server,
        D,
        "BEGIN",
        ECHO,
        "SAVEPOINT s",
        "INSERT INTO t VALUES (1, 'x')",
        "CREATE TEMPORARY TABLE scratch (id INT)",
        "ROLLBACK TO s",
        "INSERT INTO t VALUES (2, 'y')",
        "COMMIT",
    )
    with pytest.raises(IntegrityError, match="rolled back to a savepoint"):
        log.batches(origins=EDGE)


def test_a_large_transaction_in_parts_is_left_out_in_all_of_them(server: SqlServer) -> None:
    inserts = [f"INSERT INTO t VALUES ({key}, REPEAT('z', 20))" for key in range(1, 60)]
    kept = [f"INSERT INTO t VALUES ({key}, 'kept')" for key in range(100, 160)]
    log = log_of(server, D, "BEGIN", ECHO, *inserts, "COMMIT", "BEGIN", *kept, "COMMIT")
    log.chunk_bytes = 300
    batches = log.batches(origins=EDGE, limits=BatchLimits(changes=5))
    assert rows_of_t(batches) == [(key, "kept") for key in range(100, 160)]
    assert any(batch.end is None for batch in batches)


def test_each_part_of_a_large_transaction_says_where_it_was_written(server: SqlServer) -> None:
    inserts = [f"INSERT INTO t VALUES ({key}, 'relayed')" for key in range(1, 60)]
    log = log_of(server, D, "BEGIN", RELAYED, *inserts, "COMMIT")
    log.chunk_bytes = 300
    batches = log.batches(origins=EDGE, limits=BatchLimits(changes=5))
    parts = [batch.origins for batch in batches if batch.changes]
    assert len(parts) > 5
    assert parts == [{"c"}] * len(parts)
