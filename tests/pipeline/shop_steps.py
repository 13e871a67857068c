"""A shop's snapshot, published split by split without a job."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

from airflow_cdc_provider.core.lifecycle import Phase
from airflow_cdc_provider.core.split_planner import splits_between
from airflow_cdc_provider.core.splits import SnapshotSplit, SplitReport
from airflow_cdc_provider.engine.sink.port import Owner
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.systems.mysql.sink.ledger import store_report
from airflow_cdc_provider.systems.mysql.sink.sink_session import SinkSession
from tests.behaviours.state_behaviours import at

if TYPE_CHECKING:
    from tests.pipeline.conftest import Shop


def planned_splits(run: Run) -> list[SnapshotSplit]:
    """Plan what the snapshot job would."""
    generation = run.store.ensure(run.name).generation
    found: list[SnapshotSplit] = []
    for table in run.store.tables(run.name):
        schema = table.plan.schema
        made = splits_between(schema.table, schema.primary_key, schema.key_kinds, [(2,)])
        found += list(made)
        run.store.finish_planning(run.name, generation, schema.table)
    run.store.add_splits(run.name, generation, found)
    return found


def report_of(run: Run, split: SnapshotSplit, offset: int = 100) -> SplitReport:
    (table,) = (t for t in run.store.tables(run.name) if t.table == split.table)
    fingerprint = table.plan.schema.fingerprint
    return SplitReport(split.split_id, at(offset), at(offset + 5), 1, 9, fingerprint, 1)


def publish(shop: Shop, run: Run, reports: Sequence[tuple[SnapshotSplit, SplitReport]]) -> None:
    state = run.store.ensure(run.name)
    owner = Owner(run.name, state.generation)
    with closing(SinkSession.open(shop.sink_endpoint, purpose="test")) as session:
        for split, report in reports:
            session.transaction(partial(store_report, session, owner, state.plan_id, split, report))


def snapshot_done(shop: Shop, run: Run) -> None:
    state = run.store.ensure(run.name)
    run.store.move(run.name, state.generation, expected=state.phase, to=Phase.SNAPSHOT)
    splits = planned_splits(run)
    publish(shop, run, [(split, report_of(run, split, 100 + i)) for i, split in enumerate(splits)])
