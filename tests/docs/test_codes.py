"""Every code that the product may show is explained, and no other."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from airflow_cdc_provider.core.errors import CdcError, RetryableError
from tests.docs.pages import PAGES, ROOT, first_cells, page, rows, section

_PACKAGE = ROOT / "airflow_cdc_provider"
_PREFLIGHT = _PACKAGE / "systems" / "mysql" / "preflight"
_CHANGELOG = _PACKAGE / "systems" / "changelog"
_CHECKING = _PACKAGE / "pipeline" / "steps" / "checking.py"
_FINDING_CODE = re.compile(r"(?:source|sink|table)\.[a-z_]+")
_ERROR_CODE = re.compile(r"CDC(?:-[A-Z]+)?-\d{3}")


def _family(kind: type[CdcError]) -> Iterator[type[CdcError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _family(child)


def test_every_error_code_is_explained() -> None:
    explained = set(_ERROR_CODE.findall(page("failures.md")))
    assert {kind.code for kind in _family(CdcError)} == explained


def test_no_page_names_a_code_that_there_is_not() -> None:
    known = {kind.code for kind in _family(CdcError)}
    for path in PAGES:
        assert set(_ERROR_CODE.findall(path.read_text(encoding="utf-8"))) <= known, path.name


def test_errors_that_are_tried_again_stand_together() -> None:
    told = first_cells(section(page("failures.md"), "Trying again may mend it"))
    assert told == {kind.code for kind in _family(RetryableError)}


def test_a_refusal_is_named_by_its_class() -> None:
    classes = {kind.__name__: kind.code for kind in _family(CdcError)}
    told = [c for c in rows(page("guarantees.md")) if c[-1].strip("`") in classes]
    assert told
    for cells in told:
        assert classes[cells[-1].strip("`")] == cells[-2].strip("`")


def _plain_codes(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if _FINDING_CODE.fullmatch(node.value):
                yield node.value
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "_Setting":
            yield f"source.{ast.literal_eval(node.args[0])}"


def _codes_made_in_loops(tree: ast.AST) -> Iterator[str]:
    """Yield codes such as f"source.{name}" for each name that a loop goes through."""
    for loop in ast.walk(tree):
        if not isinstance(loop, ast.For) or not isinstance(loop.iter, ast.Tuple):
            continue
        made = (n for body in loop.body for n in ast.walk(body) if isinstance(n, ast.JoinedStr))
        if not any(ast.unparse(text)[2:].startswith("source.") for text in made):
            continue
        for element in loop.iter.elts:
            name = element.elts[0] if isinstance(element, ast.Tuple) else element
            yield f"source.{ast.literal_eval(name).lower().replace(' ', '_')}"


def test_every_finding_of_preflight_is_on_its_page_and_no_other() -> None:
    found: set[str] = set()
    for path in (
        *_PREFLIGHT.glob("*.py"),
        _CHANGELOG / "preflight.py",
        _PACKAGE / "core" / "findings.py",
        _CHECKING,
    ):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found |= {*_plain_codes(tree), *_codes_made_in_loops(tree)}
    told = {cell for cell in first_cells(page("preflight.md")) if _FINDING_CODE.fullmatch(cell)}
    assert told == found
