"""The assigner's door to the executors: JSON messages over an encrypted connection.

One connection is one reader, served by one thread. A connection that ends is a reader that is
gone, and what it held is given out again at once; a host that vanishes without a word is noticed
by TCP keep-alive. A claim is a long poll: answered at once if a split waits, else after a few
seconds with "wait", so that neither side waits for one that is no longer there.

The key and the certificate of a job are its own and travel in the pickled task only (see `door`).
Messages are never unpickled.

Why a door, and no table of splits with `SKIP LOCKED`: that would need the state database on every
executor, with its driver and its password, and SQLite has no such thing. The driver's death costs
the splits in work, never a finished one, because the ledger in the sink has those.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import logging
import secrets
import socket
import threading
from dataclasses import dataclass

from airflow_cdc_provider.core.codec import (
    key_from_json,
    report_from_json,
    split_from_json,
    split_to_json,
)
from airflow_cdc_provider.core.errors import AssignerPortError, CdcError
from airflow_cdc_provider.core.jobspec import ANY_PORT
from airflow_cdc_provider.engine.snapshot.assigner import SplitAssigner
from airflow_cdc_provider.engine.snapshot.assigner_protocol import AssignerAddress, Message, greet
from airflow_cdc_provider.engine.snapshot.certificates import own_certificate
from airflow_cdc_provider.engine.snapshot.remote_assigner import LONG_POLL_S
from airflow_cdc_provider.engine.snapshot.split_queue import NoClaim

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DriverPlace:
    """The host and ports where the driver listens for its readers."""

    host: str
    """The address under which they reach it."""
    bind: str = ""
    """The address of its own that it listens at, if that is another one."""
    ports: range = ANY_PORT


class AssignerServer:
    """Serves one assigner to readers over TLS while open; a context manager."""

    def __init__(self, assigner: SplitAssigner, place: DriverPlace) -> None:
        self._assigner = assigner
        self._context, certificate = own_certificate()
        self._listener = _listener(place)
        self._readers = itertools.count(1)
        self._open: set[socket.socket] = set()
        self._threads: set[threading.Thread] = set()
        self._closing = threading.Event()
        port: int = self._listener.getsockname()[1]
        self.address = AssignerAddress(place.host, port, secrets.token_bytes(32), certificate)

    def __enter__(self) -> AssignerServer:
        threading.Thread(target=self._accept, name="cdc-assigner", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        with contextlib.suppress(OSError):  # wakes the thread that waits in accept()
            socket.create_connection(self._listener.getsockname()[:2], timeout=1).close()
        self._listener.close()
        for connection in tuple(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)  # its thread wakes up and closes it
        for thread in tuple(self._threads):
            thread.join(timeout=LONG_POLL_S)

    def _accept(self) -> None:
        """Accept connections of readers, each served in a thread of its own."""
        while not self._closing.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                if self._closing.is_set():
                    return
                continue
            if self._closing.is_set():
                connection.close()
                return
            thread = threading.Thread(
                target=self._serve, args=(connection,), name="cdc-reader-door", daemon=True
            )
            thread.start()
            self._threads.add(thread)

    def _serve(self, plain: socket.socket) -> None:
        """Answer one reader's messages until it closes; then its splits are queued again."""
        reader = next(self._readers)
        # under a second descriptor: TLS takes the first one over, and no two threads may use that
        same = plain.dup()
        self._open.add(same)
        try:
            _keep_alive(same)
            with (
                plain,
                contextlib.closing(greet(plain, self._context, self.address.key)) as connection,
            ):
                while True:
                    connection.send(self._answer(reader, connection.receive()))
        except (EOFError, OSError) as gone:
            log.debug("reader's connection ended: reader=%d cause=%r", reader, gone)
        finally:
            self._open.discard(same)
            same.close()
            self._assigner.reader_lost(reader)
            self._threads.discard(threading.current_thread())

    def _answer(self, reader: int, message: Message) -> Message:
        """Carry out one message of a reader, and return the answer."""
        try:
            match message["ask"]:
                case "claim":
                    return self._claim(reader)
                case "report":
                    report = report_from_json(message["report"])
                    self._assigner.report(report, read_rows=message["read_rows"])
                case "cut":
                    middle = key_from_json(message["middle"])
                    if middle is not None:
                        self._assigner.cut(split_from_json(message["split"]), middle)
                case "failed":
                    error = CdcError.from_json(message["error"])
                    split = split_from_json(message["split"])
                    self._assigner.failed(split, error, wait_s=message["wait_s"])
                case "pause":
                    return self._pause(message["wait_s"])
                case "refuse":
                    error = CdcError.from_json(message["error"])
                    self._assigner.refuse(split_from_json(message["split"]), error)
                case unknown:
                    raise CdcError(f"the assigner does not know what {unknown!r} is")
        except CdcError as error:
            return {"answer": "error", "error": error.to_json()}
        return {"answer": "noted"}

    def _claim(self, reader: int) -> Message:
        """Give the reader a split, as a message."""
        claim = self._assigner.claim(reader, wait_s=LONG_POLL_S)
        if isinstance(claim, NoClaim):
            return {"answer": claim.value}
        return {
            "answer": "split",
            "split": split_to_json(claim.split),
            "attempt": claim.attempt,
        }

    def _pause(self, wait_s: float) -> Message:
        """Wait with a reader until it tries its split again; the end comes at once."""
        is_over = self._assigner.queue.wait_until_over(wait_s)
        return {"answer": (NoClaim.END if is_over else NoClaim.WAIT).value}


def _listener(place: DriverPlace) -> socket.socket:
    """Open a socket on the first of the ports that is free; `AssignerPortError` if none is."""
    host, ports, problem = place.bind or place.host, place.ports, ""
    for port in ports:
        try:
            return socket.create_server((host, port), backlog=64)
        except OSError as error:
            problem = error.strerror or str(error)
            if error.errno != errno.EADDRINUSE:
                break
    which = f"{ports.start}-{ports.stop - 1}" if len(ports) > 1 else str(ports.start)
    raise AssignerPortError(
        f"the driver cannot listen for its readers at {host}, port {which}: {problem}",
        where="spark.assigner_port",
        risk="none: nothing was read",
        remedy="end what listens there, or give a wider range: each snapshot that runs at the "
        "same time on this host needs a port; without the key any free port is taken",
    )


def _keep_alive(connection: socket.socket) -> None:
    """Turn on TCP keep-alive, so that a vanished host is noticed in about half a minute."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
