"""Any schedule of nodes that follow each other ends with all nodes equal.

The engine decides: its writers, guard, settled conflicts and joins are the product's own, with the
topology's judgement of markers. A node, its log, what reads the log, and what the engine asks of a
sink are memory (`node`, `log_reading`, `stores`); `nodes_world` says what must be so, and
`conflict_judge` which conflicts there must be, by the logs alone.

What the model has: transactions of several rows and two tables; batches of any size, parts of
transactions, commits at once and step by step; crashes between any two acts of a writer or a join;
deadlocks, and a guard that loses its connection; commits of others while a transaction is open,
before its rows are locked and after; rows that drift; ranges, lists of keys and intervals that are
read again.

What it has not: locks that are waited for while others go on (a commit is one step), texts as keys,
secondary unique keys, triggers and other DDL, edges that narrow by origin, meshes, edges that begin
while others flow, and the pipeline's own steps: what takes other rules here is the test.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from airflow_cdc_provider.engine.sink import guard, guarded_writes, their_changes
from tests.engine.nodes.nodes_world import BrokenPromiseError, Start, World, Write
from tests.engine.nodes.rows import ITEMS, Scope
from tests.engine.nodes.schedules import (
    Alone,
    Deliver,
    Reread,
    Step,
    Stop,
    Writes,
    own_puts,
    ranges,
    run,
    scopes,
    starts,
    steps,
)
from tests.engine.nodes.stores import Writing

LARGER = ["chain", "chain of 4", "star of 3", "star of 4"]
BY_PRIORITY = ("priority", "priority")
BY_COLUMN = (("column", "column"), ("column", "priority"))
WITH_STOPS = (("stop", "priority"), ("column", "stop"))


def noted(world: World) -> None:
    """Have hypothesis count what the schedules come to."""
    event(f"conflicts: {min(3, sum(len(edge.ledger.conflicts) for edge in world.edges))}")


@settings(max_examples=60)
@given(starts("pair", BY_PRIORITY), steps())
def test_a_pair_ends_equal_by_priority(start: Start, schedule: list[Step]) -> None:
    noted(run(start, schedule))


@settings(max_examples=60)
@given(starts("pair", *BY_COLUMN), steps())
def test_a_pair_ends_equal_by_a_column(start: Start, schedule: list[Step]) -> None:
    noted(run(start, schedule))


@settings(max_examples=80)
@given(st.sampled_from(LARGER), st.data())
def test_nodes_of_a_tree_end_equal(shape: str, data: st.DataObject) -> None:
    start = data.draw(starts(shape, BY_PRIORITY, *BY_COLUMN))
    noted(run(start, data.draw(steps())))


@settings(max_examples=60)
@given(starts("pair", BY_PRIORITY, *BY_COLUMN, rewrites=True), steps(joins=scopes))
def test_rows_of_a_pair_that_are_read_again_undo_nothing(
    start: Start, schedule: list[Step]
) -> None:
    noted(run(start, schedule))


@settings(max_examples=60)
@given(starts("pair", BY_PRIORITY, *BY_COLUMN), steps(joins=scopes))
def test_nodes_end_equal_where_the_guard_begins_again_whenever_it_may(
    start: Start, schedule: list[Step]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(guard, "_IDLE_S", -1.0)
        noted(run(start, schedule))


@settings(max_examples=60)
@given(starts("pair", BY_PRIORITY, *BY_COLUMN), steps(joins=scopes))
def test_nodes_end_equal_where_changes_are_compared_as_columns(
    start: Start, schedule: list[Step]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for module in (guarded_writes, their_changes):
            patch.setattr(module, "_MOST_PLAIN", -1)
        noted(run(start, schedule))


@settings(max_examples=80)
@given(st.sampled_from(LARGER), st.data())
def test_rows_that_are_read_again_undo_nothing(shape: str, data: st.DataObject) -> None:
    start = data.draw(starts(shape, BY_PRIORITY, *BY_COLUMN))
    noted(run(start, data.draw(steps(joins=ranges))))


@settings(max_examples=60)
@given(st.sampled_from(["pair", *LARGER]), st.data())
def test_nodes_that_write_rows_of_their_own_need_no_rule(shape: str, data: st.DataObject) -> None:
    start = data.draw(starts(shape, ("none", "none")))
    run(start, data.draw(steps(own_puts)))


@settings(max_examples=60)
@given(st.sampled_from(["pair", *LARGER]), st.data())
def test_both_edges_end_before_a_conflict_that_a_person_decides(
    shape: str, data: st.DataObject
) -> None:
    start = data.draw(starts(shape, *WITH_STOPS))
    noted(run(start, data.draw(steps())))


@settings(max_examples=80)
@given(starts("pair", BY_PRIORITY, *BY_COLUMN), steps(joins=scopes, stops=True))
def test_a_pair_ends_equal_where_tables_stop_alone_and_come_back(
    start: Start, schedule: list[Step]
) -> None:
    noted(run(start, schedule))


@settings(max_examples=60)
@given(st.sampled_from(LARGER), st.data())
def test_nodes_of_a_tree_end_equal_where_tables_stop_alone(shape: str, data: st.DataObject) -> None:
    start = data.draw(starts(shape, BY_PRIORITY, *BY_COLUMN))
    noted(run(start, data.draw(steps(stops=True))))


@settings(max_examples=60)
@given(st.sampled_from(["pair", *LARGER]), st.data())
def test_a_table_with_a_conflict_that_a_person_decides_stops_alone(
    shape: str, data: st.DataObject
) -> None:
    start = replace(data.draw(starts(shape, *WITH_STOPS)), isolates=True)
    noted(run(start, data.draw(steps(stops=data.draw(st.booleans())))))


def test_a_table_is_known_further_though_its_stream_has_brought_nothing_yet() -> None:
    by_a, by_b = Write("put", 0, 10, 3), Write("put", 0, 10, 4)
    world = run(Start("pair"), [Stop(0), Writes(0, (by_a,)), Alone(0), Writes(1, (by_b,))])
    assert not any(edge.ledger.conflicts for edge in world.edges)


CHANGED_BEHIND: list[Step] = [
    Writes(0, (Write("put", 0, 10, 4),)),
    Deliver(0),
    Deliver(2),
    Writes(2, (Write("put", 0, 10, 4),)),  # c knows the change of a, and b not yet that of c
]
AS_IT_IS = {
    "it is listed": [*CHANGED_BEHIND, Reread(0, Scope(kind="listed"))],
    "the log has touched it": [
        Reread(0, Scope(0, 1, 2, "interval"), acts=1),
        *CHANGED_BEHIND,
        Reread(0, acts=3),
    ],
    "rows cannot be compared": [*CHANGED_BEHIND, Reread(0)],
}


@pytest.mark.xfail(
    raises=BrokenPromiseError, strict=True, reason="so requests into such a node are refused"
)
@pytest.mark.parametrize("why", AS_IT_IS)
def test_a_row_that_joins_as_it_is_undoes_no_change_of_a_node_behind(why: str) -> None:
    """What a join writes at b goes on to c as a change of b's, which wins over c's own."""
    run(Start("chain", writing=Writing(rewrites=why == "rows cannot be compared")), AS_IT_IS[why])


def test_the_same_schedule_ends_well_without_a_join() -> None:
    run(Start("chain"), CHANGED_BEHIND)


def test_a_change_that_comes_to_nothing_on_its_way_is_not_heard_of_behind() -> None:
    """There is a conflict with it between the two ends of one edge alone."""
    by_c, by_a = Write("put", 0, 10, 3), Write("back", 0, 10, 4)
    world = run(Start("chain"), [Writes(2, (by_c,)), Writes(0, (by_a,))])
    assert not any(edge.ledger.conflicts for edge in world.edges)
    assert {node.rows[ITEMS][10][1] for node in world.nodes} == {3}
    world = run(Start("pair"), [Writes(1, (by_c,)), Writes(0, (by_a,))])
    assert [len(edge.ledger.conflicts) for edge in world.edges] == [1, 1]
