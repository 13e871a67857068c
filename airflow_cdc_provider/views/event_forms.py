"""A pipeline's events as people read them: what repeats within minutes is said once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from airflow_cdc_provider.core.records import PipelineEvent

Form = dict[str, Any]
_AGAIN_US = 600 * 1_000_000


def event_forms(events: Iterable[PipelineEvent]) -> list[Form]:
    """Return events as JSON, newest first; repetitions within minutes are one."""
    found: list[Form] = []
    latest: dict[tuple[str, str], Form] = {}
    for each in events:
        same = latest.get((each.level, each.text))
        if same is not None and same["since_us"] - each.at_us < _AGAIN_US:
            same["since_us"] = each.at_us
            same["times"] += 1
            continue
        form = {"at_us": each.at_us, "level": each.level, "text": each.text}
        found.append({**form, "since_us": each.at_us, "times": 1})
        latest[each.level, each.text] = found[-1]
    return found


def event_line(form: Mapping[str, Any]) -> str:
    """Return an event's form as one line: the last time, and how often since when."""
    times, since = form["times"], _at(form["since_us"])
    again = f" ({times} times since {since:%H:%M:%S})" if times > 1 else ""
    return f"{_at(form['at_us']):%Y-%m-%d %H:%M:%S} [{form['level']}] {form['text']}{again}"


def _at(at_us: int) -> datetime:
    """Return a time in UTC."""
    return datetime.fromtimestamp(at_us / 1e6, UTC)
