"""Claims to a table of a real sink that several tables of one pipeline share."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import pytest

from airflow_cdc_provider.core.errors import RefusedError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.table_shape import OutputColumn, TableShape
from airflow_cdc_provider.systems.mysql.preflight.at_sink import Sink, sink_findings
from airflow_cdc_provider.systems.mysql.preflight.codes import Code
from airflow_cdc_provider.systems.mysql.server.capabilities import read_capabilities
from airflow_cdc_provider.systems.mysql.server.connection import Role, connect
from airflow_cdc_provider.systems.mysql.sink import ledger_schema
from airflow_cdc_provider.systems.mysql.sink.ledger_schema import LEDGER
from tests.servers.throwaway import MariaDbServer
from tests.systems.mysql.sink.made_tables import Tables
from tests.systems.mysql.sink.shards import TARGET
from tests.systems.mysql.sink.test_mysql_tables import tables
from tests.systems.mysql.sink.test_targets import targets_of

__all__ = ["tables"]


def shards_of(tables: Tables, *names: str) -> list[TablePlan]:
    """Return plans of source tables that share `orders` at the sink, by their own names."""
    found = []
    for plan in tables.plans(*names):
        shop = OutputColumn("shop", constant=plan.schema.table.table)
        shape = TableShape((shop,), others=True, shard="shop")
        target = tables.opened().target_of(plan.schema, TableId(tables.sink, "orders"), shape)
        found.append(TablePlan(plan.schema, target, 0, shape))
    return found


def made(tables: Tables) -> list[TablePlan]:
    tables.at_source(*(f"CREATE TABLE {name} (id INT PRIMARY KEY)" for name in "abc"))
    tables.at_sink(f"CREATE TABLE orders ({TARGET})")
    return shards_of(tables, "a", "b", "c")


def test_tables_of_one_pipeline_share_a_table_and_another_pipeline_does_not(
    tables: Tables,
) -> None:
    plans = made(tables)
    copied = [(plan.schema.table, plan.sink_table) for plan in plans]
    with closing(targets_of(tables, "one")) as one, closing(targets_of(tables, "two")) as two:
        assert one.claim(plans[:2]) == one.claim(plans[:2]) == ()
        assert one.routes() == (*copied[:2],)
        assert len(two.conflicts(plans)) == 1
        with pytest.raises(RefusedError, match="orders belongs to the pipeline one_"):
            two.claim(plans[2:], replace_rows=True)
        one.claim(plans[2:])
        one.release(keep=[plans[1], plans[2]])
        assert one.routes() == (*copied[1:],)
        (conflict,) = two.conflicts(plans[:1])
        assert f"copies {tables.source}.b there" in conflict.text
        with pytest.raises(RefusedError, match="belongs to the pipeline one_"):
            two.claim(plans[:1])
        one.release()
        assert one.routes() == ()
        assert two.claim(plans[:1]) == ()
        assert two.routes() == (copied[0],)


def test_rows_of_a_table_that_comes_later_are_looked_for_and_no_others(tables: Tables) -> None:
    plans = made(tables)
    tables.at_sink("INSERT INTO orders (shop, id) VALUES ('b', 1), ('elsewhere', 1)")
    with closing(targets_of(tables, "one")) as one:
        # whose rows these are is not known before the table is the pipeline's
        (conflict,) = one.conflicts(plans)
        assert (conflict.table, conflict.is_shared) == (plans[0].sink_table, True)
        with pytest.raises(RefusedError, match="orders holds rows, and nothing says"):
            one.claim(plans[:1])
        assert one.claim(plans[:1], replace_rows=True) == (plans[0].sink_table,)
        assert one.conflicts(plans[:1]) == ()
        assert one.claim([plans[0], plans[2]]) == ()
        with pytest.raises(RefusedError, match="orders holds rows with shop = 'b', and nothing"):
            one.claim(plans)
        assert len(one.routes()) == 2
        known = {(plans[1].schema.table, plans[1].sink_table)}
        assert one.conflicts(plans, known=known) == ()
        assert one.claim(plans, replace_rows=True) == (plans[0].sink_table,)
        assert one.claim(plans) == ()


def test_what_is_known_of_one_table_is_not_known_of_those_that_share_with_it(
    tables: Tables,
) -> None:
    plans = made(tables)
    tables.at_sink("INSERT INTO orders (shop, id) VALUES ('a', 1), ('b', 1)")
    with closing(targets_of(tables, "one")) as one:
        known = {(plans[0].schema.table, plans[0].sink_table)}
        (conflict,) = one.conflicts(plans, known=known)
        assert "holds rows with shop = 'b'" in conflict.text
        assert one.conflicts([plans[0], plans[2]], known=known) == ()


def test_what_preflight_says_of_a_shared_table_is_of_all_that_share_it(tables: Tables) -> None:
    tables.at_source("CREATE TABLE a (id INT PRIMARY KEY, mail VARCHAR(60))")
    tables.at_source("CREATE TABLE b (id INT PRIMARY KEY, extra INT)")
    tables.at_sink(f"CREATE TABLE orders ({TARGET.replace('name VARCHAR', 'own VARCHAR')})")
    plans = shards_of(tables, "a", "b")
    with closing(connect(tables.endpoint, purpose="tests")) as connection:
        there = read_capabilities(connection, role=Role.SINK)
        folding = {**there.settings, "lower_case_table_names": "1"}
        sink = Sink(connection, replace(there, settings=folding), "the sink")
        found = list(sink_findings(sink, replace(there, server_uuid="another"), plans))
    (said,) = (each for each in found if each.subject == str(plans[0].sink_table))
    assert (said.code, said.observed) == (
        Code.SINK_EXTRA_COLUMN,
        "column own is not in the source",
    )


def test_a_ledger_of_an_older_release_has_claims_of_tables_that_are_not_shared() -> None:
    with MariaDbServer() as server:
        server.execute("CREATE DATABASE one")
        server.execute("CREATE DATABASE two")
        there = Tables(server, "one", "two")
        plans = made(there)
        there.at_source("CREATE TABLE plain (id INT PRIMARY KEY)")
        (plain,) = there.plans("plain")
        with closing(targets_of(there, "one")) as one:
            one.claim([plain])
            there.at_sink(
                f"DROP TABLE {LEDGER}.target_shard",
                f"UPDATE {LEDGER}.ledger_version SET version = 11",
            )
            copied = (plain.schema.table, plain.sink_table)
            assert one.routes() == (copied,)
            assert one.conflicts(plans) == ()
            one.claim([plain, *plans])
            assert one.routes() == (
                *((plan.schema.table, plan.sink_table) for plan in plans),
                copied,
            )
            one.release(keep=[plain])
            assert one.routes() == (copied,)
        versions = server.execute(f"SELECT version FROM {LEDGER}.ledger_version")
        assert list(versions) == [(ledger_schema.VERSION,)]
