"""The ledger's rows that every writer to a MySQL-protocol sink reads and writes with its own.

Who may commit, and which splits are in the sink: each writer asks for the first, and stores the
second, in the transaction of the rows themselves. `ledger_store` says how owners are fenced.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from airflow_cdc_provider.core.codec import (
    dumps,
    report_from_json,
    report_to_json,
    split_from_json,
    split_to_json,
)
from airflow_cdc_provider.core.hand_off_check import Report
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.splits import SnapshotSplit, SplitReport
from airflow_cdc_provider.engine.ledger.decisions import require_owner
from airflow_cdc_provider.engine.ledger.state import LedgerState, Place
from airflow_cdc_provider.engine.sink.port import Owner
from airflow_cdc_provider.systems.mysql.dialect.sql import literal, text_literal
from airflow_cdc_provider.systems.mysql.sink.ledger_schema import LEDGER, NOW_US, pipeline_is
from airflow_cdc_provider.systems.mysql.sink.sink_session import SinkSession


def generation_query(owner: Owner, lock: str) -> str:
    """Return the query for the pipeline's generation and plan id in the ledger."""
    return (
        f"SELECT generation, plan_id FROM {LEDGER}.pipeline "
        f"WHERE {pipeline_is(owner.pipeline)} {lock}"
    )


def place_of(session: SinkSession, owner: Owner) -> Place:
    """Return where the owner's ledger is, for the errors about it."""
    return Place(owner.pipeline, f"ledger on {session.where}")


def read_owner(session: SinkSession, owner: Owner, *, lock: str = "") -> LedgerState:
    """Read which generation of the owner's pipeline may commit, and its plan.

    `lock`, a locking clause such as FOR UPDATE, holds until the commit.
    """
    found = session.rows(generation_query(owner, lock))
    generation, plan_id = (int(found[0][0]), str(found[0][1])) if found else (0, "")
    return LedgerState(place_of(session, owner), generation, plan_id)


def check_generation(session: SinkSession, owner: Owner, *, lock: str = "") -> str:
    """Refuse unless the owner's generation may commit; return the plan id.

    `lock`, a locking clause such as FOR UPDATE, holds until the commit.
    """
    state = read_owner(session, owner, lock=lock)
    require_owner(state, owner.generation)
    return state.plan_id


def claim_commit(session: SinkSession, owner: Owner) -> str:
    """Lock the generation, as the last statement before COMMIT, and refuse an older owner.

    Returns the plan id.
    """
    return check_generation(session, owner, lock=session.capabilities.share_lock)


def finished_report(session: SinkSession, owner: Owner, split: SnapshotSplit) -> Report | None:
    """Return a split as finished in the ledger, with its report; None if it is not."""
    rows = session.rows(
        f"SELECT split, report FROM {LEDGER}.finished_split WHERE {pipeline_is(owner.pipeline)} "
        f"AND table_name = {literal(str(split.table))} AND number = {split.number}"
    )
    return report_of(rows[0]) if rows else None


def state_of_split(
    session: SinkSession, owner: Owner, split: SnapshotSplit, *, lock: str = ""
) -> LedgerState:
    """Return what decides whether a split is published; `lock` holds who may commit."""
    state = read_owner(session, owner, lock=lock)
    found = finished_report(session, owner, split)
    owned = (split.table,) if stream_owns(session, owner, split.table) else ()
    return replace(state, reports=() if found is None else (found,), owned=frozenset(owned))


def stream_owns(session: SinkSession, owner: Owner, table: TableId) -> bool:
    """Tell whether the table was handed off to the stream."""
    return bool(
        session.rows(
            f"SELECT 1 FROM {LEDGER}.stream_table WHERE {pipeline_is(owner.pipeline)} "
            f"AND table_name = {literal(str(table))}"
        )
    )


def holds_rows(session: SinkSession, owner: Owner, table: TableId) -> bool:
    """Tell whether any rows of the table were committed: a split, or the hand-off of the table."""
    return stream_owns(session, owner, table) or bool(
        session.rows(
            f"SELECT 1 FROM {LEDGER}.finished_split WHERE {pipeline_is(owner.pipeline)} "
            f"AND table_name = {literal(str(table))} LIMIT 1"
        )
    )


def store_report(
    session: SinkSession, owner: Owner, plan_id: str, split: SnapshotSplit, report: SplitReport
) -> None:
    """Store a split's report in the transaction of its rows."""
    values = (
        literal(str(owner.pipeline)),
        literal(str(split.table)),
        str(split.number),
        literal(plan_id),
        str(owner.generation),
        text_literal(dumps(split_to_json(split))),
        text_literal(dumps(report_to_json(report))),
        str(report.rows),
        NOW_US,
    )
    session.execute(
        f"REPLACE INTO {LEDGER}.finished_split (pipeline, table_name, number, plan_id, generation,"
        f" split, report, rows_written, committed_us) VALUES ({', '.join(values)})"
    )


def report_of(row: Sequence[str]) -> Report:
    """Decode a finished split and its report from a row of the ledger."""
    split = split_from_json(json.loads(row[0]))
    return split, report_from_json(json.loads(row[1]))
