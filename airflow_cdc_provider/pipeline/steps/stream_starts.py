"""Pipelines whose stream starts without a snapshot: at a place of the log that the file says.

The place is found when the plan is made, and kept with the stream in the sink's ledger. No rows are
read: the sink's tables begin empty, or with the rows that a person has put there. From then on the
pipeline is as any other that is handed off.

Where it began is noted in the state store, too, for status and page; the ledger has the truth.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing

from airflow_cdc_provider.columns.source_port import (
    FindsStarts,
    FindsStops,
    FollowsDefinitions,
    offered,
)
from airflow_cdc_provider.core.codec import position_to_json
from airflow_cdc_provider.core.errors import (
    NOTHING_STARTED,
    RefusedError,
    SchemaMovedError,
    SnapshotRequiredError,
)
from airflow_cdc_provider.core.findings import Finding, Level, PipelineCode
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.lifecycle import Phase, TablePhase
from airflow_cdc_provider.core.plurals import counted
from airflow_cdc_provider.core.records import NoteKind, TablePlan
from airflow_cdc_provider.core.requests import read_as_a_whole
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.core.stream_starts import Beginning, StreamStart
from airflow_cdc_provider.core.stream_stops import StopKind
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps.sink import (
    open_table_builder,
    source_of,
)


def begin_with(run: Run, plans: Sequence[TablePlan]) -> StreamSplit | None:
    """Return the stream that a new plan begins with, None if a snapshot comes before it.

    `SchemaMovedError` if a table is defined otherwise by now than its plan says.
    """
    began = find_start(run)
    if began is None:
        return None
    _require_same_definitions(run, plans)
    tables = [plan.schema.table for plan in plans]
    stream = StreamSplit(began.at, None, (), began=began)
    return stream.with_tables(dict.fromkeys(tables, began.at), ()).read(tables)


def _require_same_definitions(run: Run, plans: Sequence[TablePlan]) -> None:
    """Refuse plans of tables that were altered while the start was looked for."""
    source = source_of(run)
    definitions = offered(source, FollowsDefinitions)
    with source.catalogue() as catalogue:
        now = catalogue.schemas([plan.schema.table for plan in plans])
    for plan in plans:
        table = plan.schema.table
        if table not in now or not definitions.is_same(plan.schema, now[table]):
            raise SchemaMovedError(
                f"{table} was altered while the start of the stream was looked for",
                where=f"catalogue of {source}",
                risk=NOTHING_STARTED,
                remedy="`run` it again",
            )


def find_start(run: Run) -> Beginning | None:
    """Find where the stream starts, None if a snapshot says so; refuse what has no such place.

    The stop that the file may have is refused here, too, if it is before that place.
    """
    start = run.model.stream.starts_at
    if not start:
        return None
    source = source_of(run)
    began = offered(source, FindsStarts).start_place(start)
    stop = run.model.stream.stops_at
    if stop.kind.has_value:
        offered(source, FindsStops).stop_place(stop, began.at, began.known, is_start=True)
    return began


def create_lacking(run: Run, plans: Sequence[TablePlan]) -> tuple[str, ...]:
    """Create the sink's tables that are missing; those that are there keep keys and rows."""
    with closing(open_table_builder(run, plans)) as builder:
        missing = set(builder.missing(plans))
        builder.create_missing([plan for plan in plans if plan.sink_table in missing])
    return tuple(map(str, sorted(missing)))


def hand_off_unread(run: Run, generation: int, stream: StreamSplit) -> None:
    """Store in the state store that a new plan streams already, as the ledger says."""
    store, name = run.store, run.name
    for phase in (Phase.PLANNING, Phase.SNAPSHOT):
        before = store.ensure(name).phase
        store.move(name, generation, expected=before, to=phase)
    tables = [progress.table for progress in stream.tables]
    for table in tables:
        store.finish_planning(name, generation, table)
    store.store_hand_off(name, generation, stream)
    store.move(name, generation, expected=Phase.SNAPSHOT, to=Phase.HANDED_OFF)
    for table in tables:
        store.mark_table(name, generation, table, TablePhase.CATCHING_UP)


