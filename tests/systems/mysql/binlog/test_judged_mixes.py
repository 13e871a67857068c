"""Any mix of marked, unmarked and left-out transactions is judged as one row after the other is."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_cdc_provider.columns.changes import ChangeBatch, Op
from airflow_cdc_provider.core.errors import IntegrityError
from airflow_cdc_provider.core.markers import MARKER_COLUMNS, EdgeOrigins, Marker
from airflow_cdc_provider.systems.mysql.binlog.event_chunks import BatchLimits, EventChunk
from tests.servers.families import FAMILIES
from tests.systems.mysql.binlog.captured import CapturedLog, decoded, in_columns, log_of
from tests.systems.mysql.binlog.test_origins import EDGE, MARKER, D, make_tables, marks

RULES = (
    EDGE,
    replace(EDGE, ignore_nodes=frozenset({"d"})),
    replace(EDGE, ignore_nodes=frozenset({"a"})),
    replace(EDGE, is_mesh=True),
)
ORIGINS: tuple[tuple[str, str], ...] = (("b", "b"), ("d", "b"), ("c", "c"), ("d", "c"), ("e", "c"))
"""Of a marker row: the origin, and the node from which it came."""


@dataclass(frozen=True)
class Mixed:
    """One transaction: its markers, an event each or all in one, and the rows behind them."""

    markers: tuple[tuple[str, str], ...]
    is_one_event: bool
    rows: tuple[str, ...]
    is_late: bool
    """Another marker is behind the rows, where it marks nothing."""

    def statements(self) -> Iterator[str]:
        yield "BEGIN"
        if self.markers:
            each = [marks(origin, src=src) for origin, src in self.markers]
            together = [marks(*(o for o, _ in self.markers), src=self.markers[0][1])]
            yield from together if self.is_one_event else each
        yield from self.rows
        if self.rows and self.is_late:
            yield marks("b")
        yield "COMMIT"


ROWS = (
    "INSERT INTO t SELECT COALESCE(MAX(id), 0) + 1, 'new' FROM t",
    "INSERT INTO t SELECT COALESCE(MAX(id), 0) + n.i, 'more' FROM t, (SELECT 1 i UNION SELECT 2) n "
    "GROUP BY n.i",
    "UPDATE t SET v = CONCAT(v, '+') ORDER BY id DESC LIMIT 3",
    "DELETE FROM t ORDER BY id LIMIT 1",
    "INSERT INTO u SELECT COALESCE(MAX(id), 0) + 1 FROM u",
    "DELETE FROM marker",
)
SOME_MARKERS = st.sampled_from(
    [(), *([each] for each in ORIGINS), [ORIGINS[0], ORIGINS[1]], [ORIGINS[2], ORIGINS[4]]]
).map(tuple)
SOME_ROWS = st.lists(st.sampled_from(ROWS), max_size=3).map(tuple)
MIXED = st.builds(Mixed, SOME_MARKERS, st.booleans(), SOME_ROWS, st.booleans())

Row = tuple[str, int, Any, Any]
"""A table, what happened, and the row before and behind it."""
Origins = dict[str, frozenset[str]]
"""By a transaction's name, where it was written."""


def rows_of(batch: ChangeBatch) -> list[tuple[str, Row]]:
    """Return a batch's changes in log order, each with its transaction's name."""
    found = []
    for changes in batch.tables:
        columns = (changes.ordinal, changes.transaction, changes.op, changes.before, changes.after)
        for ordinal, number, op, before, after in zip(*map(listed, columns), strict=True):
            name = batch.transactions[number].name
            found.append((ordinal, name, (changes.table.table, op, before, after)))
    return [(name, row) for _, name, row in sorted(found, key=lambda each: each[0])]


def listed(column: Any) -> list[Any]:
    values: list[Any] = column.to_pylist()
    return values


