"""The ledger's store in a change log."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from airflow_cdc_provider.core.errors import IntegrityError
from airflow_cdc_provider.core.known_log import NONE_APART, KnownLog
from airflow_cdc_provider.core.splits import FinishedSplit
from airflow_cdc_provider.core.stored_error import NO_ERROR, StoredError
from airflow_cdc_provider.core.stream_split import hand_off
from airflow_cdc_provider.engine.ledger.records import (
    ApartKept,
    ChangeBegun,
    ChangeEnded,
    ChangesCounted,
    PositionSet,
    Records,
    SlotMoved,
    SlotsRewritten,
    StoppedForgotten,
    StoppedMoved,
    StoppedSaid,
    StreamStored,
    TablesOwned,
    TableStopped,
)
from airflow_cdc_provider.systems.file_log import manifest as manifest_module
from airflow_cdc_provider.systems.file_log.manifest import Manifest
from airflow_cdc_provider.systems.file_log.state import LogState
from airflow_cdc_provider.systems.file_log.stored_records import record_from_json, record_to_json
from tests.behaviours.ledger_asks import altered, state
from tests.behaviours.ledger_behaviours import ChangingTablesBehaviours
from tests.behaviours.sink_world import insert
from tests.behaviours.source_log import at
from tests.systems.changelog.world import ChangelogWorld


class TestLedgerOfAChangeLog(ChangingTablesBehaviours):
    pass


def test_a_checkpoint_holds_all_that_was_decided(
    world: ChangelogWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest_module, "CHECKPOINT_EVERY", 1)
    stream = world.hand_off(orders=[(1, "a")])
    orders, seats = world.orders.schema.table, world.seats.schema.table
    world.changes().apply(world.batch([insert(2, "b")]))
    world.ledger.stop_tables([seats])
    world.ledger.begin_changes([altered(world.orders, through=150)])
    found = Manifest(world.root, str(world.pipeline)).read()
    assert [each.table for each in found.stopped] == [seats]
    assert found.begun == (altered(world.orders, through=150),)
    assert found.apart.of(seats) is not None
    assert LogState.from_json(json.loads(json.dumps(found.to_json()))) == found
    other = world.opened(world.under(1).open_ledger())
    assert state(other) == state(world.ledger)
    world.ledger.end_change(altered(world.orders, through=150))
    again = Manifest(world.root, str(world.pipeline)).read()
    progress = again.stream.progress_of(orders) if again.stream else None
    assert progress is not None
    assert (progress.applied_through, again.begun, stream.start) == (at(150), (), at(100))


def test_what_the_log_holds_of_a_table_that_leaves_stays(world: ChangelogWorld) -> None:
    world.hand_off(orders=[(1, "a")])
    world.changes().apply(world.batch([insert(2, "b")]))
    world.ledger.change_tables(removed=[world.orders.schema.table])
    assert [each for each, _ in world.ledger.reports()] == [world.split(of="seats")]
    assert world.held() == [(1, "a"), (2, "b")]


def test_rows_of_a_table_that_begins_again_at_the_hand_off_do_not_count(
    world: ChangelogWorld,
) -> None:
    """Some of them were read before its definition changed, and no change of it follows them."""
    sink, seats = world.splits(), world.split(of="seats")
    world.publish(sink, world.split(), (1, "half read"))
    finished = FinishedSplit.of(seats, world.publish(sink, seats), backfilled=True)
    orders = world.orders.schema.table
    stream = hand_off([finished]).with_tables({orders: at(100)}, ())
    world.ledger.store_stream(stream, [altered(world.orders, rereads=True)])
    assert world.ledger.stream() == stream
    assert [split for split, _ in world.ledger.reports()] == [seats]
    assert world.events() == []


def test_a_manifest_of_a_newer_release_is_refused(world: ChangelogWorld) -> None:
    world.hand_off()
    manifest = Manifest(world.root, str(world.pipeline))
    with pytest.raises(IntegrityError, match="'of tomorrow', which this release does not know"):
        manifest.commit(1, lambda _: {"do": "records", "records": [{"is": "of tomorrow"}]})


def test_each_record_is_read_as_it_was_stored(world: ChangelogWorld) -> None:
    stream, table = world.hand_off(), world.orders.schema.table
    alone = replace(stream, tables=stream.tables[:1])
    apart = NONE_APART.stopped([table], at(100))
    records: Records = (
        StreamStored(stream),
        SlotsRewritten((stream,)),
        PositionSet(at(7)),
        SlotMoved(0, at(8)),
        SlotMoved(0, at(8), KnownLog(at(9), apart)),
        ApartKept(apart),
        TablesOwned(frozenset({table}), (table,)),
        ChangesCounted({table: 3}, at(10)),
        ChangeBegun(altered(world.orders)),
        ChangeEnded(table),
        TableStopped(alone, StoredError.saying("no")),
        StoppedMoved(alone),
        StoppedSaid(table, NO_ERROR),
        StoppedForgotten(table),
    )
    stored = json.loads(json.dumps([record_to_json(each) for each in records]))
    assert tuple(map(record_from_json, stored)) == records
