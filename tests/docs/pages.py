"""The pages, and what is taken out of them: links, code blocks, tables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "airflow_cdc_provider" / "docs"
README = ROOT / "README.md"
PAGES = (README, *sorted(DOCS.glob("*.md")))

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]\[]+\]\(([^)\s]+)\)")


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def blocks(path: Path, language: str) -> list[str]:
    """Return the code blocks of a page that are in a language."""
    found = _BLOCK.findall(path.read_text(encoding="utf-8"))
    return [code for kind, code in found if kind == language]


def links(path: Path) -> list[str]:
    """Return where a page's links go; what stands in code blocks is no link."""
    text = _BLOCK.sub("", path.read_text(encoding="utf-8"))
    return [target for target in _LINK.findall(text) if "://" not in target]


def rows(text: str) -> Iterator[list[str]]:
    """Yield the cells of every table row, without headings' rulers."""
    for line in text.splitlines():
        if line.startswith("|") and not line.startswith("|---"):
            yield [cell.strip() for cell in line.strip().strip("|").split("|")]


def first_cells(text: str) -> set[str]:
    """Return what stands as code in the first column of the tables."""
    return {cells[0].strip("`") for cells in rows(text) if cells[0].startswith("`")}


def section(text: str, title: str) -> str:
    """Return what stands under a heading of the second level."""
    _, _, rest = text.partition(f"\n## {title}\n")
    return rest.partition("\n## ")[0]
