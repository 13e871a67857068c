"""Which transactions an edge leaves out, by their markers: trees, meshes, and what is refused."""

from __future__ import annotations

import pytest

from airflow_cdc_provider.core.errors import IntegrityError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.markers import EdgeOrigins, Marker

MARKER = TableId("airflow_cdc", "pair")


def edge(src: str, dst: str, **options: object) -> EdgeOrigins:
    return EdgeOrigins(MARKER, src, dst, **options)  # type: ignore[arg-type]


def test_a_pair_brings_what_was_written_here_and_not_what_came_from_there() -> None:
    assert not edge("a", "b").leaves_out(None)
    assert edge("a", "b").leaves_out(Marker("b", "b", "a"))


def test_a_hub_brings_a_leafs_changes_to_the_other_leaves_alone() -> None:
    from_leaf = Marker("leaf1", "leaf1", "hub")
    assert edge("hub", "leaf1").leaves_out(from_leaf)
    assert not edge("hub", "leaf2").leaves_out(from_leaf)
    assert edge("leaf2", "hub").leaves_out(Marker("leaf1", "hub", "leaf2"))


def test_a_chain_brings_on_what_came_from_its_other_end() -> None:
    assert not edge("b", "c").leaves_out(Marker("a", "a", "b"))
    assert edge("b", "a").leaves_out(Marker("a", "a", "b"))


def test_a_mesh_brings_nothing_that_was_written_elsewhere() -> None:
    for came_from in ("b", "c"):
        assert edge("a", "b", is_mesh=True).leaves_out(Marker(came_from, came_from, "a"))
    assert not edge("a", "b", is_mesh=True).leaves_out(None)


def test_do_nodes_and_ignore_nodes_narrow_by_origin_what_was_written_here_included() -> None:
    relayed = Marker("leaf1", "leaf1", "hub")
    only_hub = edge("hub", "leaf2", do_nodes=frozenset({"hub"}))
    assert (only_hub.leaves_out(None), only_hub.leaves_out(relayed)) == (False, True)
    not_hub = edge("hub", "leaf2", ignore_nodes=frozenset({"hub"}))
    assert (not_hub.leaves_out(None), not_hub.leaves_out(relayed)) == (True, False)


@pytest.mark.parametrize(
    ("marker", "message"),
    [
        (Marker("b", "b", "c"), "written at another node"),
        (Marker("b", "c", "a"), "by a detour"),
    ],
)
def test_a_marker_that_no_edge_of_a_tree_writes_is_refused(marker: Marker, message: str) -> None:
    with pytest.raises(IntegrityError, match=message) as refused:
        edge("a", "b").leaves_out(marker)
    assert "go round for ever" in str(refused.value)


def test_a_folded_name_is_the_markers_where_the_server_folds_names() -> None:
    other = TableId("Airflow_CDC", "PAIR")
    assert not edge("a", "b").is_marker(other)
    assert edge("a", "b", folds_case=True).is_marker(other)
