"""Where a log lets a stream start: each place with the names of what is before, or refused."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.errors import RefusedError
from airflow_cdc_provider.core.stream_starts import StartKind, StreamStart
from airflow_cdc_provider.core.stream_stops import StreamStop
from airflow_cdc_provider.systems.mysql.positions.position import (
    BinlogPosition,
    MySqlPosition,
    own,
)
from airflow_cdc_provider.systems.mysql.source.start_places import start_place
from airflow_cdc_provider.systems.mysql.source.stop_places import stop_place
from tests.servers.given import SqlServer
from tests.servers.throwaway import MariaDbServer, MySqlServer


@dataclass(frozen=True)
class Place:
    """The end of the log behind a transaction, as the server tells it."""

    file: str
    offset: int
    gtids: str

    def __str__(self) -> str:
        return f"{self.file}:{self.offset}"


@dataclass
class Log:
    """A server whose log only its one connection writes; its first files are purged."""

    server: SqlServer
    connection: Any
    is_mariadb: bool

    @property
    def most_between(self) -> int:
        """How many bytes of log may be between two transactions."""
        return 200 if self.is_mariadb else 0

    def place(self) -> Place:
        cursor = self.connection.cursor()
        if not self.is_mariadb:
            cursor.execute("SHOW BINARY LOG STATUS")
            file, offset, _, _, gtids = cursor.fetchone()
            return Place(file, offset, gtids.replace("\n", ""))
        cursor.execute("SHOW MASTER STATUS")
        file, offset = cursor.fetchone()[:2]
        cursor.execute("SELECT @@gtid_binlog_pos")
        return Place(file, offset, cursor.fetchone()[0])

    def write(self, *statements: str) -> Place:
        for statement in statements:
            self.connection.cursor().execute(statement)
        return self.place()

    def purge_to(self, file: str) -> None:
        """Purge the files before; a dump, or a checkpoint of MariaDB, may hold one for a moment."""
        until = time.monotonic() + 30.0
        while self.server.execute("SHOW BINARY LOGS")[0][0] != file:
            assert time.monotonic() < until
            self.server.execute(f"PURGE BINARY LOGS TO '{file}'")

    def start(self, kind: StartKind, value: str = "") -> MySqlPosition:
        start = StreamStart.at(kind, value)
        return own(start_place(Endpoint.parse(self.server.dsn()), start).at)

    def refusal(self, kind: StartKind, value: str) -> str:
        with pytest.raises(RefusedError) as refused:
            self.start(kind, value)
        return str(refused.value)


@pytest.fixture(params=[MySqlServer, MariaDbServer], ids=["mysql", "mariadb"])
def log(request: pytest.FixtureRequest) -> Iterator[Log]:
    with request.param() as server, closing(server.connect()) as connection:
        connection.autocommit(True)
        made = Log(server, connection, request.param is MariaDbServer)
        made.write("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)")
        yield made


def insert(number: int) -> str:
    return f"INSERT INTO d.t VALUES ({number})"


def is_at(found: MySqlPosition, place: Place, *, then: int = 0) -> bool:
    """Tell whether a start is just behind a transaction, also by the names of what is before.

    MariaDB notes checkpoints between transactions, of `then` bytes at most.
    """
    if found.binlog is None or str(found.gtids) != place.gtids:
        return False
    return found.binlog.file == place.file and 0 <= found.binlog.offset - place.offset <= then


def test_a_start_is_found_in_what_is_kept_of_a_log(log: Log) -> None:
    log.write(insert(1), "FLUSH BINARY LOGS")
    gone = log.write(insert(2))
    second = log.write("FLUSH BINARY LOGS")
    begun = datetime.now(UTC)
    first = log.write(insert(3))
    log.write(insert(4), "FLUSH BINARY LOGS")
    third = log.write(insert(5))
    log.purge_to(second.file)
    time.sleep(max(0.0, 2.1 - (datetime.now(UTC) - begun).total_seconds()))
    moment = datetime.now(UTC)
    last = log.write(insert(6))
    file = BinlogPosition.of(second.file, 4)
    # by place: the oldest file, the end, and what lies between
    assert is_at(log.start(StartKind.EARLIEST), Place(second.file, 4, gone.gtids))
    assert is_at(log.start(StartKind.LATEST), last, then=log.most_between)
    for place in (first, third, last):
        assert is_at(log.start(StartKind.POSITION, str(place)), place)
        assert is_at(log.start(StartKind.GTID, place.gtids), place, then=log.most_between)
    assert log.start(StartKind.POSITION, str(file)).binlog == file
    found = log.start(StartKind.TIMESTAMP, moment.replace(microsecond=0).isoformat())
    assert is_at(found, third, then=log.most_between)
    time.sleep(1.0 if log.is_mariadb else 0.0)  # the second of the last transaction is over
    soon = log.start(StartKind.TIMESTAMP, datetime.now(UTC).isoformat())
    assert is_at(soon, last, then=log.most_between)
    # a stop at a time is found from the oldest file on, though what was before is not known
    endpoint, oldest = Endpoint.parse(log.server.dsn()), log.start(StartKind.EARLIEST)
    an_hour_ago = StreamStop.at("timestamp", (begun - timedelta(hours=1)).isoformat())
    end = log.start(StartKind.LATEST)
    assert stop_place(endpoint, an_hour_ago, oldest, end, is_start=True) is not None
    with pytest.raises(RefusedError, match="is gone"):
        stop_place(endpoint, an_hour_ago, oldest, end)
    # what is not kept, or is no boundary
    old = BinlogPosition.of(gone.file, gone.offset)
    assert "does not have" in log.refusal(StartKind.POSITION, str(old))
    assert "any more" in log.refusal(StartKind.POSITION, str(old))
    inside = BinlogPosition.of(first.file, first.offset - 1)
    assert f"to {first}" in log.refusal(StartKind.POSITION, str(inside))
    early = (begun - timedelta(days=1)).isoformat()
    assert "does not go back so far" in log.refusal(StartKind.TIMESTAMP, early)
    late = (begun + timedelta(days=1)).isoformat()
    assert "is to come" in log.refusal(StartKind.TIMESTAMP, late)


def test_a_gtid_set_is_the_first_of_the_log_or_refused_with_what_to_write(log: Log) -> None:
    log.write(insert(1))
    before = log.place()
    log.write("FLUSH BINARY LOGS", insert(2), insert(3))
    after = log.place()
    if log.is_mariadb:
        other = log.write("SET gtid_domain_id = 7", insert(4))
        parts = other.gtids.split(",")
        (of_seven,) = [part for part in parts if part.startswith("7-")]
        # what it has of one domain comes behind what it leaves out of the other
        gap, at = f"{before.gtids},{of_seven}", before
        assert is_at(log.start(StartKind.GTID, other.gtids), other, then=log.most_between)
        assert log.start(StartKind.GTID, f"{of_seven},{after.gtids}").gtids is not None
        server = after.gtids.split("-")[1]
        unknown = after.gtids.replace(f"-{server}-", "-4711-")
    else:
        uuid, numbers = after.gtids.split(":")
        last = int(numbers.rpartition("-")[2])
        gap, at = f"{uuid}:1-{last - 2}:{last}", before
        unknown = f"{uuid}:1-{last + 90}"
    told = log.refusal(StartKind.GTID, gap)
    assert "leaves out" in told
    assert f"write {at.gtids}" in told
    assert "does not have" in log.refusal(StartKind.GTID, unknown)
    assert "no gtid" in log.refusal(StartKind.GTID, "nonsense")
    log.purge_to(after.file)
    if log.is_mariadb:
        less = f"0-{before.gtids.split('-')[1]}-1"
    else:
        less = f"{before.gtids.split(':')[0]}:1"
    assert "any more that the set leaves out" in log.refusal(StartKind.GTID, less)
