"""`airflow cdc ...` in a real Airflow that keeps its connections in its own database."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from airflow_cdc_provider.core.endpoint import Endpoint
from tests.airflow.real_airflow import RealAirflow
from tests.servers.given import SqlServer

pytestmark = pytest.mark.timeout(900)
PIPELINE = """
pipeline: cli_shop
source: {{conn_id: shop_source, tables: ["{source}.*"]}}
sink: {{conn_id: shop_sink, route: {{"{source}.*": "{sink}.*"}}}}
state: {{conn_id: shop_state}}
"""


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> RealAirflow:
    made = RealAirflow(tmp_path_factory.mktemp("home"))
    made.migrate()
    return made


@pytest.fixture(scope="module")
def shop(airflow: RealAirflow, mysql_server: SqlServer, mysql_sink: SqlServer) -> Iterator[Path]:
    """A pipeline; its connections were made on the command line and over the API."""
    airflow.add_by_command("shop_source", mysql_server.dsn().replace("mysql://", "cdc-mysql://"))
    sink = Endpoint.parse(mysql_sink.dsn())
    airflow.add_by_api(
        {
            "connection_id": "shop_sink",
            "conn_type": "cdc_mysql",
            "host": sink.host,
            "port": sink.port,
            "login": sink.user,
            "password": sink.password,
        },
        {
            "connection_id": "shop_state",
            "conn_type": "sqlite",
            "host": f"{airflow.home}/state.db",
        },
    )
    path = airflow.home / "shop.yaml"
    path.write_text(PIPELINE.format(source="cli_source", sink="cli_sink"))
    mysql_server.execute("CREATE DATABASE cli_source")
    mysql_sink.execute("CREATE DATABASE cli_sink")
    try:
        mysql_server.execute("CREATE TABLE orders (id INT PRIMARY KEY)", database="cli_source")
        yield path
    finally:
        mysql_server.execute("DROP DATABASE cli_source")
        mysql_sink.execute("DROP DATABASE cli_sink")


def test_the_test_button_tells_of_a_source_a_sink_and_a_state_store_what_each_needs(
    airflow: RealAirflow, mysql_server: SqlServer, mysql_sink: SqlServer
) -> None:
    def body(kind: str, server: SqlServer, **more: str) -> dict[str, object]:
        where = {"host": server.host, "port": server.port, "login": server.user}
        named = {"connection_id": f"tried_{kind}", "conn_type": kind}
        return {**named, **where, "password": server.password, **more}

    source, sink, state, nowhere = airflow.test_by_api(
        body("cdc_mysql", mysql_server),
        body("cdc_mysql_sink", mysql_sink),
        body("cdc_state", mysql_sink, schema="mysql", extra='{"kind": "mysql"}'),
        {"connection_id": "tried_none", "conn_type": "cdc_mysql"},
    )
    assert source["status"] is sink["status"] is state["status"] is True, (source, sink, state)
    assert "gtid_mode = ON" in source["message"]
    assert "INSERT" in sink["message"]
    assert "made on first use" in state["message"]
    assert nowhere["status"] is False
    assert "names no host" in nowhere["message"]


@pytest.mark.parametrize(
    ("words", "is_right"),
    [
        (("check",), lambda form: form["findings"] is not None and not form["refused"]),
        (("pause", "--wait-s", "1"), lambda form: "is paused" in form["done"]),
        (("reset", "--yes"), lambda form: re.search(r"new plan for 1 table\b", form["done"])),
    ],
    ids=lambda words: words[0] if isinstance(words, tuple) else "",
)
@pytest.mark.sample(1)
def test_connections_of_airflows_database_are_found_and_json_is_alone_on_standard_output(
    airflow: RealAirflow, shop: Path, words: tuple[str, ...], is_right: Callable[..., bool]
) -> None:
    said = airflow.run("cdc", words[0], str(shop), *words[1:], "--json")
    assert said.code == 0, said.err
    assert is_right(said.form)


@pytest.mark.parametrize("command", ["status", "show", "check"])
@pytest.mark.sample(1)
def test_nothing_foreign_is_on_standard_output_in_text_and_in_json(
    airflow: RealAirflow, shop: Path, command: str
) -> None:
    form = airflow.run("cdc", command, str(shop), "--json")
    assert form.form
    text = airflow.run("cdc", command, str(shop))
    assert text.code == 0, text.err
    assert "cli_shop" in text.out or "fine: 1 table;" in text.out
    assert "shall not contain" not in form.out + text.out
    assert "[warning" not in text.out
    assert "[info " not in text.out


def test_all_connections_that_are_missing_are_told_at_once(
    airflow: RealAirflow, tmp_path: Path
) -> None:
    path = tmp_path / "lost.yaml"
    path.write_text(PIPELINE.replace("shop_", "lost_").format(source="cli_source", sink="cli_sink"))
    said = airflow.run("cdc", "status", str(path), "--json")
    assert said.code == 2
    for name in ("lost_source", "lost_sink", "lost_state"):
        assert f"there is no connection '{name}'" in said.form["error"]["what"]
        assert name in said.err


def add_dag(airflow: RealAirflow, shop: Path) -> None:
    """Let Airflow know the pipeline's DAGs."""
    (airflow.dags / "cdc.py").write_text(
        "from airflow_cdc_provider.operators.dags import cdc_dags\n"
        f"cdc_dags({str(shop.parent)!r}, globals())\n"
    )
    done = airflow.run("dags", "reserialize")
    assert done.code == 0, done.err


