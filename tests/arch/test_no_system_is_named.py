"""Rooms that any system may use name none: not in an identifier, an import or a text they use.

Comments and docstrings may give a system as an example, and nothing else in a file may. What still
names one is listed below with the reason. A file that no longer does must leave the list, so it
only shrinks.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

import airflow_cdc_provider

ROOT = Path(airflow_cdc_provider.__file__).parent
ROOMS = ("columns", "core", "databases", "engine", "pipeline/steps", "spark", "state", "views")
WORDS = re.compile(r"gtid|binlog|mysql|mariadb", re.IGNORECASE)
STATE_STORE = "the state store's own database may be one; SQLAlchemy names it so"
EXCEPTIONS = {
    "core/logged_events.py": "`log --json` has called a transaction's name `gtid` from the start",
    "core/stream_starts.py": "the pipeline file says `stream.start: {gtid: ...}`",
    "core/stream_stops.py": "the pipeline file says `stream.stop: {gtid: ...}`",
    "databases/engines.py": STATE_STORE,
    "state/migrate.py": STATE_STORE,
    "state/migrations/versions/0001_first_tables.py": STATE_STORE,
    "state/migrations/versions/0002_requests.py": STATE_STORE,
    "state/migrations/versions/0003_samples.py": STATE_STORE,
    "state/migrations/versions/0004_told_tables.py": STATE_STORE,
    "state/migrations/versions/0005_notes.py": STATE_STORE,
    "state/migrations/versions/0006_table_counts.py": STATE_STORE,
    "state/tables.py": STATE_STORE,
}
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def words_used(source: str) -> Iterator[str]:
    """Yield the names and texts of a program that name a system, with their lines."""
    remarks = remark_lines(ast.parse(source))
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        is_remark = token.type == tokenize.STRING and token.start[0] in remarks
        if token.type in {tokenize.NAME, tokenize.STRING} and not is_remark:
            yield from (f"{token.start[0]}: {word}" for word in WORDS.findall(token.string))


def remark_lines(tree: ast.Module) -> set[int]:
    """Return the lines at which texts begin that stand alone: docstrings, and those of fields."""
    bodies = (node.body for node in ast.walk(tree) if isinstance(node, _DOCUMENTED))
    return {
        each.lineno
        for body in bodies
        for each in body
        if isinstance(each, ast.Expr)
        and isinstance(each.value, ast.Constant)
        and isinstance(each.value.value, str)
    }


def files() -> dict[str, str]:
    found = (path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py")))
    return {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in found}


def test_no_system_is_named_but_where_the_list_says_why() -> None:
    named = {path: list(words_used(source)) for path, source in files().items()}
    unexpected = {path: words for path, words in named.items() if words and path not in EXCEPTIONS}
    assert unexpected == {}


@pytest.mark.parametrize("path", sorted(EXCEPTIONS))
def test_what_is_listed_does_name_a_system(path: str) -> None:
    assert list(words_used(files()[path]))


@pytest.mark.parametrize(
    "source",
    [
        "import pymysql\n",
        "def f() -> None:\n    self.GtidSet\n",
        'x = f"SHOW {1} mysqlbinlog"\n',
        'def f() -> None:\n    """A text."""\n    return "mariadb"\n',
    ],
)
def test_a_name_in_code_is_seen(source: str) -> None:
    assert list(words_used(source))


@pytest.mark.parametrize(
    "source",
    [
        "x = 1  # as MySQL has it\n",
        '"""Of MariaDB."""\n',
        'class A:\n    x: int = 1\n    """A GTID, say."""\n',
    ],
)
def test_an_example_in_a_remark_is_not(source: str) -> None:
    assert not list(words_used(source))
