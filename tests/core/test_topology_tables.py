"""Tables that go there and come back, held against every short name there is."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.table_patterns import TablePattern, parse_routes
from airflow_cdc_provider.core.topology_edges import TableScope
from airflow_cdc_provider.core.topology_tables import brought_past, no_way_back


def scope(tables: str, *, without: str = "", **routes: str) -> TableScope:
    """Return the tables of a file; routes are of whole databases: `shop="dr"`."""
    return TableScope(
        tuple(TablePattern.parse(each) for each in tables.split()),
        tuple(TablePattern.parse(each) for each in without.split()),
        parse_routes({f"{source}.*": f"{target}.*" for source, target in routes.items()}),
    )


@pytest.mark.parametrize(
    ("there", "back"),
    [
        (scope("shop.*"), scope("shop.*")),
        (scope("shop.*", shop="dr"), scope("dr.*", dr="shop")),
        (scope("shop.a shop.b"), scope("shop.b shop.a")),
        (scope("shop.*", without="shop.tmp_*"), scope("shop.*", without="shop.tmp_*")),
        (scope("a.* b.*", a="x", b="y"), scope("x.* y.*", x="a", y="b")),
    ],
)
def test_what_comes_back_as_it_went_is_the_same(there: TableScope, back: TableScope) -> None:
    assert no_way_back(there, back) is None
    assert no_way_back(back, there) is None


@pytest.mark.parametrize(
    ("there", "back", "table", "target"),
    [
        (scope("shop.* crm.*"), scope("shop.*"), "crm.x", "crm.x"),
        (scope("shop.*", shop="dr"), scope("dr.*"), "shop.x", "dr.x"),
        (scope("shop.*", shop="dr"), scope("shop.*"), "shop.x", "dr.x"),
        (scope("shop.*"), scope("shop.*", without="shop.tmp_*"), "shop.tmp_x", "shop.tmp_x"),
        (scope("shop.*"), scope("shop.a"), "shop.x", "shop.x"),
    ],
)
def test_a_table_that_does_not_come_back_is_named(
    there: TableScope, back: TableScope, table: str, target: str
) -> None:
    assert no_way_back(there, back) == (TableId.parse(table), TableId.parse(target))


SHORT = ["".join(each) for size in (1, 2, 3) for each in product("abc", repeat=size)]
"""Names that any difference between the patterns below shows in."""
NAMES = st.sampled_from(["a", "b", "ab", "*", "a*", "*a", "b*"])
PATTERNS = st.lists(NAMES.map(lambda name: TablePattern.parse(f"d.{name}")), min_size=1, max_size=3)
ROUTES = st.dictionaries(
    st.sampled_from(["d.a", "d.b", "d.a*", "d.*"]).filter(bool),
    st.sampled_from(["d.a", "d.b", "d.ab"]),
    max_size=1,
) | st.dictionaries(
    st.sampled_from(["d.*", "d.a*"]), st.sampled_from(["d.*", "d.b*", "d.a*", "d.*b"]), max_size=2
)
SCOPES = st.builds(
    lambda patterns, excluded, routes: TableScope(
        tuple(patterns), tuple(excluded), parse_routes(routes)
    ),
    PATTERNS,
    PATTERNS | st.just([]),
    ROUTES,
)


@given(SCOPES, SCOPES)
@example(scope("d.*", d="d"), scope("d.*"))
def test_a_difference_in_any_short_name_is_found_and_each_found_is_one(
    there: TableScope, back: TableScope
) -> None:
    def is_lost(table: TableId) -> bool:
        target = there.target_of(table)
        return target is not None and back.target_of(target) != table

    found = no_way_back(there, back)
    lost = [name for name in SHORT if is_lost(TableId("d", name))]
    assert (found is None) <= (not lost)
    if found is not None:
        assert is_lost(found[0])


@given(SCOPES, SCOPES, SCOPES)
def test_a_table_that_is_read_and_brought_past_the_edges_is_found(
    outside: TableScope, near: TableScope, far: TableScope
) -> None:
    def is_past(table: TableId) -> bool:
        target = outside.target_of(table)
        return target is not None and near.picks(table) and far.picks(target)

    past = [name for name in SHORT if is_past(TableId("d", name))]
    found = brought_past(outside, read_there=[near], written_there=[], read_here=[far])
    assert (found is None) <= (not past)
    assert found is None or is_past(found)


@given(SCOPES, SCOPES, SCOPES)
def test_a_table_that_was_written_and_is_brought_past_the_edges_is_found(
    outside: TableScope, near: TableScope, far: TableScope
) -> None:
    def past_of(table: TableId) -> TableId | None:
        written = near.target_of(table)
        target = None if written is None else outside.target_of(written)
        return written if target is not None and far.picks(target) else None

    past = {past_of(TableId("d", name)) for name in SHORT} - {None}
    found = brought_past(outside, read_there=[], written_there=[near], read_here=[far])
    assert (found is None) <= (not past)
    target = None if found is None else outside.target_of(found)
    assert found is None or (target is not None and far.picks(target))
