"""What an error tells people to do exists: every remedy of the package is read.

Remedies are found in the source: whatever is given as `remedy` or `fix`, the fourth argument of an
error, the last of a finding, and every text that stands in the same function or constant that such
an argument names. Features that do not exist are looked for in every text of the package.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from airflow_cdc_provider.cli.arguments import COMMANDS
from airflow_cdc_provider.pipeline.file.model import PipelineFile
from tests.docs.pages import PAGES, ROOT, first_cells, page
from tests.servers.given import SqlServer

PACKAGE = ROOT / "airflow_cdc_provider"
ABSENT = re.compile(
    r"position given|given by hand|max_split_bytes|max_prepared_(?!stmt)"
    r"|(?:start|snapshot|position|tables) (?:again )?from an? (?:earlier |later )?position"
    r"|take a new snapshot|raise stream\.max_batch",
    re.IGNORECASE,
)
"""Features that there are not, or that go by another name."""
FOREIGN_OPTIONS = {"--force-reinstall", "--no-deps", "--verify-binlog-checksum"}
"""Of pip and mysqlbinlog."""
FOREIGN_WORDS = {"existing_rows: replace", "mysqlbinlog --verify-binlog-checksum", "pip list"}
SETTING = re.compile(r"(?<![\w./])(source|sink|state|snapshot|stream)\.([a-z_]+)\b(?!\()")
SPARK_KEYS = re.compile(r"(?<![\w.])spark\.([a-z_]+)\b")
SET_GLOBAL = re.compile(r"SET (?:GLOBAL|PERSIST) ([a-z_]+)")


@dataclass(frozen=True)
class Said:
    where: str
    text: str


def text_of(node: ast.expr) -> str:
    """Return the words of an expression; what is filled in later is {}."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(text_of(value) for value in values)
        case ast.FormattedValue():
            return "{}"
        case ast.BinOp(left=left, right=right):
            return text_of(left) + text_of(right)
        case ast.IfExp(body=body, orelse=orelse):
            return f"{text_of(body)} | {text_of(orelse)}"
        case _:
            return "{}"


def documentation(tree: ast.AST) -> set[int]:
    """Return the texts that stand alone: docstrings."""
    alone = (node.value for node in ast.walk(tree) if isinstance(node, ast.Expr))
    return {id(value) for value in alone if isinstance(value, ast.Constant)}


def name_of(call: ast.Call) -> str:
    return str(getattr(call.func, "id", getattr(call.func, "attr", "")))


def remedies_of(call: ast.Call) -> Iterator[ast.expr]:
    yield from (key.value for key in call.keywords if key.arg in {"remedy", "fix"})
    name = name_of(call)
    if name.endswith("Error") and len(call.args) >= 4:
        yield call.args[3]
    if name == "Finding" and len(call.args) >= 7:
        yield call.args[6]


def trees() -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path.relative_to(ROOT), ast.parse(path.read_text(encoding="utf-8"))


def texts() -> Iterator[Said]:
    """Yield every text of the package that is no docstring."""
    for path, tree in trees():
        alone = documentation(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant | ast.JoinedStr) and id(node) not in alone:
                yield Said(f"{path}:{node.lineno}", text_of(node))


def remedies() -> list[Said]:
    return [
        Said(f"{path}:{value.lineno}", text_of(value))
        for path, tree in trees()
        for call in ast.walk(tree)
        if isinstance(call, ast.Call)
        for value in remedies_of(call)
    ]


def settings() -> dict[str, set[str]]:
    """Return the keys of each section of the pipeline file."""
    schema = PipelineFile.model_json_schema()
    found: dict[str, set[str]] = {}
    for name, value in schema["properties"].items():
        kinds = [value, *value.get("anyOf", ()), *value.get("oneOf", ())]
        for kind in kinds:
            referred = schema["$defs"].get(kind.get("$ref", "").rpartition("/")[2], {})
            found.setdefault(name, set()).update(referred.get("properties", {}))
    return found


ALL = remedies()


def test_the_remedies_are_found() -> None:
    assert len(ALL) > 200
    assert any("`reset`" in said.text for said in ALL)


def test_no_text_names_a_feature_that_there_is_not() -> None:
    named = [said for said in texts() if ABSENT.search(said.text)]
    assert named == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.name))
def test_no_page_promises_one_either(path: Path) -> None:
    """A page may say that something is not there yet; it may not tell people to use it."""
    assert ABSENT.findall(path.read_text(encoding="utf-8")) == []


def test_every_command_and_option_that_a_remedy_names_exists() -> None:
    options = {flag for _, known in COMMANDS.values() for option in known for flag in option.flags}
    for said in ALL:
        for quoted in re.findall(r"`([^`]*)`", said.text):
            is_sql = quoted[:1].isupper()
            known = quoted in COMMANDS or quoted in FOREIGN_WORDS or is_sql
            assert known, f"{said.where}: `{quoted}`"
        for option in re.findall(r"(?<![\w-])--[a-z-]+", said.text):
            assert option in options | FOREIGN_OPTIONS, f"{said.where}: {option}"


def test_every_setting_that_a_remedy_names_is_a_key_of_the_file_or_a_finding() -> None:
    known = settings()
    findings = set(first_cells(page("preflight.md")))
    for said in ALL:
        for section, key in SETTING.findall(said.text):
            named = f"{section}.{key}"
            assert key in known[section] or named in findings, f"{said.where}: {named}"
        for key in SPARK_KEYS.findall(said.text):
            ours = key in known["spark"]
            assert ours or key == "speculation", f"{said.where}: spark.{key}"


def test_every_variable_that_a_remedy_sets_is_one_of_a_server(
    mysql_server: SqlServer, mariadb_server: SqlServer
) -> None:
    named = {name for said in texts() for name in SET_GLOBAL.findall(said.text)}
    assert len(named) > 5
    known = {
        str(row[0]).lower()
        for server in (mysql_server, mariadb_server)
        for row in server.execute("SHOW GLOBAL VARIABLES")
    }
    assert named - known == set()
