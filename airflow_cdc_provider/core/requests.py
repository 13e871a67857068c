"""What a person or a schedule asks of a pipeline that has rows.

A request is a row in the state store. Whoever owns the pipeline carries it out, beside the stream;
whoever asked only waits. The same id with the same arguments is the same request, with others it
is refused.

    ASKED -> READING -> DONE
    WAITING -> ASKED
     any  -> FAILED | CANCELLED

One that is about more rows than the pipeline's file allows unasked is stored as WAITING, until
somebody approves it. Nobody begins it, and nothing waits for it.

A request that was left in the middle is READING; the next owner goes on where the sink's ledger
says that it ended. What is joined stays right, whatever becomes of the rest: rows that were read
again are the source's at the stream's position.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from airflow_cdc_provider.core.codec import (
    Json,
    chosen_from_json,
    chosen_to_json,
    dumps,
    key_from_json,
    key_to_json,
)
from airflow_cdc_provider.core.errors import NOTHING_CHANGED, StateMovedError
from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.keys import KeyRange
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.splits import Chosen
from airflow_cdc_provider.core.stored_error import NO_ERROR, StoredError

MOST_COUNTED = 100_000
"""Rows of one side that an estimate counts; of more it may know no number."""
_SHOWN_RANGES = 3
_LETTERS = "23456789abcdefghjkmnpqrstuvwxyz"
"""Those that are not taken for one another."""


def new_id(kind: str) -> str:
    """Return a random id for a new request."""
    return f"{kind}-{''.join(secrets.choice(_LETTERS) for _ in range(6))}"


class RequestKind(StrEnum):
    """The kinds of request on a pipeline."""

    RESYNC = "resync"
    """Read rows again that are there, or should be."""
    BACKFILL = "backfill"
    """Read the rows again whose column lies in an interval."""
    ADD = "add"
    """Read a table that the stream has just begun to follow."""
    PAUSE = "pause"
    """Have the stream leave tables alone."""
    RESUME = "resume"
    """Bring tables back that the stream leaves alone."""
    FOLLOW = "follow"
    """Have the stream follow tables that the file picks: what `add` asks for."""
    REMOVE = "remove"
    """Have the stream give up tables that the file does not pick any more."""
    DROP = "remove and drop"
    """The same, and drop their tables at the sink."""
    RESET = "reset"
    """Begin tables again, as they are defined now."""

    @property
    def reads_rows(self) -> bool:
        """Tell whether such a request reads rows beside the stream."""
        return self in {RequestKind.RESYNC, RequestKind.BACKFILL, RequestKind.ADD}

    @property
    def changes_tables(self) -> bool:
        """Tell whether such a request adds, removes or restarts tables, between two streams."""
        return self in {
            RequestKind.FOLLOW,
            RequestKind.REMOVE,
            RequestKind.DROP,
            RequestKind.RESET,
        }


class RequestStatus(StrEnum):
    """The status of a request."""

    WAITING = "waiting"
    """For somebody to approve it."""
    ASKED = "asked"
    READING = "reading"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_open(self) -> bool:
        """Tell whether the request is neither done, failed nor cancelled."""
        return self is RequestStatus.WAITING or self.is_to_do

    @property
    def is_to_do(self) -> bool:
        """Tell whether the pipeline's owner is to carry out the request."""
        return self in {RequestStatus.ASKED, RequestStatus.READING}


_ENDED_EARLY = frozenset({RequestStatus.FAILED, RequestStatus.CANCELLED})
_MOVES: dict[RequestStatus, frozenset[RequestStatus]] = {
    RequestStatus.WAITING: _ENDED_EARLY | {RequestStatus.ASKED},
    RequestStatus.ASKED: _ENDED_EARLY | {RequestStatus.READING},
    RequestStatus.READING: _ENDED_EARLY | {RequestStatus.READING, RequestStatus.DONE},
}


def check_request_move(current: RequestStatus, to: RequestStatus) -> None:
    """Raise `StateMovedError` for a change of a request's status that is not allowed."""
    if to not in _MOVES.get(current, frozenset()):
        raise StateMovedError(
            f"a request does not go from {current} to {to}",
            risk=NOTHING_CHANGED,
            remedy="read the request again; another run may have moved it",
        )


