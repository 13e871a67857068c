"""What a comparison found, as plain values."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.keys import Key, KeyRange
from airflow_cdc_provider.core.plurals import counted


class DifferenceKind(StrEnum):
    """How a row differs: missing at the sink, extra there, or different."""

    MISSING = "missing"
    """At the source only."""
    EXTRA = "extra"
    """At the sink only."""
    DIFFERENT = "different"


@dataclass(frozen=True, slots=True)
class ColumnDifference:
    """One column's values on both sides, cut where they are long; None is NULL."""

    column: str
    source: str | None
    sink: str | None

    def __str__(self) -> str:
        here, there = _shown(self.source), _shown(self.sink)
        return f"{self.column}: {here} at the source, {there} at the sink"


@dataclass(frozen=True, slots=True)
class Difference:
    """One row that differs between source and sink."""

    kind: DifferenceKind
    key: str
    """The sink's key."""
    columns: tuple[ColumnDifference, ...] = ()
    """What differs, if values are asked for, and the row has not become equal since."""
    source_key: str = ""
    """The source's key, where it is another and is known."""

    def to_json(self) -> dict[str, Any]:
        """Return the difference as plain values."""
        form: dict[str, Any] = {"kind": self.kind.value, "key": self.key}
        if self.source_key:
            form["source_key"] = self.source_key
        if self.columns:
            form["columns"] = [asdict(each) for each in self.columns]
        return form


@dataclass(frozen=True, slots=True)
class TableVerdict:
    """The result of one table's comparison."""

    table: TableId
    sink_table: TableId
    rows_source: int
    rows_sink: int
    bytes: int
    equal_rows: int
    missing: int
    extra: int
    different: int
    unsettled: int
    """Rows that changed at the source in every round: neither proven equal nor different."""
    samples: tuple[Difference, ...]
    truncated: bool
    """So many rows differ that the comparison of this table was ended early."""
    seconds: float
    differing: tuple[KeyRange, ...] = ()
    """Where the rows that differ are: ranges of the key, or the whole table, open on both sides.

    The whole, where keys cannot be compared in code or not all rows were compared.
    """
    differing_keys: tuple[Key, ...] = ()
    """Their keys, where these cannot be compared in code and all of them are known and few."""
    sampled: bool = False
    """Only some ranges were compared; all counts are of these."""
    digest: str = ""
    """How rows were hashed."""
    why_digest: str = ""
    """Why not by a digest of the two systems' own; empty if it was one."""
    unrepairable: str = ""
    """Why the rows that differ cannot be read again; empty if they can."""

    @property
    def equal(self) -> bool:
        """Tell whether no difference was found in the table."""
        return not (self.missing or self.extra or self.different or self.truncated)

    def to_json(self) -> dict[str, Any]:
        """Return the verdict as plain values."""
        return {
            "table": str(self.table),
            "sink_table": str(self.sink_table),
            "equal": self.equal,
            "rows_source": self.rows_source,
            "rows_sink": self.rows_sink,
            "bytes": self.bytes,
            "equal_rows": self.equal_rows,
            "missing": self.missing,
            "extra": self.extra,
            "different": self.different,
            "unsettled": self.unsettled,
            "samples": [sample.to_json() for sample in self.samples],
            "truncated": self.truncated,
            "sampled": self.sampled,
            "digest": self.digest,
            "why_digest": self.why_digest,
            "unrepairable": self.unrepairable,
            "seconds": round(self.seconds, 3),
        }

    def __str__(self) -> str:
        if self.equal:
            text = f"equal, {counted(self.rows_source, 'row')}" + (
                " of a sample" if self.sampled else ""
            )
        else:
            at_least = "at least " if self.truncated else ""
            text = (
                f"{at_least}{self.missing} missing, {self.extra} extra, {self.different} different "
                f"of {counted(self.rows_source, 'row')}" + (" of a sample" if self.sampled else "")
            )
        return text + (f", {self.unsettled} still changing" if self.unsettled else "")


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """The results of all compared tables."""

    tables: tuple[TableVerdict, ...]
    seconds: float
    not_copied: tuple[TableId, ...] = ()
    """Tables that the pipeline's patterns fit and its plan has not: nothing was compared there."""
    stopped: tuple[TableId, ...] = ()
    """Tables that the stream leaves alone: what differs there may only be late."""
    by_reset: tuple[TableId, ...] = ()
    """Tables that are read again as a whole by `reset` alone."""
    may_be_late: bool = False
    """Log of the source waits, and no stream is at work: what differs may only be late."""

    @property
    def equal(self) -> bool:
        """Tell whether no difference was found in any table."""
        return all(table.equal for table in self.tables)

    @property
    def unsettled(self) -> int:
        """Return how many rows changed so often that they could not be compared."""
        return sum(table.unsettled for table in self.tables)

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain values."""
        return {
            "equal": self.equal,
            "unsettled": self.unsettled,
            "seconds": round(self.seconds, 3),
            "tables": [table.to_json() for table in self.tables],
            "not_copied": [str(table) for table in self.not_copied],
            "stopped": [str(table) for table in self.stopped],
            "may_be_late": self.may_be_late,
        }


def _shown(value: str | None) -> str:
    """Return a value as text for people."""
    return "NULL" if value is None else repr(value)
