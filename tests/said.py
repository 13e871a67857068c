"""What a command said."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Said:
    """A command's exit code and its two streams."""

    code: int
    out: str
    err: str

    @property
    def form(self) -> Any:
        return json.loads(self.out)
