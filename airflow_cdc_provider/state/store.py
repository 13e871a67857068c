"""The state store: a pipeline's plan, splits and stream, over any SQLAlchemy database.

Every write but what people ask is fenced by the pipeline's generation, as `state.fencing` says.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from sqlalchemy import Connection, and_, case, delete, insert, select, update
from sqlalchemy.exc import IntegrityError as DuplicateRowError

from airflow_cdc_provider.core.codec import dumps, stream_to_text
from airflow_cdc_provider.core.errors import NOTHING_CHANGED, StateMovedError
from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.lifecycle import (
    LEASE_S,
    Phase,
    SplitStatus,
    TablePhase,
    Wanted,
    check_move,
)
from airflow_cdc_provider.core.owners import is_gone
from airflow_cdc_provider.core.records import (
    NoteKind,
    PipelineState,
    PlanOrigin,
    StreamState,
    TablePlan,
)
from airflow_cdc_provider.core.row_counts import NO_COUNTS, TableCounts
from airflow_cdc_provider.core.schema_codec import plan_to_json, schema_to_json
from airflow_cdc_provider.core.splits import SnapshotSplit, SplitReport
from airflow_cdc_provider.core.stored_error import NO_ERROR, StoredError
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.databases.engines import open_engine
from airflow_cdc_provider.databases.patience import ANSWER_S, MIGRATION_S
from airflow_cdc_provider.state.announcements import AnnouncementStore
from airflow_cdc_provider.state.database_errors import explained
from airflow_cdc_provider.state.fencing import known_pipeline
from airflow_cdc_provider.state.migrate import bring_up_to_date, is_up_to_date
from airflow_cdc_provider.state.request_rows import cancel_open
from airflow_cdc_provider.state.request_store import RequestStore
from airflow_cdc_provider.state.rows import Values, plan_values, stream_values
from airflow_cdc_provider.state.split_rows import (
    ROWS_A_STATEMENT,
    add_missing,
    finish_all,
    mark,
    values_of,
)
from airflow_cdc_provider.state.table_counts import write_counts
from airflow_cdc_provider.state.tables import (
    EVERYTHING,
    OF_A_PLAN,
    events,
    hand_offs,
    notes,
    pipelines,
    plans,
    schemas,
    splits,
    streams,
)
from airflow_cdc_provider.state.tables import tables as plan_tables

EVENTS_KEPT = 10_000
"""Older events of a pipeline are dropped when a new plan starts."""


_SILENT_S = 30.0
"""A driver that lives renews its lease much more often."""


def open_store(dsn: str, answer_s: float = ANSWER_S) -> SqlStateStore:
    """Open the state store of a DSN; its tables are created or migrated if needed.

    `answer_s` are the seconds that a server has for an answer; it has more to change its tables.
    """
    engine = open_engine(dsn, answer_s)
    with explained(engine):
        engine.connect().close()  # a server that is away is an error here, and no older store
        if not is_up_to_date(engine):
            migrating = open_engine(dsn, MIGRATION_S)
            bring_up_to_date(migrating)
            migrating.dispose()
    return SqlStateStore(engine)


class SqlStateStore(RequestStore, AnnouncementStore):
    """A `StateStore` in any SQLAlchemy database; safe to use from several threads."""

    # --- the pipeline itself -----------------------------------------------------------------

    def ensure(self, name: PipelineName) -> PipelineState:
        """Return the pipeline's state; a pipeline that is not known is created."""
        known = self.pipeline(name)
        if known is not None:
            return known
        fresh = PipelineState(name, Wanted.RUN, Phase.NEW, 0, updated_us=self._clock())
        values: Values = {
            "name": str(name),
            "wanted": fresh.wanted.value,
            "phase": fresh.phase.value,
            "generation": 0,
            "plan_id": "",
            "owner": "",
            "lease_until_us": 0,
            "error": "",
            "updated_us": fresh.updated_us,
        }
        try:
            with self._writing() as connection:
                connection.execute(insert(pipelines).values(values))
        except DuplicateRowError:
            return self.ensure(name)  # another one was faster
        return fresh

    def take_over(
        self, name: PipelineName, owner: str, *, at_least: int = 0, lease_s: float = LEASE_S
    ) -> PipelineState:
        """Become the owner under a new generation, larger than any before and than `at_least`.

        A stream is its owner's: under the new generation there is none before one is started.
        """
        self.ensure(name)
        now = self._clock()
        with self._writing() as connection:
            mine = select(pipelines.c.generation, pipelines.c.phase, pipelines.c.lease_until_us)
            mine = mine.where(pipelines.c.name == str(name))
            current = connection.execute(mine.with_for_update()).one()
            streamed = current.phase == Phase.STREAMING.value
            values: Values = {
                "generation": max(current.generation, at_least) + 1,
                "phase": Phase.HANDED_OFF.value if streamed else current.phase,
                "owner": owner[:255],
                "lease_until_us": now + int(lease_s * 1e6),
                "updated_us": now,
            }
            change = update(pipelines).where(pipelines.c.name == str(name))
            connection.execute(change.values(values))
            heard_s = max(0.0, lease_s - (current.lease_until_us - now) / 1e6)
            is_silent = heard_s >= _SILENT_S or _is_gone(connection, name, current.generation)
            if streamed and current.lease_until_us and is_silent:
                text = (
                    f"the stream was lost: its driver of generation {current.generation} did not "
                    f"end it, and was last heard of {heard_s:.0f} s ago; {owner} takes over"
                )
                connection.execute(insert(events).values(_event(name, now, text, "warning")))
            return known_pipeline(connection, name)

    def renew_lease(
        self, name: PipelineName, generation: int, lease_s: float = LEASE_S
    ) -> PipelineState:
        """Prolong the owner's lease, and return the state with what is wanted now."""
        until = self._clock() + int(lease_s * 1e6)
        with self._fenced(name, generation, lease_until_us=until) as connection:
            return known_pipeline(connection, name)

    def release_lease(self, name: PipelineName, generation: int) -> None:
        """End the owner's lease at once, so that the next owner need not wait."""
        with self._fenced(name, generation, lease_until_us=0):
            pass

    def begun_again(self, name: PipelineName, generation: int) -> None:
        """Note that the owner has begun again after a restart was wanted.

        What was wanted since then stays wanted.
        """
        mine = pipelines.c.name == str(name), pipelines.c.wanted == Wanted.RESTART.value
        with self._fenced(name, generation) as connection:
            connection.execute(update(pipelines).where(*mine).values(wanted=Wanted.RUN.value))

    def want(self, name: PipelineName, wanted: Wanted) -> None:
        """Store what a person wants of the pipeline: run, stop or restart."""
        self.ensure(name)
        change = update(pipelines).where(pipelines.c.name == str(name))
        with self._writing() as connection:
            connection.execute(change.values(wanted=wanted.value, updated_us=self._clock()))

    def move(
        self,
        name: PipelineName,
        generation: int,
        *,
        expected: Phase,
        to: Phase,
        error: StoredError = NO_ERROR,
    ) -> PipelineState:
        """Move to another phase from `expected`; `StateMovedError` if the phase is another."""
        check_move(expected, to)
        with self._fenced(name, generation) as connection:
            mine = pipelines.c.name == str(name), pipelines.c.phase == expected.value
            change = update(pipelines).where(*mine).values(phase=to.value, error=error.text)
            if connection.execute(change).rowcount == 0:
                raise _moved(name, expected, known_pipeline(connection, name).phase)
            return known_pipeline(connection, name)

    def forget(self, name: PipelineName, generation: int) -> None:
        """Delete the pipeline's plan, progress and events.

        Its generation is kept, so that an owner from before stays fenced.
        """
        nobody = {"owner": "", "lease_until_us": 0}
        fresh = {"phase": Phase.NEW.value, "plan_id": "", "error": "", **nobody}
        with self._fenced(name, generation, **fresh) as connection:
            for table in EVERYTHING:
                connection.execute(delete(table).where(table.c.pipeline == str(name)))

    # --- the plan and its splits -------------------------------------------------------------

    def start_plan(
        self,
        name: PipelineName,
        generation: int,
        plan_id: str,
        tables: Sequence[TablePlan],
        *,
        origin: PlanOrigin | None = None,
    ) -> None:
        """Store a new plan, made from `origin`; the splits of an older plan are deleted.

        It reads every row, so open requests are cancelled.
        """
        now = self._clock()
        with self._fenced(name, generation, plan_id=plan_id) as connection:
            for table in OF_A_PLAN:
                connection.execute(delete(table).where(table.c.pipeline == str(name)))
            if tables:
                rows = [_new_table(name, plan, now) for plan in tables]
                connection.execute(insert(plan_tables), rows)
            if origin is not None:
                connection.execute(insert(plans).values(pipeline=str(name), **plan_values(origin)))
            cancel_open(connection, name, now)
            _remember_schemas(connection, name, tables, now)
            _drop_old_events(connection, name)

    def change_plan(
        self,
        name: PipelineName,
        generation: int,
        *,
        added: Sequence[TablePlan] = (),
        changed: Sequence[TablePlan] = (),
        removed: Iterable[TableId] = (),
        origin: PlanOrigin | None = None,
    ) -> None:
        """Add tables to the stored plan, change their definitions, or remove them.

        Added tables are read beside the stream. `changed` go on under another definition, and what
        was read of them stays.
        """
        now = self._clock()
        new = (*added, *changed)
        unread = {*removed, *(plan.schema.table for plan in added)}
        gone = {*unread, *(plan.schema.table for plan in changed)}
        with self._fenced(name, generation) as connection:
            for table, out in ((plan_tables, gone), (splits, unread)):
                mine = table.c.pipeline == str(name), table.c.source_table.in_(map(str, out))
                connection.execute(delete(table).where(*mine))
            rows = [{**_new_table(name, plan, now), "planning_done": True} for plan in new]
            if rows:
                connection.execute(insert(plan_tables), rows)
            if origin is not None:
                connection.execute(delete(plans).where(plans.c.pipeline == str(name)))
                connection.execute(insert(plans).values(pipeline=str(name), **plan_values(origin)))
            _remember_schemas(connection, name, new, now)

    def keep_origin(
        self,
        name: PipelineName,
        generation: int,
        origin: PlanOrigin,
        not_copied: Iterable[TableId] = (),
    ) -> None:
        """Store what the plan is made from now, and which tables came after it."""
        values = plan_values(origin, not_copied)
        with self._fenced(name, generation) as connection:
            connection.execute(delete(plans).where(plans.c.pipeline == str(name)))
            connection.execute(insert(plans).values(pipeline=str(name), **values))

    def add_splits(
        self, name: PipelineName, generation: int, splits: Iterable[SnapshotSplit]
    ) -> None:
        """Store planned splits; storing one twice is harmless."""
        with self._fenced(name, generation) as connection:
            add_missing(connection, name, splits)

    def finish_planning(self, name: PipelineName, generation: int, table: TableId) -> None:
        """Note that no more splits of this table will be planned."""
        self._change_table(name, generation, table, {"planning_done": True})

    def mark_split(
        self,
        name: PipelineName,
        generation: int,
        split: SnapshotSplit,
        status: SplitStatus,
        *,
        report: SplitReport | None = None,
        error: StoredError = NO_ERROR,
    ) -> None:
        """Store a split's status; the status READING adds one to its attempts."""
        values = values_of(status, report=report, error=error, now=self._clock())
        with self._fenced(name, generation) as connection:
            mark(connection, name, split, status, values)
            if status is SplitStatus.FINISHED and report is not None:
                self._sample_rows(connection, name, report.rows)

    def finish_splits(
        self,
        name: PipelineName,
        generation: int,
        reports: Iterable[tuple[SnapshotSplit, SplitReport]],
    ) -> None:
        """Store many splits as finished, with their reports, some thousands in a transaction."""
        remaining = iter(reports)
        while some := list(islice(remaining, ROWS_A_STATEMENT)):
            with self._fenced(name, generation) as connection:
                finish_all(connection, name, some, now=self._clock())

    def mark_table(
        self,
        name: PipelineName,
        generation: int,
        table: TableId,
        phase: TablePhase,
        error: StoredError = NO_ERROR,
    ) -> None:
        """Store a table's phase and error; its time of change stays where both are the same."""
        columns = plan_tables.c
        is_same = and_(columns.phase == phase.value, columns.error == error.text)
        values = {"phase": phase.value, "error": error.text}
        changed_us = case((is_same, columns.updated_us), else_=self._clock())
        self._change_table(name, generation, table, {**values, "updated_us": changed_us})

    def _change_table(
        self, name: PipelineName, generation: int, table: TableId, values: Values
    ) -> None:
        """Update a table's row as the owner; raise if the plan has no such table."""
        columns = plan_tables.c
        mine = columns.pipeline == str(name), columns.source_table == str(table)
        change = update(plan_tables).where(*mine).values({"updated_us": self._clock(), **values})
        with self._fenced(name, generation) as connection:
            if connection.execute(change).rowcount == 0:
                raise StateMovedError(
                    f"table {table} is not in the plan of {name}",
                    where=f"state of {name}",
                    risk=NOTHING_CHANGED,
                    remedy="plan again, or correct the table's name",
                )
            self._sample_rows(connection, name, 0, is_last=True)

    # --- the stream --------------------------------------------------------------------------

    def store_hand_off(self, name: PipelineName, generation: int, stream: StreamSplit) -> None:
        """Store the stream split at hand-off."""
        values: Values = {
            "pipeline": str(name),
            "generation": generation,
            "stream": stream_to_text(stream),
            "stored_us": self._clock(),
        }
        with self._fenced(name, generation) as connection:
            connection.execute(delete(hand_offs).where(hand_offs.c.pipeline == str(name)))
            connection.execute(insert(hand_offs).values(values))

    def beat(
        self,
        name: PipelineName,
        generation: int,
        stream: StreamState,
        *,
        counts: Mapping[TableId, TableCounts] = NO_COUNTS,
        is_last: bool = False,
    ) -> None:
        """Store the stream's progress and heartbeat, and the counts of changes of its tables.

        With `is_last` a sample is stored in any case.
        """
        values = {**stream_values(stream), "generation": generation}
        change = update(streams).where(streams.c.pipeline == str(name)).values(values)
        with self._fenced(name, generation) as connection:
            if connection.execute(change).rowcount == 0:
                connection.execute(insert(streams).values(pipeline=str(name), **values))
            self._sample_beat(connection, name, stream, is_last=is_last)
            write_counts(connection, name, counts, self._clock())

    def tell(self, name: PipelineName, text: str, *, level: str = "info") -> None:
        """Add an event to the pipeline's history."""
        values = _event(name, self._clock(), text, level)
        with self._writing() as connection:
            connection.execute(insert(events).values(values))


