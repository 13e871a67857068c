"""Other rules for conflicts than a pair of edges had: taken by both at once, when it is safe.

Two edges that settle one conflict by different rules leave their nodes different, without a word.
So the rules change at a moment when no conflict can be half settled: neither node has a change that
the other one lacks. One run takes them for both edges, while nobody is at work on the other one. It
notes that before: a run that is killed between the two plans leaves an edge that may not stream by
its former rules, and whoever begins next ends what it began.

A table whose conflicts stopped the edges has none that was settled, so it may have a rule with a
winner at any time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_cdc_provider.core.errors import NOTHING_CHANGED, LeaseHeldError, RefusedError
from airflow_cdc_provider.core.records import NoteKind
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.engine.readings import log_reading
from airflow_cdc_provider.pipeline.file.loader import load_pipeline
from airflow_cdc_provider.pipeline.run import Run, give_back, take_over
from airflow_cdc_provider.pipeline.steps.conflict_findings import other_rules
from airflow_cdc_provider.pipeline.steps.file_diff import (
    differs_by_rules,
    edge_of,
    edge_text,
    is_taking_rules,
)
from airflow_cdc_provider.pipeline.steps.jobs import stream_spec
from airflow_cdc_provider.pipeline.steps.seeding import opposite_file, opposite_run
from airflow_cdc_provider.pipeline.steps.sink import open_ledger, source_of

if TYPE_CHECKING:
    from airflow_cdc_provider.core.topology import Topology
    from airflow_cdc_provider.engine.ledger.ledger import Ledger

_BATCH_S = 1.0


def take_changed_rules(run: Run, ledger: Ledger) -> None:
    """Take the file's rules for conflicts in place of those of the plan, for both edges of a pair.

    The pipeline is this run's. Nothing is done where the rules are the same, or before the edge
    streams. `RefusedError` says why the rules cannot change now.
    """
    edge, before, stream = run.model.edge, _rules_of(run), ledger.stream()
    if edge is None or before is None or stream is None:
        return
    if not differs_by_rules(edge, before) and not is_taking_rules(run):
        return
    with (
        run.open_beside(load_pipeline(opposite_file(run))) as back,
        closing(open_ledger(back)) as its_ledger,
    ):
        _require_same_rules(run, back)
        _own(run, back, its_ledger)
        try:
            mine, theirs = (run, ledger), (back, its_ledger)
            for one, other in ((mine, theirs), (theirs, mine)):
                _end_taking(*one, *other)
            _take(run, ledger, back, its_ledger)
        finally:
            give_back(back)


def keep_rules(run: Run, ledger: Ledger) -> None:
    """Keep the rules by which an edge settles conflicts in its ledger, too: a state may be lost."""
    if run.model.edge is not None:
        ledger.keep_edge(edge_text(run.model.edge))


def require_former_rules(run: Run, ledger: Ledger) -> None:
    """Refuse an edge whose state is lost if its file has other rules than it went by.

    Its ledger has them. Where an earlier release wrote that, the edge back knows them, if its file
    is beside.
    """
    if run.model.edge is None or not run.model.edge.is_guarded:
        return
    if (before := edge_of(ledger.edge())) is not None:
        _require_same_as_before(run, run.model.edge, before, ledger)
        return
    with opposite_run(run) as back:
        rules = None if back is None else _rules_of(back)
        if back is not None and rules is not None:
            _require_alike(run, run.model.edge, back, rules)


def _require_same_as_before(run: Run, edge: Topology, before: Topology, ledger: Ledger) -> None:
    """Refuse rules of an edge that are not those which its ledger has."""
    stream = ledger.stream()
    streams = [] if stream is None else [stream, *(each.stream for each in ledger.stopped())]
    for table in [progress.table for each in streams for progress in each.tables]:
        if edge.rule_of(table) != before.rule_of(table):
            raise RefusedError(
                f"conflicts of {table} would be settled by other rules than so far: here "
                f"{edge.rule_of(table).whole}, and the edge went by that "
                f"{before.rule_of(table).whole}",
                where=f"topology.conflicts of {run.loaded.path.name}, ledger of {run.name}",
                risk="the nodes would keep different rows; nothing was changed",
                remedy="write the rules that the edge went by in both files; they can be changed "
                "once both edges run by them",
            )


def _take(run: Run, ledger: Ledger, back: Run, its_ledger: Ledger) -> None:
    """Store the rules of both files, if no conflict can be settled by others at one node."""
    edge, before, its_before = run.model.edge, _rules_of(run), _rules_of(back)
    stream, its_stream = ledger.stream(), its_ledger.stream()
    if edge is None or before is None or stream is None:
        return
    if its_before is not None:
        _require_alike(run, before, back, its_before)
    if not differs_by_rules(edge, before):
        return
    if its_stream is not None and _settled_before(run, edge, before):
        for each, of in ((run, ledger), (back, its_ledger)):
            _require_nothing_to_bring(each, of)
    form = {"mine": edge_text(edge), "other": edge_text(back.model.edge)}
    run.store.keep_note(run.name, NoteKind.RULES, form)
    _keep(back, its_ledger, form["other"])
    _keep(run, ledger, form["mine"])
    run.store.keep_note(run.name, NoteKind.RULES, {})
    run.store.tell(run.name, f"rules for conflicts changed: {edge.rules_since(before)}")


def _end_taking(run: Run, ledger: Ledger, back: Run, its_ledger: Ledger) -> None:
    """End what a run was ended at: the edge has the rules, too, if the edge back got them.

    The edge has not streamed since, for that is refused while this is open.
    """
    note = run.store.note(run.name, NoteKind.RULES)
    if note is None or not note.form:
        return
    its_origin = back.store.origin(back.name)
    if its_origin is not None and its_origin.topology == note.form["other"]:
        _keep(back, its_ledger, str(note.form["other"]))
        _keep(run, ledger, str(note.form["mine"]))
    run.store.keep_note(run.name, NoteKind.RULES, {})


def _rules_of(run: Run) -> Topology | None:
    """Return the edge by whose rules a pipeline has settled conflicts, None if it is not known."""
    origin = run.store.origin(run.name)
    return None if origin is None else edge_of(origin.topology)


def _require_alike(run: Run, here: Topology, back: Run, there: Topology) -> None:
    """Refuse rules of an edge that are not those by which the edge back settles conflicts."""
    for state in back.store.tables(back.name):
        table = state.plan.sink_table
        mine, other = here.rule_of(table), there.rule_of(state.table)
        if mine == other:
            continue
        raise RefusedError(
            f"conflicts of {table} would be settled by other rules at one node: here "
            f"{mine.whole}, and {back.name} went by that {other.whole}",
            where=f"topology.conflicts of {run.loaded.path.name}, state of {back.name}",
            risk="the nodes would keep different rows; nothing was changed",
            remedy=f"write the rules that {back.name} went by in both files; if {run.name} went by "
            "others, compare the nodes with `verify`, and copy one anew",
        )


def _settled_before(run: Run, edge: Topology, before: Topology) -> bool:
    """Tell whether a table has another rule now than one by which conflicts were settled."""
    tables = [state.table for state in run.store.tables(run.name)]
    rules = ((before.rule_of(table), edge.rule_of(table)) for table in tables)
    return any(was != now and not was.stops for was, now in rules)


def _require_same_rules(run: Run, back: Run) -> None:
    """Refuse rules that the file of the edge back has not got."""
    for table, here, there in other_rules(run, back.model):
        raise RefusedError(
            f"conflicts of {table} are to be settled by other rules: here {here.whole}, and in "
            f"the file of the edge back {there.whole}",
            where=f"topology.conflicts of {run.loaded.path.name} and {back.loaded.path.name}",
            risk="the nodes would keep different rows; nothing was changed",
            remedy="write the same rules in both files",
        )


def _own(run: Run, back: Run, ledger: Ledger) -> None:
    """Take the edge back over, so that it cannot work by the former rules meanwhile."""
    try:
        take_over(back, ledger)
    except LeaseHeldError as held:
        raise RefusedError(
            f"the rules for conflicts change for both edges at once, and {held.what}",
            where=f"topology.conflicts of {run.loaded.path.name}",
            risk=NOTHING_CHANGED,
            remedy=f"`pause` {back.name}, then begin again",
        ) from held


def _require_nothing_to_bring(run: Run, ledger: Ledger) -> None:
    """Refuse if an edge's source has changes that the edge has not brought."""
    edge, stream = run.model.edge, ledger.stream()
    alone = {str(each.table): each.stream for each in ledger.stopped()}
    streams = {} if stream is None else {"": stream, **alone}
    places = ((name, place) for name, each in streams.items() for place in _unbrought(run, each))
    name, found = next(places, ("", None))
    if found is None or edge is None:
        return
    of = f" of {name}, which stands still," if name else ""
    raise RefusedError(
        f"{edge.src_node} has changes{of} that {run.name} has not brought to {edge.dst_node}, "
        f"first at or behind {found}",
        where=f"topology.conflicts of {run.loaded.path.name}",
        risk="a conflict could be settled by the former rules at one node and by these at the "
        "other one; nothing was changed",
        remedy="write the former rules in both files, let nobody write, and run both edges until "
        "both have caught up; then `pause` both, change the files, `resume` both, and run one, "
        "then the other. Where a conflict has stopped them, first change the rule of its table "
        "alone",
    )


