"""A server is gone on with only if it has all that is in the sink, not just what was read."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import pytest

from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.errors import SourceIdentityError
from airflow_cdc_provider.core.history import AppliedThrough
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.systems.mysql.mysql_source import MySqlSource
from airflow_cdc_provider.systems.mysql.positions.gtid import GtidSet, MariaDbGtidPosition
from airflow_cdc_provider.systems.mysql.positions.position import BinlogPosition, MySqlPosition
from airflow_cdc_provider.systems.mysql.server.capabilities import read_capabilities
from airflow_cdc_provider.systems.mysql.server.connection import connect
from airflow_cdc_provider.systems.mysql.source.gtid_history import unseen_transactions
from airflow_cdc_provider.systems.mysql.source.log_start import LogStart, check_start
from tests.servers.families import FAMILIES
from tests.servers.given import SqlServer
from tests.servers.replication import pair_of, part
from tests.servers.throwaway import MariaDbServer, MySqlServer
from tests.systems.mysql.law_10_lineage import make_table, whole_position
from tests.systems.mysql.read_logs import insert, reading, rows_of

TABLE = TableId("d", "t")


def start_at(server: SqlServer, wanted: MySqlPosition, *held: AppliedThrough) -> LogStart:
    with closing(connect(Endpoint.parse(server.dsn()), purpose="test")) as connection:
        capabilities = read_capabilities(connection)
        return check_start(connection, capabilities, wanted, held=held, commit_wait_s=0.0)


def unseen(server: SqlServer, ours: MySqlPosition) -> str:
    with closing(connect(Endpoint.parse(server.dsn()), purpose="test")) as connection:
        return unseen_transactions(connection, [ours])


def news_of(server: SqlServer, read: MySqlPosition, *held: AppliedThrough) -> str:
    return MySqlSource(Endpoint.parse(server.dsn())).require_same_log(read, held, {TABLE})


@FAMILIES
def test_a_replica_that_lacks_what_only_one_split_has_read_is_refused(family: str) -> None:
    with pair_of(family) as (primary, replica):
        make_table(primary)
        smallest = whole_position(primary)
        insert(primary, TABLE, 1)
        middle = whole_position(primary)
        part(replica, primary)
        insert(primary, TABLE, 2)
        largest = whole_position(primary)
        insert(replica, TABLE, 2)
        assert not start_at(replica, smallest, AppliedThrough("d.t#3", middle)).by_file
        with pytest.raises(SourceIdentityError, match=r"d\.t#7") as caught:
            start_at(
                replica, smallest, AppliedThrough("d.t#3", middle), AppliedThrough("d.t#7", largest)
            )
        lost = caught.value.what
        assert "d.t#3" not in lost
        assert "what was read" not in lost
        gtids, before = largest.gtids, middle.gtids
        uuid = whole_position(replica).server_uuid
        assert unseen(replica, middle) == ("" if family == "mariadb" else f"{uuid}:1")
        assert unseen(primary, largest) == ""
        assert news_of(primary, middle, AppliedThrough("d.t#7", largest)) == ""
        news = news_of(replica, smallest, AppliedThrough("d.t#3", middle))
        assert f"the source is the server {uuid} now" in news
        assert (f"nothing here came from: {uuid}:1." in news) == (family == "mysql")
        if isinstance(gtids, GtidSet) and isinstance(before, GtidSet):
            assert str(gtids.subtract(before)) in lost
        else:
            assert str(gtids) in lost


def insert_as(server: SqlServer, gtid: str, key: int) -> None:
    """Write a row in a transaction of another MariaDB server's name, as a replica would."""
    domain, number, sequence = gtid.split("-")
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        cursor.execute(f"SET SESSION gtid_domain_id = {domain}, server_id = {number}")
        cursor.execute(f"SET SESSION gtid_seq_no = {sequence}")
        cursor.execute(f"INSERT INTO d.t VALUES ({key}, 'v')")


@pytest.mark.mariadb
def test_the_same_number_by_another_server_is_another_transaction() -> None:
    """A start at what was lost would be moved on to the next of that server, over the others."""
    with MariaDbServer() as server:
        make_table(server)
        start = whole_position(server)
        insert_as(server, "0-1-100", 1)
        foreign = MySqlPosition("server_id-1@elsewhere", None, MariaDbGtidPosition.parse("0-2-100"))
        assert not start_at(server, replace(foreign, gtids=whole_position(server).gtids)).by_file
        insert_as(server, "0-1-101", 2)
        with pytest.raises(SourceIdentityError, match="0-2-100"):
            start_at(server, foreign)
        with pytest.raises(SourceIdentityError, match=r"0-2-100.*d\.t#1"):
            start_at(server, start, AppliedThrough("d.t#1", foreign))
        insert_as(server, "0-2-102", 3)
        with (
            pytest.raises(SourceIdentityError, match="0-2-100"),
            reading(server, foreign, TABLE) as reader,
        ):
            list(reader.read_to(whole_position(server).binlog))


@pytest.mark.mysql
def test_without_gtids_a_place_that_a_split_has_read_to_has_to_be_in_the_log() -> None:
    with MySqlServer({"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"}) as server:
        make_table(server)
        start = whole_position(server)
        insert(server, TABLE, 1)
        server.execute("FLUSH BINARY LOGS")
        high = whole_position(server)
        assert start.binlog is not None
        assert high.binlog is not None
        assert start_at(server, start, AppliedThrough("d.t#1", high)).by_file
        with reading(server, start, TABLE) as reader:
            assert rows_of(list(reader.read_to(high.binlog))) == [("INSERT", 1)]
        cut = BinlogPosition.of(start.binlog.file, 100_000)
        beyond = MySqlPosition(start.server_uuid, cut)
        with pytest.raises(SourceIdentityError, match="does not reach"):
            start_at(server, start, AppliedThrough("d.t#1", beyond))
        with pytest.raises(SourceIdentityError, match="does not reach"):
            start_at(server, beyond)
