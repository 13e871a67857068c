"""What a pipeline is doing, from the state store alone: no server is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.core.identifiers import PipelineName
from airflow_cdc_provider.core.lifecycle import LEASE_S, LEFT_ALONE, Phase, TablePhase, Wanted
from airflow_cdc_provider.core.owners import is_gone
from airflow_cdc_provider.core.ports import StateReader
from airflow_cdc_provider.core.records import (
    NoteKind,
    Outage,
    PipelineEvent,
    PipelineState,
    StreamState,
    TableState,
)
from airflow_cdc_provider.core.requests import Request, RequestStatus
from airflow_cdc_provider.core.stopped_tables import with_way_back
from airflow_cdc_provider.core.stored_error import StoredError
from airflow_cdc_provider.views.ended import Ended, ended_of
from airflow_cdc_provider.views.event_forms import event_forms
from airflow_cdc_provider.views.outages import (
    HELD_UP,
    driver_is_gone,
    outage_forms,
    outages_of,
)
from airflow_cdc_provider.views.remarks import conflicts_of, overrides_of, published_of, refusal_of
from airflow_cdc_provider.views.request_text import request_form
from airflow_cdc_provider.views.started import (
    FOLLOWING,
    Started,
    shown_phase,
    started_of,
)
from airflow_cdc_provider.views.throttle import THROTTLED, ThrottleView, throttle_of

EVENTS_SHOWN = 10
_EVENTS_READ = 200
"""Of which those that repeat are shown as one."""
NOBODY = (
    "it is wanted to run, and nothing runs it: `run` it, or begin a run of its DAG in Airflow; or "
    "`pause` it"
)
SILENT_S = 30.0
"""Who is at work is heard of every few seconds; one that is silent for so long is not believed."""
_AT_WORK = frozenset({Phase.PLANNING, Phase.SNAPSHOT, Phase.STREAMING})


@dataclass(frozen=True, slots=True)
class TableStatus:
    """One table's phase, splits and rows; the number of splits may grow until planning is done."""

    source: str
    sink: str
    phase: str
    splits_finished: int
    splits_planned: int
    planning_done: bool
    rows: int
    bytes: int
    estimated_rows: int
    error: StoredError
    """What it stopped with, if it is one that is streamed with the way back."""
    requests: tuple[str, ...] = ()
    """Ids of the requests under which it is being read again."""
    by_request: bool = False
    """It has no splits: a request reads its rows, or they came in another way."""

    @classmethod
    def of(
        cls,
        state: TableState,
        requests: Sequence[Request] = (),
        *,
        is_streamed: bool = False,
        started: Started | None = None,
    ) -> TableStatus:
        """Make a table's status from its state and the open requests.

        The error of a streamed table comes with the command that brings the table back.
        """
        error = state.error
        if is_streamed and state.phase is TablePhase.FAILED and error.has_code:
            error = StoredError.of(with_way_back(error, state.table))
        return cls(
            source=str(state.table),
            sink=str(state.plan.sink_table),
            phase=shown_phase(state.phase, state.table, started),
            splits_finished=state.splits_finished,
            splits_planned=state.splits_planned,
            planning_done=state.planning_done,
            rows=state.rows,
            bytes=state.bytes,
            estimated_rows=state.plan.estimated_rows,
            error=error,
            requests=tuple(
                each.request_id
                for each in requests
                if each.status is RequestStatus.READING and state.table in each.scope.tables
            ),
            by_request=state.planning_done and not state.splits_planned,
        )


