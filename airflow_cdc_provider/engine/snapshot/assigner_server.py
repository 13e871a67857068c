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
import itertools
import logging
import secrets
import socket
import threading

from airflow_cdc_provider.core.codec import (
    key_from_json,
    report_from_json,
    split_from_json,
    split_to_json,
)
from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.engine.snapshot.assigner import SplitAssigner
from airflow_cdc_provider.engine.snapshot.certificates import own_certificate
from airflow_cdc_provider.engine.snapshot.door import AssignerAddress, Message, greet
from airflow_cdc_provider.engine.snapshot.remote_assigner import LONG_POLL_S
from airflow_cdc_provider.engine.snapshot.split_queue import NoClaim

log = logging.getLogger(__name__)


class AssignerServer:
    """Serves one assigner while it is open; a context manager."""

    def __init__(self, assigner: SplitAssigner, *, host: str) -> None:
        self._assigner = assigner
        self._context, certificate = own_certificate()
        self._listener = socket.create_server((host, 0), backlog=64)
        self._readers = itertools.count(1)
        self._open: set[socket.socket] = set()
        self._threads: set[threading.Thread] = set()
        self._closing = threading.Event()
        port: int = self._listener.getsockname()[1]
        self.address = AssignerAddress(host, port, secrets.token_bytes(32), certificate)

    def __enter__(self) -> AssignerServer:
        threading.Thread(target=self._accept, name="cdc-assigner", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        with contextlib.suppress(OSError):  # wakes the thread that waits in accept()
            socket.create_connection((self.address.host, self.address.port), timeout=1).close()
        self._listener.close()
        for connection in tuple(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)  # its thread wakes up and closes it
        for thread in tuple(self._threads):
            thread.join(timeout=LONG_POLL_S)

    def _accept(self) -> None:
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
        try:
            match message["ask"]:
                case "claim":
                    return self._claim(reader)
                case "report":
                    self._assigner.report(report_from_json(message["report"]))
                case "cut":
                    middle = key_from_json(message["middle"])
                    if middle is not None:
                        self._assigner.cut(split_from_json(message["split"]), middle)
                case "refuse":
                    error = CdcError.from_json(message["error"])
                    self._assigner.refuse(split_from_json(message["split"]), error)
                case unknown:
                    raise CdcError(f"the assigner does not know what {unknown!r} is")
        except CdcError as error:
            return {"answer": "error", "error": error.to_json()}
        return {"answer": "noted"}

    def _claim(self, reader: int) -> Message:
        claim = self._assigner.claim(reader, wait_s=LONG_POLL_S)
        if isinstance(claim, NoClaim):
            return {"answer": claim.value}
        return {
            "answer": "split",
            "split": split_to_json(claim.split),
            "attempt": claim.attempt,
        }


def _keep_alive(connection: socket.socket) -> None:
    """Let the kernel notice a host that vanished, within about half a minute."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
