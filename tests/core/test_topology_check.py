"""What the files of a folder say together of its topologies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from airflow_cdc_provider.core.conflict_rules import ConflictRule, TableRule
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.table_patterns import TablePattern, parse_routes
from airflow_cdc_provider.core.topology import Topology, default_marker
from airflow_cdc_provider.core.topology_check import check_topologies
from airflow_cdc_provider.core.topology_edges import (
    EdgeFile,
    EdgeProblem,
    PipelineEnds,
    ServerName,
    TableScope,
)

SHOP = TableScope((TablePattern.parse("shop.*"),))
TO_DR = replace(SHOP, routes=parse_routes({"shop.*": "dr.*"}))
FROM_DR = TableScope((TablePattern.parse("dr.*"),), routes=parse_routes({"dr.*": "shop.*"}))


def server(node: str, address: str | None = None) -> ServerName:
    return ServerName(f"dsn_env {node.upper()}_DSN", f"{node}:3306" if address is None else address)


def ends(src: str, dst: str, tables: TableScope = SHOP) -> PipelineEnds:
    return PipelineEnds(f"{src}_{dst}.yaml", server(src), server(dst), tables)


def edge(src: str, dst: str, name: str = "t", tables: TableScope = SHOP) -> EdgeFile:
    return EdgeFile(Topology(name, src, dst, default_marker(name)), ends(src, dst, tables))


def with_sink(each: EdgeFile, sink: ServerName) -> EdgeFile:
    return replace(each, ends=replace(each.ends, sink=sink))


PAIR = [edge("a", "b"), edge("b", "a")]


def only(edges: Sequence[EdgeFile], *others: PipelineEnds) -> EdgeProblem:
    (found,) = (each for each in check_topologies(edges, others) if not each.is_warning)
    return found


def test_a_pair_that_copies_the_same_tables_between_two_servers_is_right() -> None:
    assert not check_topologies(PAIR)
    assert not check_topologies([edge("a", "b", tables=TO_DR), edge("b", "a", tables=FROM_DR)])


def test_no_edges_are_no_topology() -> None:
    assert not check_topologies([], [ends("a", "b")])


def test_two_topologies_are_judged_each_by_itself() -> None:
    crm = TableScope((TablePattern.parse("crm.*"),))
    more = [edge("a", "b", "crm", crm), edge("b", "a", "crm", crm)]
    assert not check_topologies([*PAIR, *more])


def test_another_marker_is_refused() -> None:
    back = replace(PAIR[1], edge=replace(PAIR[1].edge, marker=TableId("sync", "marks")))
    found = only([PAIR[0], back])
    assert (found.file, found.key) == ("b_a.yaml", ("topology", "marker"))
    assert "its marker is sync.marks, and that of a_b.yaml is airflow_cdc.t" in found.what


def test_another_shape_is_refused_and_a_mesh_is_not_in_this_release() -> None:
    mesh = [replace(each, edge=replace(each.edge, is_mesh=True)) for each in PAIR]
    found = check_topologies([PAIR[0], mesh[1]])
    assert ["its shape is mesh" in each.what for each in found] == [True, False]
    both = check_topologies(mesh)
    assert [each.file for each in both] == ["a_b.yaml", "b_a.yaml"]
    assert all("between two nodes only" in each.what for each in both)


def test_names_that_differ_by_case_alone_are_refused() -> None:
    respelled = EdgeFile(Topology("t", "B", "a", default_marker("t")), ends("b", "a"))
    problems = check_topologies([PAIR[0], respelled])
    found = problems[0]
    assert (found.file, found.key) == ("b_a.yaml", ("topology", "src_node"))
    assert "a_b.yaml writes b" in found.what
    problems = check_topologies([PAIR[0], edge("b", "a", "T")])
    assert "a_b.yaml writes t" in problems[0].what


def test_two_topologies_of_one_marker_are_refused() -> None:
    crm = TableScope((TablePattern.parse("crm.*"),))
    more = [edge("a", "b", "crm", crm), edge("b", "a", "crm", crm)]
    same = [replace(e, edge=replace(e.edge, marker=TableId("airflow_cdc", "T"))) for e in more]
    assert "is the marker of the topology t (a_b.yaml), too" in only([*PAIR, *same]).what


def test_a_node_that_is_two_servers_is_refused() -> None:
    found = only([PAIR[0], with_sink(PAIR[1], server("a", "other:3306"))])
    assert (found.file, found.key) == ("b_a.yaml", ("sink",))
    assert "node a is other:3306 here, and a:3306 in a_b.yaml" in found.what


def test_a_server_that_is_two_nodes_is_refused() -> None:
    one = ServerName("dsn_env A_DSN", "a:3306")
    found = only([with_sink(edge("a", "b"), one)])
    assert "a:3306 is node b here, and node a in a_b.yaml" in found.what
    unknown = ServerName("conn_id shop")
    there = replace(edge("a", "b"), ends=PipelineEnds("a_b.yaml", unknown, unknown, SHOP))
    assert "is node b here, and node a" in only([there]).what


def test_servers_that_are_not_known_here_are_a_warning_each() -> None:
    found = check_topologies([PAIR[0], with_sink(PAIR[1], server("z", ""))])
    (warning,) = found
    assert warning.is_warning
    assert "dsn_env Z_DSN is not known here" in warning.what


def test_tables_that_do_not_come_back_are_refused_once_for_a_pair() -> None:
    found = only([edge("a", "b", tables=TO_DR), edge("b", "a")])
    assert (found.file, found.key) == ("a_b.yaml", ("source", "tables"))
    assert "shop.x goes to dr.x, and b_a.yaml does not bring dr.x back as shop.x" in found.what
    more = TableScope((TablePattern.parse("shop.*"), TablePattern.parse("crm.*")))
    assert only([edge("a", "b"), edge("b", "a", tables=more)]).file == "b_a.yaml"


def test_a_pipeline_that_copies_from_node_to_node_without_a_marker_is_refused() -> None:
    past = replace(ends("b", "a"), file="past.yaml")
    found = only(PAIR, past)
    assert found.file == "past.yaml"
    assert "such as shop.x, from node b to node a" in found.what


def test_a_pipeline_that_brings_back_what_a_lone_edge_brought_is_refused() -> None:
    past = replace(ends("b", "a", FROM_DR), file="past.yaml")
    found = only([edge("a", "b", tables=TO_DR)], past)
    assert "such as dr.x, from node b to node a" in found.what


def test_a_pipeline_beside_the_edges_is_no_problem() -> None:
    crm = TableScope((TablePattern.parse("crm.*"),))
    reports = replace(SHOP, routes=parse_routes({"shop.*": "reports.*"}))
    beside = [ends("b", "a", crm), ends("b", "a", reports), ends("z", "a"), ends("a", "z")]
    assert not check_topologies(PAIR, beside)


def test_two_topologies_that_copy_the_same_tables_between_two_servers_are_refused() -> None:
    twice = [edge("a", "b", "again"), edge("b", "a", "again")]
    found = check_topologies([*PAIR, *twice])
    assert {each.file for each in found} == {"a_b.yaml", "b_a.yaml"}
    assert all("would go round for ever" in each.what for each in found)


def test_both_edges_of_a_pair_name_the_same_node_for_definitions() -> None:
    there, back = PAIR
    of_a = [replace(each, definitions_from="a") for each in PAIR]
    assert not check_topologies(of_a)
    found = only([of_a[0], back])
    assert (found.file, found.key) == ("b_a.yaml", ("schema_changes", "from_node"))
    assert "here definitions are changed at both nodes, and in a_b.yaml at a" in found.what
    assert "at both nodes" in only([there, of_a[1]]).what


def test_both_edges_of_a_pair_settle_conflicts_alike() -> None:
    def winning(winner: str, each: EdgeFile) -> EdgeFile:
        return replace(each, edge=replace(each.edge, winner=winner))

    there, back = PAIR
    assert not check_topologies([winning("a", there), winning("a", back)])
    assert (
        "here b wins, and in a_b.yaml a wins"
        in only([winning("a", there), winning("b", back)]).what
    )
    stopping = [replace(each, edge=replace(each.edge, stops=True)) for each in PAIR]
    assert not check_topologies(stopping)
    assert "here no conflict is settled, and in" in only([stopping[0], back]).what
    assert "here a wins, and in a_b.yaml a conflict" in only([stopping[0], winning("a", back)]).what
    assert "no conflict is settled" in only([winning("a", there), back]).what
    assert "no conflict is settled" in only([there, winning("a", back)]).what


def test_both_edges_of_a_pair_have_the_same_rules_for_tables_by_the_names_there() -> None:
    def ruled(each: EdgeFile, *rules: tuple[str, ConflictRule], routes: str = "") -> EdgeFile:
        own = tuple(TableRule(TablePattern.parse(tables), rule) for tables, rule in rules)
        scope = each.ends.tables
        if routes:
            scope = replace(scope, routes=parse_routes({"shop.*": routes}))
        edge = replace(each.edge, winner="a", column="at", rules=own)
        return replace(each, edge=edge, ends=replace(each.ends, tables=scope))

    there, back = PAIR
    by_version, by_b = ConflictRule("a", "version"), ConflictRule("b")
    one, two, some = ("shop.x", by_version), ("shop.y", by_b), ("shop.l*", by_b)
    assert not check_topologies([ruled(there, one, two, some), ruled(back, two, one, some)])
    for others in ([one], [one, two, ("shop.l*", by_version)], [one, ("shop.z", by_b), some], []):
        found = only([ruled(there, one, two, some), ruled(back, *others)])
        assert "the nodes would keep different rows" in found.what
    there, back = (replace(each, ends=replace(each.ends, tables=SHOP)) for each in PAIR)
    routed = ruled(there, one, ("shop.*", by_b), routes="dr.*")
    back_scope = TableScope((TablePattern.parse("dr.*"),), routes=parse_routes({"dr.*": "shop.*"}))
    back = replace(back, ends=replace(back.ends, tables=back_scope))
    assert not check_topologies([routed, ruled(back, ("dr.x", by_version), ("dr.*", by_b))])
    assert check_topologies([routed, ruled(back, one, ("dr.*", by_b))])
