"""Row changes logged as text: harmless ones are passed, and the way past the rest is recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from airflow_cdc_provider.core.errors import (
    RefusedError,
    RowsNotLoggedError,
    TablesStoppedError,
)
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.records import NoteKind
from airflow_cdc_provider.pipeline.steps.overrides import skip_place
from airflow_cdc_provider.pipeline.steps.pause_tables import resume_tables
from tests.pipeline.altered_tables import begin, catch_up, change, is_equal
from tests.pipeline.conftest import FILE, Shop
from tests.pipeline.statements_as_text import as_text
from tests.servers.given import SqlServer


def mixed(shop: Shop, *statements: str) -> None:
    """Run a transaction that logs as rows what would not be the same elsewhere, else as text."""
    with closing(shop.source.connect(shop.database)) as connection, connection.cursor() as cursor:
        for statement in ("SET SESSION binlog_format = 'MIXED'", "BEGIN", *statements, "COMMIT"):
            cursor.execute(statement)


class Texts:
    """What is so from any family of servers to any other."""

    @pytest.fixture
    def tools(self, shop: Shop, fresh_database: Callable[[SqlServer], str]) -> str:
        """Name a database that nobody copies, with a table of checksums."""
        name = fresh_database(shop.source)
        shop.source.execute("CREATE TABLE checksums (id INT PRIMARY KEY, n INT)", database=name)
        return name

    def test_a_checksum_of_a_table_that_nobody_copies_stops_nothing(
        self, shop: Shop, tools: str
    ) -> None:
        begin(shop, ["orders"])
        for number in (5, 6):
            change(shop, "orders", [f"INSERT INTO orders (id, note) VALUES ({number}, 'x')"])
            as_text(
                shop, f"REPLACE INTO {tools}.checksums SELECT 1, COUNT(*) FROM orders WHERE id > 1"
            )
            catch_up(shop)
            assert is_equal(shop, "orders")

    def test_a_table_that_a_statement_changed_stops_alone_and_is_read_again(
        self, shop: Shop
    ) -> None:
        begin(shop, ["orders"])
        mixed(
            shop,
            "INSERT INTO others VALUES (UUID_SHORT() MOD 7 + 50)",
            "INSERT INTO orders (id, note) VALUES (5, 'five')",
            "INSERT INTO others VALUES (UUID_SHORT() MOD 7 + 60)",
        )
        change(shop, "others", ["INSERT INTO others VALUES (2)"])
        for _ in range(2):
            with pytest.raises(TablesStoppedError, match=r"CDC-INT-010 .*INSERT as a statement"):
                catch_up(shop)
        assert is_equal(shop, "others")
        assert shop.sink_rows("SELECT COUNT(*) FROM orders") == [(3,)]
        resume_tables(shop.run(), [TableId(shop.database, "orders")])
        change(shop, "orders", ["UPDATE orders SET note = 'after' WHERE id = 5"])
        catch_up(shop)
        catch_up(shop)
        assert is_equal(shop, "orders")

    def test_what_may_have_reached_all_tables_is_passed_by_a_recorded_skip_that_reads_them_again(
        self, shop: Shop, tools: str
    ) -> None:
        begin(shop, ["orders"])
        shop.source.execute(
            f"CREATE TRIGGER {tools}.r AFTER INSERT ON {tools}.checksums FOR EACH ROW "
            f"INSERT INTO {shop.database}.others VALUES (NEW.id)"
        )
        catch_up(shop)
        as_text(shop, f"INSERT INTO {tools}.checksums VALUES (70, 1)")
        change(shop, "orders", ["INSERT INTO orders (id) VALUES (5)"])
        with pytest.raises(RowsNotLoggedError, match="which may change any table"):
            catch_up(shop)
        with pytest.raises(RowsNotLoggedError, match="which may change any table") as refused:
            catch_up(shop)
        place = refused.value.remedy.partition("--at ")[2].partition(" ")[0]
        with pytest.raises(RefusedError, match="is not the place"):
            skip_place(shop.run(), "binlog.000001:4", reason="tried")
        with pytest.raises(RefusedError, match="no reason"):
            skip_place(shop.run(), place, reason=" ")
        skipped = skip_place(shop.run(), place, reason="only a checksum", by="a person")
        names = {str(table) for table in skipped.tables}
        assert names == {f"{shop.database}.orders", f"{shop.database}.others"}
        run = catch_up(shop)
        catch_up(shop)
        assert is_equal(shop, "orders")
        assert is_equal(shop, "others")
        assert shop.sink_rows("SELECT id FROM others WHERE id = 70") == [(70,)]
        note = run.store.note(run.name, NoteKind.OVERRIDES)
        assert note is not None
        (made,) = note.form["made"]
        assert (made["by"], made["reason"]) == ("a person", "only a checksum")
        texts = [event.text for event in run.store.events(run.name)]
        assert any("reason: only a checksum" in text for text in texts)
        with pytest.raises(RefusedError, match="nothing is refused"):
            skip_place(shop.run(), place, reason="once more")

    def test_a_place_is_skipped_in_the_middle_of_a_transaction_and_its_rows_are_kept(
        self, shop: Shop, tools: str
    ) -> None:
        begin(shop, ["orders"])
        mixed(
            shop,
            "INSERT INTO others VALUES (UUID_SHORT() MOD 7 + 50)",
            "UPDATE orders o JOIN others p ON p.id = 1 SET o.note = 'both'",
            "INSERT INTO others VALUES (UUID_SHORT() MOD 7 + 60)",
        )
        with pytest.raises(RowsNotLoggedError) as refused:
            catch_up(shop)
        place = refused.value.remedy.partition("--at ")[2].partition(" ")[0]
        skip_place(shop.run(), place, reason="test")
        catch_up(shop)
        catch_up(shop)
        assert is_equal(shop, "orders")
        assert is_equal(shop, "others")

    def test_a_statement_while_a_table_is_first_read_has_its_split_read_again(
        self, shop: Shop
    ) -> None:
        as_text(shop, "INSERT INTO orders (id, note) VALUES (5, 'five')")
        begin(shop, ["orders"])
        assert is_equal(shop, "orders")


class TestFromMySqlToMySql(Texts):
    pass


class TestFromMariaDbToMySql(Texts):
    @pytest.fixture
    def shop(
        self,
        mariadb_server: SqlServer,
        mysql_sink: SqlServer,
        fresh_database: Callable[[SqlServer], str],
        tmp_path: Path,
    ) -> Iterator[Shop]:
        source, sink = fresh_database(mariadb_server), fresh_database(mysql_sink)
        path = tmp_path / "shop.yaml"
        path.write_text(FILE.format(name=f"p_{source}", source=source, sink=sink))
        environment = {"SHOP_DSN": mariadb_server.dsn(), "DR_DSN": mysql_sink.dsn()}
        with ExitStack() as stack:
            made = Shop(mariadb_server, mysql_sink, source, sink, path, environment, stack)
            made.at_source(
                "CREATE TABLE orders (id INT PRIMARY KEY, note VARCHAR(40), code INT UNIQUE)"
            )
            made.at_source("INSERT INTO orders VALUES (1, 'one', 10), (2, 'two', 20)")
            made.at_source("INSERT INTO orders VALUES (3, NULL, 30)")
            yield made
