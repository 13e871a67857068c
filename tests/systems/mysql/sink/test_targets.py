"""Claims to tables of real sinks, of both families."""

from __future__ import annotations

from contextlib import closing

import pytest

from airflow_cdc_provider.core.errors import FencedError, RefusedError
from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.engine.sink.port import Owner
from airflow_cdc_provider.systems.mysql.mysql_sink import MySqlSink
from airflow_cdc_provider.systems.mysql.sink.targets import MySqlTargets
from tests.servers.throwaway import MariaDbServer
from tests.systems.mysql.sink.made_tables import Tables
from tests.systems.mysql.sink.test_mysql_tables import tables

__all__ = ["tables"]


def targets_of(tables: Tables, pipeline: str, generation: int = 1) -> MySqlTargets:
    """Open the claims of a pipeline, which owns itself."""
    owner = Owner(PipelineName(f"{pipeline}_{tables.sink}"), generation)
    sink = MySqlSink(tables.endpoint, owner)
    with closing(sink.open_ledger()) as ledger:
        ledger.take_over(max(generation, ledger.generation()))
    return sink.open_targets()


def test_a_table_has_one_owner_at_a_time(tables: Tables) -> None:
    tables.at_source("CREATE TABLE t (id INT PRIMARY KEY)", "CREATE TABLE u (id INT PRIMARY KEY)")
    plans = tables.plans("t", "u")
    with closing(targets_of(tables, "one")) as one, closing(targets_of(tables, "two")) as two:
        assert one.claim(plans) == ()
        assert one.claim(plans) == ()
        with pytest.raises(RefusedError, match=r"t belongs to the pipeline one_.*u belongs to"):
            two.claim(plans, replace_rows=True)
        assert two.routes() == ()
        assert one.routes() == tuple((plan.schema.table, plan.sink_table) for plan in plans)
        one.release(keep=plans[:1])
        assert {c.table for c in two.conflicts(plans)} == {plans[0].sink_table}
        with pytest.raises(RefusedError):  # all or none
            two.claim(plans)
        assert two.claim(plans[1:]) == ()


def test_rows_that_are_not_known_are_refused_or_told(tables: Tables) -> None:
    tables.at_source("CREATE TABLE t (id INT PRIMARY KEY)")
    tables.at_sink("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    plans = tables.plans("t")
    with closing(targets_of(tables, "one")) as one:
        with pytest.raises(RefusedError, match="t holds rows"):
            one.claim(plans)
        assert one.conflicts(plans, known={plans[0].sink_table}) == ()
        assert one.claim(plans, replace_rows=True) == (plans[0].sink_table,)
        assert one.claim(plans) == ()


def test_a_claim_under_an_old_generation_is_fenced(tables: Tables) -> None:
    tables.at_source("CREATE TABLE t (id INT PRIMARY KEY)")
    old = targets_of(tables, "one", 1)
    with closing(old), closing(targets_of(tables, "one", 2)) as new:
        with pytest.raises(FencedError):
            old.claim(tables.plans("t"))
        new.claim(tables.plans("t"))
        with pytest.raises(FencedError):
            old.release()
        assert len(new.routes()) == 1


def test_looking_changes_nothing_at_a_sink_that_was_never_used() -> None:
    with MariaDbServer() as server:
        server.execute("CREATE DATABASE one")
        there = Tables(server, "one", "two")
        there.at_source("CREATE TABLE t (id INT PRIMARY KEY)")
        with closing(there.opened().open_targets()) as targets:
            assert (targets.plan_id(), targets.routes()) == ("", ())
            assert targets.conflicts(there.plans("t")) == ()
        assert server.execute("SHOW DATABASES LIKE 'airflow_cdc'") == []


def test_a_sink_that_folds_names_has_one_table_for_both_spellings() -> None:
    with MariaDbServer({"lower-case-table-names": 1}) as server:
        server.execute("CREATE DATABASE one")
        there = Tables(server, "one", "two")
        there.at_source("CREATE TABLE t (id INT PRIMARY KEY)")
        (plan,) = there.plans("t")
        with closing(targets_of(there, "one")) as one, closing(targets_of(there, "two")) as two:
            one.claim([plan])
            shouted = TablePlan.alike(plan.schema, TableId("TWO", "T"), 0)
            with pytest.raises(RefusedError, match=r"TWO\.T belongs to the pipeline one_"):
                two.claim([shouted])
            one.release(keep=[shouted])
            assert len(one.routes()) == 1
