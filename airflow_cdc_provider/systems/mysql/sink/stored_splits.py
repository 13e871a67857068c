"""Stream splits in the ledger: each text once, in a table of its own, named by its digest.

A split of 100,000 ranges is some megabytes. In the row of the position it would be logged twice
with each commit, by a server that logs full row images. So that row only names it. A text never
changes under its name, so what was read of it is right wherever the name is found again. It is
stored in the transaction that names it first, and goes with an owner's next change of the stream.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict

from airflow_cdc_provider.core.codec import stream_from_text, stream_to_text
from airflow_cdc_provider.core.errors import IntegrityError
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.engine.sink.port import Owner
from airflow_cdc_provider.systems.mysql.dialect.sql import literal, text_literal
from airflow_cdc_provider.systems.mysql.sink.ledger_schema import LEDGER, pipeline_is
from airflow_cdc_provider.systems.mysql.sink.sink_session import SinkSession

_NAME = "sha256:"
_KEPT = 16


class _Cache:
    """The stream splits that were read last, by the digest of their texts; safe for threads."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, StreamSplit] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, digest: str) -> StreamSplit | None:
        """Return the split with this digest, None if it is not cached."""
        with self._lock:
            return self._kept.get(digest)

    def read(self, digest: str, text: str) -> StreamSplit:
        """Return the split of a text, decoded unless it is cached, and keep it."""
        found = self.get(digest) or stream_from_text(text)
        with self._lock:
            self._kept[digest] = found
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return found


_CACHE = _Cache()


def split_named(session: SinkSession, owner: Owner, stored: str) -> StreamSplit:
    """Return the stream split that a row of the ledger names, or holds as an old version's text."""
    if not stored.startswith(_NAME):
        return _CACHE.read(_digest(stored), stored)
    digest = stored.removeprefix(_NAME)
    return _CACHE.get(digest) or _CACHE.read(digest, _text(session, owner, digest))


def store_split(session: SinkSession, owner: Owner, split: StreamSplit) -> str:
    """Store a split unless it is there; return its name as an SQL literal."""
    text = stream_to_text(split)
    digest = _digest(text)
    session.execute(
        f"INSERT INTO {LEDGER}.stream_split (pipeline, digest, split) "
        f"VALUES ({literal(str(owner.pipeline))}, '{digest}', {text_literal(text)}) "
        "ON DUPLICATE KEY UPDATE digest = VALUES(digest)"
    )
    return f"'{_NAME}{digest}'"


def needs_cleanup(session: SinkSession, owner: Owner) -> bool:
    """Tell whether a ledger row holds a split's text, or more splits are stored than rows name."""
    mine = pipeline_is(owner.pipeline)
    rows = session.rows(
        f"SELECT COUNT(*), COALESCE(SUM(split NOT LIKE '{_NAME}%'), 0) FROM (SELECT split FROM "
        f"{LEDGER}.stream WHERE {mine} UNION ALL SELECT split FROM {LEDGER}.stopped_table "
        f"WHERE {mine}) named"
    )
    named, own = int(rows[0][0]), int(rows[0][1])
    stored = session.rows(f"SELECT COUNT(*) FROM {LEDGER}.stream_split WHERE {mine}")
    return own > 0 or int(stored[0][0]) > named


def delete_unused_splits(session: SinkSession, owner: Owner) -> None:
    """Replace the splits' texts in ledger rows by names, and delete splits that no row names."""
    mine = pipeline_is(owner.pipeline)
    for table in ("stream", "stopped_table"):
        rows = session.rows(
            f"SELECT DISTINCT split FROM {LEDGER}.{table} "
            f"WHERE {mine} AND split NOT LIKE '{_NAME}%'"
        )
        for (text,) in rows:
            name = store_split(session, owner, split_named(session, owner, text))
            session.execute(
                f"UPDATE {LEDGER}.{table} SET split = {name} "
                f"WHERE {mine} AND SHA2(split, 256) = '{_digest(text)}'"
            )
    session.execute(
        f"DELETE FROM {LEDGER}.stream_split WHERE {mine} AND CONCAT('{_NAME}', digest) NOT IN "
        f"(SELECT split FROM {LEDGER}.stream WHERE {mine} "
        f"UNION SELECT split FROM {LEDGER}.stopped_table WHERE {mine})"
    )


def _text(session: SinkSession, owner: Owner, digest: str) -> str:
    """Read the text of a stream split from the ledger by its digest; a missing one is an error."""
    rows = session.rows(
        f"SELECT split FROM {LEDGER}.stream_split "
        f"WHERE {pipeline_is(owner.pipeline)} AND digest = '{digest}'"
    )
    if not rows or _digest(str(rows[0][0])) != digest:
        raise IntegrityError(
            f"the ledger lacks the stream split {digest[:12]} that its position names, or has "
            "another one in its place",
            where=f"table airflow_cdc.stream_split on {session.where}",
            risk="which changes the snapshot already holds is not known; nothing was written",
            remedy="restore the table with its schema, or `reset` the pipeline: the next run reads "
            "all tables again",
        )
    return str(rows[0][0])


def _digest(text: str) -> str:
    """Return the SHA-256 of a split's text, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()
