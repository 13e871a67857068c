"""Starting the edge back of a pair of nodes from the rows that the opposite edge has copied.

The way there notes the place S in its sink's log before it writes anything. The way back reads no
rows: once the way there is consistent, its stream begins at a place C of that log. Between S and C
the log may hold, of these tables, only what edges of the topology wrote: the copy may have
overwritten anything else, and the other node would never hear of it.

Nothing at the way back's sink is created, altered or deleted. A plain run of an edge never makes a
plan into tables that hold rows (`require_empty`), so a way back that was not seeded, or only in
part, cannot read its rows over those of the other node.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path

from airflow_cdc_provider.core.codec import position_from_json, position_to_json
from airflow_cdc_provider.core.errors import (
    NOTHING_STARTED,
    IntegrityError,
    RefusedError,
    StepMissingError,
)
from airflow_cdc_provider.core.plurals import counted
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.records import NoteKind, TablePlan
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.core.topology import Topology
from airflow_cdc_provider.engine.ledger.ledger import Ledger
from airflow_cdc_provider.engine.readings import log_reading
from airflow_cdc_provider.engine.sink.own_log import HasOwnLog
from airflow_cdc_provider.pipeline.file.folder import files_beside
from airflow_cdc_provider.pipeline.file.loader import load_pipeline
from airflow_cdc_provider.pipeline.run import Run, take_over
from airflow_cdc_provider.pipeline.steps.checking import require_fit
from airflow_cdc_provider.pipeline.steps.claims import claim_tables, copied_by
from airflow_cdc_provider.pipeline.steps.conflict_findings import differing_rules
from airflow_cdc_provider.pipeline.steps.file_diff import edge_text
from airflow_cdc_provider.pipeline.steps.jobs import stream_spec
from airflow_cdc_provider.pipeline.steps.pausing import require_wanted
from airflow_cdc_provider.pipeline.steps.servers import origin_now, sink_identity
from airflow_cdc_provider.pipeline.steps.sink import (
    open_ledger,
    open_table_builder,
    open_targets,
    secure_log,
    sink_of,
    source_of,
)
from airflow_cdc_provider.pipeline.steps.stream_starts import hand_off_unread
from airflow_cdc_provider.pipeline.steps.tables import (
    Captured,
    captured_tables,
    require_keys,
    require_separate,
)

_LOOK_EVERY_S = 1.0
_BATCH_S = 1.0
_MOST_LOOKS, _BETWEEN_COMMITS_S = 500, 0.01


def note_seed(run: Run) -> None:
    """Note where the sink's own log ends, before the first row is written there."""
    sink = sink_of(run)
    if run.model.edge is None or not isinstance(sink, HasOwnLog):
        return
    with closing(sink.own_log().log_end(purpose="seed of the way back")) as end:
        position = end.seen()
    form = {"position": position_to_json(position), "sink": sink_identity(run)}
    run.store.keep_note(run.name, NoteKind.SEED, form)


def require_empty(run: Run, plans: Sequence[TablePlan]) -> None:
    """Refuse a new plan of an edge into tables that hold rows."""
    if run.model.edge is None:
        return
    with closing(open_targets(run)) as targets:
        filled = [plan.sink_table for plan in plans if targets.rows(plan.sink_table)]
    if filled:
        raise RefusedError(
            f"{', '.join(map(str, filled[:5]))}{' and more' if len(filled) > 5 else ''} hold rows, "
            "and an edge of a topology reads its rows into empty tables only",
            where=f"sink of {run.name}, node {run.model.edge.dst_node}",
            risk="what was written at that node and has not come back yet would be lost; nothing "
            "was changed",
            remedy=run.model.edge.way_to_seed,
        )


def require_begun_by_copy(run: Run) -> None:
    """Refuse to read the rows of an edge whose plan is the half of a seed."""
    if run.model.edge is None or run.store.note(run.name, NoteKind.SEED) is not None:
        return
    raise StepMissingError(
        f"{run.name} was not seeded to the end",
        where=f"plan of {run.name}",
        risk="its rows would be read over those of the other node; nothing was changed",
        remedy="`run` it with --seeded-from the file of the opposite edge",
    )


def is_seeded(run: Run) -> bool:
    """Tell whether the pipeline streams already, so that nothing of a seed is left to do."""
    with closing(open_ledger(run)) as ledger:
        return bool(ledger.plan_id()) and ledger.stream() is not None


def seed(run: Run, there: Run, *, on_wait: Callable[[str], None] = lambda _text: None) -> str:
    """Have a pipeline stream from where the opposite edge is consistent; describe the result.

    It waits until the opposite edge is. Nothing is done if the pipeline streams already.
    """
    told = ""
    while True:
        is_begun, text = seed_if_consistent(run, there)
        if is_begun:
            return text
        if text != told:
            on_wait(text)
        told = text
        time.sleep(_LOOK_EVERY_S)


