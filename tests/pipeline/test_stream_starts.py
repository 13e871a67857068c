"""Pipelines that start at a place of the log: each change from there is at the sink, none before.

One connection writes, and notes after each of its transactions where the log ends and what the
tables hold. A sink that is filled with the rows of a place and starts there ends as the source.
"""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime

import pytest

from airflow_cdc_provider.core.errors import (
    PipelineFileError,
    PreflightError,
    RefusedError,
    TableChangedError,
    TablesStoppedError,
)
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.pipeline.run import give_back
from airflow_cdc_provider.pipeline.steps.checking import check
from airflow_cdc_provider.pipeline.steps.range_requests import ask_resync, resync_scope
from airflow_cdc_provider.pipeline.steps.reset_drop import begin_again, drop, reset
from airflow_cdc_provider.pipeline.steps.sink import open_ledger
from airflow_cdc_provider.pipeline.steps.table_membership import reset_tables
from airflow_cdc_provider.pipeline.steps.verifying import verify
from airflow_cdc_provider.systems.mysql.positions.position import BinlogPosition, own
from airflow_cdc_provider.views.reports import status_lines
from airflow_cdc_provider.views.status import PipelineStatus, status
from tests.pipeline.conftest import FILE, Shop
from tests.pipeline.noted_log import Noted, Rows, Writer, all_rows, written_meanwhile
from tests.pipeline.synced_shops import synced
from tests.systems.changelog.world import events_in

ORDERS = "CREATE TABLE orders (id INT PRIMARY KEY, note VARCHAR(40))"
MOVES = "CREATE TABLE moves (id INT AUTO_INCREMENT PRIMARY KEY, at BIGINT, UNIQUE (at))"


@pytest.fixture
def shop(empty_shop: Shop) -> Shop:
    for sql in (ORDERS, MOVES, "INSERT INTO orders VALUES (1, 'first'), (400, 'first')"):
        empty_shop.at_source(sql)
    return empty_shop


@pytest.fixture
def writer(shop: Shop) -> Iterator[Writer]:
    seed = random.randrange(1 << 32)
    print(f"writer's seed: {seed}")
    with closing(shop.source.connect(database=shop.database)) as connection:
        yield Writer(shop, connection, random.Random(seed))


def write_file(shop: Shop, stream: str, *, keeps: bool = False) -> None:
    """Write the pipeline file with this `stream` section."""
    text = FILE.format(name=f"start_{shop.target}", source=shop.database, sink=shop.target)
    if keeps:
        text += "  existing_rows: keep\n"
    shop.path.write_text(f"{text}stream: {{mode: bounded, {stream}}}\n")


def fill_sink(shop: Shop, rows: Rows) -> None:
    """Put the rows of a place into the sink, as a restored dump has them."""
    with closing(shop.sink.connect(database=shop.target)) as connection:
        cursor = connection.cursor()
        for sql in ("DROP TABLE IF EXISTS orders, moves", ORDERS, MOVES):
            cursor.execute(sql)
        for table, key, value in rows:
            cursor.execute(f"INSERT INTO {table} VALUES (%s, %s)", (key, value))
        connection.commit()


def begin_anew(shop: Shop) -> None:
    """Forget all of the pipeline, as if it had never run."""
    run = shop.run()
    drop(run)
    give_back(run)


def stream_of(shop: Shop) -> StreamSplit:
    with closing(open_ledger(shop.run())) as ledger:
        stream = ledger.stream()
    assert stream is not None
    return stream


def began_at(shop: Shop) -> BinlogPosition:
    """Return where the sink's ledger says that the stream began."""
    began = stream_of(shop).began
    assert began is not None
    place = own(began.at).binlog
    assert place is not None
    return place


def noted_at(writer: Writer, place: BinlogPosition) -> Noted:
    """Return the last transaction before a place; MariaDB notes checkpoints in between."""
    return max((each for each in writer.noted if each.place <= place), key=lambda each: each.place)


def sink_rows(shop: Shop) -> Rows:
    with closing(shop.sink.connect(database=shop.target)) as connection:
        return all_rows(connection.cursor())


