"""Runs of a DAG in a real Airflow notify a connection that Airflow keeps."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.airflow.shop import known_dag, open_shop
from tests.airflow.sync_dag import MONDAY, TUESDAY, WEDNESDAY, Run
from tests.alerts.conftest import TOKEN, HttpReceiver
from tests.alerts.conftest import receiver as receiver

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers.given import SqlServer

pytestmark = [
    pytest.mark.usefixtures("airflow_db"),
    # Tasks run in this process, and a warning of Airflow's own would be an error in them.
    pytest.mark.filterwarnings("default"),
    pytest.mark.timeout(600),
]


def test_a_run_that_is_refused_is_told_once_and_over_with_the_run_that_is_not(
    mysql_server: SqlServer,
    mysql_sink: SqlServer,
    receiver: HttpReceiver,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_OPS", json.dumps({"conn_type": "http", "host": receiver.url}))
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://airflow.example.com")
    with open_shop(mysql_server, mysql_sink, tmp_path, "notified") as shop:
        path = shop.write_pipeline()
        text = path.read_text().replace("always: true", "always: false")
        path.write_text(text + "notify: {webhook: {conn_id: ops}}\n")
        dag = known_dag(path)
        shop.source.execute(
            "CREATE TABLE isam (a INT PRIMARY KEY) ENGINE=MyISAM", database=shop.source_database
        )
        path.write_text(path.read_text().replace('"notified_source.orders"', '"notified_source.*"'))
        for day in (MONDAY, TUESDAY):
            assert Run(dag, day).states["preflight"] == "failed"
        (told,) = receiver.got
        assert (told["kind"], told["over"]) == ("refused", False)
        assert "isam" in told["what"]
        assert told["link"].endswith("/cdc/page?dag_id=notified__sync")
        shop.source.execute("DROP TABLE isam", database=shop.source_database)
        assert set(Run(dag, WEDNESDAY).states.values()) == {"success"}
        assert receiver.kinds[1:] == [("refused", True)]
    assert TOKEN not in "".join(capfd.readouterr())
