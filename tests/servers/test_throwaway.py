"""Throwaway servers start, survive a crash of theirs, and never outlive their owner."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.servers.given import SqlServer
from tests.servers.throwaway import (
    MariaDbServer,
    MySqlServer,
    ThrowawayServer,
    sweep_abandoned,
)

KINDS = [
    pytest.param(MySqlServer, marks=pytest.mark.mysql),
    pytest.param(MariaDbServer, marks=pytest.mark.mariadb),
]
OWNER = """
import sys, threading, time
from tests.servers.throwaway import {kind}
server = {kind}()
starter = threading.Thread(target=server.start)  # a thread that ends must not take the server along
starter.start(); starter.join()
time.sleep(1)
print(server.pid, server.port, server.folder, flush=True)
time.sleep(60)
"""


def wait_until(condition: Callable[[], bool], timeout_s: float = 20.0) -> bool:
    deadline = time.monotonic() + timeout_s
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()


def is_dead(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.parametrize("kind", KINDS)
def test_committed_rows_survive_a_crash_and_the_port_stays(kind: type[ThrowawayServer]) -> None:
    with kind() as server:
        server.execute("CREATE DATABASE d")
        server.execute("CREATE TABLE d.t (id INT PRIMARY KEY)")
        server.execute("INSERT INTO d.t VALUES (1)")
        pid, port = server.pid, server.port
        server.kill()
        server.start()
        assert server.execute("SELECT id FROM d.t") in ([(1,)], ((1,),))
        assert server.port == port
        assert server.pid != pid


@pytest.mark.parametrize("kind", KINDS)
def test_closing_frees_the_port_and_removes_the_folder(kind: type[ThrowawayServer]) -> None:
    with kind() as server:
        port, folder = server.port, server.folder
    assert not folder.exists()
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # old connections may linger
        probe.bind(("127.0.0.1", port))


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_dies_with_its_killed_owner_but_not_with_the_thread_that_started_it(
    kind: type[ThrowawayServer],
) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER.format(kind=kind.__name__)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert owner.stdout is not None
    with owner, owner.stdout:
        pid, port, folder = owner.stdout.readline().split()
        assert not is_dead(int(pid))
        socket.create_connection(("127.0.0.1", int(port))).close()
        owner.send_signal(signal.SIGKILL)
    assert wait_until(lambda: is_dead(int(pid)))
    assert Path(folder).exists()
    sweep_abandoned()
    assert not Path(folder).exists()


@pytest.mark.mysql
def test_two_servers_of_one_template_have_uuids_and_ids_of_their_own() -> None:
    with MySqlServer() as one, MySqlServer() as two:
        query = "SELECT @@server_uuid, @@server_id"
        (first,), (second,) = one.execute(query), two.execute(query)
    assert first[0] != second[0]
    assert first[1] != second[1]


@pytest.mark.mysql
def test_a_new_server_has_an_empty_log() -> None:
    with MySqlServer() as server:
        assert server.execute("SELECT @@global.gtid_executed") == [("",)]


@pytest.mark.mysql
def test_options_override_the_defaults_whichever_way_they_are_spelt() -> None:
    with MySqlServer({"binlog_row_metadata": "MINIMAL", "gtid-mode": "OFF"}) as server:
        found = server.execute("SELECT @@binlog_row_metadata, @@gtid_mode, @@local_infile")
        assert found == [("MINIMAL", "OFF", 1)]
        server.restart({"binlog_row_metadata": "FULL"})
        assert server.execute("SELECT @@binlog_row_metadata") == [("FULL",)]


@pytest.mark.mysql
def test_a_bad_option_fails_with_the_servers_own_words() -> None:
    with pytest.raises(Exception, match="no-such-option"), MySqlServer({"no_such_option": 1}):
        pass


def test_the_server_listens_on_loopback_only(mysql_server: SqlServer) -> None:
    if not isinstance(mysql_server, ThrowawayServer):
        pytest.skip("the server is the user's own")
    listening = psutil.Process(mysql_server.pid).net_connections(kind="tcp")
    addresses = {c.laddr.ip for c in listening if c.status == psutil.CONN_LISTEN}
    assert addresses == {"127.0.0.1"}


def test_the_clients_of_the_same_version_reach_the_server(mysql_server: SqlServer) -> None:
    if not isinstance(mysql_server, ThrowawayServer):
        pytest.skip("the server is the user's own")
    command = [*mysql_server.client_command("mysql"), "--batch", "-e", "SELECT 40 + 2"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ)
    assert done.stdout.split()[-1] == "42"


def test_a_database_is_there_for_one_test(mysql_server: SqlServer, mysql_database: str) -> None:
    assert mysql_server.execute("SELECT DATABASE()", database=mysql_database) == [(mysql_database,)]
