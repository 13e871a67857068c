"""Every setting of a table holds in all that writes or compares rows, or is refused there.

The docs' table of settings is made from the same list (`tests.docs.settings`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from airflow_cdc_provider.core.errors import RefusedError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.requests import RequestStatus, Scope
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps.backfilling import backfill_scope
from airflow_cdc_provider.pipeline.steps.range_requests import ask_resync, resync_scope
from airflow_cdc_provider.pipeline.steps.repairing import ask_repairs, repairs
from airflow_cdc_provider.pipeline.steps.verifying import verify
from tests.pipeline.altered_tables import catch_up
from tests.pipeline.conftest import FILE, Shop
from tests.pipeline.settings import SALT, SETTINGS, Setting, Stage

ROWS = 60
WRITES = (
    "UPDATE {0} SET city = IF(city = 'Ulm', 'Bonn', 'Ulm'), n = n + 1 WHERE id % 5 = 0",
    "UPDATE {0} SET id = id + 1000, mail = 'moved@x.org' WHERE id % 7 = 0",
    "DELETE FROM {0} WHERE id % 6 = 1",
    "INSERT INTO {0} (id, city, n, day, mail) VALUES (2001, 'Ulm', 1, NULL, NULL), "
    "(2002, NULL, NULL, '2026-07-09', 'new@x.org')",
)
JULY = "2026-07-01", "2026-08-01"
"""The days of the rows from 20 to 39, and of no other."""
PLANTED = (
    "DELETE FROM {0} WHERE {1} BETWEEN 24 AND 29",
    "UPDATE {0} SET city = 'wrong' WHERE {1} BETWEEN 30 AND 35",
)


class Settled:
    """A shop with a table for each setting that its source's family can have."""

    def __init__(self, shop: Shop, family: str) -> None:
        self.shop = shop
        shop.environment["SHOP_SALT"] = SALT
        self.settings = [each for each in SETTINGS if each.only in {"", family}]
        lines = [
            f'  "{shop.database}.{table}": {{{each.in_file}}}\n'
            for each in self.settings
            for table in (each.table, f"{each.table}_later")
        ]
        shop.path.write_text(
            FILE.format(name=f"p_{shop.database}", source=shop.database, sink=shop.target)
            + "tables:\n"
            + "".join(lines)
        )
        for each in self.settings:
            self.make(each, each.table)

    def make(self, setting: Setting, table: str) -> None:
        self.shop.at_source(setting.definition(table))
        rows = ", ".join(
            f"({n}, '{'Ulm' if n % 2 else 'Bonn'}', {n}, '2026-0{6 + n // 20}-11', 'm{n}@x.org')"
            for n in range(1, ROWS)
        )
        self.shop.at_source(f"INSERT INTO {table} (id, city, n, day, mail) VALUES {rows}")

    def at_source(self, statements: Sequence[str]) -> None:
        for each in self.settings:
            for statement in statements:
                self.shop.at_source(statement.format(each.table))

    def plant(self) -> None:
        """Change the sink's rows of July, of each table."""
        for each in self.settings:
            for statement in PLANTED:
                planted = statement.format(each.table, each.by)
                self.shop.sink.execute(planted, database=self.shop.target)
            assert not self.is_equal(each, each.table), each.title

    def is_equal(self, setting: Setting, table: str, added: str = "") -> bool:
        """Compare dumps of both sides."""
        at_source = f"SELECT {setting.at_source}{added} FROM {table} WHERE {setting.where}"
        at_sink = f"SELECT {setting.at_sink}{added} FROM {table} WHERE {setting.living}"
        rows = Counter(self.shop.source.execute(at_source, database=self.shop.database))
        assert rows
        return Counter(self.shop.sink_rows(at_sink)) == rows

    def id_of(self, setting: Setting) -> TableId:
        return TableId(self.shop.database, setting.table)

    def unequal(self, *, suffix: str = "", added: bool = False) -> list[str]:
        """Return the settings whose tables are not what they are to be at the sink."""
        return [
            each.title
            for each in self.settings
            if not self.is_equal(each, each.table + suffix, each.added if added else "")
        ]

    def carried_out(self, run: Run, scopes: Sequence[Scope]) -> None:
        """Ask for scopes, and have them carried out."""
        asked = {ask_resync(run, scope).request_id for scope in scopes}
        run = catch_up(self.shop)
        done = {each.request_id: each.status for each in run.store.requests(run.name)}
        assert {done[each] for each in asked} == {RequestStatus.DONE}


@pytest.fixture
def settled(empty_shop: Shop) -> Settled:
    family = "mariadb" if "MariaDB" in empty_shop.source.version else "mysql"
    return Settled(empty_shop, family)


def test_each_setting_holds_wherever_rows_are_written_and_compared(settled: Settled) -> None:
    shop = settled.shop
    catch_up(shop)
    assert settled.unequal() == [], Stage.SNAPSHOT
    settled.at_source(WRITES)
    catch_up(shop)
    assert settled.unequal() == [], Stage.STREAM
    assert {each.table for each in verify(shop.run(), settle_s=5).tables if not each.equal} == set()

    settled.plant()
    run = shop.run()
    report = verify(run, settle_s=5)
    assert {each.table for each in report.tables if not each.equal} == {
        settled.id_of(each) for each in settled.settings
    }, Stage.VERIFY
    assert len(ask_repairs(run, repairs(run, report))) == len(settled.settings)
    catch_up(shop)
    assert settled.unequal() == [], Stage.REPAIR

    for each in settled.settings:
        settled.make(each, f"{each.table}_later")
    settled.plant()
    names = [str(settled.id_of(each)) for each in settled.settings]
    settled.carried_out(shop.run(), [resync_scope(shop.run(), names)])
    assert settled.unequal() == [], Stage.RESYNC
    assert settled.unequal(suffix="_later") == [], Stage.ADDED

    for stage in (Stage.RANGE, Stage.BACKFILL):
        settled.plant()
        scopes, refused = [], []
        for each in settled.settings:
            if stage in each.refused:
                with pytest.raises(RefusedError, match=each.refused[stage]):
                    scope_of(shop.run(), settled.id_of(each), stage)
                refused.append(each)
            else:
                scopes.append(scope_of(shop.run(), settled.id_of(each), stage))
        settled.carried_out(shop.run(), scopes)
        assert settled.unequal() == [each.title for each in refused], stage
        settled.carried_out(
            shop.run(), [resync_scope(shop.run(), [str(settled.id_of(each))]) for each in refused]
        )

    settled.at_source(
        (
            "ALTER TABLE {0} ADD COLUMN extra VARCHAR(9) NOT NULL DEFAULT 'x' AFTER city",
            "UPDATE {0} SET extra = 'y', city = 'Ulm' WHERE id < 20",
            "ALTER TABLE {0} MODIFY COLUMN extra VARCHAR(30)",
            "UPDATE {0} SET extra = REPEAT('z', 30) WHERE id < 9",
        )
    )
    catch_up(shop)
    assert settled.unequal(added=True) == [], Stage.SCHEMA


def scope_of(run: Run, table: TableId, stage: Stage) -> Scope:
    """Return the scope of July's rows."""
    if stage is Stage.RANGE:
        return resync_scope(run, [str(table)], from_key="20", to_key="40")
    return backfill_scope(run, str(table), "day", start=JULY[0], end=JULY[1])
