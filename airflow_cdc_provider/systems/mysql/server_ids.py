"""Replication ids of a pipeline: those that its file says, or a range of its own.

A server keeps one reader for each id and throws the older one out, so no two pipelines of one
server may share an id. Where a file says none, the range follows from the pipeline's name and from
what names its source: the same in each run, on each machine, and another one for another pipeline,
without anyone being asked. It lies where people and tools write none: above numbers and dates
written by hand and above private addresses 10.x taken as a number, below 127.x and the rest.

Of a hundred pipelines at one server, the odds that any two overlap are one in a thousand, and
preflight says so.
"""

from __future__ import annotations

import hashlib

CONNECTIONS_A_READER = 2
"""One to read rows, one to read the log for the backfill."""
FEWEST_DERIVED = 100
"""A range that nobody wrote has room for requests beside the stream."""
_FIRST, _BEHIND = 1_000_000_000, 2_100_000_000


def ids_needed(max_connections: int) -> int:
    """Return how many server ids a pipeline uses at once: the stream's and the readers'."""
    return 1 + max(1, max_connections // CONNECTIONS_A_READER)


def parse_ids(text: str) -> range:
    """Parse a range of server ids, `first-last`."""
    first, _, last = text.partition("-")
    return range(int(first), int(last) + 1)


def derived_ids(pipeline: str, source: str, *, needed: int) -> range:
    """Return a range of server ids derived from the pipeline's name, for a file without one.

    `source` is what names its server.
    """
    digest = hashlib.sha256(f"{pipeline}\n{source}".encode()).digest()
    count = max(needed, FEWEST_DERIVED)
    # the start does not depend on the count: it stays when max_connections changes
    first = _FIRST + int.from_bytes(digest[:8], "big") % (_BEHIND - _FIRST - 1000)
    return range(first, first + count)
