"""Two databases that follow each other, by dumps: no loops, no lost and no doubled changes."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

import pytest

from airflow_cdc_provider.core.errors import (
    CdcError,
    IntegrityError,
    PreflightError,
    RefusedError,
    StepMissingError,
    TablesStoppedError,
)
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.requests import Request, RequestKind, RequestStatus, Scope
from airflow_cdc_provider.engine.ledger.ledger import Ledger
from airflow_cdc_provider.pipeline.steps import converging
from airflow_cdc_provider.pipeline.steps.finishing import finish_tables
from airflow_cdc_provider.pipeline.steps.pause_tables import resume_tables
from airflow_cdc_provider.pipeline.steps.planning import plan
from airflow_cdc_provider.pipeline.steps.range_requests import ask_resync, resync_scope
from airflow_cdc_provider.pipeline.steps.reset_drop import drop, reset
from airflow_cdc_provider.pipeline.steps.seeding import seed
from tests.pipeline.pairs import MakePair, Pair, edge_between
from tests.servers.given import SqlServer

ORDERS = """CREATE TABLE orders (
  id INT PRIMARY KEY, note VARCHAR(40), amount DECIMAL(12,2), code INT, UNIQUE KEY (code))"""
ROWS = 300


class Pairs:
    @pytest.fixture
    def pair(
        self,
        mysql_server: SqlServer,
        mysql_sink: SqlServer,
        make_pair: MakePair,
    ) -> Pair:
        made = make_pair(mysql_server, mysql_sink)
        made.one.execute(ORDERS)
        made.one.execute("CREATE TABLE people (id INT PRIMARY KEY, name VARCHAR(20), doc JSON)")
        rows = ", ".join(f"({n}, 'first', {n}.5, {n})" for n in range(1, ROWS + 1))
        made.one.execute(f"INSERT INTO orders VALUES {rows}")
        made.one.execute("""INSERT INTO people VALUES (1, 'ann', '{"a": 1}'), (2, 'bo', NULL)""")
        return made

    def test_each_node_gets_what_was_written_at_the_other_and_nothing_goes_round(
        self, pair: Pair
    ) -> None:
        pair.begin()
        assert pair.is_equal
        pair.one.execute("UPDATE orders SET note = 'by one' WHERE id <= 100")
        pair.two.execute("UPDATE orders SET note = 'by two' WHERE id > 200")
        pair.two.execute("INSERT INTO orders VALUES (1001, 'two', 1, 1001), (1002, 'two', 2, NULL)")
        pair.one.execute("DELETE FROM orders WHERE id BETWEEN 50 AND 60")
        pair.two.execute("UPDATE orders SET id = 2000, code = 61000 WHERE id = 150")
        pair.two.execute("""UPDATE people SET name = 'cy', doc = '{"b": 2}' WHERE id = 2""")
        pair.catch_up()
        assert pair.is_equal
        notes = set(pair.one.execute("SELECT note, COUNT(*) FROM orders GROUP BY note"))
        assert notes == {("by one", 89), ("first", 100), ("by two", 100), ("two", 2)}

    def test_triggers_that_ask_who_writes_leave_what_the_edges_bring_alone(
        self, pair: Pair
    ) -> None:
        pair.one.execute("CREATE TABLE log (id BIGINT UNSIGNED PRIMARY KEY, at_node VARCHAR(4))")
        pair.begin()
        for node in (pair.one, pair.two):
            node.execute(
                "CREATE TRIGGER told BEFORE UPDATE ON people FOR EACH ROW "
                "IF @AIRFLOW_CDC IS NULL THEN "
                "SET NEW.name = CONCAT(NEW.name, '!'); "
                f"INSERT INTO log VALUES (UUID_SHORT(), '{node.name}'); END IF"
            )
        pair.one.execute("UPDATE people SET name = 'one' WHERE id = 1")
        pair.two.execute("UPDATE people SET name = 'two' WHERE id = 2")
        pair.catch_up()
        assert pair.is_equal
        assert pair.one.execute("SELECT name FROM people ORDER BY id") == [("one!",), ("two!",)]
        assert set(pair.two.execute("SELECT at_node FROM log")) == {("one",), ("two",)}
        assert pair.one.execute("SELECT COUNT(*) FROM log") == [(2,)]

    def test_writes_at_both_ends_in_any_order_come_to_both(self, pair: Pair) -> None:
        seed_of_test = random.randrange(1 << 30)
        print(f"seed {seed_of_test}")
        choose = random.Random(seed_of_test)
        pair.begin()
        for round_ in range(12):
            for node, first in ((pair.one, 10_000), (pair.two, 20_000)):
                for _ in range(choose.randrange(4)):
                    key = first + choose.randrange(20)
                    node.execute(
                        choose.choice(
                            (
                                f"REPLACE INTO orders VALUES ({key}, 'r{round_}', {round_}, {key})",
                                f"DELETE FROM orders WHERE id = {key}",
                                f"UPDATE orders SET amount = amount + 1 WHERE id = {key}",
                            )
                        )
                    )
            choose.choice((pair.there, pair.back)).catch_up()
        pair.catch_up()
        assert pair.is_equal

    def test_the_way_back_creates_and_alters_nothing(self, pair: Pair) -> None:
        before = pair.one.execute("SHOW CREATE TABLE orders")
        pair.begin()
        assert pair.one.execute("SHOW CREATE TABLE orders") == before
        assert pair.back.seed_from(pair.there).endswith("was needed")

    def test_a_change_at_the_other_node_while_it_is_copied_is_refused_with_its_place(
        self, pair: Pair
    ) -> None:
        pair.there.catch_up()
        pair.two.execute("UPDATE orders SET note = 'too early' WHERE id = 7")
        with pytest.raises(IntegrityError, match="others wrote there") as refused:
            pair.back.seed_from(pair.there)
        assert f"while {pair.two.database}.orders came to node two" in refused.value.what
        assert pair.one.execute("SELECT note FROM orders WHERE id = 7") == [("first",)]

    def test_a_way_back_without_a_seed_reads_nothing_over_the_other_nodes_rows(
        self, pair: Pair
    ) -> None:
        pair.there.catch_up()
        with pytest.raises(PreflightError, match="with --seeded-from its file"):
            pair.back.catch_up()
        assert pair.one.execute("SELECT COUNT(*) FROM orders") == [(ROWS,)]

    def test_a_seed_waits_until_the_copy_has_its_unique_keys(
        self, pair: Pair, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(converging, "finish_tables", lambda _: ())
            pair.there.catch_up()
        waited: list[str] = []

        def finish_at_first(text: str) -> None:
            waited.append(text)
            with pair.there.opened() as run:
                finish_tables(run)

        with pair.back.opened() as run, pair.there.opened() as there:
            seed(run, there, on_wait=finish_at_first)
        assert len(waited) == 1
        assert "orders has no unique key code yet" in waited[0]

    def test_a_seed_that_was_killed_in_its_middle_is_begun_again_and_nothing_is_read(
        self, pair: Pair, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pair.there.catch_up()

        def killed(*_: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(Ledger, "store_stream", killed)
            with pytest.raises(KeyboardInterrupt):
                pair.back.seed_from(pair.there)
        with pytest.raises(CdcError, match="--seeded-from"):
            pair.back.catch_up()
        pair.one.execute("UPDATE orders SET note = 'kept' WHERE id = 1")
        pair.begin()
        assert pair.one.execute("SELECT note FROM orders WHERE id = 1") == [("kept",)]
        assert pair.is_equal

    def test_a_seed_needs_the_opposite_edge_and_what_it_noted(
        self, pair: Pair, tmp_path: Path
    ) -> None:
        pair.there.catch_up()
        for state in tmp_path.glob("one_to_two.state.db*"):
            state.rename(tmp_path / f"kept_{state.name}")
        with pair.there.opened() as run:
            plan(run)  # taken from the ledger
        with pytest.raises(StepMissingError, match="not known where the log"):
            pair.back.seed_from(pair.there)
        other = edge_between(pair.one, pair.two, tmp_path, "another")
        with pytest.raises(RefusedError, match="not the opposite edge"):
            pair.back.seed_from(other)

    def test_what_would_overwrite_the_other_nodes_changes_is_refused(self, pair: Pair) -> None:
        pair.begin()
        with pair.there.opened() as run:
            with pytest.raises(RefusedError, match="reads no rows again"):
                resync_scope(run, [f"{pair.one.database}.orders"])
            scope = Scope((TableId(pair.one.database, "orders"),))
            with pytest.raises(RefusedError, match="reads no rows again"):
                ask_resync(run, scope)
            for kind in (RequestKind.RESET, RequestKind.RESYNC):
                run.store.ask(Request(run.name, kind.value, kind, scope, "the page", 1))
        pair.catch_up()
        with pair.there.opened() as run:
            for kind in (RequestKind.RESET, RequestKind.RESYNC):
                failed = run.store.request(run.name, kind.value)
                assert failed is not None
                assert failed.status is RequestStatus.FAILED
            with pytest.raises(RefusedError, match="into empty tables only"):
                reset(run)
        pair.two.execute("UPDATE people SET name = 'kept' WHERE id = 1")
        pair.catch_up()
        assert pair.is_equal

    def test_a_node_that_lost_its_rows_is_copied_anew_from_the_other(self, pair: Pair) -> None:
        pair.begin()
        pair.two.execute("UPDATE orders SET note = 'by two' WHERE id = 9")
        pair.catch_up()
        for edge in (pair.there, pair.back):
            with edge.opened() as run:
                drop(run)
        for table in ("orders", "people"):
            pair.two.execute(f"TRUNCATE TABLE {table}")
        pair.one.execute("DELETE FROM orders WHERE id = 10")
        pair.begin()
        pair.two.execute("UPDATE orders SET note = 'by two again' WHERE id = 11")
        pair.catch_up()
        assert pair.is_equal
        assert pair.one.execute("SELECT COUNT(*) FROM orders") == [(ROWS - 1,)]

    def test_a_column_comes_once_both_nodes_have_it(self, pair: Pair) -> None:
        pair.begin()
        added = "ALTER TABLE orders ADD COLUMN more INT NOT NULL DEFAULT 7"
        pair.one.execute(added)
        pair.one.execute("UPDATE orders SET more = 8 WHERE id = 1")
        with pytest.raises(TablesStoppedError, match="has other columns") as stopped:
            pair.there.catch_up()
        assert "make the same change at the other node, then `resume`" in str(stopped.value)
        pair.two.execute(added)
        pair.two.execute("UPDATE orders SET more = 9 WHERE id = 2")
        pair.back.catch_up()
        assert pair.one.execute("SELECT id, more FROM orders WHERE more <> 7") == [(1, 8), (2, 9)]
        with pair.there.opened() as run:
            resume_tables(run, [TableId(pair.one.database, "orders")])
        pair.catch_up()
        assert pair.is_equal

    @pytest.mark.parametrize(
        "change",
        [
            "CHANGE note other VARCHAR(40)",
            "DROP COLUMN amount",
            "ADD COLUMN more VARCHAR(9) NOT NULL",
            "MODIFY note VARCHAR(60), ADD UNIQUE KEY (note, id)",
        ],
    )
    def test_a_table_comes_back_by_resume_once_both_nodes_have_changed_it(
        self, pair: Pair, change: str
    ) -> None:
        pair.begin()
        pair.two.execute("UPDATE orders SET code = 80001 WHERE id = 1")
        pair.catch_up()
        pair.two.execute(f"ALTER TABLE orders {change}")
        pair.two.execute("UPDATE orders SET code = 80002 WHERE id = 2")
        with pytest.raises(TablesStoppedError):
            pair.back.catch_up()
        pair.one.execute(f"ALTER TABLE orders {change}")
        pair.one.execute("UPDATE orders SET code = 80003 WHERE id = 3")
        with pair.back.opened() as run:
            resume_tables(run, [TableId(pair.two.database, "orders")])
        with suppress(TablesStoppedError):  # where its table is not as planned any more
            pair.there.catch_up()
        with pair.there.opened() as run, suppress(RefusedError):  # it may not be stopped
            resume_tables(run, [TableId(pair.one.database, "orders")])
        pair.catch_up()
        assert pair.is_equal
        assert pair.one.execute("SELECT code FROM orders WHERE id IN (2, 3)") == [
            (80002,),
            (80003,),
        ]

    def test_a_column_with_a_default_that_each_node_computes_is_not_passed(
        self, pair: Pair
    ) -> None:
        pair.begin()
        added = "ALTER TABLE orders ADD COLUMN at DATETIME(6) DEFAULT CURRENT_TIMESTAMP(6)"
        pair.one.execute(added)
        pair.two.execute(added)
        with pytest.raises(TablesStoppedError, match="at"):
            pair.there.catch_up()

    def test_rows_on_their_way_come_to_a_table_that_is_ahead_of_them(self, pair: Pair) -> None:
        pair.begin()
        pair.two.execute("UPDATE orders SET note = 'first change' WHERE id = 9")
        pair.catch_up()
        wider = "ALTER TABLE orders MODIFY id BIGINT NOT NULL, ADD UNIQUE KEY (note, id)"
        pair.two.execute("UPDATE orders SET note = 'before' WHERE id = 1")
        pair.two.execute(wider)
        pair.two.execute("UPDATE orders SET note = 'behind' WHERE id = 2")
        with pytest.raises(TablesStoppedError, match="other unique keys"):
            pair.back.catch_up()
        pair.two.execute("UPDATE orders SET note = 'later' WHERE id = 3")
        pair.one.execute("UPDATE orders SET note = 'on its way' WHERE id = 4")
        pair.one.execute(wider)
        with pair.back.opened() as run:
            resume_tables(run, [TableId(pair.two.database, "orders")])
        pair.catch_up()
        assert pair.is_equal
        rows = pair.one.execute("SELECT note FROM orders WHERE id <= 4 ORDER BY id")
        assert rows == [("before",), ("behind",), ("later",), ("on its way",)]

    @pytest.mark.parametrize(
        ("change", "why"),
        [
            ("RENAME COLUMN note TO other, RENAME COLUMN other TO note", "traded their names"),
            ("DROP COLUMN note, ADD COLUMN note VARCHAR(40)", "note"),
            ("MODIFY COLUMN amount INT", "amount"),
            ("MODIFY COLUMN note VARCHAR(40) NOT NULL", "note"),
        ],
    )
    def test_a_change_that_changes_values_is_not_passed_whatever_the_other_node_has(
        self, pair: Pair, change: str, why: str
    ) -> None:
        pair.one.execute("ALTER TABLE orders ADD COLUMN other VARCHAR(40) DEFAULT 'o'")
        pair.begin()
        pair.one.execute(f"ALTER TABLE orders {change}")
        pair.one.execute("UPDATE orders SET code = 70001 WHERE id = 1")
        with pytest.raises(TablesStoppedError, match=why) as stopped:
            pair.there.catch_up()
        assert "copied anew" in str(stopped.value)
        assert pair.two.execute("SELECT code, note FROM orders WHERE id = 1") == [(1, "first")]

    def test_a_marker_table_that_is_dropped_or_written_to_by_a_person_loses_nothing(
        self, pair: Pair
    ) -> None:
        pair.begin()
        with pair.there.opened() as run:
            edge = run.model.edge
        assert edge is not None
        values = "VALUES ('nobody', 'knows', 'these', 5)"
        pair.two.execute(f"INSERT INTO {edge.marker} {values}")
        pair.one.execute(f"DROP TABLE {edge.marker}")
        pair.two.execute("UPDATE orders SET note = 'by two' WHERE id = 3")
        pair.one.execute("UPDATE orders SET note = 'by one' WHERE id = 4")
        pair.catch_up()
        assert pair.is_equal
        assert pair.one.execute("SELECT note FROM orders WHERE id = 3") == [("by two",)]

    def test_a_table_that_is_truncated_stops_and_takes_no_rows_from_the_other_node(
        self, pair: Pair
    ) -> None:
        pair.begin()
        pair.one.execute("TRUNCATE TABLE people")
        with pytest.raises(TablesStoppedError, match="not truncated with it"):
            pair.there.catch_up()
        pair.back.catch_up()
        assert pair.two.execute("SELECT COUNT(*) FROM people") == [(2,)]


def test_a_way_back_that_is_run_before_the_copy_says_which_edge_is_first(
    mysql_server: SqlServer, mariadb_server: SqlServer, make_pair: MakePair
) -> None:
    pair = make_pair(mysql_server, mariadb_server)
    pair.one.execute(ORDERS)
    with pytest.raises(CdcError, match="from one, `run` the edge from there first") as refused:
        pair.back.catch_up()
    assert "no table fits" in str(refused.value)


class TestMySql(Pairs):
    pass


class TestFromMariaDb(Pairs):
    @pytest.fixture
    def mysql_server(self, mariadb_server: SqlServer) -> SqlServer:
        return mariadb_server


class TestToMariaDb(Pairs):
    @pytest.fixture
    def mysql_sink(self, mariadb_server: SqlServer) -> SqlServer:
        return mariadb_server
