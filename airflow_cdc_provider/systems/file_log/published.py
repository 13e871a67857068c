"""What manifests say of a log's splits, claims and counts, and how it is written as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from airflow_cdc_provider.core.codec import (
    position_from_json,
    report_from_json,
    report_to_json,
    split_from_json,
    split_to_json,
)
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.row_counts import RowCounts
from airflow_cdc_provider.core.splits import SnapshotSplit, SplitReport
from airflow_cdc_provider.core.stream_counts import TableChangeCount
from airflow_cdc_provider.systems.file_log.files import SealedFile

Record = dict[str, Any]
"""One manifest, as JSON has it."""


@dataclass(frozen=True, slots=True)
class PublishedSplit:
    """A split whose rows are in the change log, with its report and files."""

    split: SnapshotSplit
    report: SplitReport
    folder: str
    files: tuple[SealedFile, ...]


@dataclass(slots=True)
class Counts:
    """The numbers of batches, changes and transactions that the stream has committed."""

    batches: int = 0
    changes: int = 0
    events: int = 0
    """Of changes and TRUNCATEs, a change of a key is two; 0 for a log that does not count them."""
    transactions: int = 0
    source_committed_us: int = 0
    committed_us: int = 0

    def to_json(self) -> Record:
        """Return the numbers as JSON; what is not counted is left out."""
        return {name: count for name, count in asdict(self).items() if count or name != "events"}


def published_to(published: PublishedSplit) -> Record:
    """Return a published split as JSON."""
    return {
        "split": split_to_json(published.split),
        "report": report_to_json(published.report),
        "folder": published.folder,
        "files": [asdict(each) for each in published.files],
    }


def published_from(form: Record) -> PublishedSplit:
    """Read a published split from JSON."""
    return PublishedSplit(
        split_from_json(form["split"]),
        report_from_json(form["report"]),
        form["folder"],
        tuple(SealedFile(**each) for each in form["files"]),
    )


def counted(
    table: str,
    changes: int,
    position: Record,
    rows: Sequence[int] = (),
    changed_us: int = 0,
) -> tuple[TableId, TableChangeCount]:
    """Read a table's counts of changes; older releases stored no rows and no time."""
    place = position_from_json(position)
    return TableId.parse(table), TableChangeCount(changes, place, RowCounts(*rows), changed_us)


Targets = dict[TableId, tuple[TableId, ...]]
"""What each table of the sink is copied from: several tables of the source are its shards."""


def targets_to(targets: Targets) -> Record:
    """Return as JSON which sink table is copied from which tables; a list where they are several.

    So that releases which know of one source alone can read the others.
    """
    return {
        str(sink): str(sources[0]) if len(sources) == 1 else [*map(str, sources)]
        for sink, sources in targets.items()
    }


def targets_from(form: Record) -> Targets:
    """Read from JSON which sink table is copied from which tables of the source."""
    return {
        TableId.parse(sink): tuple(map(TableId.parse, [said] if isinstance(said, str) else said))
        for sink, said in form.items()
    }
