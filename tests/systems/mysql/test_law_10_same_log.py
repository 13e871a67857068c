"""A log is read on only if it is the one that was read before, whatever its numbers say."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_cdc_provider.columns.changes import ChangeBatch
from airflow_cdc_provider.core.codec import position_from_json, position_to_json
from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.errors import SourceIdentityError
from airflow_cdc_provider.core.history import AppliedThrough
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.systems.mysql.binlog.event_chunks import BatchLimits
from airflow_cdc_provider.systems.mysql.positions.position import MySqlPosition, own
from airflow_cdc_provider.systems.mysql.source.log_fingerprint import require_known
from airflow_cdc_provider.systems.mysql.source.snapshot_reader import SnapshotReader
from tests.servers.given import SqlServer
from tests.servers.replication import is_mariadb, server_of
from tests.servers.throwaway import Options, ThrowawayServer
from tests.systems.mysql.law_10_lineage import make_table, whole_position
from tests.systems.mysql.read_logs import insert, reading, rows_of
from tests.systems.mysql.splits import schema_of, split_of

TABLE = TableId("d", "t")
NO_GTIDS: Options = {"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"}
KINDS = pytest.mark.parametrize(
    ("family", "options"),
    [
        pytest.param("mysql", {}, id="mysql", marks=pytest.mark.mysql),
        pytest.param("mysql", NO_GTIDS, id="mysql-no-gtids", marks=pytest.mark.mysql),
        pytest.param("mariadb", {}, id="mariadb", marks=pytest.mark.mariadb),
    ],
)


@contextmanager
def started(family: str, options: Options) -> Iterator[ThrowawayServer]:
    with server_of(family, options) as server:
        yield server


def read_from(server: SqlServer, start: MySqlPosition) -> MySqlPosition:
    """Read to the end of the log; return the position as it comes out of the ledger."""
    with reading(server, start, TABLE) as reader:
        list(reader.read_to(whole_position(server).binlog))
        return own(position_from_json(position_to_json(reader.position)))


def read_all(server: SqlServer) -> MySqlPosition:
    """Read the file of the log that is written now."""
    now = whole_position(server)
    assert now.binlog is not None
    start = MySqlPosition(now.server_uuid, now.binlog.at(4))
    return replace(read_from(server, start), gtids=now.gtids)


def refused(server: SqlServer, start: MySqlPosition, *held: AppliedThrough) -> SourceIdentityError:
    """Read on, and return what stands against it."""
    end = whole_position(server).binlog
    with (
        pytest.raises(SourceIdentityError) as caught,
        reading(server, start, TABLE, held=held) as reader,
    ):
        list(reader.read_to(end))
    return caught.value


def reset(server: SqlServer) -> None:
    time.sleep(1.1)  # a file tells the second it was begun in
    server.execute("DROP DATABASE d")
    server.execute("RESET MASTER" if is_mariadb(server) else "RESET BINARY LOGS AND GTIDS")


def as_if_begun_then(before: MySqlPosition, server: SqlServer) -> MySqlPosition:
    """Return a position whose file was begun in the same second as the server's one of now."""
    now = read_all(server).imprint
    assert before.imprint is not None
    assert now is not None
    return replace(before, imprint=replace(before.imprint, created=now.created))


@KINDS
def test_as_many_transactions_of_the_same_sizes_after_a_reset_are_another_log(
    family: str, options: Options
) -> None:
    with started(family, options) as server:
        make_table(server)
        for key in range(10, 20):
            insert(server, TABLE, key)
        before = read_all(server)
        require_known(Endpoint.parse(server.dsn()), before)
        reset(server)
        make_table(server)
        for key in range(20, 30):
            insert(server, TABLE, key)
        assert whole_position(server) == before  # nothing the server tells is another
        insert(server, TABLE, 30)
        blind = replace(before, imprint=None)
        with reading(server, blind, TABLE) as reader:
            found = rows_of(list(reader.read_to(whole_position(server).binlog)))
        assert found == [("INSERT", 30)]  # so much would be lost without a sign
        assert "was begun" in refused(server, before).what
        assert "another transaction" in refused(server, as_if_begun_then(before, server)).what
        with pytest.raises(SourceIdentityError):
            require_known(Endpoint.parse(server.dsn()), before)


@KINDS
@pytest.mark.parametrize("key", [22, 222_222_222], ids=["same-sizes", "other-sizes"])
@pytest.mark.sample(3)
def test_a_data_folder_put_back_with_other_changes_behind_it_is_another_log(
    family: str, options: Options, key: int, tmp_path: Path
) -> None:
    with started(family, options) as server:
        make_table(server)
        server.stop()
        shutil.copytree(server.datadir, tmp_path / "copy")
        server.start()
        insert(server, TABLE, 11)
        insert(server, TABLE, 12)
        before = read_all(server)
        server.stop()
        shutil.rmtree(server.datadir)
        shutil.copytree(tmp_path / "copy", server.datadir)
        server.start()
        insert(server, TABLE, 21)
        insert(server, TABLE, key)
        insert(server, TABLE, 23)
        refused(server, before)
        refused(server, as_if_begun_then(before, server))


