"""A sink without room keeps nothing of what did not fit, and says that it may come again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from airflow_cdc_provider.core.errors import RetryableError
from tests.behaviours.sink_world import insert, worlds
from tests.behaviours.source_log import at
from tests.servers.throwaway import MySqlServer
from tests.systems.mysql.sink.world import MySqlSinkWorld

pytestmark = pytest.mark.mysql
LARGE = 150_000


@pytest.fixture
def world() -> Iterator[MySqlSinkWorld]:
    """A sink whose tables lie in one file of 20 MB."""
    options = {
        "innodb_file_per_table": "OFF",
        "innodb_data_file_path": "ibdata1:12M:autoextend:max:20M",
    }
    with MySqlServer(options) as server:
        server.execute("CREATE DATABASE shop")
        yield from worlds(MySqlSinkWorld(server, "shop"))


def test_a_batch_that_the_sink_has_no_room_for_is_undone_and_can_come_again(
    world: MySqlSinkWorld,
) -> None:
    world.take_long_texts()
    world.hand_off(orders=[(1, "one")])
    with pytest.raises(RetryableError, match="error 1114"):
        world.changes().apply(
            world.batch([insert(2, "two")], [insert(n, "x" * LARGE) for n in range(3, 300)])
        )
    assert world.held() == [(1, "one")]
    assert world.ledger.stream().start == at(100)
    world.changes().apply(world.batch([insert(2, "two")]))
    assert world.held() == [(1, "one"), (2, "two")]
