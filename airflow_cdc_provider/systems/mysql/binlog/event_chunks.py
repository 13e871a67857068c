"""Raw events of the binlog as they come off the socket, not yet looked into.

The log's transport fills buffers; a decoder turns them into `ChangeBatch`es.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_cdc_provider.columns.numpy_types import IntArray


@dataclass(frozen=True, slots=True)
class EventChunk:
    """Some consecutive whole events of the log, undecoded, in one buffer.

    Event i is `buffer[starts[i]:ends[i]]`: the 19-byte event header, the body, and the CRC32 if
    the log has checksums. The buffer is not written to any more once it is handed over.
    """

    buffer: bytes | bytearray
    starts: IntArray
    ends: IntArray


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """The limits at which a decoder ends a batch, on a transaction's boundary where it can."""

    changes: int = 100_000
    bytes: int = 64 * 1024 * 1024
    """Bytes of log. A transaction larger than this travels in several batches."""
