"""Links, examples and the README's two commands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from airflow_cdc_provider.cli.arguments import COMMANDS, parser
from airflow_cdc_provider.cli.main import ExitCode
from airflow_cdc_provider.pipeline.file.loader import parse_pipeline
from tests.docs.pages import DOCS, PAGES, README, ROOT, blocks, first_cells, links, page, rows

_LONGEST_PAGE = 150
_GENERATED = {"edge_cases.md", "pipeline_file.md"}


def _names(path: Path) -> str:
    return path.name


@pytest.mark.parametrize("path", PAGES, ids=_names)
def test_every_link_leads_to_a_file(path: Path) -> None:
    missing = [
        target for target in links(path) if not (path.parent / target.partition("#")[0]).exists()
    ]
    assert not missing


def test_the_index_leads_to_every_page() -> None:
    others = {path.name for path in DOCS.glob("*.md")} - {"index.md"}
    assert others <= set(links(DOCS / "index.md"))


@pytest.mark.parametrize("path", PAGES[1:], ids=_names)
def test_a_written_page_is_short(path: Path) -> None:
    if path.name not in _GENERATED:
        assert len(path.read_text(encoding="utf-8").splitlines()) <= _LONGEST_PAGE


@pytest.mark.parametrize("path", PAGES, ids=_names)
def test_every_pipeline_that_is_shown_loads(path: Path) -> None:
    for code in blocks(path, "yaml"):
        assert parse_pipeline(code, path).model.pipeline


def test_readme_shows_a_pipeline() -> None:
    assert blocks(README, "yaml")


@pytest.mark.parametrize("path", PAGES, ids=_names)
def test_every_python_example_compiles(path: Path) -> None:
    for code in blocks(path, "python"):
        compile(code, path.name, "exec")


@pytest.mark.parametrize("path", PAGES, ids=_names)
def test_every_command_that_is_shown_parses(path: Path) -> None:
    for code in blocks(path, "sh"):
        for line in code.splitlines():
            words = shlex.split(line, comments=True)
            if words[:3] == ["python", "-m", "airflow_cdc_provider"]:
                assert parser().parse_args(words[3:]).command in COMMANDS


def test_every_command_and_option_is_on_the_page() -> None:
    told = {cells[0].strip("`"): " ".join(cells) for cells in rows(page("command_line.md"))}
    for name, (_, options) in COMMANDS.items():
        flags = {flag for option in options for flag in option.flags if flag.startswith("--")}
        assert set(re.findall(r"--[a-z-]+", told[name])) == flags, name
    all_flags = {flag for _, options in COMMANDS.values() for o in options for flag in o.flags}
    on_page = {cell.split()[0] for cell in first_cells(page("command_line.md"))}
    assert {flag for flag in all_flags if flag.startswith("--")} <= on_page


def test_every_exit_code_is_on_the_page() -> None:
    numbers = {cells[0] for cells in rows(page("command_line.md")) if cells[0].isdigit()}
    assert numbers == {str(code.value) for code in ExitCode}


def test_the_defaults_of_options_are_on_the_page() -> None:
    told = {cells[0].strip("`"): cells[1] for cells in rows(page("command_line.md"))}
    for _, options in COMMANDS.values():
        for option in options:
            if isinstance(option.default, float):
                assert told[option.flags[0]] == f"{option.default:g}"


def test_readme_s_two_commands_are_make_s_targets() -> None:
    shown = [
        line.split("#")[0].split() for code in blocks(README, "sh") for line in code.split("\n")
    ]
    commands = [words for words in shown if words[:1] == ["make"]]
    assert commands == [["make", "demo"], ["make", "test"]]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for _, target in commands:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)
