"""Verify: prove source and sink equal, or name the rows that are not, both ways.

Each server adds up hashes of its own rows, part by part; only sums travel. Both sides are asked
for the same part at the same time, by ranges of the key that together cover every key, so rows
the sink has too many are found like rows it lacks. A part that differs is halved until its rows
can be compared one by one.

Source and sink are never still while a stream runs, so a difference is at first only a
*candidate*. It is looked at again: the source's row, then a wait until the stream has passed,
then the sink's row, then the source's row once more. If the source's row stood still and the sink
still has another, they differ. If the source's row moved, the next round decides. What moves in
every round is counted as unsettled, neither equal nor different.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.errors import NOTHING_CHANGED, RefusedError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.keys import Key, KeyRange
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.table_schema import TableSchema
from airflow_cdc_provider.core.verify_report import (
    Difference,
    DifferenceKind,
    TableVerdict,
    VerifyReport,
    shown_key,
)
from airflow_cdc_provider.systems.mysql.dialect.sql import range_predicate
from airflow_cdc_provider.systems.mysql.server.connection import Role, connect
from airflow_cdc_provider.systems.mysql.server.introspection import read_schemas
from airflow_cdc_provider.systems.mysql.source.key_bounds import key_at
from airflow_cdc_provider.systems.mysql.verify.verify_side import Hashes, Side, Sum
from airflow_cdc_provider.systems.mysql.verify.verify_text import row_texts

if TYPE_CHECKING:
    from airflow_cdc_provider.systems.mysql.server.connection import ServerConnection

log = logging.getLogger(__name__)
Answer = TypeVar("Answer")

_LEAF_ROWS = 4_000
_MOST_CANDIDATES = 100_000
_BUCKETS_AT_ONCE = 64
_SAMPLES = 20
_ROUNDS = 5


@dataclass(slots=True)
class _Comparison:
    """One table while it is compared."""

    plan: TablePlan
    source: Side
    sink: Side
    rows_source: int = 0
    rows_sink: int = 0
    bytes: int = 0
    candidates: set[Key] = field(default_factory=set)
    truncated: bool = False
    confirmed: list[Difference] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def schema(self) -> TableSchema:
        return self.plan.schema

    def count(self, here: Sum, there: Sum) -> None:
        self.rows_source += here.rows
        self.rows_sink += there.rows
        self.bytes += here.bytes

    def suspect(self, here: Hashes, there: Hashes) -> None:
        """Remember the keys whose rows are not the same on both sides."""
        for key in here.keys() | there.keys():
            if here.get(key) != there.get(key):
                self.candidates.add(key)
        self.truncated = len(self.candidates) >= _MOST_CANDIDATES

    def confirm(self, key: Key, here: str | None, there: str | None) -> None:
        kind = DifferenceKind.DIFFERENT
        if here is None:
            kind = DifferenceKind.EXTRA
        elif there is None:
            kind = DifferenceKind.MISSING
        self.confirmed.append(Difference(kind, shown_key(key)))

    def verdict(self) -> TableVerdict:
        counts = dict.fromkeys(DifferenceKind, 0)
        for difference in self.confirmed:
            counts[difference.kind] += 1
        missing, changed = counts[DifferenceKind.MISSING], counts[DifferenceKind.DIFFERENT]
        return TableVerdict(
            table=self.schema.table,
            sink_table=self.plan.sink_table,
            rows_source=self.rows_source,
            rows_sink=self.rows_sink,
            bytes=self.bytes,
            equal_rows=max(0, self.rows_source - missing - changed - len(self.candidates)),
            missing=missing,
            extra=counts[DifferenceKind.EXTRA],
            different=changed,
            unsettled=len(self.candidates),
            samples=tuple(self.confirmed[:_SAMPLES]),
            truncated=self.truncated,
            seconds=self.seconds,
        )


def verify(  # noqa: PLR0913 - each option is one a caller chooses by name
    source: Endpoint,
    sink: Endpoint,
    plans: Sequence[TablePlan],
    *,
    tables: Sequence[TableId] | None = None,
    chunk_rows: int = 20_000,
    recheck: Callable[[], None] | None = None,
    settle_s: float = 0.0,
) -> VerifyReport:
    """Compare the plans' tables, all or those of `tables`, by what both servers hold.

    `recheck` waits until the stream has passed all that is committed at the source by now;
    without it `settle_s` seconds are waited instead.
    """
    started = time.monotonic()
    wanted = [plan for plan in plans if tables is None or plan.schema.table in set(tables)]
    with (
        closing(connect(source, purpose="verify")) as here,
        closing(connect(sink, purpose="verify", role=Role.SINK)) as there,
        ThreadPoolExecutor(max_workers=1, thread_name_prefix="cdc-verify") as thread,
    ):
        run = _Run(here, there, thread, chunk_rows)
        found = [run.compare(plan) for plan in wanted]
        run.settle(found, recheck or (lambda: time.sleep(settle_s)))
        verdicts = tuple(comparison.verdict() for comparison in found)
    return VerifyReport(verdicts, time.monotonic() - started)


class _Run:
    """The two sessions, and how they are asked at the same time."""

    def __init__(
        self,
        source: ServerConnection,
        sink: ServerConnection,
        thread: ThreadPoolExecutor,
        chunk_rows: int,
    ) -> None:
        self._source, self._sink = source, sink
        self._thread = thread
        self._chunk_rows = max(1, chunk_rows)

    def compare(self, plan: TablePlan) -> _Comparison:
        """Find the keys whose rows differ now."""
        started = time.monotonic()
        comparison = self._comparison(plan)
        kinds = comparison.schema.key_kinds
        if all(kind.splittable for kind in kinds):
            self._by_ranges(comparison)
        else:
            self._by_buckets(comparison)
        comparison.seconds = time.monotonic() - started
        log.info(
            "table compared: table=%s rows=%d candidates=%d seconds=%.1f",
            plan.schema.table,
            comparison.rows_source,
            len(comparison.candidates),
            comparison.seconds,
        )
        return comparison

    def settle(self, found: Sequence[_Comparison], wait: Callable[[], None]) -> None:
        """Look at the candidates again until each is equal, different, or moved every time."""
        for _ in range(_ROUNDS):
            open_ones = [comparison for comparison in found if comparison.candidates]
            if not open_ones:
                return
            before = [c.source.hashes_of(c.candidates) for c in open_ones]
            wait()
            for comparison, earlier in zip(open_ones, before, strict=True):
                _judge(comparison, earlier)

    def _comparison(self, plan: TablePlan) -> _Comparison:
        table, target = plan.schema.table, plan.sink_table
        here = read_schemas(self._source, [table], with_statement=False).get(table)
        there = read_schemas(self._sink, [target], with_statement=False, role=Role.SINK).get(target)
        if here is None or there is None:
            raise _not_there(table, Role.SOURCE) if here is None else _not_there(target, Role.SINK)
        if not here.primary_key:
            raise RefusedError(
                f"table {table} has no primary key, so its rows cannot be told apart",
                where="verify",
                remedy="add a primary key, or leave the table out",
            )
        names = {column.name.casefold() for column in there.columns}
        lacking = [c.name for c in here.copied_columns if c.name.casefold() not in names]
        if lacking:
            raise RefusedError(
                f"table {target} lacks the columns {', '.join(lacking)} of {table}",
                where="the sink",
                risk="their values are not copied",
                remedy="apply the source's definition to the sink, then read the table again",
            )
        left, right = row_texts(here, there)
        return _Comparison(
            TablePlan(here, target, plan.estimated_rows),
            Side(self._source, table, left, Role.SOURCE),
            Side(self._sink, target, right, Role.SINK),
        )

    def _both(
        self, here: Callable[[], Answer], there: Callable[[], Answer]
    ) -> tuple[Answer, Answer]:
        """Ask both servers at the same time."""
        pending = self._thread.submit(there)
        try:
            answer = here()
        finally:
            other = pending.result()
        return answer, other

    def _by_ranges(self, comparison: _Comparison) -> None:
        for keys in self._ranges(comparison.schema):
            here, there = self._sums(comparison, keys)
            comparison.count(here, there)
            if not here.same_rows(there):
                self._narrow(comparison, keys, here, there)
            if comparison.truncated:
                return

    def _ranges(self, schema: TableSchema) -> Iterator[KeyRange]:
        """Yield ranges that cover every key, of about as many source rows each."""
        start: Key | None = None
        while True:
            end = key_at(
                self._source, schema.table, schema.primary_key, KeyRange(start), self._chunk_rows
            )
            yield KeyRange(start, end)
            if end is None:
                return
            start = end

    def _narrow(self, comparison: _Comparison, keys: KeyRange, here: Sum, there: Sum) -> None:
        """Halve a range that differs, on the side that holds more, down to single rows."""
        most = max(here.rows, there.rows)
        larger = comparison.source if here.rows >= there.rows else comparison.sink
        middle = None
        if most > _LEAF_ROWS:
            middle = key_at(
                larger.connection, larger.table, comparison.schema.primary_key, keys, most // 2
            )
        if comparison.truncated:
            return
        if middle is None:
            self._compare_rows(comparison, range_predicate(_key(comparison), keys))
            return
        for half in (KeyRange(keys.start, middle), KeyRange(middle, keys.end)):
            left, right = self._sums(comparison, half)
            if not left.same_rows(right):
                self._narrow(comparison, half, left, right)

    def _sums(self, comparison: _Comparison, keys: KeyRange) -> tuple[Sum, Sum]:
        part = range_predicate(_key(comparison), keys)
        return self._both(
            lambda: comparison.source.sum_of(part), lambda: comparison.sink.sum_of(part)
        )

    def _by_buckets(self, comparison: _Comparison) -> None:
        nothing = Sum(0, 0, 0)
        here, there = self._both(comparison.source.bucket_sums, comparison.sink.bucket_sums)
        differing = []
        for bucket in sorted(here.keys() | there.keys()):
            left, right = here.get(bucket, nothing), there.get(bucket, nothing)
            comparison.count(left, right)
            if not left.same_rows(right):
                differing.append(bucket)
        for at in range(0, len(differing), _BUCKETS_AT_ONCE):
            some = differing[at : at + _BUCKETS_AT_ONCE]
            if not comparison.truncated:
                self._compare_rows(comparison, comparison.source.buckets(some))

    def _compare_rows(self, comparison: _Comparison, part: str) -> None:
        here, there = self._both(
            lambda: comparison.source.hashes(part), lambda: comparison.sink.hashes(part)
        )
        comparison.suspect(here, there)


def _judge(comparison: _Comparison, earlier: Hashes) -> None:
    keys = comparison.candidates
    there = comparison.sink.hashes_of(keys)
    now = comparison.source.hashes_of(keys)
    moved = set()
    for key in sorted(keys, key=repr):
        if now.get(key) == there.get(key):
            continue
        if now.get(key) == earlier.get(key):
            comparison.confirm(key, now.get(key), there.get(key))
        else:
            moved.add(key)
    comparison.candidates = moved


def _key(comparison: _Comparison) -> tuple[str, ...]:
    return comparison.schema.primary_key


def _not_there(table: TableId, role: Role) -> RefusedError:
    return RefusedError(
        f"table {table} does not exist on the {role}, or the account may not see it",
        where=f"verify, the {role}",
        risk=NOTHING_CHANGED,
        remedy="run the pipeline first" if role is Role.SINK else "check the name and the grants",
    )
