"""Which keys of a batch's work the sink's node has changed, too."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from airflow_cdc_provider.columns.merge import MergedChanges
from airflow_cdc_provider.core.errors import IntegrityError
from airflow_cdc_provider.engine.sink.guard import Clash, _met, without
from airflow_cdc_provider.engine.sink.selection import TableBatch, TableWork


def work_of(deletes: list[Any], upserts: list[Any], kind: pa.DataType) -> TableWork:
    """Return work on a table whose key is one column of a kind."""
    plan = SimpleNamespace(
        target=SimpleNamespace(primary_key=("k",)),
        sink_table="d.t",
        schema=SimpleNamespace(table="d.t"),
    )
    return TableWork(
        cast("Any", plan),
        MergedChanges(
            pa.record_batch({"k": pa.array(deletes, kind)}),
            pa.record_batch({"k": pa.array(upserts, kind), "v": pa.array(upserts, kind)}),
        ),
    )


def keys(values: list[Any], kind: pa.DataType) -> pa.RecordBatch:
    return pa.record_batch({"k": pa.array(values, kind)})


def met(deletes: list[Any], upserts: list[Any], theirs: list[Any], kind: pa.DataType) -> list[Any]:
    found = _met(work_of(deletes, upserts, kind), [keys(theirs, kind)])
    return [row["k"] for row in found.to_pylist()]


def test_deleted_and_written_keys_meet_those_of_the_sinks_node() -> None:
    assert met([1, 2], [3, 4], [2, 3, 9], pa.int32()) == [2, 3]
    assert met([1, 2], [], [9], pa.int32()) == []


def test_texts_meet_if_they_are_written_alike() -> None:
    assert met(["a"], ["b"], ["b", "c"], pa.string()) == ["b"]


@pytest.mark.parametrize("other", ["A", "a ", "á", "\uff21"])
def test_texts_that_a_collation_may_take_for_one_key_are_an_error(other: str) -> None:
    with pytest.raises(IntegrityError, match="spelled in two ways"):
        met([], ["a"], [other], pa.string())


def test_sharp_s_may_be_two_letters() -> None:
    with pytest.raises(IntegrityError, match="spelled in two ways"):
        met([], ["strasse"], ["straße"], pa.string())


def test_what_clashes_is_left_out_and_the_rest_stays() -> None:
    work = work_of([1, 2], [3, 4], pa.int32())
    clash = Clash(work, keys([2, 3], pa.int32()), ())
    (left,) = without(TableBatch((work,), {}, 1, 0), [clash]).tables
    assert left.merged.deletes.column("k").to_pylist() == [1]
    assert left.merged.upserts.column("k").to_pylist() == [4]
    assert (
        without(
            TableBatch((work,), {}, 1, 0), [Clash(work, keys([1, 2, 3, 4], pa.int32()), ())]
        ).tables
        == ()
    )
