"""One snapshot reader: what runs in one Spark task on an executor.

A reader pulls splits until none is left, or until it has worked for some minutes and another
follows it: claim, read with watermarks, publish with the report in
one sink transaction, report, and the next. It opens its connections when it gets its first split
and keeps them. What may pass is tried again in place with growing waits, over fresh connections,
and the driver hears of each such failure; a split that is too big is cut in two; what reading again
does not mend is refused. Expected failures leave as rows, never as exceptions, of which Spark would
keep only the text.

Nothing here knows the state store: the driver does, and the ledger in the sink has the truth.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from airflow_cdc_provider.columns.arrow_arrays import mask_of, numbers_of, texts_of
from airflow_cdc_provider.columns.shaping import shaped_rows
from airflow_cdc_provider.columns.source_port import Source, SplitReader, SplitReading
from airflow_cdc_provider.core.backoff import BackOff
from airflow_cdc_provider.core.errors import (
    CdcError,
    FencedError,
    RetryableError,
    SplitTooBigError,
)
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.row_metadata import RowStamp
from airflow_cdc_provider.core.salts import Salt, keep_salts
from airflow_cdc_provider.core.splits import SnapshotSplit, SplitReport
from airflow_cdc_provider.engine.scrubbing import Secrets
from airflow_cdc_provider.engine.sink.port import Sink, SplitSink
from airflow_cdc_provider.engine.snapshot.assigner_protocol import AssignerAddress
from airflow_cdc_provider.engine.snapshot.remote_assigner import RemoteAssigner

log = logging.getLogger(__name__)

ROW_SCHEMA = "error string, splits long, rows long, is_relieved boolean"
_ARROW_SCHEMA = pa.schema(
    [
        ("error", pa.string()),
        ("splits", pa.int64()),
        ("rows", pa.int64()),
        ("is_relieved", pa.bool_()),
    ]
)


@dataclass(frozen=True, slots=True)
class ReaderTask:
    """The settings of a snapshot reader, as they travel to an executor.

    In Spark's pickled closure, and nowhere else.
    """

    source: Source
    sink: Sink
    assigner: AssignerAddress
    secrets: Secrets
    plans: Mapping[TableId, TablePlan]
    reading: SplitReading
    """As the first reader does it; the numbers of the others count on from its."""
    salts: tuple[Salt, ...] = ()
    """Those by which columns are masked."""
    back_off: BackOff = field(default_factory=BackOff)
    relieved_after_s: float | None = None
    """A reader that has worked for as long takes no further split; another follows it."""


@dataclass(frozen=True, slots=True)
class ReadersEnd:
    """What the readers of one round did: counts, errors, and whether any was relieved."""

    errors: Sequence[CdcError]
    splits: int
    rows: int
    is_relieved: bool
    """Whether a reader ended because it had worked for long, so that splits may be left."""

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]]) -> ReadersEnd:
        """Sum up the rows that readers yielded at their end."""
        errors = [CdcError.from_json(json.loads(row["error"])) for row in rows if row["error"]]
        return cls(
            errors,
            sum(row["splits"] for row in rows),
            sum(row["rows"] for row in rows),
            any(row["is_relieved"] for row in rows),
        )


def read_splits(task: ReaderTask, reader: int) -> Iterator[pa.RecordBatch]:
    """Read splits until none is left or the reader's time is over; yield one row of totals."""
    keep_salts(task.salts)
    splits = rows = 0
    error, is_relieved, began = "", False, time.monotonic()
    try:
        with (
            closing(RemoteAssigner(task.assigner)) as assigner,
            closing(_Reader(task, reader)) as mine,
        ):
            while not is_relieved and (split := assigner.claim()) is not None:
                report = mine.read(split, assigner)
                splits += int(report is not None)
                rows += report.rows if report is not None else 0
                is_relieved = _is_over(began, task.relieved_after_s)
    except CdcError as failure:
        error = json.dumps(failure.to_json())
    columns = [texts_of([error]), numbers_of([splits]), numbers_of([rows]), mask_of([is_relieved])]
    yield pa.RecordBatch.from_arrays(columns, schema=_ARROW_SCHEMA)


def _is_over(began: float, most_s: float | None) -> bool:
    """Tell whether a reader has worked for as long as it may."""
    return most_s is not None and time.monotonic() - began >= most_s


class _Reader:
    """One reader's connections to source and sink; opened when needed, again after a failure."""

    def __init__(self, task: ReaderTask, number: int) -> None:
        self._task = task
        self._number = number
        self._source: SplitReader | None = None
        self._sink: SplitSink | None = None

    def read(self, split: SnapshotSplit, assigner: RemoteAssigner) -> SplitReport | None:
        """Read and publish one split with retries; return its report.

        None if it was cut or refused, or if the job ends while the split fails.
        """
        failures, since = 0, time.monotonic()
        while True:
            try:
                report, read_rows = self._read_once(split, assigner.attempt)
                assigner.report(report, read_rows=read_rows)
                return report
            except SplitTooBigError as too_big:
                self.close()
                self._cut(split, assigner, too_big)
                return None
            except FencedError:
                raise
            except RetryableError as error:
                self.close()
                failures += 1
                told = error.rewritten(self._task.secrets.scrub)
                if self._task.back_off.is_over(time.monotonic() - since):
                    assigner.refuse(split, told)
                    return None
                log.warning("split is tried again: split=%s cause=%s", split.split_id, told)
                wait_s = self._task.back_off.wait_s(failures)
                if not assigner.wait_to_retry(split, told, wait_s=wait_s):
                    return None
            except CdcError as error:
                self.close()
                assigner.refuse(split, error.rewritten(self._task.secrets.scrub))
                return None

    def close(self) -> None:
        """Close the connections; what was not committed is rolled back."""
        source, self._source = self._source, None
        sink, self._sink = self._sink, None
        for opened in (source, sink):
            if opened is not None:
                opened.close()

    def _read_once(self, split: SnapshotSplit, attempt: int) -> tuple[SplitReport, int]:
        """Read one split and publish its rows, without a retry; return the report and rows read."""
        if self._source is None:
            reading = self._task.reading
            own = replace(reading, reader=reading.reader + self._number)
            self._source = self._task.source.split_reader(own)
        if self._sink is None:
            self._sink = self._task.sink.open_splits()
        started = time.monotonic()
        rows, report = self._source.read(split)
        report = replace(report, attempt=attempt, read_s=time.monotonic() - started)
        started, read_rows = time.monotonic(), report.rows
        stamp = RowStamp.of_read(report.high, report.high)
        rows = shaped_rows(rows, self._task.plans[split.table], stamp)
        report = replace(report, rows=rows.rows)  # a filter may have left some out
        self._sink.publish(split, rows, report)
        return replace(report, publish_s=time.monotonic() - started), read_rows

    def _cut(
        self, split: SnapshotSplit, assigner: RemoteAssigner, too_big: SplitTooBigError
    ) -> None:
        """Cut a split that is too big in two; refuse it if that fails."""
        try:
            self._task.plans[split.table].require_cuttable()
            assigner.cut(split, self._task.source.middle_of(split))
        except FencedError:
            raise
        except CdcError as uncut:
            what = f"{too_big.what}; and it cannot be cut: {uncut.what}"
            assigner.refuse(split, too_big.saying(what).with_remedy(uncut.remedy))


def reader_rows(task: ReaderTask, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run the readers whose numbers are in `batches`; the function that `mapInArrow` calls."""
    for batch in batches:
        for reader in batch.column(0).to_pylist():
            yield from read_splits(task, reader)
