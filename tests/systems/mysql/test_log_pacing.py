"""Where micro-batches end."""

from __future__ import annotations

import pytest

from airflow_cdc_provider.core.errors import PositionWentBackError
from airflow_cdc_provider.systems.mysql.positions.gtid import GtidSet
from airflow_cdc_provider.systems.mysql.positions.position import BinlogPosition, MySqlPosition
from airflow_cdc_provider.systems.mysql.source.log_pacing import (
    LogFile,
    bytes_between,
    next_end,
)
from tests.strategies import UUIDS

FILES = (LogFile(1, 1000), LogFile(2, 500), LogFile(3, 900), LogFile(4, 200))


def at(file: int, offset: int, server: str = UUIDS[0]) -> MySqlPosition:
    return MySqlPosition(server, BinlogPosition(file, offset))


def test_nothing_new_is_the_very_start() -> None:
    start = MySqlPosition(UUIDS[0], BinlogPosition(4, 200), GtidSet.parse(f"{UUIDS[0]}:1-5"))
    assert next_end(start, at(4, 200)) is start


def test_a_position_that_went_back_is_refused() -> None:
    with pytest.raises(PositionWentBackError, match="where the stream is"):
        next_end(at(4, 200), at(4, 150))


def test_a_batch_is_the_rest_of_the_log_when_it_is_small() -> None:
    assert next_end(at(1, 900), at(4, 200), files=FILES, batch_bytes=10_000) == at(4, 200)


def test_a_large_backlog_is_cut_at_file_ends() -> None:
    ends, position = [], at(1, 100)
    while (end := next_end(position, at(4, 200), files=FILES, batch_bytes=800)) is not position:
        ends.append(end)
        position = end
    assert ends == [at(2, 4), at(3, 4), at(4, 4), at(4, 200)]


def test_a_bounded_run_ends_at_its_bound_and_not_at_what_came_later() -> None:
    bound = at(4, 100)
    assert next_end(at(4, 50), at(4, 200), bound=bound) == bound
    start = at(4, 100)
    assert next_end(start, at(4, 200), bound=bound) is start


def test_a_run_from_gtids_alone_reads_to_the_end_of_the_log() -> None:
    start = MySqlPosition(UUIDS[0], gtids=GtidSet.parse(f"{UUIDS[0]}:1-5"))
    assert next_end(start, at(4, 200)) == at(4, 200)


def test_another_server_is_read_to_its_own_end() -> None:
    other = at(1, 300, UUIDS[1])
    assert next_end(at(4, 200), other, bound=at(4, 900)) == other
    assert next_end(other, other, bound=at(4, 900)) is other


def test_the_log_between_two_places_is_counted_over_files() -> None:
    def between(start: MySqlPosition, end: MySqlPosition) -> int | None:
        assert start.binlog is not None
        assert end.binlog is not None
        return bytes_between(start.binlog, end.binlog, FILES)

    assert between(at(4, 50), at(4, 200)) == 150
    assert between(at(2, 400), at(4, 200)) == 100 + 900 + 200
    assert between(at(4, 200), at(4, 150)) is None
    assert between(at(4, 200), at(3, 900)) is None
    assert between(at(0, 100), at(4, 200)) is None
