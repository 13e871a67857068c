"""A source written to all the while flows into tables of Iceberg and Delta, whoever is killed."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from tests.end_to_end.changelog import CommandLine
from tests.end_to_end.crashes import Writing, fill
from tests.servers.accounts import source_account
from tests.servers.throwaway import MariaDbServer, MySqlServer, ThrowawayServer
from tests.systems.lake.reading import table_of
from tests.systems.lake.world import rows_now

if TYPE_CHECKING:
    import pyarrow as pa

TABLES = {"items": ("id", "v", "n"), "codes": ("code", "n"), "pairs": ("a", "b", "u")}
EXACT = {"items": ["id"], "pairs": ["a", "b"]}
"""Those whose snapshot has no row that a change behind it tells again."""
SEED = random.randrange(1_000)
KILLS = 4


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("kind", "form"),
    [(MySqlServer, "iceberg"), (MariaDbServer, "delta")],
    ids=["mysql-iceberg", "mariadb-delta"],
)
def test_a_lakes_tables_are_the_sources_though_the_writer_is_killed(
    kind: type[ThrowawayServer], form: str, tmp_path: Path
) -> None:
    print(f"seed {SEED}")
    rng = random.Random(SEED)
    with kind() as source:
        fill(source)
        dsn = source_account(source, "crash").dsn
        tables = [f"crash.{table}" for table in TABLES]
        run = CommandLine(tmp_path, dsn, *tables, sink=f"type: {form}, commit_seconds: 1")
        text = run.file.read_text().replace("spark: {always: true, ", "spark: {")
        run.file.write_text(text.replace("mode: bounded", "mode: continuous"))
        with Writing(source, SEED) as writing:
            for _ in range(KILLS):
                process = run.started("run")
                time.sleep(rng.uniform(3, 8))
                process.send_signal(signal.SIGKILL)
                process.wait()
        assert writing.transactions > 0
        for _ in range(2):
            code, told = run("run", "--until", "caught-up")
            assert code == 0, told
        queries = run.queries()
        for table, columns in TABLES.items():
            changes = table_of(form, run.log, f"crash.{table}")
            query = queries[f"crash.{table}"]
            assert _current(query, table, changes) == _rows_of(source, table, columns), table
            if table in EXACT:
                rows_now(changes, EXACT[table])


def _current(query: str, table: str, changes: pa.Table) -> list[Any]:
    """The table's current rows by the query that `show` prints, as texts."""
    with duckdb.connect() as connection:
        connection.register("changes", changes)
        found = connection.sql(query.replace(f'"crash"."{table}"', "changes"))
        return sorted(tuple(map(_text, row)) for row in found.fetchall())


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _rows_of(source: ThrowawayServer, table: str, columns: tuple[str, ...]) -> list[Any]:
    texts = ", ".join(f"CAST({column} AS CHAR)" for column in columns)
    return sorted(source.execute(f"SELECT {texts} FROM crash.{table}"))
