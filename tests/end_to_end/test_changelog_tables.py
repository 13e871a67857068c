"""Tables that are altered, added and dropped while the writer of their change log is killed."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.changelog import CommandLine
from tests.pipeline.change_logs import rows_of
from tests.servers.given import SqlServer
from tests.systems.changelog.world import events_in

STATEMENTS = (
    "ALTER TABLE altered ADD COLUMN more INT NOT NULL DEFAULT 7",
    "ALTER TABLE altered RENAME COLUMN note TO remark",
    "CREATE TABLE later (id INT PRIMARY KEY, n INT)",
    "ALTER TABLE altered MODIFY n BIGINT",
    "REPLACE INTO later (id, n) VALUES (1, 1), (2, 2), (50, 3)",
    "ALTER TABLE altered DROP COLUMN gone",
    "ALTER TABLE altered MODIFY remark VARCHAR(3)",
    "ALTER TABLE plain ADD COLUMN w INT DEFAULT 1, ADD COLUMN x INT",
    "TRUNCATE TABLE later",
    "ALTER TABLE altered ADD COLUMN most VARCHAR(9) DEFAULT 'm' FIRST",
)
DEFAULTS = {"more": 7, "w": 1, "most": "m"}
NAMES = {"remark": "note"}
KEYS = 40


class Writing:
    """Writes rows of all tables that are there, one transaction after another."""

    def __init__(self, server: SqlServer, database: str, rng: random.Random) -> None:
        self._server, self._database, self._rng = server, database, rng
        self._ending = threading.Event()
        self.failures: list[BaseException] = []
        self.transactions = 0

    def run(self) -> None:
        try:
            with closing(self._server.connect(database=self._database)) as connection:
                while not self._ending.is_set():
                    self._transaction(connection)
                    time.sleep(self._rng.uniform(0.001, 0.03))
        except BaseException as error:  # noqa: BLE001 - raised by the test
            self.failures.append(error)

    def _transaction(self, connection: Any) -> None:
        cursor = connection.cursor()
        cursor.execute("SHOW TABLES")
        tables = [row[0] for row in cursor.fetchall()]
        for _ in range(self._rng.randint(1, 4)):
            table, key = self._rng.choice(tables), self._rng.randint(1, KEYS)
            value = self._rng.randint(0, 1000)
            cursor.execute(
                self._rng.choice(
                    (
                        f"REPLACE INTO {table} (id, n) VALUES ({key}, {value})",
                        f"UPDATE {table} SET n = {value} WHERE id BETWEEN {key} AND {key + 3}",
                        f"DELETE FROM {table} WHERE id = {key}",
                    )
                )
            )
        connection.commit()
        self.transactions += 1

    @contextmanager
    def going_on(self) -> Iterator[None]:
        thread = threading.Thread(target=self.run)
        thread.start()
        try:
            yield
        finally:
            self._ending.set()
            thread.join(30)


def killed_run(run: CommandLine, after_s: float) -> None:
    """Run the pipeline in a process of its own, and kill it after a while."""
    words = [sys.executable, "-m", "airflow_cdc_provider", "run", "--until", "caught-up"]
    process = subprocess.Popen(
        [*words, str(run.file)],
        env=run.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        process.wait(after_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("form", ["json", "parquet"])
@pytest.mark.sample(2, of="whole change logs")
def test_the_log_of_tables_that_change_under_a_killed_writer_makes_the_sources_rows(
    mysql_server: SqlServer, mysql_database: str, tmp_path: Path, form: str
) -> None:
    seed = int(os.environ.get("CDC_SEED", random.randrange(1 << 30)))
    print(f"seed {seed}")
    rng = random.Random(seed)
    execute(
        mysql_server,
        mysql_database,
        "CREATE TABLE altered (id INT PRIMARY KEY, note VARCHAR(40), n INT, gone INT)",
        "CREATE TABLE plain (id INT PRIMARY KEY, n INT)",
        *(f"INSERT INTO altered VALUES ({key}, 'r{key}', 0, 1)" for key in range(1, KEYS)),
        *(f"INSERT INTO plain VALUES ({key}, 0)" for key in range(1, KEYS)),
    )
    run = CommandLine(tmp_path, mysql_server.dsn(), f"{mysql_database}.*", form=form)
    text = run.file.read_text().replace("spark: {always: true, ", "spark: {")
    run.file.write_text(text.replace("split_rows: 700", "split_rows: 15"))
    writing = Writing(mysql_server, mysql_database, rng)
    with writing.going_on():
        code, told = run("run", "--until", "caught-up")
        assert code == 0, told
        for statement in STATEMENTS:
            execute(mysql_server, mysql_database, statement)
            for _ in range(rng.randint(1, 2)):
                killed_run(run, rng.uniform(0.8, 4))
    assert not writing.failures, writing.failures
    assert writing.transactions > 50
    for _ in range(2):
        code, told = run("run", "--until", "caught-up")
        assert code == 0, told
    for table in ("altered", "plain", "later"):
        names = columns(mysql_server, mysql_database, table)
        events = events_in(run.log, f"{mysql_database}.{table}")
        made = [texts(row, names) for row in rows_of(events)]
        chosen = ", ".join(names)
        query = f"SELECT {chosen} FROM {table}"
        there = [tuple(map(str, row)) for row in rows(mysql_server, mysql_database, query)]
        assert sorted(made) == sorted(there), table


def texts(row: dict[str, Any], names: Sequence[str]) -> tuple[str, ...]:
    """A row of the log in the source's columns of now, with what statements gave it."""
    found = {**DEFAULTS, **{new: row.get(old) for new, old in NAMES.items()}, **row}
    return tuple(str(found.get(name)) for name in names)


def execute(server: SqlServer, database: str, *statements: str) -> None:
    with closing(server.connect(database=database)) as connection:
        for statement in statements:
            connection.cursor().execute(statement)
        connection.commit()


def rows(server: SqlServer, database: str, query: str) -> list[tuple[Any, ...]]:
    return list(server.execute(query, database=database))


def columns(server: SqlServer, database: str, table: str) -> list[str]:
    return [str(row[0]) for row in rows(server, database, f"SHOW COLUMNS FROM {table}")]
