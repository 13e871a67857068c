"""Packets found in lanes are those that a walk from one to the next finds."""

from __future__ import annotations

import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from airflow_cdc_provider.systems.mysql.source.event_framing import EventFramer
from airflow_cdc_provider.systems.mysql.wire.packet_chain import LARGEST_PACKET, plain_packets

_PACKETS = 4_000


def _event(rng: random.Random, body: bytes, servers: list[bytes]) -> bytes:
    size = 19 + len(body)
    kind = rng.choice([2, 16, 19, 30, 33])
    head = rng.randbytes(4) + bytes([kind]) + rng.choice(servers) + size.to_bytes(4, "little")
    return head + rng.randbytes(6) + body


def _packet(payload: bytes, sequence: int = 0) -> bytes:
    return len(payload).to_bytes(3, "little") + bytes([sequence % 256]) + payload


def _events(seed: int, *, servers: int = 1, longest: int = 300, fakes: float = 0) -> list[bytes]:
    """Make events; the bodies of some hold packets that look like the real ones."""
    rng = random.Random(seed)
    ids = [(n + 1).to_bytes(4, "little") for n in range(servers)]
    made = []
    for number in range(_PACKETS):
        body = rng.randbytes(rng.randrange(longest))
        if rng.random() < fakes:
            inner = _packet(b"\0" + _event(rng, body[:50], ids), number)
            body = body[: rng.randrange(20)] + inner * rng.randrange(1, 4) + body[-7:]
        made.append(_event(rng, body, ids))
    return made


def _sent(events: list[bytes]) -> bytes:
    return b"".join(_packet(b"\0" + event, number) for number, event in enumerate(events))


def _one_by_one(data: bytes, filled: int) -> tuple[list[int], int]:
    found, at = [], 0
    while at + 5 <= filled:
        length = int.from_bytes(data[at : at + 3], "little")
        end = at + 4 + length
        if data[at + 4] or end > filled or length == LARGEST_PACKET:
            break
        found.append(at)
        at = end
    return found, at


def _agrees(data: bytes, filled: int) -> int:
    found, behind = plain_packets(bytearray(data), 0, filled)
    assert (found.tolist(), behind) == _one_by_one(data, filled)
    return behind


@given(
    seed=st.integers(0, 1 << 32),
    servers=st.sampled_from([1, 2, 40]),
    longest=st.sampled_from([1, 30, 300]),
    fakes=st.sampled_from([0, 0.001, 0.05, 1]),
    missing=st.integers(0, 600),
)
@example(seed=1, servers=1, longest=300, fakes=0, missing=1)
def test_lanes_find_what_a_walk_finds(
    seed: int, servers: int, longest: int, fakes: float, missing: int
) -> None:
    sent = _sent(_events(seed, servers=servers, longest=longest, fakes=fakes))
    _agrees(sent, len(sent) - missing)


def test_lanes_end_at_every_place_that_the_received_bytes_may_end_at() -> None:
    sent = _sent(_events(7, longest=40))
    for missing in range(150):
        _agrees(sent, len(sent) - missing)


@given(seed=st.integers(0, 1 << 32), where=st.integers(0, _PACKETS - 1), status=st.integers(1, 255))
@example(seed=1, where=_PACKETS - 1, status=255)
def test_lanes_stop_at_a_packet_that_is_no_event(seed: int, where: int, status: int) -> None:
    events = _events(seed, longest=60)
    odd = _packet(bytes([status]) + b"\xd4\x04#HY000purged")
    before = _sent(events[:where])
    sent = before + odd + _sent(events[where:])
    received = min(len(sent), len(before) + 20_000)
    assert _agrees(sent, received) == min(len(before), _agrees(before, len(before)))


@pytest.mark.parametrize("where", [0, 255, 256, 257, 1_000, _PACKETS - 1])
def test_lanes_stop_at_an_event_of_several_packets(where: int) -> None:
    events = _events(11, longest=60)
    before = _sent(events[:where])
    large = LARGEST_PACKET.to_bytes(3, "little") + bytes(1 + LARGEST_PACKET)
    sent = before + large + _packet(b"tail") + _sent(events[where:])
    assert _agrees(sent, len(sent)) == len(before)


@given(data=st.binary(max_size=400), repeated=st.integers(1, 500))
def test_bytes_that_are_no_packets_are_walked_alike(data: bytes, repeated: int) -> None:
    _agrees(data * repeated, len(data) * repeated)


@given(seed=st.integers(0, 1 << 32), fakes=st.sampled_from([0, 0.01]))
def test_the_framer_hands_out_many_events_whole(seed: int, fakes: float) -> None:
    events, framer, rng = _events(seed, fakes=fakes), EventFramer(), random.Random(seed)
    sent, found = _sent(events), []
    while sent:
        with framer.space() as space:
            count = min(len(space), len(sent), rng.randrange(1, 300_000))
            space[:count] = sent[:count]
        framer.received(count)
        sent = sent[count:]
        if rng.random() < 0.5 and sent:
            continue
        while (chunk := framer.take()) is not None:
            bounds = zip(chunk.starts.tolist(), chunk.ends.tolist(), strict=True)
            found += [bytes(chunk.buffer[start:end]) for start, end in bounds]
    assert found == events
