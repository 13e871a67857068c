"""The table of operators has each parameter with its default.

Read from the source text, so that no Airflow has to start for it.
"""

from __future__ import annotations

import ast
import re

import pytest

from airflow_cdc_provider.triggers import verdict
from tests.docs.pages import ROOT, page, rows, section

_FILES = (
    "operators/steps.py",
    "operators/jobs.py",
    "operators/health.py",
    "operators/verify.py",
    "operators/requests.py",
    "operators/resync_steps.py",
    "operators/seeding.py",
    "operators/control.py",
    "operators/compare.py",
    "operators/backfill.py",
    "sensors/changes.py",
    "sensors/stream.py",
    "sensors/requests.py",
)
_SHARED = {"pipeline", "poke_interval", "timeout"}
_BASES = {"CdcJobOperator", "CdcRequestOperator", "CdcComparingOperator"}
"""Classes that are no operators of their own, and hand their parameters down."""


def _own_parameters(node: ast.ClassDef) -> dict[str, str]:
    for part in node.body:
        if isinstance(part, ast.FunctionDef) and part.name == "__init__":
            pairs = zip(part.args.kwonlyargs, part.args.kw_defaults, strict=True)
            return {
                name.arg: "" if default is None else ast.unparse(default)
                for name, default in pairs
                if name.arg not in _SHARED
            }
    return {}


def _classes() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for name in _FILES:
        tree = ast.parse((ROOT / "airflow_cdc_provider" / name).read_text(encoding="utf-8"))
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and re.fullmatch(
                r"Cdc\w+(Operator|Sensor)", node.name
            ):
                bases = (getattr(base, "id", "") for base in node.bases)
                inherited = [found[base] for base in bases if base in _BASES]
                found[node.name] = _own_parameters(node) | {
                    k: v for i in inherited for k, v in i.items()
                }
    return {name: own for name, own in found.items() if name not in _BASES}


def _told() -> dict[str, dict[str, str]]:
    told: dict[str, dict[str, str]] = {}
    current = ""
    for cells in rows(section(page("operators.md"), "Operators and their parameters")):
        if cells[0] == "class":
            continue
        current = cells[0].strip("`") or current
        parameters = told.setdefault(current, {})
        if cells[1]:
            parameters[cells[1].strip("`")] = cells[2].strip("`")
    return told


@pytest.mark.parametrize(("name", "parameters"), sorted(_classes().items()))
def test_each_parameter_is_on_the_page(name: str, parameters: dict[str, str]) -> None:
    told = _told()[name]
    assert told.keys() == parameters.keys()
    for parameter, default in parameters.items():
        wanted = getattr(verdict, default, None) or default
        if str(wanted).replace(".", "").isdigit():
            assert float(told[parameter]) == float(wanted), parameter


def test_the_page_names_no_class_that_there_is_not() -> None:
    assert _told().keys() == _classes().keys()