@dataclass(frozen=True, slots=True)
class Scope:
    """The tables, key ranges and chosen rows that a request is about."""

    tables: tuple[TableId, ...]
    """Source tables, each once."""
    ranges: tuple[KeyRange, ...] = ()
    """Of the one table's key, in its order and apart; none for whole tables."""
    chosen: Chosen | None = None
    """Only the one table's rows whose values it chooses."""

    def __post_init__(self) -> None:
        if not self.tables or len(set(self.tables)) != len(self.tables):
            raise ValueError("a request names at least one table, and each once")
        if (self.ranges or self.chosen) and len(self.tables) > 1:
            raise ValueError("a range of keys is one table's, and so is what chooses rows")
        for one, next_one in pairwise(self.ranges):
            if one.end is None or next_one.start is None or next_one.start < one.end:
                raise ValueError(f"ranges of keys are in order and apart: {one}, {next_one}")

    @property
    def parts(self) -> tuple[KeyRange, ...]:
        """Return the key ranges to be read of each table; the whole key if none are given."""
        return self.ranges or (KeyRange(),)

    def __str__(self) -> str:
        parts = [", ".join(map(str, self.tables))]
        if self.ranges:
            parts.append(", ".join(map(str, self.ranges[:_SHOWN_RANGES])))
        more = len(self.ranges) - _SHOWN_RANGES
        if more > 0:
            parts.append(f"and {more} ranges more")
        if self.chosen is not None:
            parts.append(f"where {self.chosen}")
        return " ".join(parts)


@dataclass(frozen=True, slots=True)
class Request:
    """One request on a pipeline, and its progress; times are microseconds since the epoch."""

    pipeline: PipelineName
    request_id: str
    kind: RequestKind
    scope: Scope
    asked_by: str
    asked_us: int
    status: RequestStatus = RequestStatus.ASKED
    is_cancel_wanted: bool = False
    estimated_rows: int | None = None
    """Rows at the source when it was asked, about; None if nobody counted."""
    splits: int = 0
    """Splits that are in the sink."""
    rows: int = 0
    """Rows of these splits."""
    left: int = 0
    """Rows that differ and were left alone: the sink's node, of an edge, had changed them."""
    tables_done: int = 0
    position: LogPosition | None = None
    """The stream's, when the last split came into the sink."""
    error: StoredError = NO_ERROR
    """What ended it, or what it waits for."""
    changed_us: int = 0

    @property
    def left_text(self) -> str:
        """Say how many rows were left alone, to be put behind other counts; empty if none."""
        return f", {self.left:,} left as the sink's node had changed them" if self.left else ""

    @property
    def ledger_key(self) -> str:
        """Return the request's name in the sink's ledger, unique even if its id is used again."""
        return f"{self.request_id}@{self.asked_us}"

    @property
    def arguments_hash(self) -> str:
        """Return a hash of the request's arguments, to compare two requests of one id."""
        form = {"kind": self.kind.value, "scope": scope_to_json(self.scope)}
        return hashlib.sha256(dumps(form).encode()).hexdigest()


def scope_to_json(scope: Scope) -> Json:
    """Return the JSON form of a scope; later releases only add fields."""
    first, *more = scope.parts
    form: Json = {
        "tables": [[table.database, table.table] for table in scope.tables],
        "from": key_to_json(first.start),
        "to": key_to_json(first.end),
    }
    if more:
        form["more"] = [[key_to_json(keys.start), key_to_json(keys.end)] for keys in more]
    return {**form, **chosen_to_json(scope.chosen)}


def scope_from_json(form: Json) -> Scope:
    """Read a scope from its JSON form."""
    tables = tuple(TableId(*names) for names in form["tables"])
    bounds = [(form["from"], form["to"]), *form.get("more", ())]
    ranges = tuple(KeyRange(key_from_json(start), key_from_json(end)) for start, end in bounds)
    return Scope(tables, () if ranges == (KeyRange(),) else ranges, chosen_from_json(form))


def read_as_a_whole(requests: Iterable[Request], *, since_us: int = 0) -> dict[TableId, int]:
    """Return when requests have last read all rows of tables, since a time."""
    found: dict[TableId, int] = {}
    for each in requests:
        is_whole = each.kind.reads_rows and not each.scope.ranges and each.scope.chosen is None
        if is_whole and each.status is RequestStatus.DONE and each.changed_us >= since_us:
            for table in each.scope.tables:
                found[table] = max(found.get(table, 0), each.changed_us)
    return found
