"""The figures as a table for people and as JSON for programs."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path

from tests.benchmarks.measure import Result

OURS = "ours"


def table(results: Sequence[Result]) -> str:
    """Return a Markdown table.

    The ratio is our rows per second to the peer's. A work without `ours` is made of steps: there
    it is the first step's rows per second to this one's, so below 1 is faster than the first.
    """
    lines = [
        "| work | subject | rows/s | ours / it | CPU s/M | servers' CPU s/M | RSS MB | n |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for result in results:
        ratio = f"{_compared(results, result.work).rows_per_s / result.rows_per_s:.2f}"
        lines.append(
            f"| {result.work} | {_cell(result.subject)} | {result.rows_per_s:,.0f} | {ratio} "
            f"| {result.cpu_s_per_m:.2f} | {result.server_cpu_s_per_m:.2f} "
            f"| {result.rss_mb:,.0f} | {result.n} |"
        )
    return "\n".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _compared(results: Iterable[Result], work: str) -> Result:
    """Return what the others of `work` are compared with: ours, or else the first."""
    subjects = [result for result in results if result.work == work]
    return next((result for result in subjects if result.subject == OURS), subjects[0])


def machine() -> str:
    """Return one line about what the figures were taken on."""
    cpu = Path("/proc/cpuinfo")
    lines = cpu.read_text().splitlines() if cpu.is_file() else []
    model = next((line.partition(":")[2].strip() for line in lines if "model name" in line), "")
    return (
        f"{os.cpu_count()} cores ({model or platform.machine()}), Python "
        f"{platform.python_version()}, pyarrow {version('pyarrow')}, numpy {version('numpy')}, "
        f"pyspark {version('pyspark')}"
    )


def store(results: Sequence[Result], path: Path) -> None:
    """Write the results as a list of objects."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([dataclasses.asdict(r) for r in results], indent=1) + "\n")
