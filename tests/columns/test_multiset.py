"""Changes of a table without a key, added up: each row as often as one by one they would leave."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_cdc_provider.columns.changes import Op, TableChanges
from airflow_cdc_provider.columns.multiset import net_rows, with_changes
from airflow_cdc_provider.core.errors import SplitOutdatedError
from airflow_cdc_provider.core.identifiers import TableId

TABLE = TableId("shop", "notes")
SCHEMA = pa.schema([("n", pa.int64()), ("word", pa.string()), ("f", pa.float64())])
Row = tuple[int | None, str | None, float]
Change = tuple[Row | None, Row | None]
ROWS = st.tuples(
    st.sampled_from([None, 1, 2]), st.sampled_from([None, "a", "A"]), st.sampled_from([0.0, -0.0])
)


def batch(rows: Sequence[Row | None]) -> pa.RecordBatch:
    columns = (
        zip(*[row or (None, None, None) for row in rows], strict=True) if rows else ([], [], [])
    )
    arrays = [pa.array(values, kind) for values, kind in zip(columns, SCHEMA.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def changes_of(run: Sequence[Change]) -> TableChanges:
    ops = [
        Op.INSERT if old is None else Op.DELETE if new is None else Op.UPDATE for old, new in run
    ]
    return TableChanges(
        TABLE,
        pa.array(np.zeros(len(run), np.int32)),
        pa.array(np.arange(len(run), dtype=np.int64)),
        pa.array([int(op) for op in ops], pa.int8()),
        batch([old for old, _ in run]),
        batch([new for _, new in run]),
    )


def counted(rows: pa.RecordBatch | pa.Table) -> Counter[str]:
    return Counter(repr(tuple(row.values())) for row in rows.to_pylist())


@st.composite
def runs(draw: st.DrawFn) -> tuple[list[Row], list[Change], list[Row]]:
    """Return rows, a run of changes that they can have, and the rows behind it."""
    before = draw(st.lists(ROWS, max_size=6))
    now, run = [*before], list[Change]()
    for _ in range(draw(st.integers(1, 8))):
        old = draw(st.sampled_from([None, *now]))
        new = draw(ROWS) if old is None else draw(st.one_of(st.none(), ROWS))
        if old is not None:
            del now[next(i for i, row in enumerate(now) if repr(row) == repr(old))]
        if new is not None:
            now.append(new)
        run.append((old, new))
    return before, run, now


@given(runs(), st.integers(0, 8))
def test_a_run_leaves_each_row_as_often_as_its_changes_one_by_one(
    given_run: tuple[list[Row], list[Change], list[Row]], cut: int
) -> None:
    before, run, after = given_run
    parts = [changes_of(part) for part in (run[:cut], run[cut:])]
    net = net_rows(parts)
    gone, came = counted(net.deletes), counted(net.upserts)
    assert not gone & came
    assert counted(batch(before)) - gone + came == counted(batch(after))
    assert not gone - counted(batch(before))
    table = pa.Table.from_batches([batch(before)])
    assert counted(with_changes(table, parts, TABLE)) == counted(batch(after))


def test_changes_that_do_not_fit_the_rows_are_refused() -> None:
    rows = pa.Table.from_batches([batch([(1, "a", 0.0)])])
    run = changes_of([((1, "a", 0.0), None), ((1, "a", -0.0), None)])
    with pytest.raises(SplitOutdatedError, match="takes 1 rows from shop"):
        with_changes(rows, [run], TABLE)
