"""The reader's side of the assigner: it runs on executors and knows the standard library only."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import dataclass, field
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection
from typing import Any

from airflow_cdc_provider.core.codec import (
    key_to_json,
    report_to_json,
    split_from_json,
    split_to_json,
)
from airflow_cdc_provider.core.errors import FencedError
from airflow_cdc_provider.core.keys import Key
from airflow_cdc_provider.core.splits import SnapshotSplit, SplitReport
from airflow_cdc_provider.spark.errors_as_records import error_from_json

LONG_POLL_S = 5.0


@dataclass(frozen=True, slots=True)
class AssignerAddress:
    """Where the driver's assigner listens, and the key that opens it."""

    host: str
    port: int
    key: bytes = field(repr=False)


class RemoteAssigner:
    """`core.ports.Assigner` over one connection to the driver; not for several threads."""

    def __init__(self, address: AssignerAddress) -> None:
        try:
            self._connection = Client((address.host, address.port), authkey=address.key)
            with same_socket(self._connection) as same:
                # The first question follows the greeting's last word at once, and would wait for
                # that to be acknowledged, for which the other side's kernel takes 40 ms.
                same.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except (OSError, EOFError, AuthenticationError) as refused:
            raise _driver_gone() from refused
        self.attempt = 0
        """Of the split that was claimed last."""

    def claim(self) -> SnapshotSplit | None:
        """Wait for the next split; None when all are finished and no more will come."""
        while True:
            answer = self._ask({"ask": "claim"})
            if answer["answer"] == "split":
                self.attempt = answer["attempt"]
                return split_from_json(answer["split"])
            if answer["answer"] == "end":
                return None

    def report(self, report: SplitReport) -> None:
        """Tell that a split is published; telling it twice is harmless."""
        self._ask({"ask": "report", "report": report_to_json(report)})

    def cut(self, split: SnapshotSplit, middle: Key) -> None:
        """Replace a split that is too big by its two halves."""
        self._ask({"ask": "cut", "split": split_to_json(split), "middle": key_to_json(middle)})

    def refuse(self, split: SnapshotSplit, error: str) -> None:
        """Tell that a split failed in a way that reading it again does not mend."""
        self._ask({"ask": "refuse", "split": split_to_json(split), "error": error})

    def close(self) -> None:
        """Leave; a split that was claimed and not reported is given to another reader."""
        self._connection.close()

    def _ask(self, message: dict[str, Any]) -> dict[str, Any]:
        try:
            self._connection.send_bytes(json.dumps(message).encode())
            answer: dict[str, Any] = json.loads(self._connection.recv_bytes(1 << 24))
        except (OSError, EOFError) as gone:
            raise _driver_gone() from gone
        if answer["answer"] == "error":
            raise error_from_json(answer["error"])
        return answer


def same_socket(connection: Connection) -> socket.socket:
    """Return the connection's socket under a second descriptor, to be closed by the caller."""
    return socket.socket(fileno=os.dup(connection.fileno()))


def _driver_gone() -> FencedError:
    """Without its driver a reader has no owner any more, and so it may not go on."""
    return FencedError(
        "the driver that hands out splits is gone",
        where="snapshot reader",
        risk="none: the split that was being read is not published",
        remedy="nothing; the next run goes on where this one stopped",
    )
