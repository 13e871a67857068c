"""Names are written in one spelling that is read back, and patterns fit what they say."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.table_patterns import (
    Route,
    TablePattern,
    every_table_of,
    parse_routes,
    sink_table,
    words_of,
)
from airflow_cdc_provider.core.table_picks import TablePicks, exclude_line
from airflow_cdc_provider.core.wrong_value import WrongValueError
from tests.strategies import table_ids


@given(table_ids)
@example(TableId("a.", "b"))
@example(TableId("a", ".b"))
@example(TableId(".", "`"))
@example(TableId("/a/", "`b`.`c`"))
def test_every_name_is_read_back_from_how_it_is_shown(table: TableId) -> None:
    assert TableId.parse(str(table)) == table


@given(table_ids, table_ids)
@example(TableId("a*", "/b/"), TableId("ab", "b"))
def test_a_tables_own_pattern_picks_it_alone(table: TableId, other: TableId) -> None:
    pattern = TablePattern.parse(str(TablePattern.of(table)))
    assert (pattern.exact, pattern.matches(table)) == (table, True)
    assert pattern.matches(other) is (table == other)


@given(st.text(st.sampled_from("ab*./`\\{1}|( '"), max_size=14))
@example("`db`.a..tmp*")
@example("`db`...tmp*")
@example("a./b\\/c*/")
def test_every_pattern_is_read_back_from_how_it_is_shown(text: str) -> None:
    try:
        pattern = TablePattern.parse(text)
    except WrongValueError:
        return
    assert TablePattern.parse(str(pattern)) == pattern


@pytest.mark.parametrize(
    ("text", "table"),
    [
        ("`shop`.`orders`", ("shop", "orders")),
        ("shop.`a.b``c* d`", ("shop", "a.b`c* d")),
        ("`a.b`.c..d", ("a.b", "c.d")),
        ('shop.it\'s "x", y', ("shop", 'it\'s "x", y')),
        ("shop./x/", ("shop", "/x/")),
    ],
)
def test_a_name_in_backticks_has_any_characters(text: str, table: tuple[str, str]) -> None:
    assert TableId.parse(text) == TableId(*table)


@pytest.mark.parametrize("text", ["", ".", "a", "a.b.c", "`a.b", "a.`b", "a.``", "`a`b.c", "a.b."])
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected 'database\.table'"):
        TableId.parse(text)


@pytest.mark.parametrize(
    ("pattern", "picked", "others"),
    [
        ("/shop_[0-9]+/.orders", ["shop_1.orders", "shop_42.orders"], ["shop_.orders"]),
        ("/shop_[0-9]+/.orders", [], ["my_shop_1.orders", "shop_1_old.orders", "shop_1.order"]),
        ("shop./orders|items/", ["shop.orders", "shop.items"], ["shop.orders2", "shop.myitems"]),
        (r"shop./a\/b|c\d/", ["shop.a/b", "shop.c7"], ["shop.a", "shop.cd"]),
        (r"/a\.b/.*", ["a..b.x"], ["axb.x"]),
        ("shop.`a*b`", ["shop.a*b"], ["shop.aab", "shop.ab"]),
        ("shop.`/x/`", ["shop./x/"], ["shop.x"]),
        ("shop./x.*y/", ["shop.x..y", "shop.x\ny"], ["shop.xz"]),
    ],
)
def test_a_pattern_picks_what_it_says(pattern: str, picked: list[str], others: list[str]) -> None:
    parsed = TablePattern.parse(pattern)
    assert [name for name in picked if not parsed.matches(TableId.parse(name))] == []
    assert [name for name in others if parsed.matches(TableId.parse(name))] == []
    assert TablePattern.parse(str(parsed)) == parsed
    picks = TablePicks((pattern,))
    assert [name for name in picked if TableId.parse(name) not in picks] == []
    assert [name for name in others if TableId.parse(name) in picks] == []


def test_case_counts_in_a_regular_expression_unless_the_server_folds_it() -> None:
    pattern, table = TablePattern.parse("/Shop_[a-z]/.Orders"), TableId("shop_A", "orders")
    assert not pattern.matches(table)
    assert pattern.matches(table, ignore_case=True)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("/shop_(/.orders", "no regular expression"),
        ("/shop.orders", "no name begins at '/shop.orders'"),
        ("shop./orders/x", "behind the end"),
        ("`shop`*.orders", "behind the end"),
        ("shop.`orders", "no name begins"),
        ("//.orders", "no name begins"),
        ("`shop`...tmp*", "write it as a regular expression"),
        ("shop.*..", "write it as a regular expression"),
        (f"shop.{'x' * 65}", "more than 64"),
    ],
)
def test_what_is_no_pattern_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(WrongValueError, match=why):
        TablePattern.parse(text)


@pytest.mark.parametrize(
    ("source", "target", "table", "goes_to"),
    [
        ("/shop_([0-9]+)/.*", "dw.*_of_{1}", "shop_7.orders", "dw.orders_of_7"),
        ("/s_(a|b)/./(.*)_(x|y)/", "{3}.{2}{1}", "s_b.o_x", "x.ob"),
        ("/s(_old)?/.*", "dw{1}.*", "s.o", "dw.o"),
        ("/(?:a|b)_(c)/.t", "{1}.t", "b_c.t", "c.t"),
        ("/(.)/.*", "{1}.*{1}", "x.*{1}", "x.*{1}x"),
        ("a./b/", "`{1}`.`*`", "a.b", "{1}.*"),
        ("a.`b*`", "c.d", "a.b*", "c.d"),
    ],
)
def test_a_route_fills_groups_in(source: str, target: str, table: str, goes_to: str) -> None:
    routes = parse_routes({source: target})
    assert sink_table(TableId.parse(table), routes) == TableId.parse(goes_to)


@pytest.mark.parametrize(
    ("source", "target", "why"),
    [
        ("/a_([0-9])/.b", "c.d{2}", r"\{2\} .* has 1 group"),
        ("a.b", "c.d{1}", "has no groups"),
        ("/a/.b", "c.d{0}", "stands for nothing"),
        ("/a_(.*)/.b", "c*.d", "stands for nothing"),
        ("a.b", "c./d/", "a table goes to one"),
    ],
)
def test_a_route_whose_right_side_is_not_known_is_refused(
    source: str, target: str, why: str
) -> None:
    with pytest.raises(WrongValueError, match=why):
        Route.parse(source, target)


def test_exact_names_go_before_regular_expressions_in_routes() -> None:
    routes = parse_routes({"/s.*/.*": "x.*", "`s`.`o`": "y.o"})
    assert [str(sink_table(TableId.parse(t), routes)) for t in ("s.o", "s.p")] == ["y.o", "x.p"]


def test_a_line_of_patterns_is_cut_outside_of_names_and_regular_expressions() -> None:
    line = "1,3-5 shop.*, `a b`.`c, ``d`  /x{1,2}/.y a/b.c,d/e.f"
    words = ["1", "3-5", "shop.*", "`a b`.`c, ``d`", "/x{1,2}/.y", "a/b.c", "d/e.f"]
    assert words_of(line) == words


def test_names_of_a_file_are_patterns_of_one_table() -> None:
    tables = [TableId("shop", "a*b"), TableId("/x/", 'q"r'), TableId("a.b", "c")]
    assert exclude_line(tables) == r'exclude: ["shop.`a*b`", "`/x/`.q\"r", "a..b.c"]'
    assert every_table_of(TableId("a*.b", "t")) == "`a*.b`.*"