def status_of(shop: Shop) -> PipelineStatus:
    run = shop.run()
    return status(run.store, run.name, now_us=run.store.now_us())


def starts_of(noted: Noted, following: Noted) -> list[str]:
    """Return all that a file may say to begin behind a transaction."""
    moment = datetime.fromtimestamp(following.time_s, UTC).isoformat()
    return [
        f'start: {{position: "{noted.place}"}}',
        f'start: {{gtid: "{noted.gtids}"}}, apply: merged, writers: 2',
        f"start: {{timestamp: '{moment}'}}",
    ]


def test_a_sink_with_the_rows_of_a_place_follows_from_just_there(
    shop: Shop, writer: Writer
) -> None:
    writer.write(3)
    shop.source.execute("FLUSH BINARY LOGS")
    writer.write(6)
    noted, following = writer.noted[5:7]
    for start in starts_of(noted, following):
        write_file(shop, start, keeps=True)
        begin_anew(shop)
        fill_sink(shop, noted.rows)
        with written_meanwhile(writer):
            synced(shop)
        assert noted_at(writer, began_at(shop)) == noted, start
        reached = own(stream_of(shop).start)
        assert reached.binlog is not None
        last = noted_at(writer, reached.binlog)
        assert sink_rows(shop) == last.rows, start
        assert str(reached.gtids) == last.gtids.replace("\n", ""), start
    synced(shop)
    assert verify(shop.run()).equal
    assert any("began without a snapshot" in line for line in status_lines(status_of(shop)))
    # a stretch of the log, exact at both ends
    begin_anew(shop)
    fill_sink(shop, noted.rows)
    last = writer.noted[9]
    stop = f'stop: {{position: "{last.place}"}}'
    write_file(shop, f'start: {{position: "{noted.place}"}}, {stop}', keeps=True)
    synced(shop)
    assert sink_rows(shop) == last.rows
    assert status_of(shop).summary == "ended"
    # a new plan begins there again, and an empty stretch ends where it begins
    stop = f'stop: {{gtid: "{last.gtids}"}}'
    write_file(shop, f'start: {{gtid: "{last.gtids}"}}, {stop}', keeps=True)
    run = shop.run()
    assert "stream begins at" in reset(run)
    give_back(run)
    synced(shop)
    assert (noted_at(writer, began_at(shop)), sink_rows(shop)) == (last, last.rows)
    assert status_of(shop).summary == "ended"


def test_a_sink_that_begins_empty_gets_the_rows_that_are_changed_and_no_other(
    shop: Shop, writer: Writer
) -> None:
    writer.write(2)
    write_file(shop, "start: latest")
    at_plan = len(writer.noted)
    with written_meanwhile(writer):
        synced(shop)
    began = began_at(shop)
    index = writer.noted.index(noted_at(writer, began))
    assert index >= at_plan - 1
    moves = {row for row in writer.noted[-1].rows if row[0] == "moves"}
    before = {row for row in writer.noted[index].rows if row[0] == "moves"}
    synced(shop)
    mine = sink_rows(shop)
    assert {row for row in mine if row[0] == "moves"} == moves - before
    assert set(mine) <= set(writer.noted[-1].rows)
    # the place is kept; rows of before come by a request alone
    writer.write(1)
    synced(shop)
    assert began_at(shop) == began
    with pytest.raises(RefusedError, match="began without rows"):
        verify(shop.run())
    found = status_of(shop)
    assert not found.is_consistent
    assert {table.phase for table in found.tables} == {"following"}
    run = shop.run()
    ask_resync(run, resync_scope(run, []))
    synced(shop)
    assert sink_rows(shop) == writer.noted[-1].rows
    assert verify(shop.run()).equal
    assert status_of(shop).is_consistent
    # another start in the file is refused, and a lost state store knows where it began
    write_file(shop, "start: earliest")
    with pytest.raises(PipelineFileError, match="began with start: latest"):
        check(shop.run())
    shop.forget_state()
    with pytest.raises(PipelineFileError, match="began with start: latest"):
        synced(shop)
    write_file(shop, "start: latest")
    writer.write(1)
    synced(shop)
    assert began_at(shop) == began
    assert sink_rows(shop) == writer.noted[-1].rows
    started = status_of(shop).started
    assert started is not None
    assert started.start == "latest"


