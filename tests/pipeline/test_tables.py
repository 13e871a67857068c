"""What only the source can tell is wrong with a file is refused with the line and the fix."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.errors import PipelineFileError, UnsupportedTableError
from airflow_cdc_provider.core.findings import PipelineCode
from airflow_cdc_provider.core.identifiers import PipelineName
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.table_patterns import ALL_TABLES
from airflow_cdc_provider.engine.sink.port import Owner
from airflow_cdc_provider.pipeline.file.loader import LoadedPipeline, parse_pipeline
from airflow_cdc_provider.pipeline.steps.checking import check
from airflow_cdc_provider.pipeline.steps.planning import plan
from airflow_cdc_provider.pipeline.steps.tables import (
    Captured,
    require_separate,
    tables_of,
)
from airflow_cdc_provider.systems.mysql.server.capabilities import Capabilities, read_capabilities
from airflow_cdc_provider.systems.mysql.server.catalogue import picked_tables, reserved_for
from airflow_cdc_provider.systems.mysql.server.connection import connect
from airflow_cdc_provider.systems.registry import open_sink, open_source
from tests.pipeline.conftest import Shop
from tests.pipeline.shop_tables import synced
from tests.servers.given import SqlServer

FILE = """\
pipeline: shop
source:
  dsn_env: SHOP_DSN
  tables: [{tables}]
sink:
  dsn_env: DR_DSN
  route: {{{route}}}
snapshot:
  tables: {{{settings}}}
