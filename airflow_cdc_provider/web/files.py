"""The files that the page is made of; nothing else is served."""

from __future__ import annotations

from pathlib import Path

_FOLDER = Path(__file__).parent / "static"
PAGE = _FOLDER / "index.html"
_SERVED = frozenset({".js", ".css", ".svg"})


def static_files() -> dict[str, Path]:
    """Return the page's files by their names in URLs."""
    found = (path for path in _FOLDER.rglob("*") if path.suffix in _SERVED)
    return {path.relative_to(_FOLDER).as_posix(): path for path in found}
