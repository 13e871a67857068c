"""Stream splits of the ledger, read once as long as they stay.

One of 100,000 ranges takes seconds to read, and it is asked for at each heartbeat, join and commit.
A text has one digest, so what was read of it is right wherever the text is found again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping

from airflow_cdc_provider.core.codec import stream_from_text
from airflow_cdc_provider.core.stream_split import StreamSplit

_LONG = 1 << 14
_KEPT = 4


class StoredSplits:
    """The long ones of those that were read last."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, StreamSplit] = OrderedDict()
        self._lock = threading.Lock()

    def known(self) -> Mapping[str, StreamSplit]:
        """Return what need not be sent again, by digest."""
        with self._lock:
            return dict(self._kept)

    def read(self, digest: str, text: str) -> StreamSplit:
        """Read a split from its text."""
        with self._lock:
            found = self._kept.get(digest)
        if found is None:
            found = stream_from_text(text)
            if len(text) >= _LONG:
                self._keep(digest, found)
        return found

    def _keep(self, digest: str, split: StreamSplit) -> None:
        with self._lock:
            self._kept[digest] = split
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)


STORED = StoredSplits()