def kill_between_plan_and_first_commit(shop: Shop) -> None:
    """Begin a run in a process of its own, and kill that as soon as the ledger has a stream."""
    driver = subprocess.Popen(
        [sys.executable, "-m", "airflow_cdc_provider", "run", str(shop.path)],
        env={**os.environ, **shop.environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    with closing(open_ledger(shop.run())) as ledger:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and driver.poll() is None and ledger.stream() is None:
            time.sleep(0.001)
    driver.send_signal(signal.SIGKILL)
    driver.wait()


def test_a_run_that_is_killed_behind_its_plan_leaves_its_start_to_the_next_one(
    shop: Shop, writer: Writer
) -> None:
    writer.write(4)
    noted, following = writer.noted[2:4]
    at = datetime.fromtimestamp(following.time_s, UTC).isoformat()
    fill_sink(shop, noted.rows)
    write_file(shop, f"start: {{timestamp: '{at}'}}, max_batch: {{changes: 2}}", keeps=True)
    with written_meanwhile(writer):
        kill_between_plan_and_first_commit(shop)
        began = began_at(shop)
        synced(shop)
    assert began == began_at(shop)
    assert noted_at(writer, began) == noted
    synced(shop)
    assert sink_rows(shop) == writer.noted[-1].rows


def source_rows(shop: Shop, sql: str) -> list[tuple[object, ...]]:
    with closing(shop.source.connect(database=shop.database)) as connection:
        cursor = connection.cursor()
        cursor.execute(sql)
        return list(cursor.fetchall())


def stopped_text(shop: Shop) -> str:
    with closing(open_ledger(shop.run())) as ledger:
        return "\n".join(str(each.error) for each in ledger.stopped())


def test_log_of_another_definition_stops_its_table_with_the_place(
    shop: Shop, writer: Writer
) -> None:
    place = writer._note().place
    writer.write(2)
    shop.at_source("ALTER TABLE orders ADD COLUMN more INT DEFAULT 7")
    shop.at_source("CREATE TABLE late (id INT PRIMARY KEY)")
    shop.at_source("INSERT INTO late VALUES (1), (2)")
    shop.at_source("TRUNCATE TABLE late")
    shop.at_source("INSERT INTO late VALUES (3)")
    writer.connection.cursor().execute("UPDATE orders SET more = 8 WHERE id = 400")
    writer.connection.commit()
    write_file(shop, f'start: {{position: "{place}"}}')
    with pytest.raises(TablesStoppedError):
        synced(shop)
    told = stopped_text(shop)
    assert f"rows of {shop.database}.orders with other columns" in told
    assert "where: log at " in told
    # a table that was made in between, and truncated, is as the log says
    assert shop.sink_rows("SELECT * FROM late") == [(3,)]
    assert shop.sink_rows("SELECT * FROM orders") == []


@pytest.mark.parametrize(
    ("was", "value", "now"),
    [
        ("TIME(6)", "'10:00:00.6'", "TIME"),
        ("DATETIME(6)", "'2024-01-01 10:00:00.6'", "DATETIME(3)"),
        ("VARCHAR(9)", "'0'", "ENUM('x', 'y', '')"),
        ("ENUM('x', 'z')", "'z'", "ENUM('x', 'y')"),
        ("VARCHAR(9)", "'a '", "CHAR(9)"),
        ("VARBINARY(9)", "'ab'", "BINARY(4)"),
    ],
)
def test_values_of_another_type_that_looks_alike_stop_their_table(
    shop: Shop, writer: Writer, was: str, value: str, now: str
) -> None:
    place = writer._note().place
    shop.at_source(f"CREATE TABLE other (id INT PRIMARY KEY, v {was})")
    shop.at_source(f"INSERT INTO other VALUES (1, {value})")
    shop.at_source(
        "CREATE TABLE late (id INT PRIMARY KEY, v ENUM('a', 'é ', '') CHARACTER SET latin1, "
        "t TIME(3), c CHAR(3), s SET('x', 'ü') CHARACTER SET utf8mb3, b BINARY(4), d DATETIME(6), "
        "m TIMESTAMP(2) NULL, g CHAR(9) CHARACTER SET gbk, n NCHAR(4), e BINARY(16), "
        "twice CHAR(6) AS (HEX(id)) STORED, f BIT(3), o ENUM('一') CHARACTER SET sjis)"
    )
    shop.at_source(
        "INSERT INTO late (id, v, t, c, s, b, d, m, g, n, f, o) VALUES (1, 'é', '10:00:00.6', 'c', "
        "'x,ü', 'b', '2024-01-01 10:00:00.6', '2024-01-01 10:00:00.6', '一', 'n', 5, '一')"
    )
    with closing(shop.source.connect(database=shop.database)) as connection:
        for statement in (
            "SET sql_log_bin = 0",
            "DELETE FROM other",
            f"ALTER TABLE other MODIFY v {now}",
        ):
            connection.cursor().execute(statement)
        connection.commit()
    write_file(shop, f'start: {{position: "{place}"}}')
    with pytest.raises(TablesStoppedError):
        synced(shop)
    assert f"rows of {shop.database}.other with other columns than it has now: v was " in (
        stopped_text(shop)
    )
    columns = "id, v, t, c, s, b, d, m, g, n, e, twice, f, o"
    assert shop.sink_rows(f"SELECT {columns} FROM late") == source_rows(
        shop, f"SELECT {columns} FROM late"
    )
    assert shop.sink_rows("SELECT * FROM other") == []
    reset_tables(shop.run(), [TableId(shop.database, "other")])
    synced(shop)
    assert shop.sink_rows("SELECT * FROM other") == []


@pytest.mark.parametrize("empty_shop", ["mysql"], indirect=True)
def test_a_statement_before_the_plan_stops_its_table_until_its_rows_are_read(
    shop: Shop, writer: Writer
) -> None:
    writer.write(1)
    shop.at_source("ALTER TABLE moves ADD COLUMN more INT")
    write_file(shop, f'start: {{position: "{writer.noted[0].place}"}}')
    with pytest.raises(TablesStoppedError):
        synced(shop)
    assert "a statement changed" in stopped_text(shop)
    # its rows are read as they are now, and from then on its definition is followed as ever
    run = shop.run()
    begin_again(run, [TableId(shop.database, "moves")])
    give_back(run)
    shop.at_source("ALTER TABLE moves ADD COLUMN again INT DEFAULT 9")
    shop.at_source("INSERT INTO moves VALUES (900, 1, 2, 3)")
    synced(shop)
    of_moves = "SELECT id, at, more, again FROM moves ORDER BY id"
    assert shop.sink_rows(of_moves) == source_rows(shop, of_moves)
    assert verify(shop.run(), tables=[TableId(shop.database, "moves")]).equal


@pytest.mark.parametrize("empty_shop", ["mariadb"], indirect=True)
def test_all_tables_that_are_reset_by_name_are_read_and_begin_nowhere_else(shop: Shop) -> None:
    shop.at_source("DROP TABLE moves")
    write_file(shop, "start: latest")
    synced(shop)
    began = began_at(shop)
    shop.at_source("ALTER TABLE orders DROP PRIMARY KEY, ADD PRIMARY KEY (id, note)")
    shop.at_source("INSERT INTO orders VALUES (900, 'since')")
    with pytest.raises(TableChangedError, match="its key is another one now"):
        synced(shop)
    shop.sink.execute("DROP TABLE orders", database=shop.target)
    run = shop.run()
    begin_again(run, [TableId(shop.database, "orders")])
    give_back(run)
    synced(shop)
    of_orders = "SELECT * FROM orders ORDER BY id"
    assert shop.sink_rows(of_orders) == source_rows(shop, of_orders)
    assert began_at(shop) == began


def untagged(gtids: str) -> tuple[str, ...]:
    """Return what is before the last server's name, the name, its last number, and its tags."""
    found = re.fullmatch(r"(.*?)([0-9a-f-]{36}):1-(\d+)((?::[a-z_][^,]*)?)", gtids)
    assert found is not None, gtids
    return found.groups()


@pytest.mark.parametrize("empty_shop", ["mysql"], indirect=True)
def test_a_start_that_the_log_does_not_have_is_refused_with_what_to_write(
    shop: Shop, writer: Writer
) -> None:
    writer.write(5)
    noted = writer.noted
    inside, gtids = noted[2].place, noted[3].gtids
    before, uuid, last, tagged = untagged(gtids)
    number = int(last)
    wrong = {
        f'{{position: "{inside.at(inside.offset - 1)}"}}': f"from {noted[1].place} to {inside}",
        '{position: "other.000001:4"}': "are named",
        '{position: "binlog"}': "no position",
        f'{{position: "{inside.base}.999999:4"}}': "does not have",
        f'{{gtid: "{gtids},{uuid}:{number + 90}"}}': "does not have",
        f'{{gtid: "{before}{uuid}:1-{number - 2}:{number}{tagged}"}}': "leaves out",
        '{gtid: "nonsense"}': "nonsense",
        "{timestamp: '2001-01-01T00:00:00Z'}": "does not go back so far",
        "{timestamp: '2999-01-01T00:00:00Z'}": "is to come",
    }
    for start, words in wrong.items():
        write_file(shop, f"start: {start}")
        (found,) = [each for each in check(shop.run()).findings if each.code == "stream.places"]
        assert words in found.observed, start
        with pytest.raises(PreflightError):
            synced(shop)
    write_file(
        shop, f'start: {{position: "{noted[2].place}"}}, stop: {{position: "{noted[1].place}"}}'
    )
    with pytest.raises(PreflightError, match="beyond the stop"):
        synced(shop)
    assert shop.sink_rows("SHOW TABLES") == []
    # rows of nobody are refused unless the file says what they are
    fill_sink(shop, noted[2].rows)
    write_file(shop, f'start: {{position: "{noted[2].place}"}}')
    with pytest.raises(PreflightError, match="existing_rows: keep"):
        synced(shop)
    # a pipeline that began with a snapshot does not become one without
    shop.sink.execute(f"DROP TABLE {shop.target}.orders, {shop.target}.moves")
    write_file(shop, "start: after_snapshot")
    synced(shop)
    write_file(shop, "start: latest")
    with pytest.raises(PipelineFileError, match="began with start: after_snapshot"):
        synced(shop)


@pytest.mark.parametrize("empty_shop", ["mysql"], indirect=True)
def test_a_change_log_of_a_stretch_makes_the_rows_of_its_end_of_those_of_its_start(
    shop: Shop, writer: Writer
) -> None:
    writer.write(12)
    first, last = writer.noted[3], writer.noted[9]
    folder = shop.path.parent / "changes"
    write_file(shop, f'start: {{gtid: "{first.gtids}"}}, stop: {{position: "{last.place}"}}')
    to_server = f'  dsn_env: DR_DSN\n  route: {{"{shop.database}.*": "{shop.target}.*"}}\n'
    to_files = f"  type: changelog\n  path: {folder}\n"
    shop.path.write_text(shop.path.read_text().replace(to_server, to_files))
    with written_meanwhile(writer):
        synced(shop)
    rows = {row[:2]: row for row in first.rows}
    for table in ("orders", "moves"):
        for event in events_in(folder, f"{shop.database}.{table}"):
            before, after = event["before"], event["after"]
            key = table, str(event["key"]["id"])
            # each change is there once, and fits the rows that those before it have left
            assert (key in rows) is (before is not None), event
            if before is not None:
                assert rows.pop(key) == (table, *map(str, before.values()))
            if after is not None:
                rows[key] = (table, *map(str, after.values()))
    assert sorted(rows.values(), key=str) == last.rows
