"""A pipeline's tables as the CDC page shows them, and how far its snapshot is as a whole."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.lifecycle import Phase, SplitStatus
from airflow_cdc_provider.core.overview import TableOverview
from airflow_cdc_provider.core.records import Note, Sample
from airflow_cdc_provider.core.requests import Request, RequestStatus
from airflow_cdc_provider.views.error_facts import stopped_facts
from airflow_cdc_provider.views.progress import seconds_left
from airflow_cdc_provider.views.started import Started, shown_phase

Form = dict[str, Any]
_SHORTLY_US = 30 * 1_000_000
_READS = frozenset({Phase.PLANNING.value, Phase.SNAPSHOT.value})


def table_forms(
    tables: Iterable[TableOverview],
    requests: Iterable[Request],
    verified: Note | None,
    *,
    is_streamed: bool,
    pipeline: str = "",
    started: Started | None = None,
) -> list[Form]:
    """Return tables as JSON, with the requests that read them and their last comparison."""
    reading = [each for each in requests if each.status is RequestStatus.READING]
    found = {} if verified is None else verified.form["tables"]
    return [
        {
            **_table_form(table, reading),
            "error": stopped_facts(
                table.error, table.source, is_streamed=is_streamed, pipeline=pipeline
            )
            if table.error
            else None,
            "phase": shown_phase(table.phase, TableId.parse(table.source), started),
            "verified": found.get(table.source),
        }
        for table in tables
    ]


def with_waiting(forms: Iterable[Form], waiting: Collection[str]) -> list[Form]:
    """Return tables as JSON, each with whether the sink does not take its changes for now."""
    return [{**form, "waits": form["source"] in waiting} for form in forms]


def _table_form(table: TableOverview, reading: Iterable[Request]) -> Form:
    """Return one table as JSON, without its error."""
    return {
        "source": table.source,
        "sink": table.sink,
        "key": list(table.key),
        "planning_done": table.planning_done,
        "estimated_rows": table.estimated_rows,
        "rows": table.rows,
        "bytes": table.bytes,
        "inserts": table.inserts,
        "updates": table.updates,
        "deletes": table.deletes,
        "changed_us": table.changed_us,
        "finished": table.splits.get(SplitStatus.FINISHED, 0),
        "splits": sum(table.splits.values()),
        "by_request": table.planning_done and not table.splits,
        "strip": "".join(_cell(cell) * len([*same]) for cell, same in groupby(table.cells)),
        "requests": [
            each.request_id
            for each in reading
            if table.source in {str(one) for one in each.scope.tables}
        ],
    }


def _cell(counts: Mapping[SplitStatus, int]) -> str:
    """Return one cell of the progress bar: x failed, r being read, else 0 to 9 tenths read."""
    if counts.get(SplitStatus.FAILED):
        return "x"
    if counts.get(SplitStatus.READING):
        return "r"
    return str(9 * counts.get(SplitStatus.FINISHED, 0) // max(1, sum(counts.values())))


def snapshot_form(
    phase: str,
    tables: Sequence[TableOverview],
    samples: Sequence[Sample],
    now_us: int,
    *,
    is_throttled: bool = False,
) -> Form | None:
    """Return a snapshot's progress and remaining time as JSON; None if none runs."""
    if phase not in _READS:
        return None
    finished = sum(table.splits.get(SplitStatus.FINISHED, 0) for table in tables)
    splits = sum(sum(table.splits.values()) for table in tables)
    to_read = sum(
        max(0, table.estimated_rows - table.rows) for table in tables if not _is_read(table)
    )
    rates = [rate for us in (_SHORTLY_US, None) if (rate := _rate(samples, now_us, us))]
    # while no split is handed out nobody knows for how long
    left = None if is_throttled else seconds_left(to_read, rates)
    return {
        "rows": sum(table.rows for table in tables),
        "estimated_rows": sum(max(table.rows, table.estimated_rows) for table in tables),
        "finished": finished,
        "splits": splits,
        "planning_done": bool(tables) and all(table.planning_done for table in tables),
        "rows_per_s": rates[0] if rates else None,
        "left_s": None if left is None else list(left),
    }


def _is_read(table: TableOverview) -> bool:
    """Tell whether all splits of a table are read."""
    finished = table.splits.get(SplitStatus.FINISHED, 0)
    return table.planning_done and finished == sum(table.splits.values())


def _rate(samples: Sequence[Sample], now_us: int, within_us: int | None) -> float:
    """Return rows a second over the last samples; 0 if there are none yet."""
    fitting = [s for s in samples if within_us is None or s.at_us >= now_us - within_us]
    seconds = (now_us - fitting[0].at_us) / 1e6 if fitting else 0.0
    return sum(each.rows for each in fitting) / seconds if seconds > 0 else 0.0
