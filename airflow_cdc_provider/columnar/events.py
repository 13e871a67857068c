"""Raw events of the binlog as they come off the socket, not yet looked into.

The log's transport fills buffers; decoders turn them into `ChangeBatch`es. Both the column
decoder and the slower library decoder implement `EventDecoder`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from airflow_cdc_provider.columnar.changes import ChangeBatch
from airflow_cdc_provider.core.positions import LogPosition

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class EventChunk:
    """Some consecutive whole events in one buffer.

    Event i is `buffer[starts[i]:ends[i]]`: the 19-byte event header, the body, and the CRC32 if
    the log has checksums. The buffer is not written to any more once it is handed over.
    """

    buffer: bytes | bytearray
    starts: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """When a decoder ends a batch, always on a transaction boundary where there is one."""

    changes: int = 100_000
    bytes: int = 64 * 1024 * 1024
    """Bytes of log. A transaction larger than this travels in several batches."""


class EventDecoder(Protocol):
    """Turns raw events into batches of changes of the captured tables."""

    def feed(self, chunk: EventChunk) -> Iterator[ChangeBatch]:
        """Take events in log order; yield the batches that the limits or a barrier end."""

    def flush(self) -> ChangeBatch | None:
        """Return what is complete but not yet handed out: up to the last transaction boundary.

        A batch without changes still moves the position; None if nothing moved.
        """

    @property
    def position(self) -> LogPosition:
        """Return the last boundary seen, with the GTIDs up to there."""
