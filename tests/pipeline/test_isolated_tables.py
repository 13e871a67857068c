"""One table stops, the others flow on; it comes back by the log, or is read again."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from airflow_cdc_provider.core.errors import (
    CdcError,
    RefusedError,
    SinkTableChangedError,
    TablesStoppedError,
)
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.lifecycle import TablePhase
from airflow_cdc_provider.core.requests import RequestKind, RequestStatus
from airflow_cdc_provider.engine.ledger.ledger import Ledger
from airflow_cdc_provider.engine.stream.isolated_tables import TableIsolation
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps.jobs import SparkOptions
from airflow_cdc_provider.pipeline.steps.pause_tables import pause_tables, resume_tables
from airflow_cdc_provider.pipeline.steps.sink import open_ledger
from airflow_cdc_provider.pipeline.steps.start_jobs import catch_up as stream_to_the_end
from airflow_cdc_provider.pipeline.steps.table_membership import reset_tables
from airflow_cdc_provider.views.reports import status_lines
from airflow_cdc_provider.views.status import status
from tests.pipeline.altered_tables import begin, catch_up, change, is_equal
from tests.pipeline.changed_sink_tables import continuous
from tests.pipeline.conftest import Shop
from tests.pipeline.isolated_tables import allow_sixes, phases, refuse_sixes
from tests.servers.given import SqlServer
from tests.servers.patience import wait_until


def _killed(*_: object) -> None:
    raise KeyboardInterrupt


class Stops:
    """What is so from any family of servers to any other."""

    def test_a_row_that_the_sink_refuses_stops_its_table_alone_and_the_log_brings_it_back(
        self, shop: Shop
    ) -> None:
        shop.at_source("ALTER TABLE orders DROP INDEX code")
        begin(shop, ["orders"])
        refuse_sixes(shop)
        change(shop, "orders", ["INSERT INTO orders (id, note) VALUES (5, 'five'), (6, 'six')"])
        change(shop, "others", ["INSERT INTO others VALUES (2)"])
        for number in (3, 4):
            with pytest.raises(TablesStoppedError, match=r"orders: CDC-SNK-003 .*partition"):
                catch_up(shop)
            assert is_equal(shop, "others")
            change(shop, "others", [f"INSERT INTO others VALUES ({number})"])
            change(shop, "orders", [f"UPDATE orders SET note = 'at {number}' WHERE id = 5"])
        assert shop.sink_rows("SELECT COUNT(*) FROM orders") == [(3,)]
        assert phases(shop) == {"orders": TablePhase.FAILED, "others": TablePhase.CONSISTENT}

        allow_sixes(shop)
        run = catch_up(shop)
        assert is_equal(shop, "orders")
        assert is_equal(shop, "others")
        assert run.store.requests(run.name) == ()
        assert set(phases(shop).values()) == {TablePhase.CONSISTENT}
        assert [text for text in told(run) if "flows again, brought back by the log" in text]

    def test_a_table_whose_rows_the_log_has_in_part_is_read_again_alone(self, shop: Shop) -> None:
        begin(shop, ["orders"])
        minimal = "SET SESSION binlog_row_image = MINIMAL"
        change(shop, "orders", [minimal, "UPDATE orders SET note = 'new' WHERE id = 1"])
        change(shop, "others", ["INSERT INTO others VALUES (2)"])
        with pytest.raises(TablesStoppedError, match="holds incomplete row images") as caught:
            catch_up(shop)
        assert f"`reset` it with --table {shop.database}.orders: only that" in caught.value.remedy
        assert is_equal(shop, "others")
        reset_tables(shop.run(), [TableId(shop.database, "orders")])
        catch_up(shop)
        assert is_equal(shop, "orders")

    def test_while_a_table_stops_a_run_reads_again_what_others_wait_for(self, shop: Shop) -> None:
        shop.at_source("ALTER TABLE orders DROP INDEX code")
        begin(shop, ["orders"])
        refuse_sixes(shop)
        change(shop, "orders", ["INSERT INTO orders (id, note) VALUES (6, 'six')"])
        change(shop, "others", ["ALTER TABLE others ADD COLUMN t TIMESTAMP(6) DEFAULT NOW(6)"])
        with pytest.raises(TablesStoppedError, match=r"orders: CDC-SNK-003 .*partition"):
            catch_up(shop)
        assert is_equal(shop, "others")
        assert phases(shop) == {"orders": TablePhase.FAILED, "others": TablePhase.CONSISTENT}

    def test_what_stops_a_table_keeps_its_class_and_its_table_whatever_the_sink_says(
        self, shop: Shop
    ) -> None:
        begin(shop, ["orders"])
        name = "no; what to do: a; where: b"
        shop.sink.execute(f"ALTER TABLE orders ADD UNIQUE `{name}` (note)", database=shop.target)
        change(shop, "orders", ["INSERT INTO orders (id, note) VALUES (6, 'six')"])
        change(shop, "others", ["INSERT INTO others VALUES (2)"])
        with pytest.raises(TablesStoppedError, match=r"orders: CDC-SNK-004 ") as caught:
            catch_up(shop)
        assert name in caught.value.what
        run = shop.run()
        with closing(open_ledger(run)) as ledger:
            (alone,) = ledger.stopped()
        (known,) = (each for each in run.store.tables(run.name) if each.error)
        for error in (alone.error.read(), known.error.read()):
            assert type(error) is SinkTableChangedError
            assert error.tables == (f"{shop.database}.orders",)
            assert name in error.what
            assert error.where.startswith("sink ")
        lines = status_lines(status(run.store, run.name, now_us=run.store.now_us()))
        assert [line for line in lines if line.endswith(f" - {alone.error}")]
        assert not [line for line in lines if '{"' in line]

        # as an earlier release stored it
        printed = f"UPDATE airflow_cdc.stopped_table SET error = %s WHERE pipeline = '{run.name}'"
        shop.sink.execute(printed, (str(alone.error),))
        with closing(open_ledger(run)) as ledger:
            (before,) = ledger.stopped()
        assert type(before.error.read()) is SinkTableChangedError
        assert (str(before.error), before.is_paused) == (str(alone.error), False)
        shop.sink.execute(f"ALTER TABLE orders DROP INDEX `{name}`", database=shop.target)
        catch_up(shop)
        assert is_equal(shop, "orders")

    def test_a_change_that_is_not_followed_stops_its_table_alone_and_resume_reads_it_again(
        self, shop: Shop
    ) -> None:
        with shop.path.open("a") as file:
            file.write("schema_changes: {add_column: stop}\n")
        begin(shop, ["orders"])
        change(shop, "orders", ["ALTER TABLE orders ADD COLUMN more INT DEFAULT 7"])
        change(shop, "orders", ["INSERT INTO orders (id, note) VALUES (5, 'five')"])
        change(shop, "others", ["INSERT INTO others VALUES (2)"])
        for _ in range(2):
            with pytest.raises(TablesStoppedError, match="add_column: stop"):
                catch_up(shop)
        assert is_equal(shop, "others")
        assert shop.sink_rows("SELECT COUNT(*) FROM orders") == [(3,)]

        asked = resume_tables(shop.run(), [TableId(shop.database, "orders")])
        change(shop, "orders", ["INSERT INTO orders (id, more) VALUES (6, 6)"])
        catch_up(shop)
        run = catch_up(shop)
        assert is_equal(shop, "orders")
        assert is_equal(shop, "others")
        done = run.store.request(run.name, asked.request_id)
        assert done is not None
        assert done.status is RequestStatus.DONE
        kinds = {request.kind for request in run.store.requests(run.name)}
        assert kinds == {RequestKind.RESUME, RequestKind.ADD}

    def test_a_table_that_a_person_pauses_stands_still_until_it_is_resumed(
        self, shop: Shop
    ) -> None:
        begin(shop, ["orders"])
        table = TableId(shop.database, "orders")
        pause_tables(shop.run(), [table])
        change(shop, "orders", ["UPDATE orders SET note = 'changed', code = id WHERE id > 1"])
        change(shop, "others", ["INSERT INTO others VALUES (2)"])
        catch_up(shop)
        catch_up(shop)
        assert is_equal(shop, "others")
        assert shop.sink_rows("SELECT COUNT(*) FROM orders WHERE note = 'changed'") == [(0,)]
        assert phases(shop)["orders"] is TablePhase.PAUSED

        change(
            shop,
            "orders",
            [
                "ALTER TABLE orders ADD COLUMN more INT DEFAULT 7",
                "DELETE FROM orders WHERE id = 1",
                "INSERT INTO orders (id, more) VALUES (6, 6)",
            ],
        )
        resume_tables(shop.run(), [table])
        run = catch_up(shop)
        assert is_equal(shop, "orders")
        assert not [each for each in run.store.requests(run.name) if each.kind is RequestKind.ADD]

    @pytest.mark.parametrize("apply", ["transactions", "merged, writers: 3"])
    def test_while_one_table_stands_and_comes_back_the_others_flow_on(
        self, shop: Shop, apply: str
    ) -> None:
        with shop.path.open("a") as file:
            file.write(f"stream: {{apply: {apply}}}\n")
        shop.at_source("ALTER TABLE orders DROP INDEX code")
        begin(shop, ["orders"])
        table = TableId(shop.database, "orders")
        with continuous(shop) as (run, failures), writing(shop):
            for _ in range(2):
                refuse_sixes(shop)
                change(shop, "orders", ["REPLACE INTO orders (id) VALUES (6)"])
                wait_until(lambda: phases(shop)["orders"] is TablePhase.FAILED)
                stood = shop.sink_rows("SELECT * FROM orders")
                flows_on(shop)
                assert shop.sink_rows("SELECT * FROM orders") == stood
                allow_sixes(shop)
                resume_tables(run, [table])
                wait_until(lambda: phases(shop)["orders"] is TablePhase.CONSISTENT)
                change(shop, "orders", ["DELETE FROM orders WHERE id = 6"])
                wait_until(lambda: not shop.sink_rows("SELECT 1 FROM orders WHERE id = 6"))
            pause_tables(run, [table])
            wait_until(lambda: phases(shop)["orders"] is TablePhase.PAUSED)
            change(shop, "orders", ["ALTER TABLE orders ADD COLUMN more INT DEFAULT 7"])
            flows_on(shop)
            resume_tables(run, [table])
            wait_until(lambda: phases(shop)["orders"] is TablePhase.CONSISTENT)
            flows_on(shop)
        assert failures == []
        run = catch_up(shop)
        assert is_equal(shop, "orders")
        assert is_equal(shop, "others")
        assert not [each for each in run.store.requests(run.name) if each.kind.reads_rows]


class TestMySql(Stops):
    def test_a_change_that_the_sink_refuses_stops_its_table_alone_in_each_run(
        self, shop: Shop, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        begin(shop, ["orders"])
        shop.sink.execute(
            "ALTER TABLE orders ADD CONSTRAINT own CHECK (note <> '')", database=shop.target
        )
        change(shop, "orders", ["ALTER TABLE orders RENAME COLUMN note TO remark"])
        for number in range(3, 8):
            change(shop, "others", [f"INSERT INTO others VALUES ({number})"])
            with monkeypatch.context() as killed:
                if number in {3, 6}:  # the change was begun, and is in the ledger
                    killed.setattr(TableIsolation, "stop", _killed)
                    killed.setattr(Ledger, "stop_tables", _killed)
                    with pytest.raises(KeyboardInterrupt):
                        catch_up(shop)
            with pytest.raises(TablesStoppedError, match=r"orders: CDC-INT-001 .*cannot be chang"):
                catch_up(shop)
            assert is_equal(shop, "others")
        shop.sink.execute("ALTER TABLE orders DROP CONSTRAINT own", database=shop.target)
        catch_up(shop)
        assert is_equal(shop, "orders")

    def test_a_stream_in_spark_leaves_a_table_alone_too(self, shop: Shop) -> None:
        shop.at_source("ALTER TABLE orders DROP INDEX code")
        begin(shop, ["orders"])
        refuse_sixes(shop)
        change(shop, "orders", ["INSERT INTO orders (id) VALUES (6)"])
        change(shop, "others", ["INSERT INTO others VALUES (2)"])
        options = SparkOptions("local[2]", log_folder=shop.path.parent / "logs", always=True)
        with pytest.raises(TablesStoppedError, match="orders: CDC-SNK-003"):
            stream_to_the_end(shop.run(), options)
        assert is_equal(shop, "others")
        allow_sixes(shop)
        stream_to_the_end(shop.run(), options)
        assert is_equal(shop, "orders")

    @pytest.mark.parametrize(
        "changed",
        [
            "ALTER TABLE orders DROP PRIMARY KEY",
            "ALTER TABLE orders ENGINE = MyISAM",
            "ALTER TABLE orders DROP PRIMARY KEY, ADD PRIMARY KEY (id, flag)",
        ],
    )
    @pytest.mark.parametrize("is_paused", [False, True])
    def test_a_source_table_that_cannot_be_copied_any_more_stops_alone(
        self, shop: Shop, changed: str, *, is_paused: bool
    ) -> None:
        shop.at_source("ALTER TABLE orders DROP INDEX code")
        begin(shop, ["orders"])
        if is_paused:
            pause_tables(shop.run(), [TableId(shop.database, "orders")])
            catch_up(shop)
        change(shop, "orders", [changed])
        change(shop, "others", ["INSERT INTO others VALUES (2)"])
        if is_paused:
            catch_up(shop)
        else:
            with pytest.raises(TablesStoppedError, match="orders"):
                catch_up(shop)
        assert is_equal(shop, "others")

    def test_a_trigger_at_the_sink_stops_its_table_alone(self, shop: Shop) -> None:
        begin(shop, ["orders"])
        shop.sink.execute(
            "CREATE TRIGGER own BEFORE INSERT ON orders FOR EACH ROW SET NEW.note = 'x'",
            database=shop.target,
        )
        change(shop, "orders", ["INSERT INTO orders (id, note) VALUES (6, 'six')"])
        change(shop, "others", ["INSERT INTO others VALUES (2)"])
        for _ in range(2):
            with pytest.raises(TablesStoppedError, match="trigger own"):
                catch_up(shop)
        assert is_equal(shop, "others")
        shop.sink.execute("DROP TRIGGER own", database=shop.target)
        catch_up(shop)
        assert is_equal(shop, "orders")

    def test_a_column_that_was_narrower_for_a_while_has_all_its_values_again(
        self, shop: Shop
    ) -> None:
        """The first that anybody hears of it is a row that does not fit."""
        begin(shop, ["orders"])
        with closing(shop.sink.connect(database=shop.target)) as sink:
            cursor = sink.cursor()
            with continuous(shop) as (run, failures):
                change(shop, "others", ["INSERT INTO others VALUES (2)"])
                flows_on(shop)  # so that the sink is open, and was looked at
                cursor.execute("SET SESSION sql_mode = ''")
                cursor.execute("ALTER TABLE orders MODIFY note VARCHAR(2)")
                change(shop, "orders", ["INSERT INTO orders (id, note) VALUES (6, 'six')"])
                wait_until(lambda: phases(shop)["orders"] is TablePhase.FAILED)
                cursor.execute("ALTER TABLE orders MODIFY note VARCHAR(40)")
                resume_tables(run, [TableId(shop.database, "orders")])
                wait_until(lambda: is_equal(shop, "orders"))
        assert failures == []

    def test_a_column_that_was_narrower_while_its_table_stood_has_all_its_values_again(
        self, shop: Shop
    ) -> None:
        begin(shop, ["orders"])
        table = TableId(shop.database, "orders")
        pause_tables(shop.run(), [table])
        catch_up(shop)
        with closing(shop.sink.connect(database=shop.target)) as sink:
            sink.cursor().execute("SET SESSION sql_mode = ''")
            sink.cursor().execute("ALTER TABLE orders MODIFY note VARCHAR(2)")
        resume_tables(shop.run(), [table])
        with pytest.raises(TablesStoppedError, match="note is varchar"):
            catch_up(shop)
        shop.sink.execute("ALTER TABLE orders MODIFY note VARCHAR(40)", database=shop.target)
        catch_up(shop)
        assert is_equal(shop, "orders")

    def test_a_file_may_have_the_stream_end_for_all(self, shop: Shop) -> None:
        with shop.path.open("a") as file:
            file.write("stream: {table_errors: stop}\n")
        shop.at_source("ALTER TABLE orders DROP INDEX code")
        begin(shop, ["orders"])
        refuse_sixes(shop)
        change(shop, "orders", ["INSERT INTO orders (id) VALUES (6)"])
        change(shop, "others", ["INSERT INTO others VALUES (2)"])
        with pytest.raises(CdcError, match="CDC-SNK-003"):
            catch_up(shop)
        assert shop.sink_rows("SELECT COUNT(*) FROM others") == [(1,)]

    def test_where_the_log_is_purged_only_a_person_has_the_table_read_again(
        self, shop: Shop
    ) -> None:
        shop.at_source("ALTER TABLE orders DROP INDEX code")
        begin(shop, ["orders"])
        refuse_sixes(shop)
        change(shop, "orders", ["INSERT INTO orders (id) VALUES (6), (7)", "FLUSH BINARY LOGS"])
        change(shop, "others", ["INSERT INTO others VALUES (2)"])
        with pytest.raises(TablesStoppedError):
            catch_up(shop)
        purge_log(shop.source)
        allow_sixes(shop)
        with pytest.raises(TablesStoppedError, match="CDC-LOG-002"):
            catch_up(shop)
        assert shop.sink_rows("SELECT COUNT(*) FROM orders") == [(3,)]
        resume_tables(shop.run(), [TableId(shop.database, "orders")])
        catch_up(shop)
        catch_up(shop)
        assert is_equal(shop, "orders")

    def test_a_value_that_nobody_may_store_stops_its_table_alone(self, shop: Shop) -> None:
        shop.at_source("ALTER TABLE orders ADD COLUMN day DATE")
        begin(shop, ["orders"])
        change(
            shop,
            "orders",
            ["SET SESSION sql_mode = ''", "UPDATE orders SET day = '2026-00-00' WHERE id = 2"],
        )
        change(shop, "others", ["INSERT INTO others VALUES (2)"])
        with pytest.raises(TablesStoppedError, match="CDC-INT-004"):
            catch_up(shop)
        assert is_equal(shop, "others")
        change(shop, "orders", ["UPDATE orders SET day = '2026-01-02' WHERE id = 2"])
        with pytest.raises(TablesStoppedError, match="CDC-INT-004"):
            catch_up(shop)
        resume_tables(shop.run(), [TableId(shop.database, "orders")])
        catch_up(shop)
        catch_up(shop)
        assert is_equal(shop, "orders")

    def test_a_target_that_is_gone_stops_its_table_alone_and_reset_brings_it_back(
        self, shop: Shop
    ) -> None:
        begin(shop, ["orders"])
        shop.sink.execute("DROP TABLE orders", database=shop.target)
        change(shop, "orders", ["INSERT INTO orders (id) VALUES (6)"])
        change(shop, "others", ["INSERT INTO others VALUES (2)"])
        with pytest.raises(TablesStoppedError, match="orders"):
            catch_up(shop)
        assert is_equal(shop, "others")
        reset_tables(shop.run(), [TableId(shop.database, "orders")])
        catch_up(shop)
        catch_up(shop)
        assert is_equal(shop, "orders")
        assert set(phases(shop).values()) == {TablePhase.CONSISTENT}

    def test_what_is_cut_off_while_a_table_comes_back_is_ended_by_the_next_run(
        self, shop: Shop, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        shop.at_source("ALTER TABLE orders DROP INDEX code")
        begin(shop, ["orders"])
        refuse_sixes(shop)
        change(shop, "orders", ["INSERT INTO orders (id) VALUES (6)"])
        with pytest.raises(TablesStoppedError):
            catch_up(shop)
        allow_sixes(shop)

        def cut_off(*_: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(Ledger, "rejoin", cut_off)
            with pytest.raises(KeyboardInterrupt):
                catch_up(shop)
        assert stopped(shop.run()) == ["orders"]
        assert is_equal(shop, "orders")
        change(shop, "orders", ["UPDATE orders SET note = 'later' WHERE id = 6"])
        catch_up(shop)
        assert stopped(shop.run()) == []
        assert is_equal(shop, "orders")

    def test_the_last_table_is_not_paused_and_one_that_flows_not_resumed(self, shop: Shop) -> None:
        begin(shop, ["orders"])
        tables = [TableId(shop.database, name) for name in ("orders", "others")]
        with pytest.raises(RefusedError, match="no table would be left"):
            pause_tables(shop.run(), tables)
        with pytest.raises(RefusedError, match="not stopped"):
            resume_tables(shop.run(), tables)


class TestFromMariaDb(Stops):
    @pytest.fixture
    def mysql_server(self, mariadb_server: SqlServer) -> SqlServer:
        return mariadb_server

    def test_a_table_that_keeps_its_history_stops_alone_and_comes_back_without_it(
        self, shop: Shop
    ) -> None:
        begin(shop, ["orders"])
        change(shop, "orders", ["ALTER TABLE orders ADD SYSTEM VERSIONING"])
        change(shop, "others", ["INSERT INTO others VALUES (2)"])
        for _ in range(2):
            with pytest.raises(TablesStoppedError, match="ADD SYSTEM VERSIONING"):
                catch_up(shop)
        assert is_equal(shop, "others")
        with pytest.raises(RefusedError, match="not at the source as a table that can be copied"):
            reset_tables(shop.run(), [TableId(shop.database, "orders")])
        change(shop, "orders", ["ALTER TABLE orders DROP SYSTEM VERSIONING"])
        reset_tables(shop.run(), [TableId(shop.database, "orders")])
        catch_up(shop)
        assert is_equal(shop, "orders")


class TestToMariaDb(Stops):
    @pytest.fixture
    def mysql_sink(self, mariadb_server: SqlServer) -> SqlServer:
        return mariadb_server


@contextmanager
def writing(shop: Shop) -> Iterator[None]:
    """Change both tables all the while, in transactions of both."""
    seed, stop = random.randrange(1 << 32), threading.Event()
    print(f"writer's seed: {seed}")
    rng = random.Random(seed)

    def write() -> None:
        with closing(shop.source.connect(database=shop.database)) as connection:
            cursor = connection.cursor()
            for number in itertools.count(100):
                key = rng.choice([1, 2, 3, 4, 5, 7, 8])
                cursor.execute(f"DELETE FROM orders WHERE id = {rng.choice([1, 2, 3, 4])}")
                cursor.execute(f"REPLACE INTO orders (id, code) VALUES ({key}, {number})")
                cursor.execute(f"INSERT INTO others VALUES ({number})")
                connection.commit()
                if stop.wait(0.01):
                    return

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def flows_on(shop: Shop) -> None:
    """Wait until the sink has what the other table has now."""
    (last,) = shop.source.execute("SELECT MAX(id) FROM others", database=shop.database)[0]
    wait_until(lambda: shop.sink_rows(f"SELECT 1 FROM others WHERE id = {last}") == [(1,)])


def purge_log(server: SqlServer) -> None:
    with closing(server.connect()) as connection:
        cursor = connection.cursor()
        cursor.execute("SHOW BINARY LOGS")
        last = cursor.fetchall()[-1][0]
        cursor.execute(f"PURGE BINARY LOGS TO '{last}'")


def told(run: Run) -> list[str]:
    return [event.text for event in run.store.events(run.name)]


def stopped(run: Run) -> list[str]:
    with closing(open_ledger(run)) as ledger:
        return [each.table.table for each in ledger.stopped()]
