"""An edge of a topology: its names, its form as JSON, and what it leaves out."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_cdc_provider.core.conflict_rules import ConflictRule, TableRule
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.markers import Marker
from airflow_cdc_provider.core.table_patterns import TablePattern
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


def edge_with(winner: str, **rules: ConflictRule) -> Topology:
    own = (TableRule(TablePattern.parse(f"bank.{name}"), rule) for name, rule in rules.items())
    return Topology(
        "banks", "berlin", "paris", default_marker("banks"), winner=winner, rules=tuple(own)
    )


def test_one_table_with_a_rule_is_no_conflict_with_other_rules() -> None:
    assert edge_with("berlin").settles == "berlin wins"
    one = edge_with("berlin", accounts=ConflictRule(""))
    assert one.settles == "berlin wins; own rules for 1 table or pattern"


def test_rules_that_changed_are_named_with_the_former_ones() -> None:
    stops, by_version = ConflictRule(""), ConflictRule("berlin", "version")
    before = edge_with("berlin", accounts=stops, rates=ConflictRule("paris"), same=stops)
    now = edge_with("paris", accounts=by_version, same=stops, stock=by_version)
    assert now.rules_since(before) == (
        "tables without a rule of their own: paris wins, before: berlin wins; "
        "bank.accounts: the greater version wins, then berlin, before: a conflict stops the table; "
        "bank.stock: the greater version wins, then berlin, before: no rule of its own; "
        "bank.rates: no rule of its own, before: paris wins"
    )


def test_of_many_rules_that_changed_a_few_are_named_and_the_rest_is_counted() -> None:
    many = edge_with("berlin", **{f"t{number}": ConflictRule("") for number in range(9)})
    assert many.rules_since(edge_with("berlin")).endswith(
        "; bank.t4: a conflict stops the table, before: no rule of its own; and 4 more"
    )


def test_rules_in_another_order_are_said_to_be_that() -> None:
    first, second = ConflictRule(""), ConflictRule("paris")
    one, other = edge_with("berlin", a=first, b=second), edge_with("berlin", b=second, a=first)
    assert one.rules_since(other) == "the same ones in another order"
