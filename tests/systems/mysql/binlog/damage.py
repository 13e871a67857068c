"""Damage that passes its checksum: bytes of an event changed at random, its checksum made anew."""

from __future__ import annotations

import signal
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from random import Random
from types import FrameType

from airflow_cdc_provider.systems.mysql.binlog.events.event_types import (
    CHECKSUM_BYTES,
    HEADER_BYTES,
    EventType,
)

_TELLING = (0, 1, 0x7F, 0x80, 0xFB, 0xFC, 0xFD, 0xFE, 0xFF)
"""Bytes that mean something where lengths, signs and counts stand."""
_IN_USE_AT = 17


def damaged_event(event: bytes, random: Random, *, checksum: bool) -> bytes:
    """Change, cut or lengthen an event's body; its size and checksum are right again."""
    checksum = checksum or event[4] == EventType.FORMAT_DESCRIPTION
    body = bytearray(event[HEADER_BYTES : -CHECKSUM_BYTES if checksum else None])
    kind = random.random()
    if kind < 0.85:
        damage_bytes(body, random)
    elif kind < 0.95:
        del body[max(len(body) - random.randrange(1, 40), 0) :]
    else:
        body += random.randbytes(random.randrange(1, 40))
    whole = bytearray(event[:HEADER_BYTES]) + body
    whole[9:13] = (len(whole) + CHECKSUM_BYTES * checksum).to_bytes(4, "little")
    return bytes(whole) + checksum_of(whole) if checksum else bytes(whole)


def damage_bytes(data: bytearray, random: Random) -> None:
    """Change a few bytes, more often among the first, where most numbers stand."""
    for _ in range(random.choice((1, 1, 1, 2, 4)) if data else 0):
        place = random.randrange(min(len(data), random.choice((60, len(data)))))
        data[place] = random.choice(
            (*_TELLING, data[place] ^ 1 << random.randrange(8), random.randrange(256))
        )


def checksum_of(event: bytes | bytearray) -> bytes:
    """Return an event's CRC32; the mark of a file in use is set after it was made."""
    counted = bytearray(event)
    if counted[4] == EventType.FORMAT_DESCRIPTION:
        counted[_IN_USE_AT] &= 0xFE
    return zlib.crc32(counted).to_bytes(4, "little")


def chosen_event(events: Sequence[bytes], random: Random) -> int:
    """Choose an event, those of rare types as often as the others."""
    kind = random.choice(sorted({event[4] for event in events}))
    return random.choice([n for n, event in enumerate(events) if event[4] == kind])


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raise what no decoder catches if this takes longer."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise AssertionError(f"it took longer than {seconds} s")

    previous = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
