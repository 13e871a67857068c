"""What stopped a table is in the ledger as an error, and comes back as it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from airflow_cdc_provider.core.errors import CdcError, RowRefusedError
from airflow_cdc_provider.core.splits import FinishedSplit
from airflow_cdc_provider.core.stored_error import NO_ERROR, StoredError
from airflow_cdc_provider.core.stream_split import hand_off
from tests.behaviours.sink_world import worlds
from tests.benchmarks.ranges import plans_of, reports_of
from tests.servers.families import FAMILIES
from tests.servers.given import SqlServer
from tests.systems.mysql.sink.world import MySqlSinkWorld

ERRORS = [
    RowRefusedError("no; where: here", "a 'table'", "; what to do: x", "`mend`\\"),
    RowRefusedError('{"what": "ä🙂"}\n\0\ud800', remedy="%s"),
    RowRefusedError(*["🙂" * 90_000] * 4),
]


@pytest.fixture
def world(
    family: str, request: pytest.FixtureRequest, fresh_database: Callable[[SqlServer], str]
) -> Iterator[MySqlSinkWorld]:
    server = request.getfixturevalue("mysql_sink" if family == "mysql" else "mariadb_server")
    yield from worlds(MySqlSinkWorld(server, fresh_database(server)))


@FAMILIES
@pytest.mark.parametrize("error", ERRORS, ids=["marks", "characters", "too long"])
def test_what_stopped_a_table_is_kept_whatever_its_texts_hold(
    world: MySqlSinkWorld, error: CdcError
) -> None:
    plans = plans_of(2)
    finished = reports_of(plans, 1)
    world.ledger.store_stream(
        hand_off([FinishedSplit.of(*each, backfilled=True) for each in finished])
    )
    table = plans[0].schema.table
    stored = StoredError.of(error.about(table))
    world.ledger.stop_tables([table], stored)
    (stopped,) = world.ledger.stopped()
    assert (stopped.error, stopped.is_paused) == (stored, False)
    back = stopped.error.read()
    assert (type(back), back.tables) == (RowRefusedError, (str(table),))
    world.ledger.say_of_stopped(table, NO_ERROR)
    assert [each.is_paused for each in world.ledger.stopped()] == [True]
    world.ledger.say_of_stopped(table, stored)
    assert [each.error for each in world.ledger.stopped()] == [stored]
