"""Conflicts of an edge, as text and as plain values."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from airflow_cdc_provider.core.conflicts import ConflictsOfTable, NotedConflict, RowChange, Values
from airflow_cdc_provider.core.identifiers import PipelineName


def conflict_form(
    name: PipelineName, count: int, found: Sequence[NotedConflict], *, values: bool
) -> Mapping[str, Any]:
    """Return conflicts as plain values for `--json`; the rows' own only with `values`."""
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
                "source": _change_form(each.conflict.source, values=values),
                "sink": _change_form(each.conflict.sink, values=values),
            }
            for each in found
        ],
    }


def conflict_lines(count: int, found: Sequence[NotedConflict], *, values: bool) -> list[str]:
    """Return conflicts as lines, three for each; rows' values only with `values`."""
    lines = []
    for each in found:
        conflict = each.conflict
        lines += [
            f"{_time(each.noted_us)} {conflict.table} {_text(conflict.key)}: {conflict.kept} wins",
            f"  at the source: {_change(conflict.source, values=values)}",
            f"  at the sink: {_change(conflict.sink, values=values)}",
        ]
    if len(found) < count:
        lines.append(f"{len(found)} of {count}")
    return lines or ["no conflict was settled"]


def table_forms(found: Sequence[ConflictsOfTable]) -> list[Mapping[str, Any]]:
    """Return the conflicts of tables as plain values for `--json`."""
    return [
        {
            "table": str(each.table),
            "kept": each.kept,
            "conflicts": each.conflicts,
            "rows": each.rows,
            "last": _time(each.last_us),
        }
        for each in found
    ]


def table_lines(found: Sequence[ConflictsOfTable]) -> list[str]:
    """Return the conflicts of tables as lines, one for each node whose changes were kept."""
    return [
        f"{each.table}: {each.kept} won {_counted(each.conflicts, 'conflict')} of "
        f"{_counted(each.rows, 'row')}, last {_time(each.last_us)}"
        for each in found
    ]


def _counted(count: int, noun: str) -> str:
    """Return a number of things as text."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _change_form(change: RowChange, *, values: bool) -> Mapping[str, Any]:
    """Return a change as plain values."""
    rows = change.to_json() if values else {}
    return {"did": change.verb, "at": change.at, **rows}


def _change(change: RowChange, *, values: bool) -> str:
    """Describe a change: what was done, and with `values` the row before and after."""
    if not values:
        return f"{change.verb} ({change.at})"
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
