"""The connection between a driver's assigner and its readers: TLS, with JSON messages on it.

What passes holds bounds of splits, which are key values, so it is encrypted whatever Spark's own
channels are, and on one machine too. The driver makes a certificate for each job. Readers get it in
their pickled task and accept no other; they show in return a key from the same task. So both ends
are who they should be, without a name or an authority to configure.

Each message has its length before it, four bytes, the highest first. Executors need the standard
library only.
"""

from __future__ import annotations

import hmac
import json
import socket
import ssl
from dataclasses import dataclass, field
from typing import Any

_LARGEST = 1 << 24
_GREETING_S = 10.0
"""How long the other side may take to say who it is."""
_WELCOME = b"welcome"

Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class AssignerAddress:
    """Where the driver's assigner listens: address, certificate, and the key to enter."""

    host: str
    port: int
    key: bytes = field(repr=False)
    certificate: str = field(repr=False)
    """In PEM; nobody else may answer."""


class MessageConnection:
    """A connection that carries JSON messages; not thread-safe."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected

    def fileno(self) -> int:
        """Return the socket's descriptor."""
        return self._socket.fileno()

    def send(self, message: Message) -> None:
        """Send a message."""
        self.send_bytes(json.dumps(message).encode())

    def send_bytes(self, body: bytes) -> None:
        """Send bytes as one message."""
        self._socket.sendall(len(body).to_bytes(4, "big") + body)

    def receive(self) -> Message:
        """Wait for a message; `EOFError` if the other side has closed the connection."""
        message: Message = json.loads(self.receive_bytes())
        return message

    def receive_bytes(self) -> bytes:
        """Wait for a message as bytes."""
        length = int.from_bytes(self._exactly(4), "big")
        if length > _LARGEST:
            raise OSError(f"a message of {length} bytes is none of ours")
        return self._exactly(length)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _exactly(self, count: int) -> bytes:
        """Receive exactly `count` bytes."""
        received = bytearray()
        while len(received) < count:
            part = self._socket.recv(count - len(received))
            if not part:
                raise EOFError("the other side has left")
            received += part
        return bytes(received)


def connect(address: AssignerAddress) -> MessageConnection:
    """Connect to the driver's assigner; `OSError` or `EOFError` if it is not there."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # the certificate itself is known, and made for one job
    context.load_verify_locations(cadata=address.certificate)
    plain = socket.create_connection((address.host, address.port), timeout=_GREETING_S)
    try:
        # The first question follows the greeting at once, and would wait for that to be
        # acknowledged, for which the other side's kernel takes 40 ms.
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        secure = context.wrap_socket(plain)
    except OSError:
        plain.close()
        raise
    connection = MessageConnection(secure)
    try:
        connection.send_bytes(address.key)
        connection.receive_bytes()
    except (OSError, EOFError):
        connection.close()
        raise
    secure.settimeout(None)
    return connection


def greet(plain: socket.socket, context: ssl.SSLContext, key: bytes) -> MessageConnection:
    """Set up TLS on an incoming connection, and accept it if the client sends the key."""
    plain.settimeout(_GREETING_S)
    secure = context.wrap_socket(plain, server_side=True)
    connection = MessageConnection(secure)
    try:
        shown = connection.receive_bytes()
        if not hmac.compare_digest(shown, key):
            raise PermissionError("it shows another key")
        connection.send_bytes(_WELCOME)
    except (OSError, EOFError):
        connection.close()
        raise
    secure.settimeout(None)
    return connection
