"""A folder of the log to which several tables of the source go: what of it counts, and when."""

from __future__ import annotations

import json

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.systems.file_log.files import SealedFile
from airflow_cdc_provider.systems.file_log.layout import table_folder
from airflow_cdc_provider.systems.file_log.state import LogState
from airflow_cdc_provider.systems.file_log.unsettled import Unsettled, begun

ONE, TWO, THREE = (TableId("shop", f"orders_{number}") for number in (1, 2, 3))
ORDERS, OTHERS = TableId("shop", "orders"), TableId("shop", "others")
FOLDER = table_folder(ORDERS)


def log_of(*waiting: Unsettled) -> LogState:
    """A log with seven files of changes in the shared folder, of which two were taken over."""
    files = [SealedFile(f"{FOLDER}/{number}.parquet", 1, 1) for number in range(5)]
    return LogState(
        targets={ORDERS: (ONE, TWO, THREE), OTHERS: (OTHERS,)},
        changes={FOLDER: files},
        taken={FOLDER: 2},
        unsettled={FOLDER: waiting} if waiting else {},
        shards_begin={FOLDER: {TWO: 5}},
    )


def test_files_wait_for_the_first_of_the_tables_that_are_read() -> None:
    assert log_of().settled(FOLDER) == 7
    log = log_of(Unsettled(TWO, 5), Unsettled(ONE, 3))
    assert log.settled(FOLDER) == 3
    assert len(log.changes_from(FOLDER, 2)) == 1


def test_a_shard_that_begins_again_waits_from_where_it_began_first() -> None:
    waiting = begun((), ONE, 3, is_shard=True)
    waiting = begun(waiting, TWO, 5, is_shard=True)
    assert {*begun(waiting, ONE, 6, is_shard=True)} == {Unsettled(ONE, 3), Unsettled(TWO, 5)}
    # alone in its folder it takes the place of whoever had it before
    assert begun((Unsettled(TWO, 2),), ONE, 6, is_shard=False) == (Unsettled(ONE, 2),)


def test_what_is_said_of_shards_is_kept_in_a_checkpoint() -> None:
    for log in (log_of(), log_of(Unsettled(TWO, 5)), log_of(Unsettled(TWO, 5), Unsettled(ONE, 3))):
        assert LogState.from_json(json.loads(json.dumps(log.to_json()))) == log


def test_one_source_alone_is_written_as_releases_of_before_read_it() -> None:
    form = log_of(Unsettled(TWO, 5)).to_json()
    assert form["targets"] == {
        "shop.orders": ["shop.orders_1", "shop.orders_2", "shop.orders_3"],
        "shop.others": "shop.others",
    }
    assert form["unsettled"] == {FOLDER: ["shop.orders_2", 5]}


def test_all_that_share_a_table_are_named_to_be_reset() -> None:
    assert log_of().to_reset(ORDERS) == (
        "--table shop.orders_1 --table shop.orders_2 --table shop.orders_3"
    )
    assert log_of().to_reset(TableId("shop", "gone")) == "--table shop.gone"
