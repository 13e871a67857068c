"""A log in a bucket: Spark's executors write it, its writer is killed, and no row is lost."""

from __future__ import annotations

import random
import threading
import time
from itertools import count
from pathlib import Path

import pytest

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.systems.file_log.layout import table_folder
from airflow_cdc_provider.systems.files.opening import open_files
from tests.end_to_end.changelog import CommandLine
from tests.pipeline.change_logs import rows_of
from tests.servers.given import SqlServer
from tests.servers.s3 import S3Server
from tests.systems.changelog.world import events_at

ROWS, KILLS, SEED = 5_000, 3, random.randrange(1_000)


def write(server: SqlServer, table: TableId, over: threading.Event) -> None:
    """Change rows until it is over."""
    rng = random.Random(SEED)
    for number in count(1):
        if over.wait(0.02):
            return
        key, other = rng.randrange(ROWS), ROWS + rng.randrange(50)
        server.execute(f"UPDATE {table} SET v = v + {number} WHERE id = {key}")
        server.execute(f"REPLACE INTO {table} VALUES ({other}, {number})")
        server.execute(f"DELETE FROM {table} WHERE id = {other - 1}")


@pytest.mark.timeout(600)
@pytest.mark.sample(2, of="whole change logs")
def test_a_log_in_a_bucket_makes_the_sources_rows_whoever_is_killed(
    mysql_server: SqlServer, mysql_database: str, s3_server: S3Server, tmp_path: Path
) -> None:
    print("seed", SEED)
    dice = random.Random(SEED)
    table = TableId(mysql_database, "t")
    mysql_server.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT)")
    numbers = ", ".join(f"({number}, 0)" for number in range(ROWS))
    mysql_server.execute(f"INSERT INTO {table} VALUES {numbers}")
    place = s3_server.folder(s3_server.fresh_bucket(), "logs/spark")
    run = CommandLine(tmp_path, mysql_server.dsn(), str(table))
    run.file.write_text(
        run.file.read_text().replace(
            f"path: {run.log}, ", f"path: {place.path}, dsn_env: CHANGES_S3, "
        )
    )
    run.environment["CHANGES_S3"] = s3_server.conn_uri

    over = threading.Event()
    writer = threading.Thread(target=write, args=(mysql_server, table, over), daemon=True)
    writer.start()
    try:
        for _ in range(KILLS):
            started = run.started("run", "--until", "caught-up")
            time.sleep(dice.uniform(4, 9))
            started.kill()
            started.wait()
    finally:
        over.set()
        writer.join(60)
    code, told = run("run", "--until", "caught-up")
    assert code == 0, told
    events = events_at(open_files(place.store), table_folder(table))
    made = {(row["id"], row["v"]) for row in rows_of(events)}
    assert made == set(mysql_server.execute(f"SELECT id, v FROM {table}"))
    secret = s3_server.access.secret.encode()
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert [file for file in files if secret in file.read_bytes()] == []
