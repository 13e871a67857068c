"""A table that somebody changes at the sink is found before it alters what is written for long."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from airflow_cdc_provider.core.errors import SinkTableChangedError, TablesStoppedError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.requests import RequestKind, RequestStatus
from airflow_cdc_provider.engine.stream import sink_drift
from airflow_cdc_provider.pipeline.run import Run, give_back
from airflow_cdc_provider.pipeline.steps.jobs import SparkOptions
from airflow_cdc_provider.pipeline.steps.start_jobs import catch_up
from airflow_cdc_provider.pipeline.steps.table_membership import reset_tables
from tests.pipeline.changed_sink_tables import continuous
from tests.pipeline.conftest import Shop
from tests.pipeline.shop_tables import at_sink, at_source, synced
from tests.pipeline.without_spark import NO_SPARK
from tests.servers.given import SqlServer
from tests.servers.patience import wait_until

DRIFTS = {
    "fewer digits": ("MODIFY price DECIMAL(10,0)", "price is decimal(10,0)"),
    "a shorter text": ("MODIFY note VARCHAR(10)", "note is varchar(10)"),
    "a smaller number": ("MODIFY code SMALLINT", "code is smallint"),
    "another charset": (
        "MODIFY note VARCHAR(40) CHARACTER SET latin1",
        "note has the charset latin1",
    ),
    "no NULL": ("MODIFY price DECIMAL(10,2) NOT NULL", "price does not take NULL"),
    "a column less": ("DROP COLUMN price", "column price is missing"),
    "a computed column": (
        "DROP COLUMN price, ADD COLUMN price DECIMAL(10,2) AS (1.5)",
        "price is computed",
    ),
    "a unique key of its own": ("ADD UNIQUE KEY own (note)", "a unique key own"),
    "another primary key": ("DROP PRIMARY KEY, ADD PRIMARY KEY (id, size)", "primary key"),
    "another engine": ("ENGINE = MyISAM", "its engine is MyISAM"),
    "another name": ("RENAME TO moved", "it is gone"),
}
HARMLESS = (
    "DROP INDEX code",
    "ADD COLUMN more INT, ADD INDEX (note), COMMENT = 'ours'",
    "MODIFY note VARCHAR(400) CHARACTER SET utf8mb4",
    "MODIFY size INT NULL DEFAULT 7",
)


@pytest.fixture
def kept(shop: Shop) -> Iterator[Shop]:
    """A pipeline whose tables are copied, at a sink that is not strict by itself."""
    shop.at_source("ALTER TABLE orders ADD price DECIMAL(10,2), ADD size INT NOT NULL DEFAULT 1")
    shop.at_source("CREATE TABLE others (id INT PRIMARY KEY, n INT)")
    shop.at_source("INSERT INTO others VALUES (1, 1)")
    mode = shop.sink.execute("SELECT @@GLOBAL.sql_mode")[0][0]
    shop.sink.execute("SET GLOBAL sql_mode = ''")
    synced(shop)
    try:
        yield shop
    finally:
        shop.sink.execute("SET GLOBAL sql_mode = %s", (mode,))


class Drifts:
    """What is so at a sink of any family."""

    @pytest.mark.parametrize("case", DRIFTS)
    def test_a_table_that_may_alter_rows_by_now_is_written_no_more(
        self, kept: Shop, case: str
    ) -> None:
        alteration, said = DRIFTS[case]
        change_at_sink(kept, alteration)
        kept.at_source("INSERT INTO others VALUES (2, 2)")
        kept.at_source("INSERT INTO orders (id, note, price) VALUES (8, REPEAT('x', 30), 1.25)")
        before = kept.sink_rows("SELECT id FROM orders") if case != "another name" else []
        with pytest.raises(TablesStoppedError) as found:
            stream(kept)
        text = str(found.value)
        assert f"{kept.target}.orders: " in text
        assert said in text
        assert at_sink(kept, "others") == [(1, 1), (2, 2)]
        if before:
            assert kept.sink_rows("SELECT id FROM orders") == before

    def test_a_table_that_still_takes_every_row_is_written(self, kept: Shop) -> None:
        for alteration in HARMLESS:
            change_at_sink(kept, alteration)
        kept.at_source("INSERT INTO orders (id, note, price) VALUES (8, REPEAT('x', 30), 1.25)")
        stream(kept)
        names = "id, note, code, price, size"
        ours = kept.source.execute(f"SELECT {names} FROM orders", database=kept.database)
        assert kept.sink_rows(f"SELECT {names} FROM orders") == ours

    def test_triggers_and_views_in_a_tables_place_are_found(self, kept: Shop) -> None:
        trigger = "CREATE TRIGGER t BEFORE INSERT ON orders FOR EACH ROW SET NEW.note = 'x'"
        kept.sink.execute(trigger, database=kept.target)
        for statement in (
            "RENAME TABLE others TO base",
            "CREATE VIEW others AS SELECT * FROM base",
        ):
            kept.sink.execute(statement, database=kept.target)
        kept.at_source("INSERT INTO orders (id) VALUES (8)")
        with pytest.raises(SinkTableChangedError, match=r"orders: .*trigger t.*others: .*a view"):
            stream(kept)


class TestAtMySql(Drifts):
    def test_rows_are_right_again_once_the_table_is_changed_back(self, kept: Shop) -> None:
        kept.at_source("INSERT INTO orders (id, price) VALUES (7, 7.77)")
        synced(kept)
        change_at_sink(kept, "MODIFY price DECIMAL(10,0)")
        kept.at_source("INSERT INTO orders (id, price) VALUES (8, 8.88)")
        for _ in range(2):
            with pytest.raises(TablesStoppedError):
                stream(kept)
        with pytest.raises(TablesStoppedError, match="price is decimal"):
            synced(kept)
        change_at_sink(kept, "MODIFY price DECIMAL(10,2)")
        run = synced(kept)
        assert at_sink(kept, "orders") == at_source(kept, "orders")
        (request,) = run.store.requests(run.name)  # it was found twice, and asked for once
        assert (request.kind, request.status) == (RequestKind.RESYNC, RequestStatus.DONE)

    def test_a_table_that_is_dropped_and_reset_is_read_again(self, kept: Shop) -> None:
        change_at_sink(kept, "MODIFY price DECIMAL(10,0)")
        kept.at_source("INSERT INTO orders (id, price) VALUES (8, 8.88)")
        with pytest.raises(TablesStoppedError):
            stream(kept)
        kept.sink.execute("DROP TABLE orders", database=kept.target)
        run = kept.run()
        reset_tables(run, [TableId(kept.database, "orders")])
        give_back(run)
        synced(kept)
        assert at_sink(kept, "orders") == at_source(kept, "orders")

    def test_a_running_stream_finds_a_change_and_leaves_the_table_alone(
        self, kept: Shop, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sink_drift, "LOOK_EVERY_S", 0.1)
        with continuous(kept) as (run, failures):
            kept.at_source("INSERT INTO orders (id, price) VALUES (8, 8.88)")
            wait_until(lambda: len(at_sink(kept, "orders")) == 4)
            change_at_sink(kept, "MODIFY price DECIMAL(10,0)")
            wait_until(lambda: any("price is decimal(10,0)" in each for each in errors(run)))
            kept.at_source("INSERT INTO others VALUES (2, 2)")
            wait_until(lambda: at_sink(kept, "others") == [(1, 1), (2, 2)])
        assert failures == []
        change_at_sink(kept, "MODIFY price DECIMAL(10,2)")
        synced(kept)
        assert at_sink(kept, "orders") == at_source(kept, "orders")

    def test_what_we_change_ourselves_is_no_alarm(
        self, kept: Shop, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sink_drift, "LOOK_EVERY_S", 0.01)
        looks = counted_looks(monkeypatch)
        with continuous(kept) as (run, failures):
            for statement in (
                "ALTER TABLE orders MODIFY note TEXT, MODIFY code BIGINT",
                "ALTER TABLE orders DROP COLUMN size",
                "ALTER TABLE orders MODIFY price DECIMAL(8,1)",
                "ALTER TABLE orders RENAME COLUMN code TO number, DROP INDEX code",
                "ALTER TABLE orders ADD COLUMN size VARCHAR(7) NOT NULL DEFAULT 's'",
            ):
                kept.at_source(statement)
                kept.at_source("INSERT INTO others SELECT MAX(id) + 1, 0 FROM others")
                wait_until(lambda: at_sink(kept, "others") == at_source(kept, "others"))
                looks.clear()
                wait_until(lambda: len(looks) > 3 or bool(failures))
            wait_until(lambda: not run.store.requests(run.name, only_open=True))
        assert failures == []
        assert {r.status for r in run.store.requests(run.name)} <= {
            RequestStatus.DONE,
            RequestStatus.CANCELLED,  # the table was changed once more
        }


class TestAtMariaDb(Drifts):
    @pytest.fixture
    def mysql_sink(self, mariadb_server: SqlServer) -> SqlServer:
        return mariadb_server


def errors(run: Run) -> list[str]:
    return [str(state.error) for state in run.store.tables(run.name)]


def change_at_sink(shop: Shop, alteration: str) -> None:
    shop.sink.execute(f"ALTER TABLE orders {alteration}", database=shop.target)


def stream(shop: Shop) -> None:
    """Stream to the end of the log, without the preflight that a run begins with."""
    run = shop.run()
    try:
        catch_up(run, SparkOptions(NO_SPARK, log_folder=shop.path.parent / "logs"))
    finally:
        give_back(run)


def counted_looks(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Note each look that was taken to its end."""
    looks: list[float] = []
    look: Callable[[sink_drift.TableLooks], None] = sink_drift.TableLooks.look

    def counted(self: sink_drift.TableLooks) -> None:
        look(self)
        looks.append(time.monotonic())

    monkeypatch.setattr(sink_drift.TableLooks, "look", counted)
    return looks
