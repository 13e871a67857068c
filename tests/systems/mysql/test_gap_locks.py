"""A guarded writer that locks absent keys beside inserts: nobody's rows are lost."""

from __future__ import annotations

import threading
import time
from contextlib import closing

import pytest

from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.systems.mysql.sink.sink_session import SinkSession
from tests.benchmarks.gaps import Way, beside, lock_counts, make_table
from tests.servers.given import SqlServer
from tests.servers.throwaway import MariaDbServer, MySqlServer, ThrowawayServer

BOTH = pytest.mark.parametrize("kind", [MySqlServer, MariaDbServer], ids=["mysql", "mariadb"])
WAIT_S = 30.0


@BOTH
def test_no_row_is_lost_beside_a_guarded_writer_that_locks_the_tables_end(
    kind: type[ThrowawayServer],
) -> None:
    with kind() as server:
        for way in (Way.AT_END, Way.INSERTS):
            edge, found = beside(server, way, pace=None, seconds=1.5)
            assert edge.transactions > 0
            assert found["rows"] > 0
            assert found["lost"] == 0
            assert found["waits"] > 0, "nobody waited for a gap"


def wait_for_waiter(server: SqlServer) -> None:
    deadline = time.monotonic() + WAIT_S
    while not server.execute(
        "SELECT 1 FROM information_schema.INNODB_TRX WHERE trx_state = 'LOCK WAIT'"
    ):
        assert time.monotonic() < deadline, "no session waits for a lock"
        time.sleep(0.2)  # the view is not made anew until nobody has read it for 0.1 s


@BOTH
def test_a_guarded_transaction_that_a_deadlock_undid_is_done_again(
    kind: type[ThrowawayServer],
) -> None:
    """An application holds a row and wants the locked gap; the guarded writer wants its row."""
    with kind() as server:
        make_table(server)
        session = SinkSession.open(Endpoint.parse(server.dsn()), purpose="test")
        application = threading.Thread(target=hold_and_insert, args=(server,))
        tries: list[int] = []

        def write() -> None:
            tries.append(len(tries))
            session.rows("SELECT id FROM shop.orders WHERE id = 1000001 FOR UPDATE")
            if len(tries) == 1:
                application.start()
                wait_for_waiter(server)
            session.execute("UPDATE shop.orders SET v = 'written there' WHERE id = 2")

        with closing(session):
            session.rows("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            _, before = lock_counts(server)
            session.transaction(write)
            application.join(WAIT_S)
            _, after = lock_counts(server)
        rows = server.execute("SELECT v FROM shop.orders WHERE id IN (2, 1000001) ORDER BY id")
    assert after == before + 1
    assert len(tries) == 2, "the server chose the other one"
    assert rows == [("written there",), ("written here",)]


def hold_and_insert(server: SqlServer) -> None:
    """Change many rows, so that the server would rather undo the other, and then insert one."""
    with closing(server.connect("shop", autocommit=False)) as connection:
        cursor = connection.cursor()
        cursor.execute("UPDATE orders SET v = 'written here' WHERE id <= 2000")
        cursor.execute("INSERT INTO orders VALUES (1000001, 1, 'written here')")
        connection.commit()
