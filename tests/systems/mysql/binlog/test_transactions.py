"""What the log of a real server says about transactions ends in batches as it should."""

from __future__ import annotations

import itertools
import tracemalloc
from typing import Any

import pyarrow as pa
import pytest

from airflow_cdc_provider.columns.changes import ChangeBatch
from airflow_cdc_provider.core.errors import (
    CdcError,
    CorruptLogError,
    IntegrityError,
    PreparedTransactionError,
    RowsNotLoggedError,
)
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.systems.mysql.binlog.event_chunks import BatchLimits
from airflow_cdc_provider.systems.mysql.positions.gtid import Gtid, GtidSet, MariaDbGtidPosition
from airflow_cdc_provider.systems.mysql.positions.position import own, own_point
from tests.servers.given import SqlServer
from tests.servers.prepared import finish_prepared
from tests.systems.mysql.binlog.captured import (
    CapturedLog,
    captured_log,
    changes_of,
    decoded,
    log_of,
    replayed,
    rows_after,
    session,
)

BINLOG_CHECKPOINT = 161
"""MariaDB writes this when all of an older file is in its tables: between any two transactions."""


@pytest.fixture(params=["mysql_server", "mariadb_server"])
def server(request: pytest.FixtureRequest) -> SqlServer:
    found: SqlServer = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def database(server: SqlServer, fresh_database: Any) -> str:
    name: str = fresh_database(server)
    server.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))", database=name)
    return name


def refusal_in(log: CapturedLog, **options: Any) -> CdcError:
    """Return why nobody may go on behind the one statement of a log that may have changed rows."""
    (refusal,) = [
        batch.barrier.refusal
        for batch in log.batches(**options)
        if batch.barrier is not None and batch.barrier.refusal is not None
    ]
    return refusal


def error_of(log: CapturedLog, **options: Any) -> CdcError:
    with pytest.raises(CdcError) as caught:
        log.batches(**options)
    return caught.value


def ids(batches: list[ChangeBatch]) -> list[int]:
    return [row["id"] for row in rows_after(batches, "t")]


def test_changes_of_two_tables_keep_their_order_and_their_transaction(
    server: SqlServer, database: str
) -> None:
    log = log_of(
        server,
        database,
        "CREATE TABLE u LIKE t",
        "BEGIN",
        "INSERT INTO t VALUES (1, 'a')",
        "INSERT INTO u VALUES (1, 'x'), (2, 'y')",
        "UPDATE t SET v = 'b'",
        "COMMIT",
        "DELETE FROM u WHERE id = 2",
    )
    (batch,) = [each for each in log.batches() if each.tables]
    order = sorted(
        (ordinal, each.table.table, op, number)
        for each in batch.tables
        for ordinal, op, number in zip(
            each.ordinal.to_pylist(),
            each.op.to_pylist(),
            each.transaction.to_pylist(),
            strict=True,
        )
    )
    assert order == [
        (0, "t", 1, 0),
        (1, "u", 1, 0),
        (2, "u", 1, 0),
        (3, "t", 2, 0),
        (4, "u", 3, 1),
    ]
    assert len(batch.transactions) == 2


def test_transactions_lie_end_to_end_and_the_position_follows_the_last(
    server: SqlServer, database: str
) -> None:
    log = log_of(server, database, *(f"INSERT INTO t VALUES ({i}, 'x')" for i in range(40)))
    decoder = log.decoder()
    (batch,) = decoded(decoder, log.chunks())
    assert batch.end is not None
    points = [own_point(point) for point in batch.transactions]
    assert len(points) == 40
    between = {
        kind
        for a, b in itertools.pairwise(points)
        for kind in log.kinds_between(a.end.offset, b.start.offset)
    }
    assert between <= {BINLOG_CHECKPOINT}
    position, end = own(batch.start), own(batch.end)
    for point in points:
        assert not position.contains(point)
        position = position.after(point)
        assert position.contains(point)
    assert position.gtids == end.gtids
    executed = server.execute(
        "SELECT @@global.gtid_binlog_pos"
        if log.flavour == "mariadb"
        else "SELECT @@global.gtid_executed"
    )[0][0]
    if log.flavour == "mariadb":
        assert MariaDbGtidPosition.parse(executed).covers(end.gtids)  # type: ignore[arg-type]
    else:
        assert GtidSet.parse(executed).covers(end.gtids)  # type: ignore[arg-type]


