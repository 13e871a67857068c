"""The shape of a topology's edges, held against a walk of every origin over all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import permutations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from airflow_cdc_provider.core.errors import IntegrityError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.markers import EdgeOrigins, Marker
from airflow_cdc_provider.core.topology import Topology
from airflow_cdc_provider.core.topology_edges import EdgeFile, EdgeProblem, PipelineEnds, nodes_of
from airflow_cdc_provider.core.topology_shape import brought, wrong_shape

MARKS = TableId("airflow_cdc", "t")
NODES = "abcde"
Pair = tuple[str, str]
PAIRS = list(permutations(NODES, 2))


def edge(src: str, dst: str, *, do: str = "", ignore: str = "", is_mesh: bool = False) -> EdgeFile:
    topology = Topology("t", src, dst, MARKS, tuple(do), tuple(ignore), is_mesh=is_mesh)
    return EdgeFile(topology, PipelineEnds(f"{src}_{dst}.yaml"))


def edges_of(text: str, *, is_mesh: bool = False) -> list[EdgeFile]:
    """Return edges from text: `ab ba` are two, from a to b and back."""
    return [edge(*pair, is_mesh=is_mesh) for pair in text.split()]


def problems(edges: Sequence[EdgeFile]) -> list[EdgeProblem]:
    return [each for each in wrong_shape(edges) if not each.is_warning]


class Walk:
    """Every node writes one transaction, and each edge carries what its rule lets through.

    What comes over one edge goes on as one transaction, which is the most that may be in one.
    """

    def __init__(self, edges: Sequence[EdgeFile]) -> None:
        self.arrived: Counter[tuple[str, str]] = Counter()
        """By node and origin."""
        self.carried: dict[Pair, set[str]] = {each.pair: set() for each in edges}
        self.went_wrong = False
        self._rules = [each.edge.origins() for each in edges]
        for node in nodes_of(edges):
            self._leave(node, None)

    def _leave(self, node: str, came: frozenset[Marker] | None) -> None:
        """Let a transaction at a node go on over its edges; None has no marker."""
        for rule in (rule for rule in self._rules if rule.src_node == node and not self.went_wrong):
            for origins in self._let_through(rule, came):
                self._arrive(rule, origins)

    def _let_through(
        self, rule: EdgeOrigins, came: frozenset[Marker] | None
    ) -> list[frozenset[str]]:
        if came is None:
            return [] if rule.leaves_out(None) else [frozenset({rule.src_node})]
        try:
            verdicts = {marker: rule.leaves_out(marker) for marker in came}
        except IntegrityError:
            self.went_wrong = True
            return []
        if len(set(verdicts.values())) > 1:
            self.went_wrong = True
        kept = frozenset(marker.origin_node for marker in came if not verdicts[marker])
        return [kept] if kept else []

    def _arrive(self, rule: EdgeOrigins, origins: frozenset[str]) -> None:
        for origin in origins:
            self.arrived[rule.dst_node, origin] += 1
            self.went_wrong |= origin == rule.dst_node
            self.went_wrong |= self.arrived[rule.dst_node, origin] > 1
        self.carried[rule.src_node, rule.dst_node] |= origins
        marks = frozenset(Marker(each, rule.src_node, rule.dst_node) for each in origins)
        self._leave(rule.dst_node, marks)


class TogetherWalk(Walk):
    """What an edge carries at any time may be one transaction: its origins are gathered first."""

    def __init__(self, edges: Sequence[EdgeFile]) -> None:
        super().__init__(edges)
        for each in edges:
            src, dst = each.pair
            together = frozenset(Marker(origin, src, dst) for origin in self.carried[each.pair])
            for rule in (rule for rule in self._rules if rule.src_node == dst and together):
                self._let_through(rule, together)


def every_node_gets_every_origin_once(edges: Sequence[EdgeFile]) -> bool:
    walk = TogetherWalk(edges)
    nodes = nodes_of(edges)
    wanted = Counter((node, origin) for node in nodes for origin in nodes if node != origin)
    return not walk.went_wrong and walk.arrived == wanted


def has_one_way_between_any_two(edges: Sequence[EdgeFile]) -> bool:
    """Tell whether nodes are joined by exactly one way, by trying all ways, and once each way."""
    if len({each.pair for each in edges}) < len(edges):
        return False
    links = {frozenset(each.pair) for each in edges}
    nodes = nodes_of(edges)

    def ways(at: str, end: str, seen: frozenset[str]) -> int:
        if at == end:
            return 1
        nexts = [node for node in nodes if node not in seen and frozenset({at, node}) in links]
        return sum(ways(node, end, seen | {node}) for node in nexts)

    return all(ways(a, b, frozenset({a})) == 1 for a in nodes for b in nodes if a != b)


@given(st.lists(st.sampled_from([pair for pair in PAIRS if pair[0] < pair[1]]), min_size=1))
@example([("a", "b"), ("b", "c"), ("a", "c")])
@example([("a", "b"), ("c", "d")])
@example([("a", "b"), ("a", "b")])
def test_edges_that_go_both_ways_are_a_tree_if_and_only_if_all_comes_once(
    links: list[Pair],
) -> None:
    edges = [edge(*pair) for link in links for pair in (link, link[::-1])]
    assert (not problems(edges)) is every_node_gets_every_origin_once(edges)


@given(st.lists(st.sampled_from(PAIRS), min_size=1, max_size=24))
@example(list(permutations("abc", 2)))
@example([*permutations("abc", 2), ("a", "b")])
@example(PAIRS)
@example(PAIRS[1:])
def test_edges_are_a_mesh_if_and_only_if_all_comes_once(pairs: list[Pair]) -> None:
    edges = [edge(*pair, is_mesh=True) for pair in pairs]
    assert (not problems(edges)) is every_node_gets_every_origin_once(edges)


@st.composite
def narrowed(draw: st.DrawFn, pair: Pair) -> EdgeFile:
    """Return an edge with nodes that it is to bring, or not, as a file may name them."""
    src, dst = pair
    do = draw(st.sets(st.sampled_from(sorted({*NODES} - {dst})), max_size=3))
    ignore = draw(st.sets(st.sampled_from(sorted({*NODES} - do)), max_size=2))
    return edge(src, dst, do="".join(sorted(do)), ignore="".join(sorted(ignore)))


@st.composite
def near_trees(draw: st.DrawFn) -> list[EdgeFile]:
    """Return edges of all five nodes that are a tree but for at most one link, narrowed or not."""
    links = [(NODES[draw(st.integers(0, at - 1))], NODES[at]) for at in range(1, len(NODES))]
    links += draw(st.lists(st.sampled_from(PAIRS), max_size=1))
    pairs: list[Pair] = []
    for link in links:
        pairs += draw(st.sampled_from(([link], [link[::-1]], [link, link[::-1]])))
    which = draw(st.sets(st.sampled_from(sorted(pairs)), max_size=2))
    return [draw(narrowed(pair)) if pair in which else edge(*pair) for pair in pairs]


@settings(max_examples=400)
@given(near_trees())
@example([edge("a", "b"), edge("b", "c", ignore="a"), edge("c", "d"), edge("d", "e")])
@example([edge("a", "b"), edge("b", "c"), edge("c", "d", ignore="a"), edge("d", "e")])
def test_a_tree_with_narrowed_edges_is_right_if_and_only_if_nothing_comes_twice_or_in_parts(
    edges: list[EdgeFile],
) -> None:
    walk = TogetherWalk(edges)
    is_used = all(walk.carried.values())
    is_right = has_one_way_between_any_two(edges) and not walk.went_wrong and is_used
    assert (not problems(edges)) is is_right
    if is_right:
        assert brought(edges) == walk.carried


def only(edges: Sequence[EdgeFile]) -> EdgeProblem:
    (found,) = problems(edges)
    return found


def test_a_loop_is_named_by_its_nodes() -> None:
    found = only(edges_of("ab ba bc cb ca ac"))
    assert found.file == "c_a.yaml"
    assert "c - b - a - c is a loop" in found.what


def test_parts_of_a_tree_that_no_edge_joins_are_named() -> None:
    found = only(edges_of("ab ba cd dc"))
    assert (found.file, found.key) == ("c_d.yaml", ("topology", "name"))
    assert "no edge joins c and d with a and b" in found.what


def test_an_edge_that_is_there_twice_is_named_with_the_other_file() -> None:
    other = EdgeFile(edge("a", "b").edge, PipelineEnds("again.yaml"))
    found = only([*edges_of("ab ba"), other])
    assert found.file == "again.yaml"
    assert "a_b.yaml goes from a to b, too" in found.what


def test_each_edge_that_a_mesh_lacks_is_named() -> None:
    found = problems(edges_of("ab ba bc cb ca", is_mesh=True))
    assert ["none goes from a to c" in each.what for each in found] == [True]


def test_a_node_that_no_edge_joins_is_named_with_the_one_that_may_be_meant() -> None:
    far = Topology("t", "berlin", "paris", MARKS, do_nodes=("berlim",))
    found = only([EdgeFile(far, PipelineEnds("far.yaml"))])
    assert (found.key, found.fix) == (("topology", "do_nodes", 0), "did you mean berlin?")


def test_an_edge_that_lets_nothing_through_is_refused() -> None:
    found = only([edge("a", "b", ignore="a"), edge("b", "a")])
    assert "brings nothing to b" in found.what


def test_origins_of_one_transaction_go_on_together_or_not_at_all() -> None:
    chain = edges_of("ab bc")
    found = only([*chain, edge("c", "d", ignore="a")])
    assert found.key == ("topology", "ignore_nodes")
    assert "b_c.yaml brings changes of a and b to c" in found.what
    assert not problems([*chain, edge("c", "d", do="c")])


def test_an_edge_without_one_back_is_a_warning() -> None:
    (found,) = wrong_shape(edges_of("ab"))
    assert found.is_warning
    assert "what is written at b does not come back" in found.what
    assert not wrong_shape(edges_of("ab ba"))


def test_a_node_whose_changes_do_not_come_that_way_is_a_warning() -> None:
    (found,) = wrong_shape([edge("a", "b", do="ac"), *edges_of("ba bc cb")])
    assert found.is_warning
    assert "changes of c do not come to a" in found.what
