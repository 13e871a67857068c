"""Looks at many pipelines, or at all tables of one, in a few statements each.

How many statements there are depends on neither the number of pipelines nor that of tables, and
no table's definition is read for the list: a page asks every few seconds.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, func, not_, select

from airflow_cdc_provider.core.identifiers import PipelineName
from airflow_cdc_provider.core.lifecycle import LEFT_ALONE, SplitStatus, TablePhase
from airflow_cdc_provider.core.overview import Cells, PipelineOverview, TableOverview
from airflow_cdc_provider.core.records import Note, NoteKind, Sample
from airflow_cdc_provider.core.requests import RequestStatus
from airflow_cdc_provider.core.row_counts import TableCounts
from airflow_cdc_provider.core.stored_error import StoredError
from airflow_cdc_provider.state.request_rows import OPEN
from airflow_cdc_provider.state.rows import pipeline_of, stream_of
from airflow_cdc_provider.state.samples import FINE_S, sample_of
from airflow_cdc_provider.state.table_counts import find_counts
from airflow_cdc_provider.state.tables import (
    notes,
    pipelines,
    plans,
    requests,
    samples,
    splits,
    streams,
    tables,
)

_TROUBLED = [phase.value for phase in (*LEFT_ALONE, TablePhase.CHANGED)]
_MOST_TROUBLES = 1000
_SAMPLED_US = 120 * 1_000_000
CELLS = 60
"""Of how many cells a table's strip is."""


def find_overviews(
    connection: Connection, names: Sequence[PipelineName], now_us: int
) -> tuple[PipelineOverview, ...]:
    """Read the overview of each of the pipelines that the store knows, by name."""
    wanted = [str(name) for name in names]
    known = _known(connection, wanted)
    of_streams = select(streams).where(streams.c.pipeline.in_(wanted))
    found_streams = {row.pipeline: stream_of(row) for row in connection.execute(of_streams)}
    phases = _counted(connection, tables, wanted)
    statuses = _counted(connection, requests, wanted)
    troubles = _troubles(connection, wanted)
    later = _not_copied(connection, wanted)
    findings = _preflights(connection, [name for name, found in later.items() if found])
    sampled = _sampled(connection, wanted, now_us)
    return tuple(
        PipelineOverview(
            state=pipeline_of(row),
            stream=found_streams.get(row.name),
            tables={TablePhase(phase): count for phase, count in phases[row.name]},
            requests={RequestStatus(status): count for status, count in statuses[row.name]},
            troubles=tuple(troubles[row.name]),
            not_copied=later.get(row.name, ()),
            samples=tuple(sampled[row.name]),
            last_try=_note(row.tried_us, row.tried),
            outages=_note(row.outages_us, row.outages),
            conflicts=_note(row.conflicts_us, row.conflicts),
            ended=_note(row.ended_us, row.ended),
            started=_note(row.started_us, row.started),
            published=_note(row.published_us, row.published),
            preflight=findings.get(row.name),
            differing=_differing(row.verified),
        )
        for row in known
    )


def _known(connection: Connection, wanted: Sequence[str]) -> Sequence[Row[Any]]:
    """Read the pipelines' rows, each with the notes of its last try, outages and the like."""
    tries, outages, conflicts, ended, started, published = (notes.alias() for _ in range(6))
    verified = notes.alias()
    # what is stored of tables that were all equal may be long, and is not read
    differs = verified.c.form.contains('"equal":false', autoescape=True)
    noted = (
        select(
            pipelines,
            tries.c.at_us.label("tried_us"),
            tries.c.form.label("tried"),
            outages.c.at_us.label("outages_us"),
            outages.c.form.label("outages"),
            conflicts.c.at_us.label("conflicts_us"),
            conflicts.c.form.label("conflicts"),
            ended.c.at_us.label("ended_us"),
            ended.c.form.label("ended"),
            started.c.at_us.label("started_us"),
            started.c.form.label("started"),
            published.c.at_us.label("published_us"),
            published.c.form.label("published"),
            verified.c.form.label("verified"),
        )
        .join_from(pipelines, tries, _is_its(tries, NoteKind.LAST_TRY), isouter=True)
        .join(outages, _is_its(outages, NoteKind.OUTAGES), isouter=True)
        .join(conflicts, _is_its(conflicts, NoteKind.CONFLICTS), isouter=True)
        .join(ended, _is_its(ended, NoteKind.ENDED), isouter=True)
        .join(started, _is_its(started, NoteKind.STARTED), isouter=True)
        .join(published, _is_its(published, NoteKind.PUBLISHED), isouter=True)
        .join(verified, and_(_is_its(verified, NoteKind.VERIFIED), differs), isouter=True)
    )
    mine = noted.where(pipelines.c.name.in_(wanted)).order_by(pipelines.c.name)
    return connection.execute(mine).all()


