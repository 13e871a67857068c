"""What happens to tables right before rows of theirs join the stream."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from airflow_cdc_provider.core.jobspec import JobSpec
from airflow_cdc_provider.core.table_schema import TableSchema
from airflow_cdc_provider.engine.job import Job
from airflow_cdc_provider.engine.requests.reads import Read
from airflow_cdc_provider.engine.requests.resync import Resync
from airflow_cdc_provider.engine.sink.port import JoinSink
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps import small_work
from tests.pipeline.altered_tables import change
from tests.pipeline.conftest import Shop

if TYPE_CHECKING:
    import pytest


@dataclass
class Moments:
    """Changes tables right before splits of theirs join, and writes to them."""

    shop: Shop
    at: dict[str, tuple[int, Sequence[str]]] = field(default_factory=dict)
    """By table: before which join, and what happens then."""
    joins: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)
    writes: bool = True

    @classmethod
    def of(cls, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Moments:
        """Have splits of three rows each; what is to happen is put into `at`."""
        made, join, job = cls(shop), Resync._join, small_work._job

        def joined(self: Resync, sink: JoinSink, schema: TableSchema, read: Read) -> None:
            made.before_join(schema.table.table)
            join(self, sink, schema, read)

        def in_small_splits(run: Run, spec: JobSpec, stop: threading.Event) -> Job:
            return job(run, replace(spec, request_split_rows=3), stop)

        monkeypatch.setattr(Resync, "_join", joined)
        monkeypatch.setattr(small_work, "_job", in_small_splits)
        return made

    def before_join(self, name: str) -> None:
        with self.lock:
            self.joins[name] += 1
            moment, statements = self.at.get(name, (0, ()))
            if self.joins[name] != moment:
                return
        self._write(name)
        change(self.shop, name, statements)
        self._write(name)

    def _write(self, name: str) -> None:
        statements = (
            ()
            if not self.writes
            else [
                "UPDATE orders SET flag = flag + 100 WHERE flag % 3 = 1",
                "DELETE FROM orders WHERE flag % 5 = 4 LIMIT 1",
            ]
        )
        change(self.shop, name, statements)
