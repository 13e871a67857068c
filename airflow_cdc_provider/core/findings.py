"""What preflight has to say: one value for each thing that was found."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Self

NOT_ADDABLE = "it is not copied, and `add` would be refused"
"""Why a finding matters that speaks against a table which came after the plan."""


class Level(StrEnum):
    """How much a finding matters: it blocks, warns or informs."""

    BLOCK = "block"
    """A correct copy is not possible until it is mended."""
    WARN = "warn"
    """The copy is correct; something is at risk or slower than it need be."""
    INFO = "info"


class FindingCode(StrEnum):
    """A kind of preflight finding: a stable code, its possible levels, and its text.

    Each room lists the codes of what it finds; the page of preflight has all of them, in these
    words.
    """

    levels: str
    """In the order in which people should know of them."""
    says: str

    def __new__(cls, code: str, levels: str, says: str) -> FindingCode:
        made = str.__new__(cls, code)
        made._value_ = code
        made.levels, made.says = levels, says
        return made

    @classmethod
    def of(cls, code: str) -> Self:
        """Return the code whose text this is."""
        return next(each for each in cls if each == code)


class PipelineCode(FindingCode):
    """The findings about a pipeline that do not depend on its kind of source or sink."""

    PIPELINE_ENDED = (
        "pipeline.ended",
        "block",
        "its stream ended with an error that a new one would meet again",
    )
    NAME_IN_USE = (
        "pipeline.name_in_use",
        "block",
        "a DAG of Airflow runs a pipeline of that name; only the form of a new pipeline looks",
    )
    TOPOLOGY_EDGES = (
        "topology.edges",
        "block, warn",
        "the files of the folder make no right topology, or not all of it could be "
        "looked at; blocks a pipeline without a plan, never one that has rows",
    )
    TOPOLOGY_CONFLICTS = (
        "topology.conflicts",
        "block, warn",
        "a table has no column by which its conflicts are settled, or another rule than in the "
        "file of the edge back; or a rule is of no table, which blocks a pipeline without a plan",
    )
    SOURCE_ANOTHER_SERVER = (
        "source.another_server",
        "warn",
        "it is not the server the plan was made from; refused unless its history contains "
        "what was read",
    )
    SOURCE_SERVER_ID_SHARED = (
        "source.server_id_shared",
        "block, warn",
        "another file of the folder names the same source and an id of the range; blocks a "
        "pipeline without a plan, never one that has rows",
    )
    STREAM_PLACES = (
        "stream.places",
        "info, block",
        "where a stream without a snapshot would begin now; blocks where `stream.start` or "
        "`stream.stop` is no place that the source's log has, or not any more",
    )
    PATTERN_FITS_NOTHING = (
        "pattern.fits_nothing",
        "warn",
        "no table fits a pattern of `source.tables`, or a route, that has a `*`; those that come "
        "are added, under `new_tables: add`",
    )
    TABLE_NOT_IN_PLAN = (
        "table.not_in_plan",
        "warn",
        "it fits `source.tables` and came after the plan: it is not copied; whatever else "
        "is found of it is a warning about what `reset` would refuse",
    )
    TABLE_GONE = (
        "table.gone",
        "warn",
        "it is in the plan, and not at the source any more, or not picked by the file",
    )
    TABLE_COLUMNS = (
        "table.columns",
        "warn",
        "what the file says of its columns or key does not fit its definition now; the stream "
        "stops the table at the statement that changed it, one that came later is not copied, and "
        "the others flow on",
    )
    TABLE_SHOWN = (
        "table.shown",
        "warn",
        "a column of it is masked or left out elsewhere by that name and not by its own section, "
        "or, without a section, it has all columns of a table that is filtered or copied in part: "
        "it is copied as it is; one that came later is not added",
    )
    TABLE_STOPPED = (
        "table.stopped",
        "warn",
        "the stream leaves it alone, and all other tables flow on: a person paused it, or an error "
        "that only it has stopped it",
    )
    THROTTLE_REPLICA = (
        "throttle.replica",
        "warn, block",
        "a replica of `snapshot.throttle` does not answer, does not replicate, or does not let the "
        "account see its lag: no split is read meanwhile; blocks what does not pass by itself, "
        "before the snapshot is done",
    )
    BACKFILL_COLUMN = (
        "backfill.column",
        "block, warn",
        "`backfill` names a column by which no window of time could be read: it is not there, or "
        "tells time in another way than the file says; a warning once the snapshot is done",
    )
    SINK_UNSEEN = (
        "sink.unseen",
        "info, block",
        "something could not be looked at. Blocks: whether another pipeline or other rows "
        "have the tables; for your knowledge: the free disk space",
    )
    SINK_OWNER = (
        "sink.owner",
        "block",
        "another pipeline writes to the table; the message names it",
    )
    SINK_EXISTING_ROWS = (
        "sink.existing_rows",
        "block, warn",
        "a table that no pipeline owns holds rows; a warning under `existing_rows: "
        "replace`, which replaces them, and `keep`, which takes them for the source's",
    )


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding of preflight: what was observed, why it matters, and how to mend it."""

    code: FindingCode
    """Stable and append-only: `source.binlog_format`."""
    level: Level
    subject: str
    """A server or a table."""
    observed: str
    wanted: str = ""
    why: str = ""
    fix: str = ""
    """A statement to run, or what to change where; empty if there is nothing to mend."""
    only: str = ""
    """The one table of the source that it concerns, where its stream is stopped by it too."""
    lacks: str = ""
    """The privilege for want of which something was not looked at."""

    def to_json(self) -> dict[str, Any]:
        """Return the finding as plain values."""
        return asdict(self)

    def __str__(self) -> str:
        parts = [f"{self.level} {self.code} {self.subject}: {self.observed}"]
        if self.wanted:
            parts.append(f"wanted: {self.wanted}")
        if self.why:
            parts.append(f"why: {self.why}")
        if self.fix:
            parts.append(f"fix: {self.fix}")
        return "; ".join(parts)


_ORDER = list(Level)


def sorted_findings(found: Iterable[Finding]) -> tuple[Finding, ...]:
    """Sort findings by level, those that block first."""
    return tuple(sorted(found, key=lambda f: (_ORDER.index(f.level), f.code, f.subject)))