@pytest.mark.parametrize("changes", [2, 7, 1000])
@pytest.mark.parametrize("chunk_bytes", [300, 4 << 20])
def test_batches_end_at_the_first_transaction_end_past_the_limit(
    server: SqlServer, database: str, changes: int, chunk_bytes: int
) -> None:
    log = log_of(
        server,
        database,
        *(f"INSERT INTO t VALUES ({i}, 'x'), ({i + 1}, 'y')" for i in range(0, 40, 2)),
    )
    log.chunk_bytes = chunk_bytes
    batches = log.batches(limits=BatchLimits(changes=changes))
    sizes = [batch.changes for batch in batches if batch.changes]
    per_batch = -(-changes // 2) * 2
    assert sum(sizes) == 40
    assert sizes == [min(per_batch, 40 - i) for i in range(0, 40, per_batch)]
    assert [str(each.start) for each in batches[1:]] == [str(each.end) for each in batches[:-1]]
    assert ids(batches) == list(range(40))


def test_a_transaction_larger_than_the_limit_travels_in_parts(
    server: SqlServer, database: str
) -> None:
    values = ", ".join(f"({i}, '{'x' * 15}')" for i in range(5000))
    log = log_of(
        server,
        database,
        "INSERT INTO t VALUES (-1, 'before')",
        "BEGIN",
        f"INSERT INTO t VALUES {values}",
        "COMMIT",
        "INSERT INTO t VALUES (-2, 'after')",
    )
    log.chunk_bytes = 20_000
    batches = [b for b in log.batches(limits=BatchLimits(changes=500)) if b.changes]
    open_parts = [batch for batch in batches if batch.end is None]
    assert len(open_parts) >= 4
    assert batches[0].end is not None
    assert ids(batches[:1]) == [-1]
    starts = {str(batch.start) for batch in open_parts}
    assert starts == {str(batches[0].end)}
    numbers = {own_point(batch.transactions[0]).gtid for batch in open_parts}
    assert len(numbers) == 1
    closing = batches[1 + len(open_parts)]
    assert closing.end is not None
    assert own_point(closing.transactions[0]).gtid in numbers
    end = own_point(closing.transactions[0]).end
    assert all(own_point(part.transactions[0]).end < end for part in open_parts)
    assert ids(batches) == [-1, *range(5000), -2]


def test_an_uncaptured_table_moves_the_position_only(server: SqlServer, database: str) -> None:
    log = log_of(server, database, "INSERT INTO t VALUES (1, 'a')")
    (batch,) = log.batches(captured={TableId(database, "other")})
    assert batch.changes == 0
    assert len(batch.transactions) == 0
    assert batch.end is not None
    assert own(batch.end).binlog is not None
    full = log.batches()[-1]
    assert full.end == batch.end


def test_ddl_ends_the_batch_and_is_the_barrier(server: SqlServer, database: str) -> None:
    log = log_of(
        server,
        database,
        "INSERT INTO t VALUES (1, 'a')",
        "ALTER TABLE t ADD COLUMN w INT DEFAULT 7 FIRST",
        "INSERT INTO t VALUES (5, 2, 'b')",
        "CREATE TABLE elsewhere (id INT)",
        "CREATE OR REPLACE VIEW w AS SELECT * FROM t",
    )
    captured = {TableId(database, "t")}
    batches = [b for b in log.batches(captured=captured) if b.changes or b.barrier]
    assert [batch.barrier is not None for batch in batches] == [True, False]
    barrier = batches[0].barrier
    assert barrier is not None
    assert barrier.sql.startswith("ALTER TABLE t ADD COLUMN w")
    assert batches[0].end is not None
    assert batches[0].end.contains(barrier.point)
    before, after = (batch.tables[0].after.schema.names for batch in batches)
    assert (before, after) == (["id", "v"], ["w", "id", "v"])


def test_rows_of_create_table_select_come_behind_its_barrier(
    server: SqlServer, database: str
) -> None:
    log = log_of(
        server,
        database,
        "INSERT INTO t VALUES (1, 'a'), (2, 'b')",
        "CREATE TABLE copy (PRIMARY KEY (id)) SELECT * FROM t",
    )
    batches = log.batches()
    barriers = [number for number, batch in enumerate(batches) if batch.barrier]
    assert len(barriers) == 1
    batch = batches[barriers[0]]
    assert batch.end is not None
    assert batch.barrier is not None
    assert not batch.end.contains(batch.barrier.point)
    behind = changes_of(batches[barriers[0] + 1 :], "copy")
    assert sum(map(len, behind)) == 2
    assert replayed(batches, "copy").keys() == {1, 2}


def test_myisam_groups_end_with_a_commit_statement(server: SqlServer, database: str) -> None:
    log = log_of(
        server,
        database,
        "CREATE TABLE m (id INT PRIMARY KEY) ENGINE=MyISAM",
        "INSERT INTO m VALUES (1), (2)",
        "DELETE FROM m WHERE id = 1",
    )
    assert replayed(log.batches(), "m").keys() == {2}


def test_rows_of_a_group_that_ends_with_rollback_are_dropped(
    mariadb_server: SqlServer, fresh_database: Any
) -> None:
    log = log_of(
        mariadb_server,
        fresh_database(mariadb_server),
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))",
        "CREATE TABLE m (id INT PRIMARY KEY) ENGINE=MyISAM",
        "INSERT INTO t VALUES (1, 'kept')",
        "BEGIN",
        "INSERT INTO t VALUES (2, 'dropped')",
        "INSERT INTO m VALUES (1)",
        "ROLLBACK",
        "INSERT INTO t VALUES (3, 'kept')",
    )
    assert replayed(log.batches(), "t").keys() == {1, 3}


