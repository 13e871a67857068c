"""Replication ids of a pipeline: those that its file says, or a range of its own.

A server keeps one reader for each id and throws the older one out, so no two pipelines of one
server may share an id. Where a file says none, the range follows from the pipeline's name and from
what names its source: the same in each run, on each machine, and another one for another pipeline,
without anyone being asked. It lies where people and tools write none: above numbers and dates
written by hand and above private addresses 10.x taken as a number, below 127.x and the rest.

Of a hundred pipelines at one server, the odds that any two overlap are one in a thousand, and
preflight says so.

Where a pipeline also reads the log of its sink, those readers are at another server, and other
pipelines may have that server as their source. So their ids come from a band of their own, below
the first one and above private addresses 10.x: ids that were derived for a source are never there.
"""

from __future__ import annotations

import hashlib

CONNECTIONS_A_READER = 2
"""One to read rows, one to read the log for the backfill."""
FEWEST_DERIVED = 100
"""A range that nobody wrote has room for requests beside the stream."""
_FIRST, _BEHIND = 1_000_000_000, 2_100_000_000
OWN_LOG_READERS = 100
_OWN_FIRST, _OWN_BEHIND = 200_000_000, 999_000_000


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


def own_log_ids(pipeline: str, sink: str, *, at_source: range) -> range:
    """Return a range of server ids for a pipeline's readers of its sink's own log.

    `sink` is what names its server, and `at_source` the ids of the pipeline's readers at its
    source, which may be the same server. `ValueError` if those leave none.
    """
    digest = hashlib.sha256(f"{pipeline}\nown log of {sink}".encode()).digest()
    first = _OWN_FIRST + int.from_bytes(digest[:8], "big") % (_OWN_BEHIND - _OWN_FIRST)
    for start in (first, at_source.stop, at_source.start - OWN_LOG_READERS):
        ids = range(start, start + OWN_LOG_READERS)
        is_apart = ids.stop <= at_source.start or at_source.stop <= ids.start
        if is_apart and ids.start > 0 and ids.stop <= _FIRST:
            return ids
    raise ValueError(
        f"the server ids {at_source.start}-{at_source.stop - 1} leave none for readers of the "
        "sink's own log"
    )
