"""What people see: one line a step, progress while it runs, a result at the end.

On a terminal progress is a live table; elsewhere a plain line every few seconds. With `--json`
standard output holds nothing but the result, and everything else goes to standard error. Rich is
loaded for a live table only: most commands write a few lines.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from airflow_cdc_provider.views.progress import Pace
from airflow_cdc_provider.views.status import PipelineStatus, TableStatus

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

_LINE_EVERY_S = 5.0
_MOST_TABLES = 30


class Screen:
    """Writes lines, progress and results to a terminal, a log, or as JSON."""

    def __init__(self, *, as_json: bool, out: TextIO | None = None) -> None:
        self.has_result = False
        self._out = out or sys.stdout
        self._as_json = as_json
        self._live: Live | None = None
        self._line_at = 0.0
        self._last_line = ""
        self._pace = Pace()

    def say(self, text: str) -> None:
        """Write one line."""
        self._end_live()
        self._stream.write(f"{text}\n")
        self._stream.flush()

    def step(self, name: str) -> None:
        """Write a line that names the step that begins."""
        self._end_live()
        self.say(f"--- {name}")

    def progress(self, look: Callable[[], PipelineStatus]) -> None:
        """Show the pipeline's progress; `look` is called only when a line is due."""
        if self._stream.isatty():
            if self._live is None:
                self._live = _live_table(self._stream)
                self._live.start()
            status = look()
            self._live.update(progress_table(status, self._pace.line(status)), refresh=True)
            return
        if time.monotonic() - self._line_at < _LINE_EVERY_S:
            return
        line = self._pace.line(look())
        self._line_at = time.monotonic()
        if line != self._last_line:
            self._last_line = line
            self.say(line)

    def result(self, form: Mapping[str, Any], lines: Sequence[str] = ()) -> None:
        """Write the result: as JSON, or as lines for people."""
        self._end_live()
        self.has_result = True
        if self._as_json:
            self._out.write(json.dumps(form, indent=2) + "\n")
            return
        for line in lines:
            self.say(line)

    def ask(self, question: str) -> bool:
        """Ask a yes-or-no question; False where no person can answer."""
        if not self.can_ask:
            return False
        self._end_live()
        try:
            return input(f"{question} [y/N] ").strip().lower() in {"y", "yes"}
        except EOFError:  # Ctrl-D is no yes
            return False

    @property
    def can_ask(self) -> bool:
        """Tell whether a person is at the terminal to answer."""
        return not self._as_json and sys.stdin.isatty()

    def answer(self, question: str, default: str = "") -> str:
        """Ask for a text and return it; an empty answer returns the default."""
        self._end_live()
        shown = f" [{default}]" if default else ""
        return input(f"{question}{shown}: ").strip() or default

    def close(self) -> None:
        """End the live table, so that the terminal is as before."""
        self._end_live()

    @property
    def _stream(self) -> TextIO:
        """Return the stream for lines: standard error if the result is JSON."""
        return sys.stderr if self._as_json else self._out

    def _end_live(self) -> None:
        """End the live table."""
        if self._live is not None:
            self._live.stop()
            self._live = None


def _live_table(stream: TextIO) -> Live:
    """Make the live display of a terminal."""
    from rich.console import Console  # noqa: PLC0415 - as the module says
    from rich.live import Live  # noqa: PLC0415

    return Live(console=Console(file=stream), auto_refresh=False, transient=True)


def progress_table(status: PipelineStatus, title: str) -> Table:
    """Return the table of a pipeline's progress."""
    from rich.table import Table  # noqa: PLC0415 - as the module says

    table = Table(title=title, title_justify="left", box=None)
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


def _planned(table: TableStatus) -> str:
    """Return the count of planned splits; a + while planning goes on."""
    return f"{table.splits_planned}{'' if table.planning_done else '+'}"