def _is_its(noted: Any, kind: NoteKind) -> ColumnElement[bool]:
    """Return the SQL condition that joins a pipeline with its note of a kind."""
    return and_(noted.c.pipeline == pipelines.c.name, noted.c.kind == kind.value)


def _note(at_us: int | None, form: str | None) -> Note | None:
    """Make a note from its columns, None if they are NULL."""
    return None if at_us is None or form is None else Note(at_us, json.loads(form))


def _counted(
    connection: Connection, counted: Any, wanted: Sequence[str]
) -> Mapping[str, list[tuple[str, int]]]:
    """Count tables by phase, or open requests by status."""
    kind = counted.c.phase if counted is tables else counted.c.status
    query = select(counted.c.pipeline, kind, func.count()).where(counted.c.pipeline.in_(wanted))
    if counted is requests:
        query = query.where(kind.in_(OPEN))
    found: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for pipeline, value, count in connection.execute(query.group_by(counted.c.pipeline, kind)):
        found[pipeline].append((value, count))
    return found


def _troubles(
    connection: Connection, wanted: Sequence[str]
) -> Mapping[str, list[tuple[str, StoredError]]]:
    """Return the tables in trouble of each pipeline, with their errors."""
    mine = tables.c.pipeline.in_(wanted), tables.c.phase.in_(_TROUBLED)
    query = select(tables.c.pipeline, tables.c.source_table, tables.c.error).where(*mine)
    found: dict[str, list[tuple[str, StoredError]]] = defaultdict(list)
    ordered = query.order_by(tables.c.pipeline, tables.c.source_table).limit(_MOST_TROUBLES)
    for pipeline, table, error in connection.execute(ordered):
        found[pipeline].append((table, StoredError(error)))
    return found


