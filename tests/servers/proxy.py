"""A TCP proxy that misbehaves on purpose: the network of tests.

A connection through it runs under one `Fault`: bytes pass, pass late, stop (the connection stays
open and silent, as behind a dead router), or the connection is cut after so many bytes. A fault set
on the proxy holds for connections there are and those to come; `cut()` resets all there are.

    with CuttingProxy(server.port) as proxy:
        connection = server.connect(port=proxy.port)
        proxy.fault = Fault(cut_after=10_000)  # counted from here, bytes from the server

Two threads pump each connection, one a direction. A cut is a reset (RST), as a killed server's
would be; `Fault(reset=False)` closes in order (FIN) instead, as a proxy's idle time-out does.
"""

from __future__ import annotations

import select
import socket
import struct
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self

_CHUNK = 64 * 1024
_POLL_S = 0.02
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to the bytes that come from the server, and with `hang` and `delay_s` to both.

    `cut_after` counts the bytes from the server, over all connections, since the fault was set.
    """

    hang: bool = False
    delay_s: float = 0.0
    cut_after: int | None = None
    refuse: bool = False
    reset: bool = True


NONE = Fault()


class CuttingProxy:
    """A proxy on a loopback port of its own in front of `port`; use it as a context manager."""

    def __init__(self, port: int, *, host: str = "127.0.0.1") -> None:
        self._target = (host, port)
        self._lock = threading.Lock()
        self._fault = NONE
        self._passed = 0  # bytes from the server since the fault was set
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._closing = threading.Event()
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.accepted = 0

    def __enter__(self) -> Self:
        self._spawn(self._accept)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closing.set()
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join(10.0)

    @property
    def fault(self) -> Fault:
        """Give the fault in force."""
        return self._fault

    @fault.setter
    def fault(self, fault: Fault) -> None:
        with self._lock:
            self._fault, self._passed = fault, 0

    @property
    def open_connections(self) -> int:
        """Count the connections that are open."""
        with self._lock:
            return len(self._pairs)

    def cut(self, *, reset: bool = True) -> int:
        """Cut all connections now and give how many there were."""
        with self._lock:
            pairs = list(self._pairs)
        for pair in pairs:
            self._close(pair, reset=reset)
        return len(pairs)

    def _spawn(self, target: object, *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                readable, _, _ = select.select([self._listener], [], [], _POLL_S)
                if not readable:
                    continue
                client, _ = self._listener.accept()
            except (OSError, ValueError):
                return  # the listener was closed
            self.accepted += 1
            self._connect(client)

    def _connect(self, client: socket.socket) -> None:
        try:
            if self._fault.refuse:
                raise ConnectionRefusedError
            server = socket.create_connection(self._target, timeout=10.0)
        except OSError:
            _close_socket(client, reset=True)
            return
        pair = (client, server)
        for end in pair:
            end.setblocking(True)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._lock:
            self._pairs.add(pair)
        self._spawn(self._pump, pair, client, server)
        self._spawn(self._pump, pair, server, client)

    def _pump(
        self,
        pair: tuple[socket.socket, socket.socket],
        origin: socket.socket,
        target: socket.socket,
    ) -> None:
        from_server = origin is pair[1]
        try:
            while not self._closing.is_set():
                if self._fault.hang or not select.select([origin], [], [], _POLL_S)[0]:
                    self._closing.wait(_POLL_S if self._fault.hang else 0)
                    continue
                piece = origin.recv(_CHUNK)
                if not piece:
                    break
                self._late()
                if not self._send(piece, target, from_server=from_server):
                    break
        except (OSError, ValueError):
            pass  # one end is gone, or both were cut
        self._close(pair, reset=self._fault.reset and self._is_cut())

    def _late(self) -> None:
        until = time.monotonic() + self._fault.delay_s
        while (left := until - time.monotonic()) > 0:
            self._closing.wait(min(left, 0.5))
            if self._closing.is_set():
                return

    def _send(self, piece: bytes, target: socket.socket, *, from_server: bool) -> bool:
        """Pass `piece` on, or the part of it before a cut; False if the cut has come."""
        while self._fault.hang and not self._closing.is_set():
            self._closing.wait(_POLL_S)
        if not from_server:
            target.sendall(piece)
            return True
        with self._lock:
            limit = self._fault.cut_after
            allowed = len(piece) if limit is None else max(0, limit - self._passed)
            self._passed += min(allowed, len(piece))
        target.sendall(piece[:allowed])
        return allowed > len(piece) or limit is None

    def _is_cut(self) -> bool:
        with self._lock:
            limit = self._fault.cut_after
            return limit is not None and self._passed >= limit

    def _close(self, pair: tuple[socket.socket, socket.socket], *, reset: bool) -> None:
        with self._lock:
            self._pairs.discard(pair)
        for end in pair:
            _close_socket(end, reset=reset)


def _close_socket(end: socket.socket, *, reset: bool) -> None:
    with suppress(OSError):
        if reset:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        else:
            end.shutdown(socket.SHUT_WR)
    end.close()
