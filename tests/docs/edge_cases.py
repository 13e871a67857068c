"""The table of edge cases, and the page that is made from it.

    python -m tests.docs.edge_cases

writes the page anew.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.docs.pages import DOCS, ROOT

PAGE = DOCS / "edge_cases.md"
TABLE = ROOT / "tests" / "edge_cases.yaml"
VERDICTS = ("right", "refused", "limit")
_HEAD = """\
# Edge cases

Cases that copies of MySQL tables are known to get wrong, and what becomes of each here.
"""
_VERDICTS = """
| verdict | meaning |
|---|---|
| right | the sink ends with what the source has |
| refused | it is named and stops before a row is wrong or lost |
| limit | not everything is promised; the linked page says what |

The tests are those of the project's `tests/`; each fails where its case is got wrong.
"""
_COLUMNS = """
| # | case | verdict | what happens | tests |
|---|---|---|---|---|
"""


@dataclass(frozen=True)
class EdgeCase:
    """One case, what becomes of it, and the tests that show it."""

    section: str
    number: int
    case: str
    verdict: str
    outcome: str
    tests: tuple[str, ...]
    docs: str = ""


def edge_cases() -> list[EdgeCase]:
    """Read the table."""
    section, found = "", []
    entries: list[dict[str, Any]] = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    for entry in entries:
        if "section" in entry:
            section = entry["section"]
        else:
            found.append(EdgeCase(section, **(entry | {"tests": tuple(entry["tests"])})))
    return found


def page_text(cases: list[EdgeCase]) -> str:
    """Write the page."""
    return "".join([_HEAD, _VERDICTS, *_sections(cases)])


def _sections(cases: list[EdgeCase]) -> Iterator[str]:
    section = ""
    for case in cases:
        if case.section != section:
            section = case.section
            yield f"\n## {section}\n{_COLUMNS}"
        verdict = f"[{case.verdict}]({case.docs})" if case.docs else case.verdict
        tests = "<br>".join(f"`{test}`" for test in case.tests)
        yield f"| {case.number} | {case.case} | {verdict} | {case.outcome} | {tests} |\n"


def functions(file: Path) -> set[str]:
    """Return the names of a file's functions and methods."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


if __name__ == "__main__":
    PAGE.write_text(page_text(edge_cases()), encoding="utf-8")