def _not_copied(connection: Connection, wanted: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
    """Return the tables that each pipeline's file picks but its plan lacks."""
    query = select(plans.c.pipeline, plans.c.not_copied).where(plans.c.pipeline.in_(wanted))
    return {pipeline: tuple(json.loads(text)) for pipeline, text in connection.execute(query)}


def _preflights(connection: Connection, wanted: Sequence[str]) -> Mapping[str, Note]:
    """Return preflight's findings of each of the pipelines; they may be long."""
    if not wanted:
        return {}
    mine = notes.c.pipeline.in_(wanted), notes.c.kind == NoteKind.PREFLIGHT.value
    found = connection.execute(select(notes).where(*mine))
    return {row.pipeline: Note(row.at_us, json.loads(row.form)) for row in found}


def _differing(form: str | None) -> tuple[str, ...]:
    """Return the tables that differed when they were compared last."""
    tables = {} if form is None else json.loads(form)["tables"]
    return tuple(table for table, said in tables.items() if not said["equal"])


def _sampled(
    connection: Connection, wanted: Sequence[str], now_us: int
) -> Mapping[str, list[Sample]]:
    """Return the latest samples of each pipeline, oldest first."""
    mine = (
        samples.c.pipeline.in_(wanted),
        samples.c.step_s == FINE_S,
        samples.c.at_us >= now_us - _SAMPLED_US,
    )
    found: dict[str, list[Sample]] = defaultdict(list)
    for row in connection.execute(select(samples).where(*mine).order_by(samples.c.at_us)):
        found[row.pipeline].append(sample_of(row))
    return found


def find_tables(
    connection: Connection, name: PipelineName, now_us: int
) -> tuple[TableOverview, ...]:
    """Read a pipeline's tables for display, with counts of splits and of today's changes."""
    counted, cells = _split_counts(connection, name), _cells(connection, name)
    changed = dict(find_counts(connection, name, now_us))
    mine = select(tables).where(tables.c.pipeline == str(name)).order_by(tables.c.source_table)
    return tuple(
        _with_counts(
            _table_of(row, counted.get(row.source_table, []), cells.get(row.source_table, ())),
            changed.get(row.source_table),
        )
        for row in connection.execute(mine)
    )


def _with_counts(table: TableOverview, counts: TableCounts | None) -> TableOverview:
    """Return a table's overview with its counts of changes added."""
    if counts is None:
        return table
    rows = counts.rows
    return replace(
        table,
        inserts=rows.inserts,
        updates=rows.updates,
        deletes=rows.deletes,
        changed_us=counts.changed_us or None,
    )


def _table_of(
    row: Row[Any], counted: Sequence[Row[Any]], cells: Sequence[Row[Any]]
) -> TableOverview:
    """Make one table's overview of its row and its counts of splits."""
    sink, estimated_rows, key = _told_by_plan(row.plan)
    by_status = {SplitStatus(each.status): each for each in counted}
    found = {status: int(each.splits) for status, each in by_status.items()}
    finished = by_status.get(SplitStatus.FINISHED)
    return TableOverview(
        source=row.source_table,
        sink=sink,
        phase=TablePhase(row.phase),
        planning_done=bool(row.planning_done),
        estimated_rows=estimated_rows,
        error=StoredError(row.error),
        splits=found,
        cells=_mixed_cells(cells) if cells else _like_cells(found),
        rows=0 if finished is None else int(finished.rows),
        bytes=0 if finished is None else int(finished.bytes),
        key=key,
    )


@lru_cache(maxsize=4096)
def _told_by_plan(text: str) -> tuple[str, int, tuple[str, ...]]:
    """Read a table's sink name, estimated rows and key columns from its stored plan."""
    plan = json.loads(text)
    key = tuple(plan.get("schema", {}).get("primary_key", ()))
    return plan["sink_table"], plan["estimated_rows"], key


def _like_cells(counts: Mapping[SplitStatus, int]) -> Cells:
    """Return the cells of a table whose splits all have one status."""
    cells: list[Mapping[SplitStatus, int]] = []
    for status, count in counts.items():
        width = (count - 1) // CELLS + 1
        whole, rest = divmod(count, width)
        cells += [{status: width}] * whole
        cells += [{status: rest}] * bool(rest)
    return tuple(cells)


def _mixed_cells(counted: Sequence[Row[Any]]) -> Cells:
    """Return a table's cells with their counts by status."""
    cells: list[dict[SplitStatus, int]] = [{} for _ in range(max(r.cell for r in counted) + 1)]
    for each in counted:
        cells[int(each.cell)][SplitStatus(each.status)] = each.splits
    return tuple(cells)


def _split_counts(connection: Connection, name: PipelineName) -> Mapping[str, list[Row[Any]]]:
    """Count each table's splits by status, with their rows and bytes."""
    query = (
        select(
            splits.c.source_table,
            splits.c.status,
            func.count().label("splits"),
            func.sum(splits.c.row_count).label("rows"),
            func.sum(splits.c.byte_count).label("bytes"),
        )
        .where(splits.c.pipeline == str(name), splits.c.status != SplitStatus.CUT.value)
        .group_by(splits.c.source_table, splits.c.status)
    )
    return _by_table(connection.execute(query))


def _cells(connection: Connection, name: PipelineName) -> Mapping[str, list[Row[Any]]]:
    """Count splits by table, cell and status; a cell is a span of split numbers.

    A table of few splits has a cell for each. Tables whose splits all have one status are left out:
    their cells follow from the count, and before and after the snapshot all tables are like that.
    """
    mine = splits.c.pipeline == str(name), splits.c.status != SplitStatus.CUT.value
    numbers, statuses = splits.c.number, splits.c.status
    are_alike = and_(func.min(statuses) == func.max(statuses), func.count() > func.max(numbers))
    widths = (
        select(splits.c.source_table, (func.max(numbers) // CELLS + 1).label("width"))
        .where(splits.c.pipeline == str(name))
        .group_by(splits.c.source_table)
        .having(not_(are_alike))
        .subquery()
    )
    cell = (numbers // widths.c.width).label("cell")
    query = (
        select(splits.c.source_table, cell, statuses, func.count().label("splits"))
        .join(widths, widths.c.source_table == splits.c.source_table)
        .where(*mine)
        .group_by(splits.c.source_table, cell, statuses)
    )
    return _by_table(connection.execute(query))


def _by_table(rows: Iterable[Row[Any]]) -> Mapping[str, list[Row[Any]]]:
    """Group rows by their source table."""
    found: dict[str, list[Row[Any]]] = defaultdict(list)
    for row in rows:
        found[row.source_table].append(row)
    return found
