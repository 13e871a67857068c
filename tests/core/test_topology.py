"""An edge of a topology: its names, its form as JSON, and what it leaves out."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.markers import Marker
from airflow_cdc_provider.core.topology import Topology, default_marker, is_topology_name

NAMES = st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,63}", fullmatch=True)
EDGES = st.builds(
    Topology,
    name=NAMES,
    src_node=NAMES,
    dst_node=NAMES,
    marker=st.builds(TableId, st.text(min_size=1), st.text(min_size=1)).filter(
        lambda table: "\0" not in str(table)
    ),
    do_nodes=st.lists(NAMES, max_size=3).map(tuple),
    ignore_nodes=st.lists(NAMES, max_size=3).map(tuple),
    is_mesh=st.booleans(),
)


@given(EDGES)
def test_an_edge_is_read_back_from_json_as_it_was(edge: Topology) -> None:
    assert Topology.from_json(json.loads(json.dumps(edge.to_json()))) == edge


def test_a_field_that_is_not_known_is_refused() -> None:
    form = Topology("t", "a", "b", default_marker("t")).to_json()
    with pytest.raises(ValueError, match="guard"):
        Topology.from_json({**form, "guard": True})


@pytest.mark.parametrize(
    ("name", "is_one"), [("a", True), ("a" * 64, True), ("a" * 65, False), ("a-b", False)]
)
def test_names_are_letters_digits_and_underscores(name: str, *, is_one: bool) -> None:
    assert is_topology_name(name) is is_one


def test_an_edge_leaves_out_what_came_from_its_sink_and_what_the_file_says() -> None:
    edge = Topology("t", "a", "b", default_marker("t"), ignore_nodes=("d",))
    origins = edge.origins()
    assert origins.marker == TableId("airflow_cdc", "t")
    assert not origins.leaves_out(None)
    assert origins.leaves_out(Marker("b", "b", "a"))
    assert origins.leaves_out(Marker("d", "c", "a"))
    assert not origins.leaves_out(Marker("c", "c", "a"))