def judged_slowly(log: CapturedLog, rule: EdgeOrigins) -> tuple[list[tuple[str, Row]], Origins]:
    """Return what a rule lets through of a log that was decoded without one, row by row."""
    kept: list[tuple[str, Row]] = []
    origins: Origins = {}
    every = [each for batch in log.batches() for each in rows_of(batch)]
    for name in dict.fromkeys(name for name, _ in every):
        rows = [row for of, row in every if of == name]
        leading = takewhile(lambda row: row[0] == "marker" and row[1] != Op.DELETE, rows)
        markers = [Marker.of(*(row[3][each] for each in MARKER_COLUMNS)) for row in leading]
        verdicts = set(map(rule.leaves_out, markers)) or {rule.leaves_out(None)}
        if len(verdicts) > 1:
            raise rule.mixed(str(MARKER))
        if verdicts == {False}:
            origins[name] = frozenset(m.origin_node for m in markers) or frozenset({"a"})
            kept += [(name, row) for row in rows if row[0] != "marker"]
    return kept, origins


@FAMILIES
@settings(max_examples=40)
@given(
    mixes=st.lists(MIXED, min_size=1, max_size=14),
    rule=st.sampled_from(RULES),
    cuts=st.sets(st.integers(1, 200), max_size=20),
    limit=st.sampled_from([1, 3, 100_000]),
    by_columns=st.booleans(),
)
def test_any_mix_cut_anywhere_is_judged_as_row_after_row_is(
    family: str,
    request: pytest.FixtureRequest,
    mixes: list[Mixed],
    rule: EdgeOrigins,
    cuts: set[int],
    limit: int,
    by_columns: bool,
) -> None:
    server = request.getfixturevalue(f"{family}_server")
    make_tables(server)
    log = log_of(server, D, *(each for mix in mixes for each in mix.statements()))
    decoder = log.decoder(origins=rule, limits=BatchLimits(changes=limit))
    decoder = in_columns(decoder) if by_columns else decoder
    try:
        wanted, origins = judged_slowly(log, rule)
    except IntegrityError as refused:
        with pytest.raises(IntegrityError, match=re.escape(refused.what)):
            decoded(decoder, cut(log, cuts))
        return
    found = decoded(decoder, cut(log, cuts))
    assert [each for batch in found for each in rows_of(batch)] == wanted
    for batch in found:
        names = {point.name for point in batch.transactions}
        assert batch.origins == frozenset().union(*(origins[name] for name in names))


def cut(log: CapturedLog, places: Iterable[int]) -> Iterator[EventChunk]:
    """Cut a log into chunks before these events."""
    (whole,) = replace(log, chunk_bytes=1 << 30).chunks()
    inner: Sequence[int] = sorted(place for place in places if place < len(whole.starts))
    for first, last in zip([0, *inner], [*inner, len(whole.starts)], strict=True):
        yield EventChunk(whole.buffer, whole.starts[first:last], whole.ends[first:last])


_WITHOUT_PANDAS = """
import importlib.util, sys
from pathlib import Path
from tests.systems.mysql.binlog.captured import CapturedLog
from tests.systems.mysql.binlog.test_judged_mixes import RULES

if "pandas" in sys.modules:
    sys.exit("what the test imports loads pandas")
log = CapturedLog(Path(sys.argv[1]), sys.argv[2])
batches = [batch for rule in RULES for batch in log.batches(origins=rule)]
found = frozenset().union(*(batch.origins for batch in batches))
assert found == {"a", "c"}, found
if importlib.util.find_spec("pandas") is None:
    sys.exit("there is no pandas to stay away from")
sys.exit("pandas was loaded" if "pandas" in sys.modules else 0)
"""


@FAMILIES
def test_a_marked_log_is_judged_without_loading_pandas(
    family: str, request: pytest.FixtureRequest
) -> None:
    server = request.getfixturevalue(f"{family}_server")
    make_tables(server)
    mixes = [Mixed(each, False, (ROWS[0],), False) for each in ((), (("b", "b"),), (("c", "c"),))]
    log = log_of(server, D, *(each for mix in mixes for each in mix.statements()))
    run = subprocess.run(
        [sys.executable, "-c", _WITHOUT_PANDAS, str(log.path), log.flavour],
        check=False,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
