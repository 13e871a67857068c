"""The page of settings is what the test of settings goes through."""

from __future__ import annotations

from tests.docs.settings import PAGE, page_text


def test_the_page_is_made_from_the_tests_own_table() -> None:
    assert PAGE.read_text(encoding="utf-8") == page_text()
