"""Verify: prove source and sink equal, or name the rows that are not, both ways.

Each side adds up hashes of its rows, part by part; `pairs` says by which digest. Both are asked
for the same part at the same time, by ranges of the key that together cover every key, so rows
the sink has too many are found like rows it lacks. A part that differs is halved until its rows
can be compared one by one.

Source and sink are never still while a stream runs, so a difference is at first only a
*candidate*. It is looked at again: the source's row, then a wait until the stream has passed,
then the sink's row, then the source's row once more. If the source's row stood still and the sink
still has another, they differ. If the source's row moved, the next round decides. What moves in
every round is counted as unsettled, neither equal nor different. Where others write at the sink,
too, both rows have to stand still, in some rounds in a row.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from types import MappingProxyType
from typing import TypeVar

from airflow_cdc_provider.columns.source_port import Source, Verifies, offered
from airflow_cdc_provider.columns.verify_port import Buckets, Hashes, Part, Sum
from airflow_cdc_provider.core.errors import CdcError, IntegrityError, RefusedError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.jobspec import SourceOptions
from airflow_cdc_provider.core.keys import KeyRange
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.verify_report import VerifyReport
from airflow_cdc_provider.engine.sink.port import HoldsChanges, Sink
from airflow_cdc_provider.engine.verify.comparison import Comparison
from airflow_cdc_provider.engine.verify.pairs import Pairing

log = logging.getLogger(__name__)
Answer = TypeVar("Answer")

NO_RANGES: Mapping[TableId, Sequence[KeyRange]] = MappingProxyType({})
_LEAF_ROWS = 4_000
_BUCKETS_AT_ONCE = 64
_ROUNDS, _ROUNDS_OF_BOTH = 5, 10


def verify(  # noqa: PLR0913 - each option is one a caller chooses by name
    source: Source,
    sink: Sink,
    plans: Sequence[TablePlan],
    *,
    tables: Sequence[TableId] | None = None,
    chunk_rows: int = 20_000,
    recheck: Callable[[], None] | None = None,
    settle_s: float = 0.0,
    values: bool = False,
    ranges: Mapping[TableId, Sequence[KeyRange]] = NO_RANGES,
    by_columns: bool = False,
    is_written_at_both: bool = False,
    options: SourceOptions | None = None,
    failed: dict[TableId, CdcError] | None = None,
) -> VerifyReport:
    """Compare source and sink tables, all or those of `tables`; return the report.

    Of a table that is in `ranges` only these are compared.

    `recheck` waits until the stream has passed all that is committed at the source by now;
    without it `settle_s` seconds are waited instead. With `values` the rows that are shown have the
    values that differ. With `by_columns` no digest of the systems' own is used.
    `is_written_at_both` says that the sink is a node that others write to. `options` are those by
    which the source's rows were read. `failed` takes the tables that cannot be compared, each with
    its error, and the others are compared; without it the first one ends the comparison.
    """
    started = time.monotonic()
    wanted = [plan for plan in plans if tables is None or plan.schema.table in set(tables)]
    if not sink.abilities.verifiable:
        raise _incomparable(source, sink)
    with (
        closing(offered(source, Verifies).open_side(options)) as here,
        closing(sink.open_side()) as there,
        ThreadPoolExecutor(max_workers=1, thread_name_prefix="cdc-verify") as thread,
    ):
        pairing = Pairing(here, there, sink.target_of, by_columns, is_written_at_both)
        run = _Run(pairing, thread, chunk_rows)
        found = list(_compared(run, wanted, ranges, failed))
        wait = recheck or (lambda: time.sleep(settle_s))
        if failed:
            found += _compared_later(run, wanted, ranges, failed, wait)
        run.settle(found, wait, is_written_at_both=is_written_at_both)
        for comparison in found:
            comparison.find_source_keys()
            if values:
                comparison.show_values()
        verdicts = tuple(comparison.verdict() for comparison in found)
    return VerifyReport(verdicts, time.monotonic() - started)


def _compared(
    run: _Run,
    plans: Sequence[TablePlan],
    ranges: Mapping[TableId, Sequence[KeyRange]],
    failed: dict[TableId, CdcError] | None,
) -> Iterator[Comparison]:
    """Yield the comparisons of tables; those that cannot be compared are added to `failed`."""
    for plan in plans:
        table = plan.schema.table
        try:
            comparison = run.compare(plan, ranges.get(table))
        except (RefusedError, IntegrityError) as error:
            if failed is None:
                raise
            failed[table] = error
        else:
            yield comparison


def _compared_later(
    run: _Run,
    plans: Sequence[TablePlan],
    ranges: Mapping[TableId, Sequence[KeyRange]],
    failed: dict[TableId, CdcError],
    wait: Callable[[], None],
) -> Iterator[Comparison]:
    """Yield comparisons of tables that failed: a change of their definition may be on its way."""
    try:
        wait()
    except RefusedError:  # nobody brings it
        return
    again = [plan for plan in plans if plan.schema.table in failed]
    failed.clear()
    yield from _compared(run, again, ranges, failed)


class _Run:
    """A session on each side, and the thread that lets both be queried at once."""

    def __init__(self, pairing: Pairing, thread: ThreadPoolExecutor, chunk_rows: int) -> None:
        self._pairing, self._thread = pairing, thread
        self._chunk_rows = max(1, chunk_rows)

    def compare(self, plan: TablePlan, ranges: Sequence[KeyRange] | None = None) -> Comparison:
        """Find the keys whose rows differ now, of a whole table or of some ranges."""
        started = time.monotonic()
        comparison = Comparison(self._pairing.compared(plan))
        if comparison.pair.by_ranges:
            comparison.sampled = ranges is not None
            self._by_ranges(comparison, (KeyRange(),) if ranges is None else ranges)
        else:
            self._by_buckets(comparison)
        comparison.seconds = time.monotonic() - started
        log.log(
            logging.INFO if comparison.candidates else logging.DEBUG,
            "table compared: table=%s rows=%d candidates=%d seconds=%.1f",
            plan.schema.table,
            comparison.rows_source,
            len(comparison.candidates),
            comparison.seconds,
        )
        return comparison

    def settle(
        self, found: Sequence[Comparison], wait: Callable[[], None], *, is_written_at_both: bool
    ) -> None:
        """Compare the suspect keys again until each is equal, different, or changes every time."""
        for _ in range(_ROUNDS_OF_BOTH if is_written_at_both else _ROUNDS):
            open_ones = [comparison for comparison in found if comparison.candidates]
            if not open_ones:
                return
            here = [each.pair.source.hashes_of(each.candidates) for each in open_ones]
            there: list[Hashes | None] = [None for _ in open_ones]
            if is_written_at_both:
                there = [each.pair.sink.hashes_of(each.candidates) for each in open_ones]
            wait()
            for comparison, earlier, at_sink in zip(open_ones, here, there, strict=True):
                comparison.judge(earlier, at_sink)

    def _both(
        self, here: Callable[[], Answer], there: Callable[[], Answer]
    ) -> tuple[Answer, Answer]:
        """Query both sides at the same time."""
        pending = self._thread.submit(there)
        try:
            answer = here()
        finally:
            other = pending.result()
        return answer, other

    def _by_ranges(self, comparison: Comparison, wanted: Sequence[KeyRange]) -> None:
        """Compare a table by sums over ranges of its key."""
        for keys in (part for whole in wanted for part in self._parts(comparison, whole)):
            here, there = self._sums(comparison, keys)
            before = comparison.rows_source
            comparison.count(here, there)
            if not here.same_rows(there):
                self._narrow(comparison, keys, (here, there), before)
            if comparison.truncated:
                return

    def _parts(self, comparison: Comparison, keys: KeyRange) -> Iterator[KeyRange]:
        """Cut a range into parts of about as many source rows each."""
        start = keys.start
        while True:
            end = comparison.pair.source.key_at(KeyRange(start, keys.end), self._chunk_rows)
            if end is None:
                yield KeyRange(start, keys.end)
                return
            yield KeyRange(start, end)
            start = end

    def _narrow(
        self, comparison: Comparison, keys: KeyRange, sums: tuple[Sum, Sum], before: int
    ) -> None:
        """Halve a range that differs, by the side with more rows, down to single rows."""
        here, there = sums
        most = max(here.most, there.most)
        larger = comparison.pair.source if here.most >= there.most else comparison.pair.sink
        middle = larger.key_at(keys, most // 2) if most > _LEAF_ROWS else None
        if comparison.truncated:
            return
        if middle is None:
            self._compare_rows(comparison, keys, before)
            return
        for half in (KeyRange(keys.start, middle), KeyRange(middle, keys.end)):
            left, right = self._sums(comparison, half)
            if not left.same_rows(right):
                self._narrow(comparison, half, (left, right), before)
            before += left.rows

    def _sums(self, comparison: Comparison, keys: KeyRange) -> tuple[Sum, Sum]:
        """Return both sides' sums over a range."""
        return self._both(
            lambda: comparison.pair.source.sum_of(keys), lambda: comparison.pair.sink.sum_of(keys)
        )

    def _by_buckets(self, comparison: Comparison) -> None:
        """Compare a table by sums over buckets of key hashes, for keys that cannot be split."""
        nothing = Sum(0, 0, 0)
        here, there = self._both(
            comparison.pair.source.bucket_sums, comparison.pair.sink.bucket_sums
        )
        differing = []
        for bucket in sorted(here.keys() | there.keys()):
            left, right = here.get(bucket, nothing), there.get(bucket, nothing)
            comparison.count(left, right)
            if not left.same_rows(right):
                differing.append(bucket)
        for at in range(0, len(differing), _BUCKETS_AT_ONCE):
            some = Buckets(tuple(differing[at : at + _BUCKETS_AT_ONCE]))
            if not comparison.truncated:
                self._compare_rows(comparison, some)

    def _compare_rows(self, comparison: Comparison, part: Part, before: int = 0) -> None:
        """Compare the row hashes of a part, and note the keys that differ."""
        here, there = self._both(
            lambda: comparison.pair.source.hashes(part), lambda: comparison.pair.sink.hashes(part)
        )
        end = part.end if isinstance(part, KeyRange) else None
        comparison.suspect(here, there, end, before)


def _incomparable(source: Source, sink: Sink) -> RefusedError:
    """Return the error for two systems whose rows cannot be compared."""
    by_query = "compare by the query of the current rows, which `show` prints"
    return RefusedError(
        f"verify cannot compare {source} with {sink}",
        where="verify",
        risk="none: nothing was compared",
        remedy=by_query if isinstance(sink, HoldsChanges) else "compare the two by other means",
    )