def test_savepoints_are_followed_where_the_server_drops_the_rows(
    server: SqlServer, database: str
) -> None:
    log = log_of(
        server,
        database,
        "BEGIN",
        "INSERT INTO t VALUES (1, 'a')",
        "SAVEPOINT s",
        "INSERT INTO t VALUES (2, 'b')",
        "ROLLBACK TO SAVEPOINT s",
        "INSERT INTO t VALUES (3, 'c')",
        "RELEASE SAVEPOINT s",
        "COMMIT",
    )
    assert replayed(log.batches(), "t").keys() == {1, 3}


def test_xa_rows_come_with_the_commit_and_not_with_the_prepare(
    server: SqlServer, database: str
) -> None:
    with captured_log(server) as log:
        with session(server, database) as run:
            run(
                "XA START 'one','b',5",
                "INSERT INTO t VALUES (1, 'a'), (2, 'b')",
                "XA END 'one','b',5",
            )
            run("XA PREPARE 'one','b',5")
        server.execute("INSERT INTO t VALUES (3, 'c')", database=database)
        finish_prepared(server, "COMMIT", "'one','b',5")
        server.execute("INSERT INTO t VALUES (4, 'd')", database=database)
        captured = log()
    batches = captured.batches()
    assert ids(batches) == [3, 1, 2, 4]
    (changes,) = changes_of(batches, "t")
    assert changes.transaction.to_pylist() == [0, 1, 1, 2]
    assert changes.ordinal.to_pylist() == [0, 1, 2, 3]


def test_xa_rows_that_are_rolled_back_never_come(server: SqlServer, database: str) -> None:
    with captured_log(server) as log:
        with session(server, database) as run:
            run(
                "XA START 'two'",
                "INSERT INTO t VALUES (1, 'a')",
                "XA END 'two'",
                "XA PREPARE 'two'",
            )
        finish_prepared(server, "ROLLBACK", "'two'")
        server.execute("INSERT INTO t VALUES (4, 'd')", database=database)
        captured = log()
    assert ids(captured.batches()) == [4]


def test_xa_in_one_phase_is_a_plain_transaction(server: SqlServer, database: str) -> None:
    log = log_of(
        server,
        database,
        "XA START 'three'",
        "INSERT INTO t VALUES (1, 'a')",
        "XA END 'three'",
        "XA COMMIT 'three' ONE PHASE",
    )
    assert ids(log.batches()) == [1]


