"""One table while it is compared: what was counted, which rows are suspect, what is proven."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import islice

from airflow_cdc_provider.columns.verify_port import Hashes, Sum
from airflow_cdc_provider.core.keys import Key, KeyRange, comparable, shown_key
from airflow_cdc_provider.core.verify_report import (
    ColumnDifference,
    Difference,
    DifferenceKind,
    TableVerdict,
)
from airflow_cdc_provider.engine.verify.differing import KeyBucket, ranges_around
from airflow_cdc_provider.engine.verify.pairs import ComparedTable

_MOST_RANGES = 100
"""Each takes a transaction of its own to be read again."""
_MOST_KEYS = 2_000
"""Servers look that many up by the key's index; for more they may read the whole table."""
_MOST_CANDIDATES = 100_000
_SAMPLES = 20
_Rows = tuple[str | None, str | None]
"""The hashes of a key's rows at source and sink."""
_STILL_ROUNDS, _STILL_ROUNDS_OF_BOTH = 2, 3


@dataclass(slots=True)
class Comparison:
    """One table's comparison: counts, keys that may differ, keys that do."""

    pair: ComparedTable
    rows_source: int = 0
    rows_sink: int = 0
    bytes: int = 0
    candidates: set[Key] = field(default_factory=set)
    """The keys of rows that may differ."""
    truncated: bool = False
    places: dict[Key, KeyBucket] = field(default_factory=dict)
    """Of the candidates, and of what became of them, where keys can be compared in code."""
    still: dict[Key, tuple[_Rows, int]] = field(default_factory=dict)
    """The rows of a key, and in how many rounds in a row they have not changed."""
    confirmed: dict[Key, Difference] = field(default_factory=dict)
    known: dict[Key, Key] = field(default_factory=dict)
    """The source's keys of confirmed rows, where they are others than the sink's."""
    seconds: float = 0.0
    sampled: bool = False

    def count(self, here: Sum, there: Sum) -> None:
        """Add the row counts of a compared part."""
        self.rows_source += here.rows
        self.rows_sink += there.rows
        self.bytes += here.bytes

    def suspect(self, here: Hashes, there: Hashes, end: Key | None, before: int) -> None:
        """Note the keys whose rows differ between source and sink, in a part up to `end`.

        `before` is about how many rows come before it.
        """
        keys = here.keys() | there.keys()
        found = {key for key in keys if here.get(key) != there.get(key)}
        self.candidates |= found
        if found and self.pair.by_ranges and comparable(self.pair.key_kinds):
            ordered = sorted(keys)
            behind = [*ordered[1:], end]
            for number, key in enumerate(ordered):
                if key in found:
                    self.places[key] = KeyBucket(before + number, behind[number])
        self.truncated = len(self.candidates) >= _MOST_CANDIDATES

    def judge(self, earlier: Hashes, earlier_there: Hashes | None = None) -> None:
        """Compare the suspect keys again; a row that does not change meanwhile is confirmed.

        One that is changed and changed back between two looks seems not to change: so it must not
        for some rounds in a row. `earlier` has the source's hashes from before the wait. Where
        others write at the sink, too, `earlier_there` has the sink's, which must not change either.
        """
        rounds = _STILL_ROUNDS if earlier_there is None else _STILL_ROUNDS_OF_BOTH
        there = self.pair.sink.hashes_of(self.candidates)
        now = self.pair.source.hashes_of(self.candidates)
        left = set()
        for key in sorted(self.candidates, key=repr):
            if now.get(key) == there.get(key):
                continue
            is_still = now.get(key) == earlier.get(key)
            if earlier_there is not None:
                is_still = is_still and there.get(key) == earlier_there.get(key)
            rows = now.get(key), there.get(key)
            before, count = self.still.get(key, (rows, 0))
            count = (count if rows == before else 0) + 1 if is_still else 0
            self.still[key] = rows, count
            if count >= rounds:
                self._confirm(key, now.get(key), there.get(key))
            else:
                left.add(key)
        self.candidates = left

    def find_source_keys(self) -> None:
        """Find the source's keys of the rows that differ, where they are others than the sink's."""
        if self.pair.source_keys is None or len(self.confirmed) > _MOST_KEYS:
            return
        self.known = dict(self.pair.source_keys(list(self.confirmed)))
        for key, own in self.known.items():
            self.confirmed[key] = replace(self.confirmed[key], source_key=shown_key(own))

    def show_values(self) -> None:
        """Read the values of the first rows that differ."""
        shown = islice(self.confirmed.items(), _SAMPLES)
        keys = [key for key, found in shown if found.kind is DifferenceKind.DIFFERENT]
        if not keys:
            return
        here, there = self.pair.source.values_of(keys), self.pair.sink.values_of(keys)
        for key in keys:
            left, right = here.get(key, {}), there.get(key, {})
            columns = tuple(
                ColumnDifference(column, left[name].text, right[name].text)
                for column in self.pair.columns
                if (name := column.casefold()) in left.keys() & right.keys()
                and left[name].identity != right[name].identity
            )
            self.confirmed[key] = replace(self.confirmed[key], columns=columns)

    def verdict(self) -> TableVerdict:
        """Return the result of the table's comparison."""
        counts = dict.fromkeys(DifferenceKind, 0)
        for difference in self.confirmed.values():
            counts[difference.kind] += 1
        missing, changed = counts[DifferenceKind.MISSING], counts[DifferenceKind.DIFFERENT]
        return TableVerdict(
            table=self.pair.table,
            sink_table=self.pair.sink_table,
            rows_source=self.rows_source,
            rows_sink=self.rows_sink,
            bytes=self.bytes,
            equal_rows=max(0, self.rows_source - missing - changed - len(self.candidates)),
            missing=missing,
            extra=counts[DifferenceKind.EXTRA],
            different=changed,
            unsettled=len(self.candidates),
            samples=tuple(islice(self.confirmed.values(), _SAMPLES)),
            truncated=self.truncated,
            seconds=self.seconds,
            differing=self._differing(),
            differing_keys=self._differing_keys(),
            sampled=self.sampled,
            digest=self.pair.digest,
            why_digest=self.pair.why,
            unrepairable=self._unrepairable(),
        )

    def _differing(self) -> tuple[KeyRange, ...]:
        """Return ranges of the key that contain all rows that differ."""
        if not self.truncated and self.places:
            wrong = {key: self.places[key] for key in self.confirmed}
            return ranges_around(wrong, _MOST_RANGES)
        return (KeyRange(),) if self.truncated or self.confirmed else ()

    def _differing_keys(self) -> tuple[Key, ...]:
        """Return the keys that differ where no ranges are known; none if they are too many."""
        too_many = self.truncated or len(self.confirmed) > _MOST_KEYS
        if too_many or self.places or self.pair.is_one_split:
            return ()
        if self.pair.source_keys is None:
            return tuple(self.confirmed)
        return tuple(self.known.values()) if self.pair.has_same_key_columns else ()

    def _unrepairable(self) -> str:
        """Return why the rows that differ cannot be read again; empty if they can."""
        if self.pair.has_same_key_columns or not (self.confirmed or self.truncated):
            return ""
        return "the sink's key has other columns than the source's"

    def _confirm(self, key: Key, here: str | None, there: str | None) -> None:
        """Note that a key's rows differ: changed, missing or extra."""
        kind = DifferenceKind.DIFFERENT
        if here is None:
            kind = DifferenceKind.EXTRA
        elif there is None:
            kind = DifferenceKind.MISSING
        self.confirmed[key] = Difference(kind, shown_key(key))
