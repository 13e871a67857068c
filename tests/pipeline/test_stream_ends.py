"""Pipelines that end: the sink is then as the source was at just that place of its log.

One connection writes, and notes after each of its transactions where the log ends and what the
tables hold. Nobody else writes to these logs, so each place that a stream may end at has its rows.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime

import pytest

from airflow_cdc_provider.columns.source_port import FindsStops, offered
from airflow_cdc_provider.core.errors import NotConsistentError, RefusedError
from airflow_cdc_provider.core.lifecycle import Phase
from airflow_cdc_provider.core.stream_stops import StreamStop
from airflow_cdc_provider.pipeline.run import give_back, take_over
from airflow_cdc_provider.pipeline.steps.converging import (
    Convergence,
    Watcher,
    run_until_caught_up,
)
from airflow_cdc_provider.pipeline.steps.range_requests import ask_resync, resync_scope
from airflow_cdc_provider.pipeline.steps.reset_drop import reset
from airflow_cdc_provider.pipeline.steps.sink import open_ledger, source_of
from airflow_cdc_provider.pipeline.steps.verifying import verify
from airflow_cdc_provider.systems.mysql.positions.position import BinlogPosition, own
from airflow_cdc_provider.views.status import PipelineStatus, status
from tests.pipeline.conftest import FILE, Shop
from tests.pipeline.noted_log import Rows, Writer, all_rows, written_meanwhile
from tests.pipeline.synced_shops import options


@pytest.fixture
def shop(empty_shop: Shop) -> Shop:
    empty_shop.at_source("CREATE TABLE orders (id INT PRIMARY KEY, note VARCHAR(40))")
    empty_shop.at_source(
        "CREATE TABLE moves (id INT AUTO_INCREMENT PRIMARY KEY, at BIGINT, UNIQUE (at))"
    )
    values = ", ".join(f"({number}, 'first')" for number in range(1, 400))
    empty_shop.at_source(f"INSERT INTO orders VALUES {values}")
    write_file(empty_shop, "mode: bounded")
    return empty_shop


@pytest.fixture
def writer(shop: Shop) -> Iterator[Writer]:
    seed = random.randrange(1 << 32)
    print(f"writer's seed: {seed}")
    with closing(shop.source.connect(database=shop.database)) as connection:
        yield Writer(shop, connection, random.Random(seed))


def write_file(shop: Shop, stream: str) -> None:
    """Write the pipeline file with this `stream` section."""
    text = FILE.format(name=f"end_{shop.target}", source=shop.database, sink=shop.target)
    text += f"snapshot: {{split_rows: 40, max_connections: 2}}\nstream: {{{stream}}}\n"
    shop.path.write_text(text)


def ran(shop: Shop, said: list[str] | None = None) -> Convergence:
    run, told = shop.run(), list[str]() if said is None else said
    try:
        return run_until_caught_up(run, options(shop), Watcher(on_change=told.append))
    finally:
        give_back(run)


def place_of(shop: Shop) -> BinlogPosition:
    """Return where the sink's ledger has the stream."""
    with closing(open_ledger(shop.run())) as ledger:
        stream = ledger.stream()
    assert stream is not None
    place = own(stream.start).binlog
    assert place is not None
    return place


def sink_rows(shop: Shop) -> Rows:
    with closing(shop.sink.connect(database=shop.target)) as connection:
        return all_rows(connection.cursor())


def status_of(shop: Shop) -> PipelineStatus:
    run = shop.run()
    return status(run.store, run.name, now_us=run.store.now_us())