@dataclass(frozen=True, slots=True)
class PipelineStatus:
    """One pipeline's state, tables, stream, requests and events, as of one moment."""

    state: PipelineState
    tables: tuple[TableStatus, ...]
    stream: StreamState | None
    events: tuple[PipelineEvent, ...]
    at_us: int
    not_copied: tuple[str, ...] = ()
    """Tables that fit the file but came after the plan, as the last run saw it."""
    requests: tuple[Request, ...] = ()
    """Those that are open, in the order in which they are carried out."""
    owner_gone: bool = False
    """The owner was a process of this machine, and is there no more."""
    refusal: CdcError | None = None
    """What ended the last try to begin, until one gets past it."""
    refused_us: int = 0
    """When that was."""
    conflicts: int | None = None
    """Rows that both nodes of an edge had changed and that were settled; None where none is kept.
    """
    overrides: tuple[Mapping[str, Any], ...] = ()
    """What persons decided against refusals of this pipeline, oldest first."""
    throttle: ThrottleView | None = None
    """Under what limits a living owner reads rows, or a person wants it to; None: under none."""
    noted_outages: tuple[Outage, ...] = ()
    """What kept the owner's job from going forward, when it was last heard of."""
    freshness_s: int | None = None
    """How many seconds old the copy may be, as the pipeline file says."""
    is_continuous: bool = False
    """The file says that it streams without an end, so that something has to run it."""
    ended: Ended | None = None
    """Where the pipeline has ended for good, as its file says."""
    started: Started | None = None
    """Where its stream began, if no snapshot came before it."""
    published_us: int | None = None
    """When tables that follow a log of the sink had last all of it; None where none do."""

    @property
    def published_age_s(self) -> float | None:
        """Seconds since tables that follow a log of the sink had last all of it."""
        if self.published_us is None:
            return None
        return max(0.0, (self.at_us - self.published_us) / 1e6)

    @property
    def rows(self) -> int:
        """Return the rows read of all tables."""
        return sum(table.rows for table in self.tables)

    @property
    def splits_finished(self) -> int:
        """Return the finished splits of all tables."""
        return sum(table.splits_finished for table in self.tables)

    @property
    def splits_planned(self) -> int:
        """Return the planned splits of all tables."""
        return sum(table.splits_planned for table in self.tables)

    @property
    def planning_done(self) -> bool:
        """Tell whether all tables' splits are planned."""
        return bool(self.tables) and all(table.planning_done for table in self.tables)

    @property
    def is_consistent(self) -> bool:
        """Tell whether the sink equals the source at the stream's position.

        Of tables that began without a snapshot nobody knows that.
        """
        if self.stream is None or self.stream.inconsistent:
            return False
        return not any(table.phase in {*LEFT_ALONE, FOLLOWING} for table in self.tables)

    @property
    def heartbeat_age_s(self) -> float | None:
        """Seconds since the stream's last heartbeat, None if there was none."""
        if self.stream is None or not self.stream.heartbeat_us:
            return None
        return max(0.0, (self.at_us - self.stream.heartbeat_us) / 1e6)

    @property
    def is_streaming(self) -> bool:
        """Tell whether a process streams now, as far as the state store knows."""
        return self.state.phase is Phase.STREAMING and self.is_owned and not self.doubt

    @property
    def lag_s(self) -> float | None:
        """Seconds that the sink is behind the source; None while no process streams."""
        return self.last_lag_s if self.is_streaming else None

    @property
    def last_lag_s(self) -> float | None:
        """Seconds that the sink was behind the source at the stream's last heartbeat."""
        if self.stream is None or self.stream.lag_us is None:
            return None
        return self.stream.lag_us / 1e6

    @property
    def copy_age_s(self) -> float | None:
        """Seconds since the copy was as the source: the lag, plus its age if no process streams.

        None before the stream first caught up. Tables that follow a log of the sink are as old as
        their last commit, at the least.
        """
        age_s = self.heartbeat_age_s
        if self.last_lag_s is None or age_s is None:
            return None
        is_heard = self.is_streaming and age_s <= SILENT_S
        copy_s = self.last_lag_s if is_heard else self.last_lag_s + age_s
        return max(copy_s, self.published_age_s or 0.0)

    @property
    def is_late(self) -> bool:
        """Tell whether the copy is older than the file allows; False if paused on purpose."""
        age_s = self.copy_age_s
        if self.freshness_s is None or age_s is None or self.state.wanted is Wanted.STOP:
            return False
        if self.ended is not None:
            return False  # it is as old as it is to be
        return age_s > self.freshness_s

    @property
    def is_owned(self) -> bool:
        """Tell whether the owner's lease lasts; a killed owner's lasts until it runs out."""
        return self.state.lease_until_us > self.at_us

    @property
    def last_word_s(self) -> float | None:
        """Seconds since the owner renewed its lease; None without an owner."""
        if not self.is_owned:
            return None
        return max(0.0, LEASE_S - (self.state.lease_until_us - self.at_us) / 1e6)

    @property
    def doubt(self) -> str:
        """Explain why the owner may be gone although its lease lasts; empty if it may not."""
        age_s = self.last_word_s
        if age_s is None or not (self.owner_gone or age_s > SILENT_S):
            return ""
        gone = "its process is gone, " if self.owner_gone else ""
        return f"{gone}the last word is {age_s:.0f} s old"

    @property
    def waiting_tables(self) -> frozenset[str]:
        """Return the tables, by their names at the source, whose changes the sink does not take."""
        return frozenset(name for outage in self.outages for name in outage.error.tables)

    @property
    def outages(self) -> tuple[Outage, ...]:
        """Return the outages of a living owner; none if it may be gone."""
        return self.noted_outages if self.is_owned and not self.doubt else ()

    @property
    def is_throttled(self) -> bool:
        """Tell whether the load of the servers lets no split be read now."""
        return self.throttle is not None and bool(self.throttle.closed_by) and not self.doubt

    @property
    def is_left(self) -> bool:
        """Tell whether work was begun and no process goes on with it."""
        return self.state.phase in _AT_WORK and (not self.is_owned or bool(self.doubt))

    @property
    def has_caught_up(self) -> bool:
        """Tell whether a run of a bounded stream has ended at the log's end, as it last was."""
        stream = self.stream
        if self.state.phase is not Phase.STOPPED or self.is_continuous or stream is None:
            return False
        return stream.source_end is not None and stream.position.reaches(stream.source_end)

    @property
    def nobody(self) -> str:
        """Say that a continuous pipeline is wanted to run and nothing runs it; empty otherwise.

        One that never ran waits for its first run, and one that failed says why it does not run.
        """
        is_begun = self.state.phase not in {Phase.NEW, Phase.FAILED}
        if not self.is_continuous or not is_begun or self.is_owned:
            return ""
        return "" if self.state.wanted is Wanted.STOP else NOBODY

    @property
    def summary(self) -> str:
        """Describe in a few words what the pipeline is doing."""
        phase = self.state.phase
        if phase is Phase.FAILED:
            return "failed"
        if self.state.wanted is Wanted.STOP:
            return "paused" if not self.is_owned else "stopping"
        if self.state.wanted is Wanted.RESTART and self.is_owned:
            return "restarting"
        if self.is_left:
            nobody = "nobody may be at work" if self.is_owned else "nobody is at work"
            return f"{phase.value} ({nobody})"
        if self.outages:
            return f"{phase.value}, {HELD_UP}"
        if self.ended is not None:
            return "ended"
        if self.is_throttled:
            return f"{phase.value}, {THROTTLED}"
        return "caught up" if self.has_caught_up else phase.value

    def to_json(self) -> Mapping[str, Any]:
        """Return the status as plain values for `--json`; later releases only add fields."""
        stream = self.stream
        return {
            "pipeline": str(self.state.name),
            "summary": self.summary,
            "phase": self.state.phase.value,
            "wanted": self.state.wanted.value,
            "generation": self.state.generation,
            "plan_id": self.state.plan_id,
            "owner": self.state.owner,
            "owned": self.is_owned,
            "doubt": self.doubt,
            "error": str(self.state.error),
            "problem": None if self.refusal is None else self.refusal.to_json(),
            "outages": outage_forms(self.outages),
            "throttle": None if self.throttle is None else self.throttle.to_json(),
            "freshness_s": self.freshness_s,
            "copy_age_s": self.copy_age_s,
            "published_age_s": self.published_age_s,
            "late": self.is_late,
            "nobody": self.nobody,
            "ended": None if self.ended is None else self.ended.to_json(),
            "started": None if self.started is None else self.started.to_json(),
            "consistent": self.is_consistent,
            "rows": self.rows,
            "splits_finished": self.splits_finished,
            "splits_planned": self.splits_planned,
            "planning_done": self.planning_done,
            "not_copied": list(self.not_copied),
            "tables": [
                {name: getattr(table, name) for name in TableStatus.__slots__}
                | {"error": str(table.error)}
                for table in self.tables
            ],
            "stream": None
            if stream is None
            else {
                "position": str(stream.position),
                "source_end": None if stream.source_end is None else str(stream.source_end),
                "changes": stream.changes,
                "transactions": stream.transactions,
                "lag_s": self.lag_s,
                "last_lag_s": self.last_lag_s,
                "heartbeat_age_s": self.heartbeat_age_s,
                "inconsistent": [str(table) for table in stream.inconsistent],
            },
            "requests": [request_form(request) for request in self.requests],
            "conflicts": self.conflicts,
            "overrides": list(self.overrides),
            "events": event_forms(self.events)[:EVENTS_SHOWN],
        }


