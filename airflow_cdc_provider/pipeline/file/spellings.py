"""How the file spells the names of tables, where one name has several spellings.

The model has each name in one spelling, so two keys of the file that are one name would be one
setting, and the other would be ignored: they are refused here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from airflow_cdc_provider.core.table_patterns import TablePattern
from airflow_cdc_provider.pipeline.file.problems import Path

_BY_TABLE: tuple[tuple[str, ...], ...] = (
    ("sink", "route"),
    ("snapshot", "tables"),
    ("backfill",),
    ("tables",),
    ("topology", "conflicts", "tables"),
)
"""The mappings of the file whose keys are names or patterns of tables."""


def spelt_twice(value: Any) -> Iterator[tuple[Path, str, str]]:
    """Yield the keys that are another spelling of a key before them: where, what, fix."""
    for path in _BY_TABLE:
        seen: dict[str, str] = {}
        for key in _inside(value, path):
            other = seen.setdefault(str(TablePattern.parse(key)), key)
            if other != key:
                yield (*path, key), f"{other} and {key} are the same", "write one of them"


def as_written(path: Path, value: Any) -> Path:
    """Return a path of the model with the names of tables as the file spells them."""
    written: list[str | int] = []
    for part in path:
        key: str | int = part
        if isinstance(value, dict) and part not in value:
            key = next((each for each in value if _is_spelling(each, part)), part)
        written.append(key)
        value = _step(value, key)
    return tuple(written)


def _inside(value: Any, path: Path) -> dict[str, Any]:
    """Return the mapping at a path; an empty one if there is none."""
    for part in path:
        value = _step(value, part)
    return value if isinstance(value, dict) else {}


def _step(value: Any, part: str | int) -> Any:
    """Return what a mapping or a list has under a key; None if it has nothing there."""
    try:
        return value[part]
    except (KeyError, IndexError, TypeError):
        return None


def _is_spelling(key: Any, name: str | int) -> bool:
    """Tell whether a key of the file is a spelling of a table's name or pattern."""
    try:
        return isinstance(key, str) and str(TablePattern.parse(key)) == name
    except ValueError:
        return False