def test_an_xa_commit_without_its_rows_is_refused(server: SqlServer, database: str) -> None:
    with session(server, database) as run:
        run(
            "XA START 'four'", "INSERT INTO t VALUES (1, 'a')", "XA END 'four'", "XA PREPARE 'four'"
        )
    with captured_log(server) as log:
        finish_prepared(server, "COMMIT", "'four'")
        captured = log()
    error = error_of(captured)
    assert isinstance(error, PreparedTransactionError)
    assert "`reset`" in error.remedy


def test_an_incomplete_row_image_is_refused_by_name(server: SqlServer, database: str) -> None:
    log = log_of(
        server,
        database,
        "INSERT INTO t VALUES (1, 'a')",
        "SET SESSION binlog_row_image = 'MINIMAL'",
        "UPDATE t SET v = 'b'",
    )
    error = error_of(log)
    assert isinstance(error, IntegrityError)
    assert "binlog_row_image" in error.remedy
    assert f"{database}.t" in error.where


def test_a_table_map_without_names_is_refused_by_name(server: SqlServer, database: str) -> None:
    before = server.execute("SELECT @@global.binlog_row_metadata")[0][0]
    server.execute("SET GLOBAL binlog_row_metadata = 'MINIMAL'")
    try:
        log = log_of(server, database, "INSERT INTO t VALUES (1, 'a')")
    finally:
        server.execute(f"SET GLOBAL binlog_row_metadata = '{before}'")
    error = error_of(log)
    assert isinstance(error, IntegrityError)
    assert "binlog_row_metadata" in error.remedy
    assert log.batches(captured={TableId(database, "other")})[-1].changes == 0


def test_rows_logged_as_a_statement_are_an_error(server: SqlServer, database: str) -> None:
    log = log_of(
        server,
        database,
        "SET SESSION binlog_format = 'STATEMENT'",
        "INSERT INTO t VALUES (1, 'a')",
    )
    error = refusal_in(log)
    assert isinstance(error, RowsNotLoggedError)
    assert "binlog_format" in error.remedy
    assert f"{database}.t" in error.where


def test_rows_logged_as_a_statement_of_a_table_whose_trigger_writes_are_an_error(
    server: SqlServer, database: str
) -> None:
    server.execute("CREATE TABLE x (id INT PRIMARY KEY)", database=database)
    trigger = "CREATE TRIGGER r AFTER INSERT ON x FOR EACH ROW INSERT INTO t VALUES (NEW.id, 'x')"
    log = log_of(
        server,
        database,
        trigger,
        "SET SESSION binlog_format = 'STATEMENT'",
        "INSERT INTO x VALUES (7)",
    )
    assert server.execute("SELECT id FROM t", database=database) == [(7,)]
    refused = refusal_in(log, captured={TableId(database, "t")})
    assert "as a statement, not as rows" in refused.what


def test_a_flipped_bit_is_found_and_named(server: SqlServer, database: str, tmp_path: Any) -> None:
    log = log_of(server, database, *(f"INSERT INTO t VALUES ({i}, 'xxxxx')" for i in range(5)))
    data = bytearray(log.path.read_bytes())
    data[data.rindex(b"xxxxx")] ^= 4
    log.path = tmp_path / log.path.name
    log.path.write_bytes(data)
    error = error_of(log)
    assert isinstance(error, CorruptLogError)
    assert "checksum" in error.what


def test_tagged_gtids_are_read_with_their_tags(
    mysql_server: SqlServer, fresh_database: Any
) -> None:
    database = fresh_database(mysql_server)
    log = log_of(
        mysql_server,
        database,
        "CREATE TABLE t (id INT PRIMARY KEY)",
        "INSERT INTO t VALUES (1)",
        "SET gtid_next = 'AUTOMATIC:blue'",
        "INSERT INTO t VALUES (2)",
        "INSERT INTO t VALUES (3)",
        "SET gtid_next = 'AUTOMATIC'",
        "INSERT INTO t VALUES (4)",
    )
    (batch,) = [each for each in log.batches() if each.changes]
    gtids = [own_point(point).gtid for point in batch.transactions]
    tags = [gtid.source.tag for gtid in gtids if isinstance(gtid, Gtid)]
    assert tags == ["", "blue", "blue", ""]
    executed = GtidSet.parse(mysql_server.execute("SELECT @@global.gtid_executed")[0][0])
    assert all(gtid in executed for gtid in gtids if isinstance(gtid, Gtid))
    committed = [point.committed_us for point in batch.transactions]
    assert committed == sorted(committed)
    assert committed[-1] - committed[0] < 60_000_000