def note_start(run: Run, stream: StreamSplit | None) -> None:
    """Store where the stream began, for status and page, or that a snapshot comes before it."""
    began = None if stream is None else stream.began
    form = {} if began is None else {"by": began.by, "at": position_to_json(began.at)}
    known = run.store.note(run.name, NoteKind.STARTED)
    if form != ({} if known is None else dict(known.form)):
        run.store.keep_note(run.name, NoteKind.STARTED, form)


def started_text(began: Beginning, tables: int) -> str:
    """Return the event text of a stream that begins without a snapshot."""
    return (
        f"the stream begins at {began.at.short} ({began.by}), with {counted(tables, 'table')} and "
        "the rows that are there: no rows are read"
    )


def require_same_start(run: Run, stream: StreamSplit | None) -> None:
    """Refuse a file with another start than the stream began at, or than rows are read for."""
    kept = StreamStart() if stream is None or stream.began is None else stream.began.start
    _require(run, kept)


def require_start_as_noted(run: Run) -> None:
    """Refuse a file with another start than the plan's, by what the state store knows."""
    state = run.store.pipeline(run.name)
    if state is not None and state.plan_id:
        _require(run, _noted(run))


def began_without_rows(run: Run) -> bool:
    """Tell whether the stream began without a snapshot, by what the state store knows."""
    return bool(_noted(run))


def _noted(run: Run) -> StreamStart:
    """Return where the stream began, as the state store has it."""
    note = run.store.note(run.name, NoteKind.STARTED)
    return StreamStart.parse("" if note is None else note.form.get("by", ""))


def _require(run: Run, kept: StreamStart) -> None:
    """Refuse a file whose start is another one than that of the plan."""
    now = run.model.stream.starts_at
    if now == kept:
        return
    problem = (
        ("stream", "start") if now else ("stream",),
        f"the pipeline began with start: {kept.as_written}, and only a new plan begins elsewhere",
        f"write start: {kept.as_written} again; or `reset` the pipeline, which begins anew with "
        f"start: {now.as_written}",
    )
    raise run.loaded.refusal(problem)


def place_findings(run: Run) -> Iterator[Finding]:
    """Yield a blocking finding for a start, or a stop, that the source's log does not have.

    They are looked for before there is a plan: the ledger has the start then.
    """
    stream = run.model.stream
    if not (stream.starts_at or stream.stops_at.kind.has_value):
        return
    try:
        began = find_start(run)
        if began is None:
            _require_stop(run)
        else:
            yield _found(run, began)
    except (RefusedError, SnapshotRequiredError) as error:
        yield Finding(
            PipelineCode.STREAM_PLACES,
            Level.BLOCK,
            error.where or str(run.servers.source),
            error.what,
            "a boundary between transactions that the source's log has",
            "which changes are applied, and which are not, would be a guess",
            error.remedy,
        )


def _found(run: Run, began: Beginning) -> Finding:
    """Return the finding that says where a stream without a snapshot would begin now."""
    return Finding(
        PipelineCode.STREAM_PLACES,
        Level.INFO,
        str(run.servers.source),
        f"start: {began.start.as_written} is {began.at.short} now",
        why="no rows are read: the sink gets each change from there on",
    )


def _require_stop(run: Run) -> None:
    """Refuse a stop that is no place of this source, or is in its log already.

    Rows that are read now would be beyond it. Of a set of transactions that is told only by the
    watermarks of what was read.
    """
    source, stop = source_of(run), run.model.stream.stops_at
    with closing(source.log_end(purpose="end of the log")) as log_end:
        end = log_end.now()
    if stop.kind in {StopKind.POSITION, StopKind.TIMESTAMP}:
        offered(source, FindsStops).stop_place(stop, end, end)
    else:
        offered(source, FindsStops).require_stop(stop)


def unread_tables(run: Run) -> tuple[TableId, ...]:
    """Return the tables that began without their rows, and were not read as a whole since.

    None of a pipeline whose sink had the source's rows of the start, as the file says.
    """
    note = run.store.note(run.name, NoteKind.STARTED)
    if note is None or not note.form or run.model.sink.existing_rows == "keep":
        return ()
    read = read_as_a_whole(run.store.requests(run.name), since_us=note.at_us)
    return tuple(state.table for state in run.store.tables(run.name) if state.table not in read)
