"""A source that keeps its log only where it was asked to: when it is asked, and for what.

No system here is one, so MySQL plays it: what its hold is told is written down.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import pytest

from airflow_cdc_provider.columns.source_port import NoHold, SourceAbilities
from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.identifiers import PipelineName
from airflow_cdc_provider.core.jobspec import SourceOptions
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.stored_error import NO_ERROR
from airflow_cdc_provider.pipeline.run import Run, take_over
from airflow_cdc_provider.pipeline.steps.handing_off import hand_off
from airflow_cdc_provider.pipeline.steps.jobs import SparkOptions
from airflow_cdc_provider.pipeline.steps.planning import plan
from airflow_cdc_provider.pipeline.steps.reset_drop import drop
from airflow_cdc_provider.pipeline.steps.sink import open_ledger
from airflow_cdc_provider.pipeline.steps.start_jobs import catch_up, snapshot
from airflow_cdc_provider.systems.mysql import system
from airflow_cdc_provider.systems.mysql.mysql_source import MySqlSource
from airflow_cdc_provider.systems.mysql.options import MySqlOptions
from tests.pipeline.conftest import Shop
from tests.pipeline.test_nothing_to_stream import shop

__all__ = ["shop"]

HERE = SparkOptions(master="spark://127.0.0.1:1")
"""What is small is done here; nothing else could be."""


@dataclass
class Hold(NoHold):
    """Writes down what it is told."""

    asked: list[str]
    needed: list[LogPosition]

    def secure(self) -> None:
        self.asked.append("secure")

    def advance(self, needed: LogPosition) -> None:
        self.needed.append(needed)
        self.asked.append("advance")

    def release(self) -> None:
        self.asked.append("release")


@dataclass
class Told:
    """All that the source's holds were told, and what had happened by then."""

    asked: list[str] = field(default_factory=list)
    needed: list[LogPosition] = field(default_factory=list)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    found = Told()

    class Holding(MySqlSource):
        @property
        def abilities(self) -> SourceAbilities:
            return SourceAbilities(holds_log=True)

        def hold(self, pipeline: PipelineName) -> Hold:
            assert str(pipeline).startswith("quiet_")
            return Hold(found.asked, found.needed)

        def split_reader(self, reading: Any) -> Any:
            found.asked.append("read")
            return super().split_reader(reading)

    def opened(endpoint: Endpoint, options: SourceOptions) -> MySqlSource:
        return Holding(endpoint, MySqlOptions.of(options).keys)

    monkeypatch.setattr(system, "source", opened)
    return found


def in_ledger(run: Run) -> LogPosition:
    with closing(open_ledger(run)) as ledger:
        stream = ledger.stream()
    assert stream is not None
    return stream.start


def test_the_log_is_held_before_anything_is_read_and_let_go_as_the_ledger_moves(
    shop: Shop, told: Told
) -> None:
    run = shop.run()
    plan(run)
    snapshot(run, HERE)
    assert told.asked[:2] == ["secure", "read"]
    assert not told.needed
    hand_off(run)
    for number in (2, 3):
        before = in_ledger(run)
        shop.at_source(f"UPDATE orders SET note = 'changed' WHERE id = {number}")
        catch_up(run, HERE)
        assert told.needed[-1].covers(before)
        assert all(in_ledger(run).covers(each) for each in told.needed)
    assert "release" not in told.asked
    drop(run)
    assert told.asked[-1] == "release"


def test_the_log_is_held_for_a_table_that_is_isolated(shop: Shop, told: Told) -> None:
    run = shop.run()
    plan(run)
    snapshot(run, HERE)
    hand_off(run)
    stopped_at = in_ledger(run)
    with closing(open_ledger(run)) as ledger:
        take_over(run, ledger)
        ledger.stop_tables([run.store.tables(run.name)[0].table], NO_ERROR)
    for number in (2, 3):
        shop.at_source(f"UPDATE orders SET note = 'changed' WHERE id = {number}")
        catch_up(run, HERE)
    assert not stopped_at.covers(in_ledger(run))
    assert set(told.needed) == {stopped_at}
