"""Pipelines side by side: a line each, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.core.lifecycle import TablePhase
from airflow_cdc_provider.core.plurals import counted
from airflow_cdc_provider.core.topology import Topology
from airflow_cdc_provider.views.freshness import late_lines
from airflow_cdc_provider.views.outages import outage_text
from airflow_cdc_provider.views.progress import lag_text
from airflow_cdc_provider.views.started import FOLLOWING
from airflow_cdc_provider.views.status import PipelineStatus


@dataclass(frozen=True, slots=True)
class Shown:
    """One pipeline of a folder: its status, or the error that prevents one."""

    name: str
    file: str
    status: PipelineStatus | None = None
    error: CdcError | None = None
    """What is wrong with its file, or why there is no status."""
    edge: Topology | None = None
    """Its place in a topology."""
    current_rows: Mapping[str, str] = field(default_factory=dict)
    """Queries of the current rows, by the sink's table, where its tables hold changes."""


def overview_form(shown: Sequence[Shown]) -> dict[str, Any]:
    """Return the status of each pipeline in a folder as JSON."""
    return {
        "pipelines": [
            {
                "pipeline": each.name,
                "file": each.file,
                "problem": _problem(each),
                "topology": None if each.edge is None else each.edge.to_json(),
                "current_rows": dict(each.current_rows),
                "status": None if each.status is None else dict(each.status.to_json()),
            }
            for each in shown
        ]
    }


def _problem(shown: Shown) -> dict[str, Any] | None:
    """Return a file's error as JSON, or the one that ended the last try to begin."""
    refusal = None if shown.status is None else shown.status.refusal
    error = shown.error or refusal
    return None if error is None else error.to_json()


def overview_lines(shown: Sequence[Shown]) -> list[str]:
    """Return a line for each pipeline in a folder, followed by its problems."""
    lines: list[str] = []
    for each in shown:
        if each.status is not None:
            lines.append(_line(each.status))
            lines += [f"  problem: {text}" for text in _problems(each.status)]
        else:
            lines.append(f"{each.name}: cannot be looked at")
        if each.edge is not None:
            lines.append(f"  topology {each.edge}")
        if each.error is not None:
            lines.append(f"  problem: {each.error}")
        for table, query in sorted(each.current_rows.items()):
            lines.append(f"  the current rows of {table}:")
            lines += [f"    {line}" for line in query.splitlines()]
    return lines


def _line(status: PipelineStatus) -> str:
    """Return a pipeline's status as one line."""
    done = sum(table.phase == TablePhase.CONSISTENT.value for table in status.tables)
    word = "consistent"
    if any(table.phase == FOLLOWING for table in status.tables):  # they began without a snapshot
        done = sum(
            table.phase in {TablePhase.CONSISTENT.value, FOLLOWING} for table in status.tables
        )
        word = FOLLOWING
    parts = [
        f"{status.state.name}: {status.summary}",
        *filter(None, (status.doubt,)),
        f"wanted {status.state.wanted.value}",
        f"{done}/{len(status.tables)} tables {word}",
        counted(len(status.requests), "open request"),
        f"lag {lag_text(status)}",
    ]
    return ", ".join(parts)


def _problems(status: PipelineStatus) -> list[str]:
    """Return a pipeline's problems as texts."""
    found = [status.nobody] if status.nobody else []
    found += [outage_text(outage, status.at_us) for outage in status.outages]
    found += [] if status.refusal is None else [str(status.refusal)]
    found += [str(status.state.error)] if status.state.error else []
    found += late_lines(status)
    found += [f"{table.source}: {table.error}" for table in status.tables if table.error]
    return found + [f"{table} is not copied: it came later" for table in status.not_copied]
