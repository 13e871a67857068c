"""Every setting of a pipeline's start, end and pace does in each stage what the docs' table says.

The table is made from the same list (`tests.docs.settings`). What is exact at a start and at an end
is in `test_stream_starts` and `test_stream_ends`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import pytest

from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.requests import RequestStatus, Scope
from airflow_cdc_provider.engine.throttle import load_watch
from airflow_cdc_provider.pipeline.run import Run, give_back
from airflow_cdc_provider.pipeline.steps.backfilling import backfill_scope
from airflow_cdc_provider.pipeline.steps.range_requests import ask_resync, resync_scope
from airflow_cdc_provider.pipeline.steps.repairing import ask_repairs, repairs
from airflow_cdc_provider.pipeline.steps.table_requests import add
from airflow_cdc_provider.pipeline.steps.verifying import verify
from tests.pipeline.altered_tables import catch_up
from tests.pipeline.conftest import FILE, Shop
from tests.pipeline.pipeline_settings import HELD, NONE, PIPELINE_SETTINGS, YES, PipelineSetting
from tests.pipeline.settings import Stage
from tests.pipeline.test_throttle import busy

DEFINITION = "CREATE TABLE {0} (id INT PRIMARY KEY, city VARCHAR(20), day DATE)"
DAYS = "2026-07-01", "2026-07-20"
"""The days of the rows from 1 to 19."""
Rows = list[tuple[object, ...]]


class Walk:
    """A pipeline with one setting, taken through all stages."""

    def __init__(self, shop: Shop, setting: PipelineSetting) -> None:
        self.shop = shop
        self.setting = setting
        self.seen: set[str] = set()
        """Requests that were looked at."""
        text = FILE.format(name=f"p_{shop.target}", source=shop.database, sink=shop.target)
        if setting.keeps_rows:
            text += "  existing_rows: keep\n"
        shop.path.write_text(f"{text}{setting.in_file}\n")
        self.make("orders")
        if setting.keeps_rows:
            self.at_sink(DEFINITION.format("orders"))
            self.at_sink(f"INSERT INTO orders VALUES {values()}")

    def make(self, table: str) -> None:
        self.shop.at_source(DEFINITION.format(table))
        self.shop.at_source(f"INSERT INTO {table} VALUES {values()}")

    def at_sink(self, statement: str) -> None:
        self.shop.sink.execute(statement, database=self.shop.target)

    def rows(self, table: str = "orders") -> Rows:
        if not self.shop.sink_rows(f"SHOW TABLES LIKE '{table}'"):
            return []
        return self.shop.sink_rows(f"SELECT * FROM {table} ORDER BY id")

    def source_rows(self, table: str = "orders") -> Rows:
        query = f"SELECT * FROM {table} ORDER BY id"
        return list(self.shop.source.execute(query, database=self.shop.database))

    def catch_up(self) -> None:
        """Run to the end of the log; raise what a request failed with."""
        run = catch_up(self.shop)
        give_back(run)
        asked = [each for each in run.store.requests(run.name) if each.request_id not in self.seen]
        self.seen |= {each.request_id for each in asked}
        for each in asked:
            if each.status is not RequestStatus.DONE:
                raise each.error.read()

    def plant(self) -> None:
        self.at_sink("UPDATE orders SET city = 'wrong' WHERE id BETWEEN 5 AND 9")
        assert self.rows() != self.source_rows()

    def does(self, stage: Stage, work: Callable[[], object], table: str = "orders") -> None:
        """Do what a stage does, and see that it did what the table says."""
        cell, before = self.setting.cell(stage), self.rows(table)
        if cell.is_refused:
            with pytest.raises(CdcError, match=cell.why):
                work()
            assert self.rows(table) == before, stage
            return
        if cell == HELD:
            with self.busy():
                self.is_held(work)
            assert self.rows(table) == before, stage
        with self.busy() if self.is_loaded and cell == YES else nullcontext():
            work()
        writes = cell != NONE and stage is not Stage.VERIFY
        assert self.rows(table) == (self.source_rows(table) if writes else before), stage

    @property
    def is_loaded(self) -> bool:
        """Tell whether the setting is about a source with too much load."""
        return HELD in self.setting.cells.values()

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Load the source, more than the pipeline's own threads may."""
        server = self.shop.source
        with busy(server, 24, user=server.user, password=server.password):
            yield

    def is_held(self, work: Callable[[], object]) -> None:
        """Have a critical load end a run, or what was asked of it."""
        with pytest.raises(CdcError, match="CDC-LOA-001"):
            work()
        run = self.shop.run()
        self.seen |= {each.request_id for each in run.store.requests(run.name)}

    def asked(self, scope: Callable[[Run], Scope]) -> None:
        """Ask for rows again, and have them read."""
        run = self.shop.run()
        ask_resync(run, scope(run))
        self.catch_up()

    def finds(self) -> None:
        (verdict,) = verify(self.shop.run(), settle_s=5, tables=[self.table]).tables
        assert not verdict.equal

    def mends(self) -> None:
        run = self.shop.run()
        assert ask_repairs(run, repairs(run, verify(run, settle_s=5, tables=[self.table])))
        self.catch_up()

    def adds(self) -> None:
        """Have the run add what came later; ask for it where none does."""
        self.catch_up()
        if not self.rows("later"):
            add(self.shop.run(), [TableId(self.shop.database, "later")])

    @property
    def table(self) -> TableId:
        return TableId(self.shop.database, "orders")


def values() -> str:
    return ", ".join(f"({n}, 'Ulm', '2026-07-{n:02}')" for n in range(1, 30))


@pytest.mark.parametrize(
    ("empty_shop", "setting"),
    [
        pytest.param(family, each, id=f"{family}-{each.name}")
        for each in PIPELINE_SETTINGS
        for family in each.families
    ],
    indirect=["empty_shop"],
)
def test_each_setting_of_a_pipeline_does_what_its_line_says(
    empty_shop: Shop, setting: PipelineSetting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load_watch, "EVERY_S", 0.2)
    walk = Walk(empty_shop, setting)
    name = str(walk.table)
    walk.does(Stage.SNAPSHOT, walk.catch_up)
    empty_shop.at_source("UPDATE orders SET city = 'Bonn' WHERE id > 15")
    empty_shop.at_source("DELETE FROM orders WHERE id > 25")
    walk.does(Stage.STREAM, walk.catch_up)
    empty_shop.at_source("ALTER TABLE orders ADD COLUMN more INT NOT NULL DEFAULT 7")
    walk.does(Stage.SCHEMA, walk.catch_up)
    walk.plant()
    walk.does(Stage.RESYNC, lambda: walk.asked(lambda run: resync_scope(run, [name])))
    walk.plant()
    part = {"from_key": "5", "to_key": "10"}
    walk.does(Stage.RANGE, lambda: walk.asked(lambda run: resync_scope(run, [name], **part)))
    walk.plant()
    start, end = DAYS
    walk.does(
        Stage.BACKFILL,
        lambda: walk.asked(lambda run: backfill_scope(run, name, "day", start=start, end=end)),
    )
    walk.plant()
    walk.does(Stage.VERIFY, walk.finds)
    walk.does(Stage.REPAIR, walk.mends)
    walk.make("later")
    walk.does(Stage.ADDED, walk.adds, "later")
