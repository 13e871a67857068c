"""The figures as a table for people and as JSON for programs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.benchmarks.measure import Result

OURS = "ours"


def table(results: Sequence[Result]) -> str:
    """Return a Markdown table; the ratio is our rows per second to the peer's."""
    lines = [
        "| work | subject | rows/s | ours / it | CPU s/M | servers' CPU s/M | RSS MB | n |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for result in results:
        ours = _ours(results, result.work)
        ratio = f"{ours.rows_per_s / result.rows_per_s:.2f}" if ours else ""
        lines.append(
            f"| {result.work} | {result.subject} | {result.rows_per_s:,.0f} | {ratio} "
            f"| {result.cpu_s_per_m:.2f} | {result.server_cpu_s_per_m:.2f} "
            f"| {result.rss_mb:,.0f} | {result.n} |"
        )
    return "\n".join(lines)


def _ours(results: Iterable[Result], work: str) -> Result | None:
    return next((r for r in results if (r.work, r.subject) == (work, OURS)), None)


def store(results: Sequence[Result], path: Path) -> None:
    """Write the results as a list of objects."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([dataclasses.asdict(r) for r in results], indent=1) + "\n")
