"""What errors advise on an edge of a topology."""

from __future__ import annotations

import pytest

from airflow_cdc_provider.core.edge_remedies import INSTEAD, for_edge
from airflow_cdc_provider.core.errors import (
    IntegrityError,
    RowRefusedError,
    SnapshotRequiredError,
)
from airflow_cdc_provider.core.topology import Topology, default_marker

PLAIN = Topology("shops", "berlin", "paris", default_marker("shops"))
GUARDED = Topology("shops", "berlin", "paris", default_marker("shops"), winner="berlin")


@pytest.mark.parametrize(
    "remedy",
    [
        "`reset` the pipeline",
        "give the row another value, or `reset` with --table",
        "`accept` the source with --source",
        "`skip FILE --at 1:2 --reason TEXT`",
    ],
)
@pytest.mark.parametrize("edge", [PLAIN, GUARDED])
def test_what_an_edge_refuses_is_said_to_be(remedy: str, edge: Topology) -> None:
    error = SnapshotRequiredError("the log is gone", "here", remedy=remedy)
    told = for_edge(error, edge)
    assert (told.remedy, told.code) == (remedy + INSTEAD, error.code)
    assert for_edge(told, edge) is told
    assert for_edge(error, None) is error


@pytest.mark.parametrize("remedy", ["`verify FILE --repair` it", "`resync` with --table t.t"])
def test_rows_are_read_again_where_conflicts_are_settled(remedy: str) -> None:
    error = IntegrityError("a row differs", "here", remedy=remedy)
    assert for_edge(error, PLAIN).remedy == remedy + INSTEAD
    assert for_edge(error, GUARDED) is error


@pytest.mark.parametrize("edge", [PLAIN, GUARDED])
def test_a_row_that_a_node_does_not_take_is_changed_where_it_was_written(edge: Topology) -> None:
    error = RowRefusedError("Duplicate entry", "here", remedy="`reset` with --table and run")
    told = for_edge(error, edge)
    assert "give both rows other values, each at its node; then `resume`" in told.remedy
    assert "`reset`" not in told.remedy
    large = RowRefusedError("a row is too large", remedy="raise max_allowed_packet")
    assert for_edge(large, edge) is large


@pytest.mark.parametrize("edge", [PLAIN, GUARDED])
def test_one_table_of_an_edge_may_be_resumed(edge: Topology) -> None:
    remedy = "make both nodes alike, then `resume` it with --table shop.orders; else wait"
    error = IntegrityError("it was changed", "here", remedy=remedy).about("shop.orders")
    assert for_edge(error, edge) is error
