"""The proxy does to a connection what it was told to, and nothing else."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tests.servers.proxy import NONE, CuttingProxy, Fault


@pytest.fixture
def echo_port() -> Iterator[int]:
    """A server that sends back what it gets."""

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=echo, args=(connection,), daemon=True).start()

    def echo(connection: socket.socket) -> None:
        with connection:
            try:
                while piece := connection.recv(65536):
                    connection.sendall(piece)
            except OSError:
                return

    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(5)


@pytest.fixture
def proxy(echo_port: int) -> Iterator[CuttingProxy]:
    with CuttingProxy(echo_port) as proxy:
        yield proxy


def connect(proxy: CuttingProxy, timeout_s: float = 5.0) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=timeout_s)


def receive(connection: socket.socket, size: int) -> bytes:
    got = b""
    while len(got) < size and (piece := connection.recv(size - len(got))):
        got += piece
    return got


def test_without_a_fault_every_byte_passes_both_ways(proxy: CuttingProxy) -> None:
    sent = bytes(range(256)) * 4096
    with connect(proxy) as connection:
        sender = threading.Thread(target=connection.sendall, args=(sent,))
        sender.start()
        assert receive(connection, len(sent)) == sent
        sender.join()


def test_a_cut_resets_every_connection_and_later_ones_pass(proxy: CuttingProxy) -> None:
    with connect(proxy) as one, connect(proxy) as two:
        for connection in (one, two):
            connection.sendall(b"x")
            receive(connection, 1)
        assert proxy.cut() == 2
        for connection in (one, two):
            with pytest.raises(ConnectionResetError):
                connection.recv(1)
    with connect(proxy) as later:
        later.sendall(b"y")
        assert receive(later, 1) == b"y"


def test_exactly_as_many_bytes_pass_as_the_limit_allows(proxy: CuttingProxy) -> None:
    proxy.fault = Fault(cut_after=1000, reset=False)
    with connect(proxy) as connection:
        connection.sendall(b"z" * 5000)
        assert receive(connection, 5000) == b"z" * 1000


def test_the_bytes_are_counted_from_when_the_fault_was_set(proxy: CuttingProxy) -> None:
    with connect(proxy) as connection:
        connection.sendall(b"a" * 700)
        receive(connection, 700)
        proxy.fault = Fault(cut_after=500, reset=False)
        connection.sendall(b"b" * 700)
        assert receive(connection, 700) == b"b" * 500


def test_a_hanging_connection_is_silent_but_open_and_goes_on_when_the_fault_is_lifted(
    proxy: CuttingProxy,
) -> None:
    with connect(proxy, timeout_s=0.4) as connection:
        proxy.fault = Fault(hang=True)
        connection.sendall(b"late")
        with pytest.raises(TimeoutError):
            connection.recv(4)
        proxy.fault = NONE
        connection.settimeout(5)
        assert receive(connection, 4) == b"late"


def test_a_delay_holds_for_each_way(proxy: CuttingProxy) -> None:
    proxy.fault = Fault(delay_s=0.1)
    with connect(proxy) as connection:
        started = time.monotonic()
        connection.sendall(b"slow")
        assert receive(connection, 4) == b"slow"
        assert time.monotonic() - started >= 0.2


def test_refused_connections_never_reach_the_server(proxy: CuttingProxy) -> None:
    proxy.fault = Fault(refuse=True)
    with pytest.raises(ConnectionResetError), connect(proxy) as connection:
        connection.recv(1)
    assert proxy.open_connections == 0


def test_the_port_is_closed_after_use(echo_port: int) -> None:
    with CuttingProxy(echo_port) as proxy:
        port = proxy.port
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=1)