def status(
    store: StateReader,
    name: PipelineName,
    *,
    now_us: int,
    freshness_s: int | None = None,
    is_continuous: bool = False,
) -> PipelineStatus:
    """Return a pipeline's status from the state store; the file says the rest."""
    state = store.pipeline(name) or PipelineState(name, Wanted.RUN, Phase.NEW, 0)
    requests, stream = store.requests(name, only_open=True), store.stream(name)
    began = store.note(name, NoteKind.STARTED)
    started = None if began is None else started_of(began, store.requests(name))
    noted, last_try = store.note(name, NoteKind.OUTAGES), store.note(name, NoteKind.LAST_TRY)
    return PipelineStatus(
        state=state,
        tables=tuple(
            TableStatus.of(table, requests, is_streamed=stream is not None, started=started)
            for table in store.tables(name)
        ),
        stream=stream,
        events=store.events(name, _EVENTS_READ),
        at_us=now_us,
        not_copied=tuple(map(str, store.not_copied(name))),
        requests=requests,
        owner_gone=is_gone(state.owner) or driver_is_gone(noted, state.generation),
        refusal=refusal_of(last_try),
        refused_us=0 if last_try is None else last_try.at_us,
        conflicts=conflicts_of(store.note(name, NoteKind.CONFLICTS)),
        overrides=overrides_of(store.note(name, NoteKind.OVERRIDES)),
        throttle=throttle_of(
            store.note(name, NoteKind.THROTTLED),
            store.note(name, NoteKind.THROTTLE),
            state.generation,
            is_owned=state.lease_until_us > now_us,
        ),
        noted_outages=outages_of(noted, state.generation),
        freshness_s=freshness_s,
        is_continuous=is_continuous,
        ended=ended_of(store.note(name, NoteKind.ENDED), state),
        started=started,
        published_us=published_of(store.note(name, NoteKind.PUBLISHED)),
    )