@KINDS
def test_reading_goes_on_from_every_boundary_of_the_same_log(family: str, options: Options) -> None:
    """Over files, restarts and large transactions; also where the end came before the file's."""
    with started(family, options) as server:
        make_table(server)
        start = whole_position(server)
        insert(server, TABLE, 1)
        server.execute("CREATE TABLE d.other (id INT PRIMARY KEY)")
        insert(server, TABLE, *range(1000, 6000))  # not digested whole
        server.execute("FLUSH BINARY LOGS")
        insert(server, TABLE, 2)
        server.restart()
        server.execute("INSERT INTO d.other VALUES (1)")
        insert(server, TABLE, 3)
        server.kill()
        server.start()
        server.execute("FLUSH BINARY LOGS")
        insert(server, TABLE, 4)
        end = whole_position(server).binlog
        assert end is not None
        with reading(server, start, TABLE, limits=BatchLimits(changes=1)) as reader:
            batches = list(reader.read_to(end))
        everything = rows_of(batches)
        assert len(everything) == 5004
        for done, batch in enumerate(batches, start=1):
            if batch.end is None:
                continue  # a part of the large one, cut where the socket happened to
            came_to = own(batch.end)
            assert came_to.imprint is not None
            require_known(Endpoint.parse(server.dsn()), came_to)
            with reading(server, came_to, TABLE) as reader:
                rest = rows_of(list(reader.read_to(end)))
                assert rest == rows_of(batches[done:])
                assert reader.position.imprint is not None
        beginning = type(end)(end.file_number, 4, end.base)
        with reading(server, start, TABLE) as reader:
            list(reader.read_to(beginning))
            at_beginning = reader.position
        assert at_beginning.imprint is not None
        assert at_beginning.imprint.end.file_number < end.file_number
        with reading(server, at_beginning, TABLE) as reader:
            assert rows_of(list(reader.read_to(end))) == [("INSERT", 4)]


@KINDS
def test_a_log_is_known_again_whether_or_not_its_statements_are_told(
    family: str, options: Options
) -> None:
    told = {"facts": ("query",)}
    with started(family, options) as server:
        if not is_mariadb(server):  # MariaDB does it by default
            server.execute("SET GLOBAL binlog_rows_query_log_events = 1")
        make_table(server)
        start = whole_position(server)
        insert(server, TABLE, 1)
        insert(server, TABLE, *range(1000, 6000))  # not digested whole
        insert(server, TABLE, 2)
        end = whole_position(server).binlog
        with reading(server, start, TABLE, limits=BatchLimits(changes=1), **told) as reader:
            batches = list(reader.read_to(end))
        for done, batch in enumerate(batches, start=1):
            if batch.end is None:
                continue
            came_to = own(batch.end)
            require_known(Endpoint.parse(server.dsn()), came_to)
            for facts in (told, {}):
                held = AppliedThrough("d.t#5", came_to)
                with reading(server, start, TABLE, held=[held], **facts) as reader:
                    assert rows_of(list(reader.read_to(end))) == rows_of(batches)
                with reading(server, came_to, TABLE, **facts) as reader:
                    rest = list(reader.read_to(end))
                assert rows_of(rest) == rows_of(batches[done:])
                assert _statements(rest) == (_statements(batches[done:]) if facts is told else [])


def _statements(batches: list[ChangeBatch]) -> list[str]:
    """The statement of each change, where it is told."""
    found = []
    for batch in batches:
        for changes in batch.tables:
            if changes.facts is not None and "query" in changes.facts.schema.names:
                found += changes.facts.column("query").to_pylist()
    return found


@KINDS
@pytest.mark.parametrize("backfill", [True, False])
@pytest.mark.sample(3)
def test_a_high_watermark_of_a_log_that_was_reset_is_known_when_it_is_passed(
    family: str, options: Options, backfill: bool
) -> None:
    with started(family, options) as server:
        make_table(server)
        insert(server, TABLE, 10)
        schema = schema_of(server, TABLE)
        endpoint = Endpoint.parse(server.dsn())
        with closing(
            SnapshotReader(endpoint, {TABLE: schema}, server_id=7002, backfill=backfill)
        ) as snapshot:
            _, report = snapshot.read(split_of(schema))
        high = own(report.high)
        assert high.imprint is not None
        require_known(endpoint, high)
        reset(server)
        make_table(server)
        start = read_all(server)
        insert(server, TABLE, 20)
        insert(server, TABLE, 30)
        assert "d.t#5" in refused(server, start, AppliedThrough("d.t#5", report.high)).what
