"""Rows of `cdc_split`: added by thousands, moved one at a time.

The caller's transaction holds the pipeline's row, so nothing here is changed by anyone else
between a look and a write.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from sqlalchemy import Connection, bindparam, insert, select, update

from airflow_cdc_provider.core.codec import dumps, report_to_json
from airflow_cdc_provider.core.errors import NOTHING_CHANGED, IntegrityError, StateMovedError
from airflow_cdc_provider.core.identifiers import PipelineName
from airflow_cdc_provider.core.lifecycle import SplitStatus
from airflow_cdc_provider.core.splits import SnapshotSplit, SplitReport
from airflow_cdc_provider.core.stored_error import NO_ERROR, StoredError
from airflow_cdc_provider.state.rows import Values, new_split
from airflow_cdc_provider.state.tables import splits as split_table

ROWS_A_STATEMENT = 1000

_FINAL: dict[SplitStatus, frozenset[SplitStatus]] = {
    SplitStatus.FINISHED: frozenset({SplitStatus.READING, SplitStatus.CUT, SplitStatus.FAILED}),
    SplitStatus.CUT: frozenset(set(SplitStatus) - {SplitStatus.CUT}),
}
"""What a split does not become any more. Only reconciling takes FINISHED back, to PLANNED."""


def add_missing(
    connection: Connection, name: PipelineName, splits: Iterable[SnapshotSplit]
) -> None:
    """Insert the splits that are not stored; one that is stored must have the same range."""
    remaining = iter(splits)
    while some := list(islice(remaining, ROWS_A_STATEMENT)):
        known = _stored(connection, name, some)
        fresh: dict[tuple[str, int], Values] = {}
        for row in (new_split(name, split) for split in some):
            place = row["source_table"], row["number"]
            stored = known.get(place) or fresh.get(place, {}).get("split")
            if stored is None:
                fresh[place] = row
            elif stored != row["split"]:
                raise _other_range(name, place, stored, row["split"])
        if fresh:
            connection.execute(insert(split_table), list(fresh.values()))


def _stored(
    connection: Connection, name: PipelineName, some: list[SnapshotSplit]
) -> dict[tuple[str, int], str]:
    """Return the stored splits among these, by table and number."""
    columns = split_table.c.source_table, split_table.c.number, split_table.c.split
    known: dict[tuple[str, int], str] = {}
    for table in {split.table for split in some}:
        numbers = [split.number for split in some if split.table == table]
        query = select(*columns).where(
            split_table.c.pipeline == str(name),
            split_table.c.source_table == str(table),
            split_table.c.number.between(min(numbers), max(numbers)),
        )
        known |= {(row[0], row[1]): row[2] for row in connection.execute(query)}
    return known


def values_of(
    status: SplitStatus, *, report: SplitReport | None, error: StoredError, now: int
) -> Values:
    """Return the columns that a split's row gets with a new status."""
    values: Values = {"error": error.text}
    if status is SplitStatus.READING:
        values |= {"attempt": split_table.c.attempt + 1, "started_us": now}
    elif status is SplitStatus.FINISHED:
        values["finished_us"] = now
    elif status is SplitStatus.PLANNED:
        values |= {"report": None, "row_count": 0, "byte_count": 0, "finished_us": 0}
    if report is not None:
        values |= {
            "report": dumps(report_to_json(report)),
            "row_count": report.rows,
            "byte_count": report.bytes,
        }
    return values


def mark(
    connection: Connection,
    name: PipelineName,
    split: SnapshotSplit,
    status: SplitStatus,
    values: Values,
) -> None:
    """Change one split's status and columns; `StateMovedError` if its status does not allow it."""
    mine = _place(name, split)
    blockers = [before.value for before, refused in _FINAL.items() if status in refused]
    change = update(split_table).where(*mine, split_table.c.status.not_in(blockers))
    if connection.execute(change.values(status=status.value, **values)).rowcount == 0:
        found = connection.execute(select(split_table.c.status).where(*mine)).scalar()
        raise _not_movable(name, split, status, found)


def finish_all(
    connection: Connection,
    name: PipelineName,
    reports: Sequence[tuple[SnapshotSplit, SplitReport]],
    *,
    now: int,
) -> None:
    """Mark many splits as finished in one statement; name one that cannot be."""
    columns = split_table.c
    written = ("report", "row_count", "byte_count")
    change = (
        update(split_table)
        .where(
            columns.pipeline == str(name),
            columns.source_table == bindparam("of_table"),
            columns.number == bindparam("of_number"),
            columns.status != SplitStatus.CUT.value,
        )
        .values(
            status=SplitStatus.FINISHED.value,
            error="",
            finished_us=now,
            **{column: bindparam(f"new_{column}") for column in written},
        )
    )
    rows = []
    for split, report in reports:
        values = values_of(SplitStatus.FINISHED, report=report, error=NO_ERROR, now=now)
        new = {f"new_{column}": values[column] for column in written}
        rows.append({"of_table": str(split.table), "of_number": split.number, **new})
    if connection.execute(change, rows).rowcount != len(rows):
        for split, report in reports:
            values = values_of(SplitStatus.FINISHED, report=report, error=NO_ERROR, now=now)
            mark(connection, name, split, SplitStatus.FINISHED, values)


def _place(name: PipelineName, split: SnapshotSplit) -> tuple[Any, Any, Any]:
    """Return the SQL conditions that pick one split's row."""
    return (
        split_table.c.pipeline == str(name),
        split_table.c.source_table == str(split.table),
        split_table.c.number == split.number,
    )


def _not_movable(
    name: PipelineName, split: SnapshotSplit, status: SplitStatus, found: str | None
) -> StateMovedError:
    """Return the error for a split whose status cannot become another."""
    state = "is not in the plan" if found is None else f"is {found}"
    return StateMovedError(
        f"split {split.split_id} {state}, it cannot become {status.value}",
        where=f"state of {name}",
        risk=NOTHING_CHANGED,
        remedy="read the splits again; another run may have planned anew",
    )


def _other_range(
    name: PipelineName, place: tuple[str, int], stored: str, found: str
) -> IntegrityError:
    """Return the error for a split that is stored with another range."""
    return IntegrityError(
        f"split {place[0]}#{place[1]} is stored with another range: {stored} is not {found}",
        where=f"state of {name}",
        risk="keys between the two would be read twice or never",
        remedy="`reset` the pipeline: the next run reads all tables again",
    )