def kill_once_it_moves(shop: Shop) -> None:
    """Begin a run in a process of its own, and kill that as soon as it has committed something."""
    began = place_of(shop)
    driver = subprocess.Popen(
        [sys.executable, "-m", "airflow_cdc_provider", "run", str(shop.path)],
        env={**os.environ, **shop.environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    with closing(open_ledger(shop.run())) as ledger:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and driver.poll() is None:
            stream = ledger.stream()
            if stream is not None and own(stream.start).binlog != began:
                break
            time.sleep(0.005)
    driver.send_signal(signal.SIGKILL)
    driver.wait()


def as_if_killed_at_the_end(shop: Shop) -> None:
    """Leave the state store as a driver does that is killed when it has reached its stop."""
    run = shop.run()
    with closing(open_ledger(run)) as ledger:
        state = take_over(run, ledger)
    run.store.move(run.name, state.generation, expected=state.phase, to=Phase.STREAMING)
    give_back(run)


def test_a_stream_ends_where_all_tables_are_of_one_position_however_much_is_written(
    shop: Shop, writer: Writer
) -> None:
    write_file(shop, "stop: consistent")
    writer.write(3)
    with written_meanwhile(writer):
        done = ran(shop)
    assert done.inconsistent == ()
    place = place_of(shop)
    assert sink_rows(shop) == writer.at(place)
    assert status_of(shop).summary == "ended"
    # it has ended for good: whatever comes, and wherever the source is
    writer.write(5)
    said: list[str] = []
    shop.environment["SHOP_DSN"] = "mysql://nobody@127.0.0.1:1/"
    as_if_killed_at_the_end(shop)
    again = ran(shop, said)
    assert not again.stream.is_needed
    assert "has ended at" in said[0]
    assert place_of(shop) == place
    assert sink_rows(shop) == writer.at(place)
    found = status_of(shop)
    assert (found.state.phase, found.summary) == (Phase.HANDED_OFF, "ended")
    assert found.state.lease_until_us == 0
    shop.environment["SHOP_DSN"] = shop.source.dsn()
    with pytest.raises(RefusedError, match="needs a stream that goes on"):
        resync_scope(shop.run(), ())
    with pytest.raises(RefusedError, match="cannot be compared"):
        verify(shop.run())
    as_it_was = shop.path.read_text()
    shop.path.write_text(as_it_was.replace('.*"]', '.*", "more.*"]'))
    with pytest.raises(RefusedError, match="not among the tables that it ended with"):
        ran(shop)
    # a later stop goes on from there, and never does too
    write_file(shop, f'stop: {{position: "{writer.noted[-2].place}"}}')
    ran(shop)
    assert sink_rows(shop) == writer.noted[-2].rows
    write_file(shop, "mode: bounded")
    run = shop.run()
    ask_resync(run, resync_scope(run, [f"{shop.database}.orders"]))
    ran(shop)
    assert sink_rows(shop) == writer.noted[-1].rows
    assert status_of(shop).summary == "caught up"
    # then that stop is behind, though it was reached before
    write_file(shop, f'stop: {{position: "{writer.noted[-2].place}"}}')
    with pytest.raises(RefusedError, match="beyond the stop"):
        ran(shop)
    write_file(shop, "mode: bounded")
    assert verify(shop.run()).equal


def test_a_time_is_sought_up_to_where_the_sink_is_and_in_no_file_behind(shop: Shop) -> None:
    shop.source.execute("FLUSH BINARY LOGS")  # others' transactions may be of a time to come
    shop.at_source("INSERT INTO orders VALUES (999, 'before')")
    shop.source.execute("FLUSH BINARY LOGS")  # the sink has nothing of this file
    ran(shop)
    file, rows = place_of(shop).file_number, sink_rows(shop)
    time.sleep(2)  # MariaDB's log tells seconds
    at = datetime.now(UTC)
    time.sleep(2)
    shop.at_source("INSERT INTO orders VALUES (1000, 'later')")
    shop.source.execute("FLUSH BINARY LOGS")
    shop.at_source("INSERT INTO orders VALUES (1001, 'last')")
    write_file(shop, f"mode: bounded, stop: {{timestamp: '{at.isoformat()}'}}")
    ran(shop)
    assert (place_of(shop).file_number, sink_rows(shop)) == (file, rows)
    assert status_of(shop).summary == "ended"


def test_a_stream_ends_just_at_a_position_a_gtid_set_and_a_time_also_if_it_is_killed(
    shop: Shop, writer: Writer
) -> None:
    ran(shop)
    writer.write(130)
    noted = writer.noted
    write_file(shop, f'apply: merged, writers: 2, stop: {{position: "{noted[4].place}"}}')
    with written_meanwhile(writer):
        ran(shop)
    assert (place_of(shop), sink_rows(shop)) == (noted[4].place, noted[4].rows)
    # a driver that is killed before the stop leaves the same place to the next one
    write_file(shop, f'max_batch: {{changes: 3}}, stop: {{gtid: "{noted[110].gtids}"}}')
    kill_once_it_moves(shop)
    between = place_of(shop)
    assert noted[4].place < between <= noted[110].place
    assert sink_rows(shop) == writer.at(between)
    with written_meanwhile(writer):
        ran(shop)
    assert (place_of(shop), sink_rows(shop)) == (noted[110].place, noted[110].rows)
    at = datetime.fromtimestamp(noted[120].time_s, UTC).isoformat()
    write_file(shop, f"stop: {{timestamp: '{at}'}}")
    ran(shop)
    assert sink_rows(shop) == noted[120].rows
    assert status_of(shop).summary == "ended"
    # what the log does not have yet is waited for, run by run
    end = noted[-1].place
    last = BinlogPosition(end.file_number + 1, 4, end.base)
    write_file(shop, f'stop: {{position: "{last}"}}')
    ran(shop)
    assert (place_of(shop), sink_rows(shop)) == (end, noted[-1].rows)
    assert status_of(shop).summary == "caught up"
    shop.source.execute("FLUSH BINARY LOGS")
    writer.write(2)
    ran(shop)
    assert (place_of(shop), sink_rows(shop)) == (last, noted[-3].rows)
    assert status_of(shop).summary == "ended"
    # what the sink has is later than this, also where only the file before says so
    source = source_of(shop.run())
    with closing(open_ledger(shop.run())) as ledger, closing(source.log_end(purpose="test")) as log:
        stream, stop = ledger.stream(), StreamStop.at("timestamp", at)
        assert stream is not None
        with pytest.raises(RefusedError, match="is later, and they have it"):
            offered(source, FindsStops).stop_place(stop, stream.reach, log.now())


@pytest.mark.parametrize("empty_shop", ["mysql"], indirect=True)
def test_a_stop_that_cannot_be_kept_is_refused_with_what_to_write(
    shop: Shop, writer: Writer
) -> None:
    writer.write(3)
    early, first = writer.noted[0], writer.noted[1]
    write_file(shop, f'stop: {{position: "{early.place}"}}')
    with pytest.raises(RefusedError, match="beyond the stop"):
        ran(shop)
    assert shop.sink_rows("SHOW TABLES") == []  # it is told before anything is read
    write_file(shop, "mode: bounded")
    ran(shop)
    before = sink_rows(shop)
    writer.write(4)
    inside, later = writer.noted[4].place, writer.noted[5].gtids
    uuid = later.split(",")[-1].split(":")[0]
    wrong = {
        ("position", str(early.place)): "beyond the stop",
        ("position", str(inside.at(inside.offset - 1))): f"{writer.noted[3].place} to {inside}",
        ("position", "other.000001:4"): "are named",
        ("position", "binlog"): "no position",
        ("gtid", first.gtids): "leaves out",
        ("gtid", f"{uuid}:{later.rpartition('-')[2]}"): "leaves out",
        ("gtid", "nonsense"): "nonsense",
        ("timestamp", datetime.fromtimestamp(first.time_s, UTC).isoformat()): "is later",
    }
    source = source_of(shop.run())
    with closing(open_ledger(shop.run())) as ledger, closing(source.log_end(purpose="test")) as end:
        stream = ledger.stream()
        assert stream is not None
        for (kind, value), words in wrong.items():
            stop = StreamStop.at(kind, value)
            with pytest.raises(RefusedError) as refused:
                offered(source, FindsStops).stop_place(stop, stream.reach, end.now())
            assert words in str(refused.value), stop
    assert sink_rows(shop) == before
    write_file(shop, "mode: bounded")
    ran(shop)
    assert sink_rows(shop) == writer.noted[-1].rows
    # rows that have to be read again would be of a later place
    shop.at_source("ALTER TABLE moves MODIFY at VARCHAR(30)")
    writer.write(2)
    write_file(shop, f'stop: {{position: "{writer.noted[-2].place}"}}')
    with pytest.raises(NotConsistentError, match="rows are still to be read"):
        ran(shop)
    assert place_of(shop) == writer.noted[-2].place
    assert status_of(shop).summary != "ended"
    write_file(shop, "stop: consistent")
    ran(shop)
    assert sink_rows(shop) == writer.noted[-1].rows
    assert status_of(shop).summary == "ended"


@pytest.mark.parametrize("empty_shop", ["mariadb"], indirect=True)
def test_a_snapshot_alone_has_each_split_as_of_its_own_high_watermark(
    shop: Shop, writer: Writer
) -> None:
    write_file(shop, "mode: snapshot_only")
    writer.write(2)
    done = ran(shop)
    assert done.snapshot is not None
    assert sink_rows(shop) == writer.noted[-1].rows
    found = status_of(shop)
    assert (found.summary, found.state.phase) == ("ended", Phase.HANDED_OFF)
    assert found.state.lease_until_us == 0
    writer.write(5)
    before, said = sink_rows(shop), list[str]()
    again = ran(shop, said)
    assert again.snapshot is None
    assert not again.stream.is_needed
    assert "has ended" in said[0]
    assert sink_rows(shop) == before
    with pytest.raises(RefusedError, match="needs a stream that goes on"):
        resync_scope(shop.run(), ())
    with pytest.raises(RefusedError, match="cannot be compared"):
        verify(shop.run())
    reset(run := shop.run())
    give_back(run)
    assert status_of(shop).summary != "ended"
    with written_meanwhile(writer):
        ran(shop)
    # a later mode goes on from the hand-off
    write_file(shop, "mode: bounded")
    ran(shop)
    assert sink_rows(shop) == writer.noted[-1].rows
    write_file(shop, "mode: snapshot_only")
    with pytest.raises(RefusedError, match="is handed off"):
        ran(shop)


@pytest.mark.parametrize("empty_shop", ["mysql"], indirect=True)
@pytest.mark.parametrize("stream", ["stop: consistent", "mode: snapshot_only"])
def test_a_change_log_ends_too_and_gets_no_more(shop: Shop, writer: Writer, stream: str) -> None:
    write_file(shop, stream)
    folder = shop.path.parent / "changes"
    to_server = f'  dsn_env: DR_DSN\n  route: {{"{shop.database}.*": "{shop.target}.*"}}\n'
    to_files = f"  type: changelog\n  path: {folder}\n"
    shop.path.write_text(shop.path.read_text().replace(to_server, to_files))
    with written_meanwhile(writer):
        ran(shop)
    held = sorted(path.name for path in folder.rglob("*"))
    writer.write(2)
    said: list[str] = []
    ran(shop, said)
    assert "has ended" in said[0]
    assert sorted(path.name for path in folder.rglob("*")) == held