"""


@pytest.fixture
def database(mysql_server: SqlServer, mysql_database: str) -> str:
    for statement in (
        "CREATE TABLE orders (id INT PRIMARY KEY, customer INT, KEY (customer))",
        "CREATE TABLE items (order_id INT, line INT, PRIMARY KEY (line, order_id))",
        "CREATE TABLE keyless (a INT)",
        "CREATE VIEW totals AS SELECT COUNT(*) AS n FROM orders",
    ):
        with closing(mysql_server.connect(database=mysql_database)) as connection:
            connection.cursor().execute(statement)
    return mysql_database


def loaded(tables: str, route: str = "", settings: str = "") -> LoadedPipeline:
    return parse_pipeline(FILE.format(tables=tables, route=route, settings=settings))


def captured(server: SqlServer, file: LoadedPipeline) -> Captured:
    endpoint = Endpoint.parse(server.dsn())
    sink = open_sink("mysql", endpoint, Owner(PipelineName("p"), 0))
    source = open_source(endpoint)
    with source.catalogue() as catalogue:
        return tables_of(file, source, catalogue, sink)


def found(
    server: SqlServer, tables: str, route: str = "", settings: str = ""
) -> tuple[TablePlan, ...]:
    return captured(server, loaded(tables, route, settings)).plans


def test_patterns_pick_base_tables_and_routes_say_where(
    mysql_server: SqlServer, database: str
) -> None:
    plans = found(mysql_server, f'"{database}.*"', f'"{database}.*": "copy.x_*"')
    assert [str(plan.sink_table) for plan in plans] == [
        "copy.x_items",
        "copy.x_keyless",
        "copy.x_orders",
    ]
    assert plans[0].schema.primary_key == ("line", "order_id")
    assert plans[2].schema.create_statement.startswith("CREATE TABLE")


@pytest.mark.parametrize(
    ("tables", "route", "settings", "line", "words"),
    [
        ("DB.oders", "", "", 4, "DB.oders does not exist"),
        ("DB.oders", "", "", 4, "did you mean DB.orders?"),
        ('"DB.zzz*"', "", "", 4, "no table fits DB.zzz*"),
        ("DB.orders, DB.totals", "", "", 4, "not a base table but a view"),
        ('"DB.*"', '"DB.x": "c.x"', "", 7, "fits none of the pipeline's tables"),
        ('"DB.*"', '"DB.*": "c.one"', "", 7, "both go to c.one"),
        ('"DB.*"', "'DB./order(x?)s/': 'c.{1}'", "", 7, "a name is empty"),
        ('"DB.*"', f"'DB./(o).*/': 'c.{'{1}' * 65}'", "", 7, "more than 64 characters"),
        ('"DB.*"', "'DB./(i).*s/': 'c.{1} '", "", 7, "ends with a blank"),
        ('"DB./zz+/"', "", "", 4, "no table fits DB./zz+/"),
        ('"DB.*"', "", '"DB.items": {key: [order_id, line]}', 9, "key: [line, order_id]"),
    ],
)
def test_a_file_that_does_not_fit_the_source_is_refused_with_its_line(
    mysql_server: SqlServer,
    database: str,
    tables: str,
    route: str,
    settings: str,
    line: int,
    words: str,
) -> None:
    parts = [part.replace("DB", database) for part in (tables, route, settings, words)]
    with pytest.raises(PipelineFileError) as caught:
        require_separate(loaded(*parts[:3]), found(mysql_server, *parts[:3]))
    assert parts[3] in caught.value.what
    assert f"line {line}" in caught.value.what


def test_settings_of_a_name_in_another_case_are_refused_or_taken_as_the_server_compares_names(
    mysql_server: SqlServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = FILE.format(tables=f'"{database}.*"', route="", settings="")
    section = f"tables:\n  {database}.Orders: {{columns: {{exclude: [customer]}}}}\n"
    wrong = parse_pipeline(text + section)
    with pytest.raises(PipelineFileError, match=rf'did you mean "{database}\.orders"') as caught:
        captured(mysql_server, wrong)
    assert "line 11" in caught.value.what
    monkeypatch.setattr(Capabilities, "names_fold_case", property(lambda _: True))
    plans = {plan.schema.table.table: plan for plan in captured(mysql_server, wrong).plans}
    assert [column.name for column in plans["orders"].target.columns] == ["id"]


def test_a_section_of_a_pattern_is_of_all_tables_that_have_none_of_their_own(
    mysql_server: SqlServer, database: str
) -> None:
    text = FILE.format(tables=f'"{database}.*"', route="", settings="")
    sections = (
        f"  '{database}./.*s/': {{columns: {{constants: {{a: 1}}}}}}\n"
        f"  '{database}.*e*s': {{columns: {{constants: {{b: 1}}}}}}\n"
        f"  '`{database}`.`items`': {{columns: {{constants: {{c: 1}}}}}}\n"
        f"  '{database}.later_*': {{columns: {{constants: {{d: 1}}}}}}\n"
    )
    seen = captured(mysql_server, parse_pipeline(f"{text}tables:\n{sections}"))
    last = {plan.schema.table.table: plan.target.columns[-1].name for plan in seen.plans}
    assert last == {"orders": "a", "items": "c", "keyless": "a"}
    assert [each.pattern for each in seen.waiting_patterns] == [f"{database}.later_*"]


@pytest.mark.parametrize(
    ("tables", "route", "where", "pattern"),
    [
        ('"DB.orders", "DB.zzz*"', "", "source.tables", "DB.zzz*"),
        ('"DB.*", "elsewhere*.*"', '"elsewhere*.*": "c.*"', "sink.route", "elsewhere*.*"),
        ('"DB.*"', '"DB.x*": "c.*"', "sink.route", "DB.x*"),
        ('"DB.*", "/else.*/.x"', "", "source.tables", "/else.*/.x"),
        ('"DB.*"', "'DB./zz+/': 'c.d'", "sink.route", "DB./zz+/"),
    ],
)
def test_a_pattern_with_a_star_may_fit_nothing_yet_unless_tables_that_come_are_only_told(
    mysql_server: SqlServer, database: str, tables: str, route: str, where: str, pattern: str
) -> None:
    tables, route, pattern = (text.replace("DB", database) for text in (tables, route, pattern))
    waiting = captured(mysql_server, loaded(tables, route)).waiting_patterns
    assert (where, pattern) in {(each.where, each.pattern) for each in waiting}
    text = FILE.format(tables=tables, route=route, settings="")
    told = parse_pipeline(text.replace("sink:", "  new_tables: tell\nsink:", 1))
    with pytest.raises(PipelineFileError, match="fits"):
        captured(mysql_server, told)


def test_a_table_that_comes_for_a_pattern_that_fitted_nothing_is_added(shop: Shop) -> None:
    text, waiting = shop.path.read_text(), f"{shop.database}.new*"
    picked = f'["{shop.database}.ord*", "{waiting}"]'
    shop.path.write_text(text.replace(f'["{shop.database}.*"]', picked, 1))
    findings = {finding.code: finding for finding in check(shop.run()).findings}
    assert findings[PipelineCode.PATTERN_FITS_NOTHING].subject == f"source.tables: {waiting}"
    synced(shop)
    shop.at_source("CREATE TABLE new_one (id INT PRIMARY KEY)")
    shop.at_source("INSERT INTO new_one VALUES (1), (2)")
    synced(shop)
    assert shop.sink_rows("SELECT * FROM new_one ORDER BY id") == [(1,), (2,)]


def test_a_table_without_a_key_is_refused_where_its_rows_cannot_be_told_apart(
    shop: Shop, tmp_path: Path
) -> None:
    shop.at_source("CREATE TABLE keyless (a INT)")
    shop.path.write_text(
        f'pipeline: to_lake\nsource: {{dsn_env: SHOP_DSN, tables: ["{shop.database}.*"]}}\n'
        f"sink: {{type: iceberg, path: {tmp_path / 'lake'}, mode: mirror}}\n"
    )
    (found,) = [each for each in check(shop.run()).blocks if each.code == "table.primary_key"]
    assert "the sink, as the file has it, cannot tell rows apart without a key" in found.why
    assert "; or write mode: append under sink" in found.fix
    with pytest.raises(UnsupportedTableError, match="keyless"):
        plan(shop.run())


@pytest.fixture
def beside_a_ledger(shop: Shop) -> str:
    """A database on a server that is a sink, and so has a ledger."""
    plan(shop.run())
    assert shop.sink.execute("SHOW TABLES FROM airflow_cdc") != []
    shop.sink.execute(f"CREATE TABLE {shop.target}.airflow_cdc (id INT PRIMARY KEY)")
    return shop.target


def test_patterns_take_up_neither_a_ledger_nor_the_servers_own_tables(
    shop: Shop, beside_a_ledger: str
) -> None:
    patterns = f'"{beside_a_ledger}.*", "airflow*.*", "*l_cdc.*", "*ys.*", "m*sql.*", "*_schema.*"'
    seen = captured(shop.sink, loaded(patterns))
    assert "airflow*.*" in {each.pattern for each in seen.waiting_patterns}
    assert beside_a_ledger in {plan.schema.table.database for plan in seen.plans}
    with closing(connect(Endpoint.parse(shop.sink.dsn()), purpose="test")) as connection:
        picked = picked_tables(connection, read_capabilities(connection), [ALL_TABLES])
    databases = {fact.table.database for fact in picked}
    assert beside_a_ledger in databases
    assert databases & {"airflow_cdc", "mysql", "sys", "information_schema"} == set()


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("airflow_cdc.stream", "the ledger"),
        ('"airflow_cdc.*"', "the ledger"),
        ("mysql.user", "the server itself"),
    ],
)
def test_a_reserved_database_that_is_named_is_refused_with_the_reason(
    shop: Shop, beside_a_ledger: str, pattern: str, words: str
) -> None:
    with pytest.raises(PipelineFileError, match=words) as refused:
        found(shop.sink, f'"{beside_a_ledger}.*", {pattern}')
    assert "line 4, source.tables[1]" in refused.value.what


def test_nothing_is_copied_into_a_ledger(shop: Shop, beside_a_ledger: str) -> None:
    with pytest.raises(PipelineFileError, match="goes to Airflow_CDC"):
        found(shop.sink, f'"{beside_a_ledger}.*"', f'"{beside_a_ledger}.*": "Airflow_CDC.x_*"')


@pytest.mark.parametrize("name", ["airflow_cdc", "Airflow_CDC", "AIRFLOW_CDC"])
def test_where_names_fold_case_a_reserved_database_is_one_in_any_case(name: str) -> None:
    assert reserved_for(name, fold=True)
    assert bool(reserved_for(name, fold=False)) == (name == "airflow_cdc")
