"""A stream outlives an outage of a lake's tables, and one of its folder, and tells of both."""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from airflow_cdc_provider.core.identifiers import PipelineName
from airflow_cdc_provider.core.records import OUTAGE_OVER, NoteKind
from airflow_cdc_provider.state.store import SqlStateStore, open_store
from tests.end_to_end.changelog import CommandLine
from tests.servers.given import SqlServer
from tests.servers.patience import wait_until
from tests.systems.lake.reading import table_of

NAME = PipelineName("changes")


@pytest.mark.timeout(300)
def test_tables_that_cannot_be_committed_and_a_folder_that_is_gone_are_outages_until_they_can(
    mysql_server: SqlServer, mysql_database: str, tmp_path: Path
) -> None:
    table = f"{mysql_database}.items"
    mysql_server.execute(f"CREATE TABLE {table} (id INT AUTO_INCREMENT PRIMARY KEY)")
    run = CommandLine(tmp_path, mysql_server.dsn(), table, sink="type: iceberg, commit_seconds: 1")
    text = run.file.read_text().replace("spark: {always: true, ", "spark: {")
    run.file.write_text(text.replace("mode: bounded", "mode: continuous"))
    assert run("run", "--until", "caught-up")[0] == 0
    catalog = sqlite3.connect(run.log / "catalog.db", isolation_level=None)
    catalog.execute("BEGIN EXCLUSIVE")
    mysql_server.execute(f"INSERT INTO {table} VALUES (NULL), (NULL)")
    process = run.started("run")
    try:
        with closing(open_store(run.environment["LOG_STATE"])) as store:
            wait_until(lambda: bool(outages(store)), seconds=60)
            seen = []
            until_s = time.monotonic() + 12
            while time.monotonic() < until_s:
                mysql_server.execute(f"INSERT INTO {table} VALUES (NULL)")
                seen.append(outages(store))
                time.sleep(0.3)
            assert {tuple(each) for each in seen} == {("tables",)}
            assert overs(store) == []
            assert told_code(run) == "CDC-SNK-001"
            catalog.rollback()
            wait_until(lambda: bool(overs(store)), seconds=60)
            assert outages(store) == []
            away = run.log.rename(tmp_path / "away")
            mysql_server.execute(f"INSERT INTO {table} VALUES (NULL)")
            wait_until(lambda: told_code(run) == "CDC-SNK-005", seconds=60)
            assert not run.log.exists()
            away.rename(run.log)
            wait_until(lambda: len(overs(store)) > 1, seconds=60)
        assert run("pause")[0] == 0
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        catalog.close()
    assert table_of("iceberg", run.log, table).num_rows == 3 + len(seen)


def outages(store: SqlStateStore) -> list[str]:
    """The parts of the job that are failing, by its last note."""
    note = store.note(NAME, NoteKind.OUTAGES)
    return [] if note is None else [each["part"] for each in note.form["outages"]]


def told_code(run: CommandLine) -> str:
    """The code of the outage that `status` tells of; empty if there is none."""
    told = json.loads(run("status", "--json")[1])["outages"]
    return str(told[0]["error"]["code"]) if told else ""


def overs(store: SqlStateStore) -> list[str]:
    """What the events say of outages that are over."""
    return [each.text for each in store.events(NAME) if each.text.startswith(OUTAGE_OVER)]