def seed_if_consistent(run: Run, there: Run) -> tuple[bool, str]:
    """Seed a pipeline if the opposite edge is consistent; return whether it streams, and a text.

    Where that edge is not consistent yet, the text says what it waits for.
    """
    edge = _require_opposite(run, there)
    if is_seeded(run):
        return True, f"{run.name} streams already: nothing of {there.name} was needed"
    for each in (run, there):
        require_wanted(each)
    with closing(open_ledger(there)) as ledger:
        waits = _waits_for(ledger)
    waits = waits or _lacks_keys(run, there)
    if waits:
        return False, f"waiting for {there.name}: {waits}"
    return True, _seed(run, there, edge)


def opposite_file(run: Run) -> Path:
    """Return the file of the opposite edge, which lies in the same folder."""
    mine = run.model.edge
    found = [
        file.path
        for file in files_beside(run.loaded)
        if mine and file.loaded and (edge := file.loaded.model.edge) and edge.is_back_of(mine)
    ]
    if len(found) == 1:
        return found[0]
    raise RefusedError(
        f"{len(found)} files of the folder are the opposite edge of {run.name}",
        where=str(run.loaded.path.parent),
        risk=NOTHING_STARTED,
        remedy="put the files of both edges into one folder; `run` with --seeded-from takes any "
        "file",
    )


def opposite_run(run: Run) -> AbstractContextManager[Run | None]:
    """Open the opposite edge; None if the folder does not have its file."""
    try:
        path = opposite_file(run)
    except RefusedError:
        return nullcontext()
    return run.open_beside(load_pipeline(path))


def _seed(run: Run, there: Run, edge: Topology) -> str:
    """Have a pipeline stream from where the opposite edge, which is consistent, is now."""
    seeded_at = _seed_of(there)
    end_now, known = _start_of_way_back(run, there)
    captured = captured_tables(run)
    _require_inverse(run, there, captured)
    _require_same_rules(edge, captured, there)
    run.held.seeded = copied_by(captured.plans)
    require_fit(run)
    start = _read_unwritten(run, edge, captured, (seeded_at, end_now))
    form = {"position": position_to_json(known)}
    run.store.keep_note(run.name, NoteKind.KNOWN, form)
    return _begin(run, captured, start)


def _start_of_way_back(run: Run, there: Run) -> tuple[LogPosition, LogPosition]:
    """Return where the edge back begins, and how far the opposite edge was by then.

    The one is a position in the log of the way back's source, the other in its sink's.
    """
    with (
        closing(source_of(run).log_end(purpose="start of the way back")) as end,
        closing(open_ledger(there)) as ledger,
    ):
        for _ in range(_MOST_LOOKS):
            before = _position(ledger)
            found, after = end.now(), _position(ledger)
            if before == after:
                return found, before
            time.sleep(_BETWEEN_COMMITS_S)
    raise RefusedError(
        f"{there.name} commits all the time",
        where=f"ledger of {there.name}",
        risk=NOTHING_STARTED,
        remedy="run this again when less is written",
    )


def _position(ledger: Ledger) -> LogPosition:
    """Return the position of an edge that streams."""
    stream = ledger.stream()
    if stream is None:
        raise ValueError("the edge was seen to stream")
    return stream.start


def _require_opposite(run: Run, there: Run) -> Topology:
    """Return the pipeline's edge; refuse a file that is not the one of the opposite edge."""
    edge, other = run.model.edge, there.model.edge
    if edge is None or other is None:
        raise RefusedError(
            f"{run.name if edge is None else there.name} is no edge of a topology",
            where="--seeded-from",
            risk=NOTHING_STARTED,
            remedy="give both files a topology",
        )
    here = (edge.name, edge.marker, edge.src_node, edge.dst_node)
    opposite = (other.name, other.marker, other.dst_node, other.src_node)
    if here != opposite:
        raise RefusedError(
            f"{there.name} is not the opposite edge of {run.name}: it goes from {other.src_node} "
            f"to {other.dst_node} in {other.name} with the marker {other.marker}, and this one "
            f"from {edge.src_node} to {edge.dst_node} in {edge.name} with {edge.marker}",
            where="--seeded-from",
            risk=NOTHING_STARTED,
            remedy="name the file of the opposite edge",
        )
    return edge


def _seed_of(there: Run) -> LogPosition:
    """Return where the opposite edge's sink was before its copy."""
    note = there.store.note(there.name, NoteKind.SEED)
    if note is None:
        raise StepMissingError(
            f"it is not known where the log of node {_dst(there)} was before {there.name} copied "
            "its rows there",
            where=f"state of {there.name}",
            risk="what was written there meanwhile could not be told from the copy; nothing was "
            "started",
            remedy=f"name the state store with which {there.name} was run first; if it copied its "
            "rows before it was an edge, `drop` it, empty its tables at that node and run it",
        )
    return position_from_json(note.form["position"])


def _dst(run: Run) -> str:
    """Return the name of an edge's sink node."""
    return "" if run.model.edge is None else run.model.edge.dst_node


def _waits_for(ledger: Ledger) -> str:
    """Describe what an edge's tables wait for; empty once all are consistent."""
    stream = ledger.stream()
    if stream is None:
        return "its snapshot is not handed off"
    left = stream.passed(stream.start).inconsistent
    stopped = tuple(each.table for each in ledger.stopped())
    if left or stopped:
        names = ", ".join(map(str, (*left, *stopped)))
        return f"not consistent: {names}"
    return ""


