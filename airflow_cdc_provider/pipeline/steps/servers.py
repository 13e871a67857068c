"""Whether the servers are those that the plan was made from.

Another source may answer if its history contains what was read (law 10). Another sink may, if its
ledger holds the plan: then it took over from the former one. Anything else would put rows of two
servers side by side, or leave what was copied behind without a word, and is refused.
"""

from __future__ import annotations

from airflow_cdc_provider.core.errors import SourceIdentityError
from airflow_cdc_provider.core.history import AppliedThrough, held_by_reports, held_by_stream
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.records import PlanOrigin
from airflow_cdc_provider.core.stream_split import smallest
from airflow_cdc_provider.engine.ledger.ledger import Ledger
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps.file_diff import RESET, edge_text
from airflow_cdc_provider.pipeline.steps.sink import sink_of, source_of
from airflow_cdc_provider.pipeline.steps.tables import Captured


def origin_now(run: Run, captured: Captured) -> PlanOrigin:
    """Return what a plan made now would be made from: servers, patterns, options."""
    source = run.model.source
    return PlanOrigin(
        source=captured.server_uuid,
        sink=sink_identity(run),
        tables=source.tables,
        exclude=source.exclude,
        names_fold_case=captured.names_fold_case,
        zero_dates=source.zero_date_policy,
        backfill=run.model.snapshot.backfill,
        topology=edge_text(run.model.edge),
    )


def sink_identity(run: Run) -> str:
    """Return the sink's identity, queried from its server."""
    return sink_of(run).identity()


def require_sink(run: Run, sink: str, held_plan: str) -> None:
    """Refuse a sink that is another server than the plan's and has nothing of the plan."""
    before, state = run.store.origin(run.name), run.store.pipeline(run.name)
    if before is None or before.sink == sink or state is None or held_plan == state.plan_id:
        return
    raise run.loaded.refusal(
        (
            ("sink", run.model.sink.named_by),
            f"the sink is the server {sink} now, the plan copies to {before.sink}, and the new "
            "one's ledger does not hold the plan",
            f"name the former server, {RESET}, into this server",
        )
    )


def source_is_new(run: Run, source: str, ledger: Ledger) -> bool:
    """Tell whether the source is another server, and nothing was read from the former one.

    If something was, the new one's history must contain it, or it is refused.
    """
    before = run.store.origin(run.name)
    if before is None or before.source == source:
        return False
    read, held = _in_the_sink(ledger)
    if read is None:
        return True
    try:
        news = source_of(run).require_history(read, held)
    except SourceIdentityError as error:
        raise SourceIdentityError(
            f"the source is the server {source} now, and the plan was made from "
            f"{before.source}: {error.what}",
            error.where,
            error.risk,
            "name the former server in the pipeline file; or, if this server's history is to count "
            f"from now on, `accept` it with --source; {RESET}, from this server",
        ) from error
    if news:
        run.store.tell(run.name, news, level="warning")
    return False


def _in_the_sink(ledger: Ledger) -> tuple[LogPosition | None, tuple[AppliedThrough, ...]]:
    """Return the position that the sink has read in full, and the positions ahead of it."""
    stream = ledger.stream()
    if stream is not None:
        return stream.start, held_by_stream(stream)
    held = held_by_reports(ledger.reports())
    return (smallest(each.position for each in held) if held else None), held
