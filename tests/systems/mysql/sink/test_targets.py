"""Claims to tables of real sinks, of both families."""

from __future__ import annotations

from contextlib import closing

import pytest

from airflow_cdc_provider.core.errors import FencedError, RefusedError
from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.topology import Topology
from airflow_cdc_provider.engine.sink.port import Owner, SinkSettings
from airflow_cdc_provider.systems.mysql.mysql_sink import MySqlSink
from airflow_cdc_provider.systems.mysql.sink.targets import MySqlTargets
from tests.servers.throwaway import MariaDbServer
from tests.systems.mysql.sink.made_tables import Tables
from tests.systems.mysql.sink.test_mysql_tables import tables

__all__ = ["tables"]


def edge_to(tables: Tables, src: str, topology: str = "shops") -> Topology:
    """Return the edge from a node to the sink."""
    return Topology(topology, src, "here", TableId(tables.sink, "marker"))


def targets_of(
    tables: Tables, pipeline: str, generation: int = 1, *, edge: Topology | None = None
) -> MySqlTargets:
    """Open the claims of a pipeline, which owns itself."""
    owner = Owner(PipelineName(f"{pipeline}_{tables.sink}"), generation)
    sink = MySqlSink(tables.endpoint, owner, settings=SinkSettings(edge=edge))
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


def test_edges_of_one_topology_share_a_table_and_nobody_else_does(tables: Tables) -> None:
    tables.at_source("CREATE TABLE t (id INT PRIMARY KEY)")
    plans = tables.plans("t")
    with (
        closing(targets_of(tables, "one", edge=edge_to(tables, "a"))) as one,
        closing(targets_of(tables, "two", edge=edge_to(tables, "b"))) as two,
        closing(targets_of(tables, "other", edge=edge_to(tables, "a", "others"))) as other,
        closing(targets_of(tables, "way")) as one_way,
    ):
        assert (one.claim(plans), two.claim(plans)) == ((), ())
        assert one.routes() == two.routes() == ((plans[0].schema.table, plans[0].sink_table),)
        for stranger in (other, one_way):
            with pytest.raises(RefusedError, match="t belongs to the pipeline one_"):
                stranger.claim(plans)
        with pytest.raises(RefusedError, match=r"but two_.*'s"):
            one.drop([plans[0].sink_table])
        one.release()
        assert (one.routes(), len(two.routes())) == ((), 1)
        two.release()
        assert one_way.claim(plans) == ()
        with pytest.raises(RefusedError, match="t belongs to the pipeline way_"):
            one.claim(plans)


def test_a_marker_table_that_is_none_is_refused(tables: Tables) -> None:
    tables.at_source("CREATE TABLE t (id INT PRIMARY KEY)")
    tables.at_sink("CREATE TABLE marker (data_origin_node VARCHAR(9) PRIMARY KEY, n INT)")
    with (
        closing(targets_of(tables, "one", edge=edge_to(tables, "a"))) as one,
        pytest.raises(RefusedError, match="has no column src_node, dst_node"),
    ):
        one.claim(tables.plans("t"))
    tables.at_sink("ALTER TABLE marker ADD src_node VARCHAR(9), ADD dst_node VARCHAR(9)")
    with (
        closing(targets_of(tables, "one", edge=edge_to(tables, "a"))) as one,
        pytest.raises(RefusedError, match="has another primary key"),
    ):
        one.claim(tables.plans("t"))


def test_rows_that_are_not_known_are_refused_or_told(tables: Tables) -> None:
    tables.at_source("CREATE TABLE t (id INT PRIMARY KEY)")
    tables.at_sink("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    plans = tables.plans("t")
    with closing(targets_of(tables, "one")) as one:
        with pytest.raises(RefusedError, match="t holds rows"):
            one.claim(plans)
        assert one.conflicts(plans, known={(plans[0].schema.table, plans[0].sink_table)}) == ()
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