def _lacks_keys(run: Run, there: Run) -> str:
    """Describe which unique keys the copied tables lack still; empty if they have all.

    An edge adds them once its tables are consistent.
    """
    targets = [state.plan.target for state in there.store.tables(there.name)]
    with source_of(run).catalogue() as catalogue:
        found = catalogue.schemas([target.table for target in targets])
    lacking = [
        f"{target.table} has no unique key {key.name} yet"
        for target in targets
        for key in target.unique_keys
        if target.table in found
        and key.columns not in {each.columns for each in found[target.table].unique_keys}
    ]
    return "; ".join(lacking[:5])


def _require_inverse(run: Run, there: Run, captured: Captured) -> None:
    """Refuse an edge back whose servers or tables are not those of the opposite edge."""
    origin = there.store.origin(there.name)
    if origin is None or (origin.source, origin.sink) != (sink_identity(run), captured.server_uuid):
        raise RefusedError(
            f"{run.name} does not go between the servers of {there.name}, the other way round",
            where="--seeded-from",
            risk=NOTHING_STARTED,
            remedy="let the source of each file be the sink of the other",
        )
    back = {(plan.sink_table, plan.schema.table) for plan in captured.plans}
    forth = {
        (state.plan.schema.table, state.plan.sink_table) for state in there.store.tables(there.name)
    }
    if back != forth:
        differing = sorted(back ^ forth)
        names = ", ".join(f"{one} and {other}" for one, other in differing[:5])
        raise RefusedError(
            f"{run.name} and {there.name} do not copy the same tables: {names} are in one of them",
            where="--seeded-from",
            risk=NOTHING_STARTED,
            remedy="give both files the same tables, and routes that lead back",
        )


def _require_same_rules(edge: Topology, captured: Captured, there: Run) -> None:
    """Refuse rules for conflicts that are not those of the way there."""
    for plan, here, other in differing_rules(edge, captured.plans, there.model):
        raise RefusedError(
            f"conflicts of {plan.schema.table} are settled here by that {here.whole}, and in "
            f"{there.loaded.path.name} by that {other.whole}",
            where="--seeded-from",
            risk="the nodes would keep different rows; nothing was started",
            remedy="write the same rules in the files of both edges",
        )


def _read_unwritten(
    run: Run, edge: Topology, captured: Captured, between: tuple[LogPosition, LogPosition]
) -> LogPosition:
    """Read the log that holds the copy, and return the place at its end, as a reader knows it.

    Changes that others than the topology's edges made meanwhile are refused.
    """
    start, end = between
    tables = {plan.schema.table: plan.schema for plan in captured.plans}
    stream = StreamSplit(start, None, ()).with_tables(dict.fromkeys(tables, start), ())
    source = source_of(run)
    source.require_same_log(start, (), [*tables])
    reading = log_reading(stream_spec(run.model, 0), tables)
    with closing(source.log_reader(stream.read(tables), reading)) as reader:
        for batch in reader.read_up_to(end, batch_s=_BATCH_S):
            written = sorted(str(changes.table) for changes in batch.tables if len(changes))
            if not written:
                continue
            raise IntegrityError(
                f"while {', '.join(written)} came to node {edge.src_node}, others wrote there, "
                f"first at or behind {batch.transactions[0].where}",
                where=f"log of node {edge.src_node}",
                risk="the copy may have overwritten these changes, and the other node does not "
                "have them; nothing was changed",
                remedy=f"compare both nodes and bring what is missing to node {edge.dst_node} by "
                f"hand; then `drop` the pipeline that copies there, empty its tables at node "
                f"{edge.src_node}, and run both again: nobody but the copy may write there until "
                "the way back runs",
            )
        return reader.position


def _begin(run: Run, captured: Captured, start: LogPosition) -> str:
    """Store a plan whose tables all stream from one place, and that place as handed off."""
    plans = captured.plans
    require_keys(run.loaded, plans)
    require_separate(run.loaded, plans)
    with closing(open_table_builder(run)) as builder:
        builder.require_fit(plans)
    with closing(open_ledger(run)) as ledger:
        generation = take_over(run, ledger).generation
        secure_log(run)
        claim_tables(run, generation, plans, known=run.held.seeded)
        plan_id = uuid.uuid4().hex
        ledger.start_plan(plan_id)
        origin = origin_now(run, captured)
        run.store.start_plan(run.name, generation, plan_id, plans, origin=origin)
        ledger.keep_edge(edge_text(run.model.edge))
        tables = [plan.schema.table for plan in plans]
        stream = StreamSplit(start, None, ())
        stream = stream.with_tables(dict.fromkeys(tables, start), ()).read(tables)
        ledger.store_stream(stream)
        hand_off_unread(run, generation, stream)
    of = counted(len(plans), "table")
    text = f"{run.name} begins at {start} with the rows that are there: {of}"
    run.store.tell(run.name, text)
    return text
