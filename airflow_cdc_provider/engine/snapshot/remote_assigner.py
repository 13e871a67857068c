"""The reader's side of the assigner: it runs on executors and knows the standard library only."""

from __future__ import annotations

import time
from typing import Any

from airflow_cdc_provider.core.codec import (
    key_to_json,
    report_to_json,
    split_from_json,
    split_to_json,
)
from airflow_cdc_provider.core.errors import CdcError, FencedError
from airflow_cdc_provider.core.keys import Key
from airflow_cdc_provider.core.splits import SnapshotSplit, SplitReport
from airflow_cdc_provider.engine.snapshot.assigner_protocol import AssignerAddress, connect

LONG_POLL_S = 5.0


class RemoteAssigner:
    """Asks the driver's assigner for splits, over one connection; not thread-safe."""

    def __init__(self, address: AssignerAddress) -> None:
        try:
            self._connection = connect(address)
        except (OSError, EOFError) as refused:
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

    def report(self, report: SplitReport, *, read_rows: int | None = None) -> None:
        """Report that a split is published; reporting it twice is harmless.

        `read_rows` is how many rows were read for it, if a filter left some out.
        """
        self._ask({"ask": "report", "report": report_to_json(report), "read_rows": read_rows})

    def cut(self, split: SnapshotSplit, middle: Key) -> None:
        """Replace a split that is too big by its two halves."""
        self._ask({"ask": "cut", "split": split_to_json(split), "middle": key_to_json(middle)})

    def wait_to_retry(self, split: SnapshotSplit, error: CdcError, *, wait_s: float) -> bool:
        """Report that a split failed, and wait until it is tried again; False if the job ends."""
        until_s = time.monotonic() + wait_s
        message = {"split": split_to_json(split), "error": error.to_json(), "wait_s": wait_s}
        self._ask({"ask": "failed", **message})
        while (left_s := until_s - time.monotonic()) > 0:
            answer = self._ask({"ask": "pause", "wait_s": min(left_s, LONG_POLL_S)})
            if answer["answer"] == "end":
                return False
        return True

    def refuse(self, split: SnapshotSplit, error: CdcError) -> None:
        """Report that a split failed with an error that a retry cannot fix."""
        self._ask({"ask": "refuse", "split": split_to_json(split), "error": error.to_json()})

    def close(self) -> None:
        """Close the connection; a split claimed and not reported goes to another reader."""
        self._connection.close()

    def _ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """Send a message to the driver and return the answer; raise the error that it carries."""
        try:
            self._connection.send(message)
            answer = self._connection.receive()
        except (OSError, EOFError) as gone:
            raise _driver_gone() from gone
        if answer["answer"] == "error":
            raise CdcError.from_json(answer["error"])
        return answer


def _driver_gone() -> FencedError:
    """Return the error of a reader whose driver is gone: without an owner it may not go on."""
    return FencedError(
        "the driver that hands out splits is gone",
        where="snapshot reader",
        risk="none: the split that was being read is not published",
        remedy="nothing; the next run goes on where this one stopped",
    )
