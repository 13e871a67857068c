"""An error comes back from its stored form as it was, whatever its texts hold."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from airflow_cdc_provider.core import errors
from airflow_cdc_provider.core.errors import MARKS, CdcError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.stopped_tables import with_way_back
from airflow_cdc_provider.core.stored_error import MOST_CHARACTERS, NO_ERROR, StoredError

KINDS = [
    kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, CdcError)
]
PARTS = ["\n", "\0", "\ud800", " ", '"', "\\", "'", "CDC-INT-004 ", "{", "}", "ä🙂", "..."]
PIECES = st.sampled_from([*MARKS, *PARTS, '{"what": "x"}', "x" * MOST_CHARACTERS])
TEXTS = st.lists(PIECES | st.text(max_size=9), max_size=6).map("".join)
FACTS = st.tuples(TEXTS, TEXTS, TEXTS, TEXTS)
TABLES = st.lists(st.sampled_from(["shop.orders", "a;b.c|d", 'q"', "; where: "]), max_size=3)


def facts_of(error: CdcError) -> tuple[object, ...]:
    return type(error), error.args, error.tables


def shortened(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 3]}..."


@given(st.sampled_from(KINDS), FACTS, TABLES)
@example(errors.ValueRefusedError, ("a", "b; what to do: c", "", "; at risk: "), ["shop.orders"])
@example(errors.FencedError, ("", "", "", ""), [])
def test_an_error_comes_back_equal_but_for_the_end_of_long_texts(
    kind: type[CdcError], facts: tuple[str, str, str, str], tables: list[str]
) -> None:
    stored = StoredError.of(kind(*facts).about(*tables))
    back = stored.read()
    assert facts_of(back) == (kind, tuple(map(shortened, facts)), tuple(tables))
    assert (str(stored), bool(stored), stored.has_code) == (str(back), True, True)
    assert StoredError.of(back) == stored


@given(TEXTS)
def test_a_text_that_is_no_error_is_read_and_printed_as_it_is(text: str) -> None:
    stored = StoredError.saying(text)
    assert (str(stored), stored.read().args) == (shortened(text), (shortened(text), "", "", ""))
    assert (bool(stored), stored.has_code) == (bool(text), False)


@given(st.sampled_from(KINDS), st.lists(st.text("aB{}; :.ä\n"), min_size=4, max_size=4))
def test_what_an_earlier_release_stored_is_read_as_it_did(
    kind: type[CdcError], facts: list[str]
) -> None:
    facts = [fact.rstrip(" ;") for fact in facts]
    stored = StoredError(str(kind(*facts)))
    assert facts_of(stored.read()) == (kind, tuple(facts), ())
    assert (str(stored), stored.has_code) == (stored.text, True)


@pytest.mark.parametrize(
    "text",
    ["it broke", "{", "[]", "{}", "{'what': 1}", '{"a": 1}', "waits: {}", '{"a":' * 100_000],
)
def test_a_text_of_an_earlier_release_that_is_no_error_is_an_error_that_says_it(text: str) -> None:
    stored = StoredError(text)
    assert facts_of(stored.read()) == (CdcError, (text, "", "", ""), ())
    assert (str(stored), stored.has_code) == (text, False)


def test_an_error_of_a_newer_release_is_printed_by_its_own_code() -> None:
    stored = StoredError('{"code": "CDC-NEW-001", "what": "it broke", "remedy": "mend", "on": 1}')
    assert str(stored) == "CDC-NEW-001 it broke; what to do: mend"
    assert stored.read().args == ("CDC-NEW-001: it broke", "", "", "mend")


def test_what_is_stored_is_plain_ascii_in_an_object() -> None:
    stored = StoredError.of(errors.RefusedError("ä\0🙂\ud800"))
    assert stored.text.isascii()
    assert isinstance(json.loads(stored.text), dict)


def test_no_error_is_empty_and_printed_as_nothing() -> None:
    assert (str(NO_ERROR), bool(NO_ERROR)) == ("", False)
    assert NO_ERROR == StoredError.saying("") == StoredError("")


def test_a_table_keeps_its_error_whole_where_the_way_back_is_added() -> None:
    table = TableId("shop", "orders")
    error = errors.RowRefusedError("refused; at risk: all", "t", remedy="mend it").about(table)
    found = with_way_back(StoredError.of(error), table)
    assert (found.what, found.tables) == (error.what, error.tables)
    assert found.remedy == "mend it; then `resume` with --table shop.orders"


def test_a_statement_that_ends_a_text_keeps_one_semicolon() -> None:
    error = errors.PreflightError("Fix: SET PERSIST a = 'b';", "check", remedy="GRANT c;")
    said = f"{error.code} Fix: SET PERSIST a = 'b'; where: check; what to do: GRANT c;"
    assert str(error) == said


def test_the_longest_error_fits_into_a_statement_of_four_megabytes() -> None:
    texts = ["🙂" * (MOST_CHARACTERS + 1)] * 4
    assert 2 * len(StoredError.of(errors.RefusedError(*texts)).text) < 4 << 20