def runs_of(airflow: RealAirflow, dag_id: str) -> list[str]:
    """Return the states of a DAG's runs."""
    said = airflow.run("dags", "list-runs", dag_id, "--output", "json")
    assert said.code == 0, said.err
    return [run["state"] for run in json.loads(said.out[said.out.index("[") :])]


def test_resume_begins_a_run_of_the_dag_or_says_why_none_begins(
    airflow: RealAirflow, shop: Path
) -> None:
    without_dag = airflow.run("cdc", "resume", str(shop))
    assert without_dag.code == 0, without_dag.err
    assert "Airflow has no DAG cli_shop__sync" in without_dag.out
    add_dag(airflow, shop)
    switched_off = airflow.run("cdc", "resume", str(shop))
    assert "the DAG cli_shop__sync is paused" in switched_off.out
    assert "airflow dags unpause cli_shop__sync" in switched_off.out
    assert runs_of(airflow, "cli_shop__sync") == []
    assert airflow.run("dags", "unpause", "--yes", "cli_shop__sync").code == 0
    begun = airflow.run("cdc", "resume", str(shop))
    assert "of cli_shop__sync begins" in begun.out, begun.err
    again = airflow.run("cdc", "start", str(shop))
    assert "of cli_shop__sync waits to begin" in again.out, again.err
    assert runs_of(airflow, "cli_shop__sync") == ["queued"]
    run_under_way(airflow, "cli_shop__sync")
    again = airflow.run("cdc", "start", str(shop))
    assert "of cli_shop__sync is under way" in again.out, again.err
    assert airflow.run("cdc", "pause", str(shop)).code == 0
    behind = airflow.run("cdc", "resume", str(shop))
    assert "of cli_shop__sync begins when " in behind.out, behind.err
    assert sorted(runs_of(airflow, "cli_shop__sync")) == ["queued", "running"]


def run_under_way(airflow: RealAirflow, dag_id: str) -> None:
    """Have the DAG's runs be under way, as the scheduler has them."""
    with closing(sqlite3.connect(airflow.home / "airflow.db")) as database, database:
        database.execute("UPDATE dag_run SET state = 'running' WHERE dag_id = ?", (dag_id,))


def test_start_is_refused_while_the_pipeline_is_paused(airflow: RealAirflow, shop: Path) -> None:
    assert airflow.run("cdc", "pause", str(shop), "--wait-s", "1").code == 0
    said = airflow.run("cdc", "start", str(shop))
    assert said.code != 0
    assert "is paused" in said.err
    assert airflow.run("cdc", "resume", str(shop)).code == 0


def test_init_writes_a_file_with_connections_of_airflows_database(
    airflow: RealAirflow, shop: Path
) -> None:
    path = shop.with_name("made.yaml")
    words = ("--source", "shop_source", "--sink", "shop_sink", "--table", "cli_source.*")
    said = airflow.run("cdc", "init", str(path), *words, "--mode", "bounded", "--json")
    assert said.code == 0, said.err
    assert not said.form["refused"]
    assert 'conn_id: "shop_source"' in path.read_text()