def _unbrought(run: Run, stream: StreamSplit) -> Iterator[str]:
    """Yield the places of changes in a source's log that a stream of the edge has not applied."""
    mine = {progress.table for progress in stream.tables}
    tables = run.store.tables(run.name)
    schemas = {state.table: state.plan.schema for state in tables if state.table in mine}
    source, start = source_of(run), stream.start
    source.require_same_log(start, (), [*schemas])
    begun = StreamSplit(start, None, ()).with_tables(dict.fromkeys(schemas, start), ())
    reading = log_reading(stream_spec(run.model, 0), schemas)
    with (
        closing(source.log_end(purpose="change of the rules for conflicts")) as log_end,
        closing(source.log_reader(begun.read(schemas), reading)) as reader,
    ):
        for batch in reader.read_up_to(log_end.now(), batch_s=_BATCH_S):
            if batch.changes:
                yield str(batch.transactions[0].where)


def _keep(run: Run, ledger: Ledger, topology: str) -> None:
    """Store an edge as that of a pipeline's plan, and in its ledger."""
    origin = run.store.origin(run.name)
    if origin is None:
        return
    now = replace(origin, topology=topology)
    not_copied = run.store.not_copied(run.name)
    run.store.keep_origin(run.name, run.held.generation, now, not_copied)
    ledger.keep_edge(topology)