def _is_gone(connection: Connection, name: PipelineName, generation: int) -> bool:
    """Tell whether the process of a generation was on this machine and has ended."""
    mine = notes.c.pipeline == str(name), notes.c.kind == NoteKind.OUTAGES.value
    form = connection.execute(select(notes.c.form).where(*mine)).scalar()
    noted = {} if form is None else json.loads(form)
    return noted.get("generation") == generation and is_gone(noted["process"])


def _event(name: PipelineName, at_us: int, text: str, level: str) -> Values:
    """Return an event as a row of `cdc_event`."""
    return {"pipeline": str(name), "at_us": at_us, "level": level, "text": text}


def _moved(name: PipelineName, expected: Phase, found: Phase) -> StateMovedError:
    """Return the error for a pipeline that is in another phase than expected."""
    return StateMovedError(
        f"pipeline {name} is in phase {found.value}, not in {expected.value}",
        where=f"state of {name}",
        risk=NOTHING_CHANGED,
        remedy="read the state again and decide anew",
    )


def _new_table(name: PipelineName, plan: TablePlan, now: int) -> Values:
    """Return a planned table as a row of `cdc_table`."""
    return {
        "pipeline": str(name),
        "source_table": str(plan.schema.table),
        "plan": dumps(plan_to_json(plan)),
        "fingerprint": plan.schema.fingerprint,
        "phase": TablePhase.PLANNED.value,
        "planning_done": False,
        "error": "",
        "updated_us": now,
    }


def _remember_schemas(
    connection: Connection, name: PipelineName, plans: Sequence[TablePlan], now: int
) -> None:
    """Store the definitions of planned tables that are not stored yet."""
    mine = select(schemas.c.source_table, schemas.c.fingerprint).where(
        schemas.c.pipeline == str(name)
    )
    known = {(row.source_table, row.fingerprint) for row in connection.execute(mine)}
    rows = [
        {
            "pipeline": str(name),
            "source_table": str(plan.schema.table),
            "fingerprint": plan.schema.fingerprint,
            "definition": dumps(schema_to_json(plan.schema)),
            "first_seen_us": now,
        }
        for plan in plans
        if (str(plan.schema.table), plan.schema.fingerprint) not in known
    ]
    if rows:
        connection.execute(insert(schemas), rows)


def _drop_old_events(connection: Connection, name: PipelineName) -> None:
    """Delete a pipeline's old events, except the newest."""
    mine = events.c.pipeline == str(name)
    oldest_kept = (
        select(events.c.id).where(mine).order_by(events.c.id.desc()).offset(EVENTS_KEPT).limit(1)
    )
    last = connection.execute(oldest_kept).scalar()
    if last is not None:
        connection.execute(delete(events).where(mine, events.c.id <= last))
