"""A task's state that outlives its process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


class FileState:
    """A `task_state_store` that outlives the task's process."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def get(self, key: str, default: Any = None) -> Any:
        if not self.path.exists():
            return default
        return json.loads(self.path.read_text()).get(key, default)

    def set(self, key: str, value: Any, *, retention: object = None) -> None:
        kept = json.loads(self.path.read_text()) if self.path.exists() else {}
        fresh = self.path.with_suffix(".new")
        fresh.write_text(json.dumps({**kept, key: value}))
        fresh.replace(self.path)
