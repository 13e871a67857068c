"""What people see: one line a step, progress while it runs, a result at the end.

On a terminal progress is a live table; elsewhere a plain line every few seconds. With `--json`
standard output holds nothing but the result, and everything else goes to standard error. Rich is
loaded for a live table only: most commands write a few lines.
"""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from airflow_cdc_provider.core.lifecycle import Phase
from airflow_cdc_provider.views.status import PipelineStatus, TableStatus

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

_LINE_EVERY_S = 5.0
_RATE_OVER_S = 15.0
_MOST_TABLES = 30


class RowRate:
    """Rows a second over the last seconds."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def at(self, rows: int, now_s: float) -> float | None:
        """Add a count; return the rate, None before there is one."""
        self._seen.append((now_s, rows))
        while now_s - self._seen[0][0] > _RATE_OVER_S and len(self._seen) > 2:
            self._seen.popleft()
        since, before = self._seen[0]
        return (rows - before) / (now_s - since) if now_s > since else None


class Screen:
    """Writes for people on a terminal, for logs, or for programs."""

    def __init__(self, *, as_json: bool, out: TextIO | None = None) -> None:
        self.has_result = False
        self._out = out or sys.stdout
        self._as_json = as_json
        self._live: Live | None = None
        self._line_at = 0.0
        self._last_line = ""
        self._rows, self._changes = RowRate(), RowRate()

    def say(self, text: str) -> None:
        """Write one line."""
        self._end_live()
        self._stream.write(f"{text}\n")
        self._stream.flush()

    def step(self, name: str) -> None:
        """Say which step begins."""
        self._end_live()
        self.say(f"--- {name}")

    def progress(self, status: PipelineStatus) -> None:
        """Show where the pipeline is."""
        now = time.monotonic()
        rates = self._rows.at(status.rows, now), self._changes.at(_changes(status), now)
        if self._stream.isatty():
            if self._live is None:
                self._live = _live_table(self._stream)
                self._live.start()
            self._live.update(progress_table(status, *rates), refresh=True)
            return
        line = progress_line(status, *rates)
        if now - self._line_at >= _LINE_EVERY_S and line != self._last_line:
            self._line_at, self._last_line = now, line
            self.say(line)

    def result(self, form: Mapping[str, Any], lines: Sequence[str] = ()) -> None:
        """Write the result: JSON for programs, lines for people."""
        self._end_live()
        self.has_result = True
        if self._as_json:
            self._out.write(json.dumps(form, indent=2) + "\n")
            return
        for line in lines:
            self.say(line)

    def ask(self, question: str) -> bool:
        """Ask a yes-or-no question; no where no one can answer."""
        if self._as_json or not sys.stdin.isatty():
            return False
        self._end_live()
        return input(f"{question} [y/N] ").strip().lower() in {"y", "yes"}

    def close(self) -> None:
        """Leave the terminal as it was."""
        self._end_live()

    @property
    def _stream(self) -> TextIO:
        return sys.stderr if self._as_json else sys.stdout

    def _end_live(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


def _live_table(stream: TextIO) -> Live:
    from rich.console import Console  # noqa: PLC0415 - as the module says
    from rich.live import Live  # noqa: PLC0415

    return Live(console=Console(file=stream), auto_refresh=False, transient=True)


def _changes(status: PipelineStatus) -> int:
    return 0 if status.stream is None else status.stream.changes


def progress_line(
    status: PipelineStatus, rows_per_s: float | None, changes_per_s: float | None
) -> str:
    """Say in one line where the pipeline is."""
    parts = [f"{status.state.name}: {status.summary}"]
    if status.state.phase in {Phase.PLANNING, Phase.SNAPSHOT}:
        parts.append(f"splits {_splits(status)}")
        parts.append(f"{status.rows:,} rows{_rate(rows_per_s)}")
    elif status.stream is not None:
        parts.append(f"{status.stream.changes:,} changes{_rate(changes_per_s)}")
        parts.append(f"lag {lag_text(status)}")
        parts.append(f"at {status.stream.position.short}")
    done = sum(table.phase == "consistent" for table in status.tables)
    parts.append(f"{done}/{len(status.tables)} tables consistent")
    return ", ".join(parts)


def progress_table(
    status: PipelineStatus, rows_per_s: float | None, changes_per_s: float | None
) -> Table:
    """Return the live table."""
    from rich.table import Table  # noqa: PLC0415 - as the module says

    table = Table(
        title=progress_line(status, rows_per_s, changes_per_s), title_justify="left", box=None
    )
    for name in ("table", "phase"):
        table.add_column(name)
    for name in ("splits", "rows", "about"):
        table.add_column(name, justify="right")
    for shown in status.tables[:_MOST_TABLES]:
        table.add_row(
            shown.source,
            shown.phase,
            f"{shown.splits_finished}/{_planned(shown)}",
            f"{shown.rows:,}",
            f"~{shown.estimated_rows:,}",
        )
    hidden = len(status.tables) - _MOST_TABLES
    if hidden > 0:
        table.add_row(f"and {hidden} more", "", "", "", "")
    return table


def lag_text(status: PipelineStatus) -> str:
    """Say how far the stream is behind, and when it was last heard of."""
    stream = status.stream
    if stream is None or stream.lag_us is None:
        return "unknown"
    text = f"{stream.lag_us / 1e6:.1f} s"
    age = status.heartbeat_age_s
    return f"{text} ({age:.0f} s ago)" if age is not None and age > 10 else text


def _splits(status: PipelineStatus) -> str:
    more = "" if status.planning_done and status.tables else "+"
    return f"{status.splits_finished}/{status.splits_planned}{more}"


def _planned(table: TableStatus) -> str:
    return f"{table.splits_planned}{'' if table.planning_done else '+'}"


def _rate(per_s: float | None) -> str:
    return "" if per_s is None else f" ({per_s:,.0f}/s)"
