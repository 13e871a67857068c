"""Conflicts of an edge, as text and as plain values."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from airflow_cdc_provider.core.conflicts import NotedConflict, RowChange, Values
from airflow_cdc_provider.core.identifiers import PipelineName


def conflict_form(
    name: PipelineName, count: int, found: Sequence[NotedConflict]
) -> Mapping[str, Any]:
    """Return conflicts as plain values for `--json`."""
    return {
        "pipeline": str(name),
        "count": count,
        "conflicts": [
            {
                "number": each.number,
                "at": _time(each.noted_us),
                "table": str(each.conflict.table),
                "key": each.conflict.key,
                "kept": each.conflict.kept,
                "source": {**each.conflict.source.to_json(), "at": each.conflict.source.at},
                "sink": {**each.conflict.sink.to_json(), "at": each.conflict.sink.at},
            }
            for each in found
        ],
    }


def conflict_lines(count: int, found: Sequence[NotedConflict]) -> list[str]:
    """Return conflicts as lines: three for each."""
    lines = []
    for each in found:
        conflict = each.conflict
        lines += [
            f"{_time(each.noted_us)} {conflict.table} {_text(conflict.key)}: {conflict.kept} wins",
            f"  at the source: {_change(conflict.source)}",
            f"  at the sink: {_change(conflict.sink)}",
        ]
    if len(found) < count:
        lines.append(f"{len(found)} of {count}")
    return lines or ["no row was changed at both nodes at the same time"]


def _change(change: RowChange) -> str:
    """Describe a change: what the row was, and what it became."""
    before, after = (
        "no row" if row is None else _text(row) for row in (change.before, change.after)
    )
    return f"{before} -> {after} ({change.at})"


def _text(values: Values) -> str:
    """Return values as one line."""
    return json.dumps(values, ensure_ascii=False)


def _time(at_us: int) -> str:
    """Return a time as text, in UTC."""
    return f"{datetime.fromtimestamp(at_us / 1e6, UTC):%Y-%m-%d %H:%M:%S} UTC"
