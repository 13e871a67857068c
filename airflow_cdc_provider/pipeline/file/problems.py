"""What is wrong with a pipeline file: each problem with its line and its fix, all at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from airflow_cdc_provider.core.errors import NOTHING_STARTED, PipelineFileError

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem of a pipeline file: line, path, what is wrong, and the fix."""

    line: int
    path: Path
    what: str
    fix: str

    @property
    def place(self) -> str:
        """Return the path as text; empty for the whole file."""
        return shown(self.path)

    def __str__(self) -> str:
        place = self.place and f", {self.place}"
        return f"line {self.line}{place}: {self.what}. Fix: {self.fix}"


def shown(path: Path) -> str:
    """Return a path of keys as text, as in `source.tables[2]`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif "." in part or "*" in part:
            text += f'["{part}"]'
        else:
            text += f".{part}" if text else part
    return text


def refusal(file: str, problems: Sequence[Problem]) -> PipelineFileError:
    """Make one error of all problems of a file, in the order of their lines."""
    ordered = sorted(problems, key=lambda problem: problem.line)
    count = "1 problem" if len(ordered) == 1 else f"{len(ordered)} problems"
    lines = "\n".join(f"  {file}:{problem}" for problem in ordered)
    return PipelineFileError(
        f"the pipeline file has {count}:\n{lines}",
        where=file,
        risk=NOTHING_STARTED,
        remedy="correct the lines above; `check` shows what is left",
    )
