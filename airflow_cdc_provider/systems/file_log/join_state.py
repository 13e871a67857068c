"""What manifests say of rows that join a log beside its stream: requests, and tables being read.

A table that is added, or begins again, is *unread* until all of its ranges have joined. The log has
its changes by range: those of a range that has joined follow its rows, those of another one are
left out, because its rows come with them. So each row is in the log once, and each change behind
it. The first join of a request begins the table: what the log has of it from before is void.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from airflow_cdc_provider.core.codec import (
    key_from_json,
    key_to_json,
    position_from_json,
    position_to_json,
    split_from_json,
    split_to_json,
)
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.keys import KeyRange
from airflow_cdc_provider.core.splits import SnapshotSplit
from airflow_cdc_provider.core.stream_split import TableProgress
from airflow_cdc_provider.engine.sink.port import JoinedSplit

Form = dict[str, Any]


@dataclass(slots=True)
class RequestJoins:
    """The joins of one request."""

    epoch: int
    tables: set[TableId]
    again: set[TableId] = field(default_factory=set)
    """Of its tables those that were read when it was begun: parts of them are read again."""
    splits: list[JoinedSplit] = field(default_factory=list)


@dataclass(slots=True)
class UnreadTable:
    """The ranges of an unread table whose rows are in the log, by the request that reads it."""

    request: str
    ranges: list[KeyRange] = field(default_factory=list)


@dataclass(slots=True)
class JoinState:
    """The requests that read rows for a log, and how far they are with unread tables."""

    requests: dict[str, RequestJoins] = field(default_factory=dict)
    unread: dict[TableId, UnreadTable] = field(default_factory=dict)

    def epoch(self, request: str, table: TableId) -> int:
        """Return a request's epoch, 0 if it was not begun for the table."""
        found = self.requests.get(request)
        return found.epoch if found is not None and table in found.tables else 0

    def next_epoch(self, request: str) -> int:
        """Return the epoch of a request that is begun now."""
        found = self.requests.get(request)
        return 1 if found is None else found.epoch + 1

    def joined(self, request: str) -> tuple[JoinedSplit, ...]:
        """Return the splits that have joined for a request, in order."""
        found = self.requests.get(request)
        splits = () if found is None else found.splits
        return tuple(sorted(splits, key=lambda each: (each.split.table, each.split.number)))

    def ranges_of(self, table: TableId) -> list[KeyRange]:
        """Return the ranges of an unread table whose rows are in the log."""
        found = self.unread.get(table)
        return [] if found is None else found.ranges

    def is_begun(self, request: str, table: TableId) -> bool:
        """Tell whether a request has begun an unread table."""
        found = self.unread.get(table)
        return found is not None and found.request == request and bool(self._of(request, table))

    def has_lost(self, request: str, table: TableId) -> bool:
        """Tell whether the table began again since splits of it joined for a request."""
        return bool(self._of(request, table)) and not self.is_begun(request, table)

    def is_again(self, request: str, table: TableId) -> bool:
        """Tell whether a request was begun when all rows of the table were read."""
        found = self.requests.get(request)
        return found is not None and table in found.again

    def _of(self, request: str, table: TableId) -> list[SnapshotSplit]:
        """Return the splits of a table that have joined for a request."""
        return [each.split for each in self.joined(request) if each.split.table == table]

    # --- commits ------------------------------------------------------------------------------

    def begin(self, form: Form) -> None:
        """Begin a request, or resume it."""
        tables = {TableId.parse(name) for name in form["tables"]}
        known = self.requests.setdefault(form["request"], RequestJoins(0, set()))
        known.epoch = form["epoch"]
        known.tables |= tables
        known.again |= {TableId.parse(name) for name in form.get("again", ())}

    def join(self, form: Form) -> JoinedSplit:
        """Take a split that has joined, and return it."""
        request, split = form["request"], split_from_json(form["split"])
        joined = JoinedSplit(split, form["rows"], position_from_json(form["position"]))
        if form["begins"]:
            self.unread[split.table] = UnreadTable(request)
        if form["do"] == "join":
            self.unread[split.table].ranges.append(split.keys)
        self.requests[request].splits.append(joined)
        return joined

    def forget(self, request: str) -> None:
        """Forget a request. What has joined of an unread table is in the log all the same."""
        self.requests.pop(request, None)

    def keep(self, owned: Collection[TableId]) -> None:
        """Forget the joins of all tables but those that the stream owns."""
        for each in self.requests.values():
            each.tables &= set(owned)
            each.again &= set(owned)
            each.splits = [joined for joined in each.splits if joined.split.table in owned]

    def follow(
        self,
        before: Collection[TableProgress],
        now: Collection[TableProgress],
        again: Collection[TableId],
    ) -> None:
        """Forget the ranges of tables that are read now, or that begin `again`."""
        was, still = ({each.table for each in some if each.is_unread} for some in (before, now))
        kept = (was & still) - set(again)
        self.unread = {table: each for table, each in self.unread.items() if table in kept}

    # --- checkpoints --------------------------------------------------------------------------

    def to_json(self) -> Form:
        """Return the state as JSON, empty if there is nothing."""
        if not self.requests and not self.unread:
            return {}
        return {
            "requests": {
                request: {
                    "epoch": each.epoch,
                    "tables": [str(table) for table in sorted(each.tables)],
                    **({"again": [str(one) for one in sorted(each.again)]} if each.again else {}),
                    "splits": [
                        [split_to_json(one.split), one.rows, position_to_json(one.position)]
                        for one in each.splits
                    ],
                }
                for request, each in self.requests.items()
            },
            "unread": {
                str(table): [
                    each.request,
                    [[key_to_json(keys.start), key_to_json(keys.end)] for keys in each.ranges],
                ]
                for table, each in self.unread.items()
            },
        }

    @classmethod
    def from_json(cls, form: Form) -> JoinState:
        """Read the state from JSON."""
        return cls(
            {
                request: RequestJoins(
                    each["epoch"],
                    {TableId.parse(name) for name in each["tables"]},
                    {TableId.parse(name) for name in each.get("again", ())},
                    [
                        JoinedSplit(split_from_json(split), rows, position_from_json(position))
                        for split, rows, position in each["splits"]
                    ],
                )
                for request, each in form.get("requests", {}).items()
            },
            {
                TableId.parse(table): UnreadTable(
                    request,
                    [KeyRange(key_from_json(start), key_from_json(end)) for start, end in ranges],
                )
                for table, (request, ranges) in form.get("unread", {}).items()
            },
        )
