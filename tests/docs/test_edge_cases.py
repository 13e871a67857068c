"""Every edge case has a verdict, tests that exist, and its line on the page."""

from __future__ import annotations

import re
from functools import cache

from tests.docs.edge_cases import PAGE, VERDICTS, edge_cases, functions, page_text
from tests.docs.pages import DOCS, ROOT

CASES = 122


def test_every_case_is_in_the_table_once() -> None:
    cases = edge_cases()
    assert [case.number for case in cases] == list(range(1, CASES + 1))
    assert {case.verdict for case in cases} == set(VERDICTS)


def test_every_test_that_is_named_exists() -> None:
    names = cache(functions)
    missing = [
        test
        for case in edge_cases()
        for test in case.tests
        for file, _, name in [test.partition("::")]
        if not name.startswith("test_") or name not in names(ROOT / "tests" / file)
    ]
    assert missing == []


def test_a_case_has_a_test_and_a_limit_has_its_place_in_the_docs() -> None:
    for case in edge_cases():
        assert case.tests, case.number
        assert bool(case.docs) == (case.verdict == "limit"), case.number
        if case.docs:
            page, _, anchor = case.docs.partition("#")
            assert anchor in headings(page), case.docs


def headings(page: str) -> set[str]:
    """Return the anchors that a page's headings have."""
    found = re.findall(r"^#+ (.+)$", (DOCS / page).read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in found}


def test_the_page_is_made_from_the_table() -> None:
    assert PAGE.read_text(encoding="utf-8") == page_text(edge_cases())
