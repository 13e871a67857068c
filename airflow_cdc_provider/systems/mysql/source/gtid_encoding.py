"""The binary form of a MySQL GTID set, as COM_BINLOG_DUMP_GTID takes it.

Two forms exist. The old one knows no tags: `[sources: 8]`, then for each `[uuid: 16]
[intervals: 8]` and pairs of 8-byte numbers. Since 8.3 a set with tags is written with a format
byte at both ends of the first number and, behind each uuid, the tag as `[length * 2: 1][text]`.
An older server does not understand the second form, so a set with tags is refused there.
"""

from __future__ import annotations

import struct
from uuid import UUID

from airflow_cdc_provider.core.errors import RESET, UnsupportedServerError
from airflow_cdc_provider.systems.mysql.positions.gtid import GtidSet

TAGS_SINCE = (8, 3, 0)
_TAGGED = 1


def encode_gtid_set(gtids: GtidSet, *, version: tuple[int, int, int], where: str = "") -> bytes:
    """Encode a GTID set in the binary form that a MySQL server of this version reads."""
    tagged = any(source.tag for source in gtids.intervals)
    if tagged and version < TAGS_SINCE:
        raise UnsupportedServerError(
            "the log position holds tagged GTIDs, which this server does not know",
            where,
            "transactions would be read twice or never",
            f"connect to a server of 8.3 or later, or {RESET}",
        )
    count = len(gtids.intervals)
    parts = [struct.pack("<Q", _TAGGED << 56 | count << 8 | _TAGGED if tagged else count)]
    for source, intervals in gtids.intervals.items():
        parts.append(UUID(source.uuid).bytes)
        if tagged:
            tag = source.tag.encode()
            parts.append(bytes([len(tag) << 1]) + tag)
        parts.append(struct.pack("<Q", len(intervals)))
        parts += [struct.pack("<QQ", start, end) for start, end in intervals]
    return b"".join(parts)
