"""Tables whose names have any characters, picked and routed by regular expressions too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from airflow_cdc_provider.core.identifiers import TableId, quote_identifier, quote_table
from airflow_cdc_provider.core.requests import RequestStatus
from airflow_cdc_provider.core.table_patterns import TablePattern
from airflow_cdc_provider.core.table_picks import in_file
from airflow_cdc_provider.pipeline.steps import small_work
from airflow_cdc_provider.pipeline.steps.range_requests import ask_resync, resync_scope
from airflow_cdc_provider.pipeline.steps.table_membership import reset_tables
from airflow_cdc_provider.pipeline.steps.verifying import verify
from tests.pipeline.altered_tables import catch_up
from tests.pipeline.conftest import Shop
from tests.servers.given import SqlServer
from tests.servers.throwaway import MariaDbServer

NAMES = (
    "a.b",
    ".first and last.",
    "a*b",
    "/x/",
    "`tick``",
    'it\'s "said", 100% \\ {1}',
    "größe €",
    "-- none",
)
LEFT_OUT = ("a*c", "x, `y`")
FILE = """\
pipeline: {pipeline}
source:
  dsn_env: SHOP_DSN
  tables: ['/{shop}\\.v[0-9]+ `odd`/.*']
  exclude: {left_out}
sink:
  dsn_env: DR_DSN
  route:
    '/{shop}\\.v([0-9]+) .*/.*': "{target}.*"
    {routed}: "{target}.`to {{1}} *`"
tables:
  {masked}: {{columns: {{mask: {{v: {{fixed: "***"}}}}}}}}
"""

FOLDED = """\
pipeline: {name}
source:
  dsn_env: SHOP_DSN
  tables: ["/SHOP/./Orders|ITEMS/", "Shop.L*"]
  exclude: ["SHOP.LAST"]
sink:
  dsn_env: DR_DSN
  route: {{"SHOP./(?:I).*/": "{target}.shop_items", "Shop.*": "{target}.*"}}
tables:
  SHOP.Orders: {{columns: {{mask: {{v: {{fixed: "***"}}}}}}}}
"""


class OddShop:
    """A database with an odd name at the source, with tables of odd names."""

    def __init__(self, shop: Shop) -> None:
        self.shop = shop
        self.database = f"{shop.database}.v1 `odd`"
        self.tables = [TableId(self.database, name) for name in NAMES]
        self.routed, self.masked = self.tables[2], self.tables[3]
        shop.source.execute(f"CREATE DATABASE {quote_identifier(self.database)}")
        for name in (*NAMES, *LEFT_OUT, "axc"):
            table = quote_table(TableId(self.database, name))
            shop.source.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, v VARCHAR(20))")
            shop.source.execute(f"INSERT INTO {table} VALUES (1, 'a'), (2, 'b'), (3, 'c')")
        left_out = [in_file(TableId(self.database, name)) for name in LEFT_OUT]
        text = FILE.format(
            pipeline=f"p_{shop.database}",
            shop=shop.database,
            target=shop.target,
            left_out=f"[{', '.join(left_out)}]",
            routed=in_file(self.routed),
            masked=in_file(self.masked),
        )
        shop.path.write_text(text, encoding="utf-8")

    def write(self, statement: str) -> None:
        for table in self.tables:
            self.shop.source.execute(statement.replace("{t}", quote_table(table)))

    def unlike(self) -> list[TableId]:
        return [table for table in self.tables if self._rows(table) != self._copied(table)]

    def _rows(self, table: TableId) -> list[tuple[object, ...]]:
        value = "'***'" if table == self.masked else "v"
        query = f"SELECT id, {value} FROM {quote_table(table)} ORDER BY id"
        return list(self.shop.source.execute(query))

    def _copied(self, table: TableId) -> list[tuple[object, ...]]:
        name = "to {1} *" if table == self.routed else table.table
        return self.shop.sink_rows(f"SELECT id, v FROM {quote_identifier(name)} ORDER BY id")


@pytest.fixture
def odd(empty_shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Iterator[OddShop]:
    monkeypatch.setattr(small_work, "_log_left", lambda _: "all")
    made = OddShop(empty_shop)
    yield made
    empty_shop.source.execute(f"DROP DATABASE {quote_identifier(made.database)}")


@pytest.mark.mariadb
def test_a_file_spells_names_in_any_case_where_the_source_folds_them(
    mysql_sink: SqlServer,
    fresh_database: Callable[[SqlServer], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(small_work, "_log_left", lambda _: "all")
    target, path = fresh_database(mysql_sink), tmp_path / "shop.yaml"
    path.write_text(FOLDED.format(name=f"p_{target}", target=target))
    with MariaDbServer({"lower_case_table_names": 1}) as server, ExitStack() as stack:
        dsns = {"SHOP_DSN": server.dsn(), "DR_DSN": mysql_sink.dsn()}
        shop = Shop(server, mysql_sink, "Shop", target, path, dsns, stack)
        server.execute("CREATE DATABASE Shop")
        for name in ("Orders", "Items", "Last"):
            shop.at_source(f"CREATE TABLE {name} (id INT PRIMARY KEY, v VARCHAR(20))")
            shop.at_source(f"INSERT INTO SHOP.{name} VALUES (1, 'a')")
        catch_up(shop)
        shop.at_source("INSERT INTO ORDERS VALUES (2, 'b')")
        shop.at_source("ALTER TABLE Shop.ITEMS ADD COLUMN n INT DEFAULT 3")
        shop.at_source("UPDATE iTems SET v = 'c'")
        run = catch_up(shop)
        copied = {str(state.table) for state in run.store.tables(run.name)}
        assert copied == {"shop.orders", "shop.items"}
        assert all(each.equal for each in verify(shop.run(), settle_s=5).tables)
    assert shop.sink_rows("SELECT * FROM orders ORDER BY id") == [(1, "***"), (2, "***")]
    assert shop.sink_rows("SELECT * FROM shop_items") == [(1, "c", 3)]


def test_tables_of_any_name_are_copied_followed_read_again_and_compared(odd: OddShop) -> None:
    shop = odd.shop
    run = catch_up(shop)
    assert odd.unlike() == []
    copied = {state.table for state in run.store.tables(run.name)}
    assert copied == {*odd.tables, TableId(odd.database, "axc")}
    odd.write("INSERT INTO {t} VALUES (4, 'd')")
    odd.write("UPDATE {t} SET v = 'bb' WHERE id = 2")
    odd.write("DELETE FROM {t} WHERE id = 1")
    odd.write("ALTER TABLE {t} ADD COLUMN n INT DEFAULT 7")
    odd.write("INSERT INTO {t} VALUES (5, 'e', 8)")
    catch_up(shop)
    assert odd.unlike() == []
    # names as a command has them: as they are shown, and as a file has them
    names = [str(table) for table in odd.tables[:4]]
    names += [str(TablePattern.of(table)) for table in odd.tables[4:]]
    asked = ask_resync(shop.run(), resync_scope(shop.run(), names))
    catch_up(shop)
    done = run.store.request(run.name, asked.request_id)
    assert done is not None
    assert (done.status, done.error) == (RequestStatus.DONE, done.error)
    reset_tables(shop.run(), odd.tables[:2])
    odd.write("REPLACE INTO {t} VALUES (2, 'x', 9)")
    catch_up(shop)
    assert odd.unlike() == []
    verdicts = {each.table: each.equal for each in verify(shop.run(), settle_s=5).tables}
    assert verdicts == dict.fromkeys(copied, True)