@pytest.mark.parametrize("chunk_bytes", [500, 4 << 20])
def test_compressed_transactions_have_the_rows_of_plain_ones(
    mysql_server: SqlServer, fresh_database: Any, chunk_bytes: int
) -> None:
    database = fresh_database(mysql_server)
    values = ", ".join(f"({i}, 'row {i}')" for i in range(3000))
    log = log_of(
        mysql_server,
        database,
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))",
        "SET SESSION binlog_transaction_compression = ON",
        f"INSERT INTO t VALUES {values}",
        "DELETE FROM t WHERE id >= 2000",
        "UPDATE t SET v = CONCAT(v, '!') WHERE id < 10",
    )
    types = {chunk.buffer[start + 4] for chunk in log.chunks() for start in chunk.starts}
    assert 40 in types
    assert not types & {30, 31, 32}
    log.chunk_bytes = chunk_bytes
    batches = log.batches()
    shown = mysql_server.execute(f"SELECT id, v FROM {database}.t")
    assert {key: row["v"] for key, row in replayed(batches, "t").items()} == dict(shown)
    points = [own_point(point) for batch in batches for point in batch.transactions]
    assert len(points) == 3
    assert all(a.end == b.start for a, b in itertools.pairwise(points))


def test_compressed_events_of_mariadb_have_the_rows_of_plain_ones(
    mariadb_server: SqlServer, fresh_database: Any
) -> None:
    database = fresh_database(mariadb_server)
    values = ", ".join(f"({i}, '{f'row {i} ' * 60}')" for i in range(3000))
    mariadb_server.execute("SET GLOBAL log_bin_compress = ON")
    try:
        log = log_of(
            mariadb_server,
            database,
            "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(999)) " + f"COMMENT '{'c' * 400}'",
            f"INSERT INTO t VALUES {values}",
            "DELETE FROM t WHERE id >= 2000",
            "UPDATE t SET v = CONCAT(v, '!') WHERE id < 300",
        )
    finally:
        mariadb_server.execute("SET GLOBAL log_bin_compress = OFF")
    types = {chunk.buffer[start + 4] for chunk in log.chunks() for start in chunk.starts}
    assert {165, 166, 167, 168} <= types
    shown = mariadb_server.execute(f"SELECT id, v FROM {database}.t")
    batches = log.batches()
    assert {key: row["v"] for key, row in replayed(batches, "t").items()} == dict(shown)
    assert sum(batch.barrier is not None for batch in batches) == 1


def test_a_prepared_transaction_takes_no_more_memory_than_is_kept(
    server: SqlServer, database: str
) -> None:
    server.execute("ALTER TABLE t MODIFY v VARCHAR(500)", database=database)
    blocks = (
        ", ".join(f"({key}, '{'x' * 400}')" for key in range(first, first + 1000))
        for first in range(0, 40_000, 1000)
    )
    with captured_log(server) as log:
        with session(server, database) as run:
            run("XA START 'm'", *(f"INSERT INTO t VALUES {block}" for block in blocks))
            run("XA END 'm'", "XA PREPARE 'm'")
        finish_prepared(server, "ROLLBACK", "'m'")
        server.execute("INSERT INTO t VALUES (-1, 'y')", database=database)
        captured = log()
    captured.chunk_bytes = 100_000
    decoder = captured.decoder(limits=BatchLimits(changes=1000, bytes=500_000))
    before, highest = pa.total_allocated_bytes(), 0
    batches: list[ChangeBatch] = []
    tracemalloc.start()
    try:
        for chunk in captured.chunks():
            batches += decoder.feed(chunk)
            held = pa.total_allocated_bytes() - before + tracemalloc.get_traced_memory()[0]
            highest = max(highest, held - len(chunk.buffer))
    finally:
        tracemalloc.stop()
    batches += [batch for batch in [decoder.flush()] if batch is not None]
    assert ids(batches) == [-1]
    assert captured.path.stat().st_size > 16_000_000
    assert highest < 6_000_000
