"""Logs captured from each server version decode to what the server told, without a server."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_cdc_provider.core.errors import PreparedTransactionError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.systems.mysql.binlog.event_chunks import BatchLimits
from airflow_cdc_provider.systems.mysql.binlog.transactions.decoder import ColumnDecoder
from airflow_cdc_provider.systems.mysql.binlog.transactions.few_events import SmallChunks
from airflow_cdc_provider.systems.mysql.positions.position import own
from tests.systems.mysql.binlog.capture import FOLDER
from tests.systems.mysql.binlog.captured import (
    SERVER,
    CapturedLog,
    all_said,
    changes_of,
    decoded,
    in_columns,
    replayed,
    rows_after,
)
from tests.systems.mysql.wire.selected_rows import differences
from tests.systems.mysql.wire.type_cases import MARIADB, MYSQL, every_type_schema, expected_rows

NAMES = sorted(path.name.removesuffix(".json") for path in FOLDER.glob("*.json"))


@pytest.fixture(params=NAMES)
def told(request: pytest.FixtureRequest) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / f"{request.param}.json").read_text())
    return found | {"name": request.param}


@pytest.fixture
def log(told: dict[str, Any], tmp_path: Path) -> CapturedLog:
    path = tmp_path / told["file"]
    path.write_bytes(gzip.decompress((FOLDER / f"{told['name']}.bin.gz").read_bytes()))
    kind = MARIADB if told["name"].startswith("mariadb") else MYSQL
    schema = every_type_schema(TableId("shop", "every_type"), kind)
    known = {schema.table: schema}
    return CapturedLog(path, kind, options={"schemas": known.get})


def test_replaying_the_log_gives_the_tables_that_the_server_told(
    log: CapturedLog, told: dict[str, Any]
) -> None:
    batches = log.batches()
    orders = [
        [row["id"], None if row["total"] is None else str(row["total"]), row["note"]]
        for _, row in sorted(replayed(batches, "orders").items())
    ]
    assert orders == sorted(told["orders"])
    lines: dict[Any, Any] = {}
    for changes in changes_of(batches, "lines_"):
        pairs = zip(changes.before.to_pylist(), changes.after.to_pylist(), strict=True)
        for before, after in pairs:
            if before["o"] is not None:
                del lines[before["o"], before["n"]]
            if after["o"] is not None:
                lines[after["o"], after["n"]] = after["item"]
    assert [[*key, item] for key, item in sorted(lines.items())] == sorted(told["lines_"])


def test_values_of_every_type_are_the_canonical_ones(
    log: CapturedLog, told: dict[str, Any]
) -> None:
    found = rows_after(log.batches(), "every_type")
    assert len(found) == told["every_type"]
    expected = {row["id"]: row for row in expected_rows(log.flavour)}
    if log.flavour == MYSQL:
        assert differences(found, [expected[row["id"]] for row in found]) == []


@pytest.mark.parametrize("limits", [BatchLimits(), BatchLimits(changes=3), BatchLimits(bytes=999)])
@pytest.mark.parametrize("chunk_bytes", [400, 7000])
def test_chunks_and_limits_change_nothing_but_where_batches_end(
    log: CapturedLog, chunk_bytes: int, limits: BatchLimits
) -> None:
    def flat(batches: Any) -> list[Any]:
        return [
            (point, op, before, after)
            for batch in batches
            for table in batch.tables
            if table.table.table == "orders"
            for point, op, before, after in zip(
                [batch.transactions[n].start for n in table.transaction.to_pylist()],
                table.op.to_pylist(),
                table.before.to_pylist(),
                table.after.to_pylist(),
                strict=True,
            )
        ]

    whole = log.batches()
    log.chunk_bytes = chunk_bytes
    parts = log.batches(limits=limits)
    assert flat(parts) == flat(whole)
    assert parts[-1].end == whole[-1].end
    boundaries = [batch.end for batch in parts if batch.end is not None]
    starts = [batch.start for batch in parts]
    assert starts[0] == log.start
    assert all(start in [log.start, *boundaries] for start in starts)
    for batch in parts:
        for table in batch.tables:
            for side in (table.before, table.after):
                side.validate(full=True)
            assert table.ordinal.type == pa.int64()
            order = table.ordinal.to_pylist()
            assert order == sorted(set(order))
            assert not order or order[-1] < batch.changes


@pytest.mark.parametrize("limits", [BatchLimits(), BatchLimits(changes=3), BatchLimits(bytes=999)])
@pytest.mark.parametrize("chunk_bytes", [300, 900, 7000])
@pytest.mark.sample(24)
def test_values_that_are_read_one_by_one_say_what_columns_say(
    log: CapturedLog,
    told: dict[str, Any],
    chunk_bytes: int,
    limits: BatchLimits,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken, take = [0], SmallChunks.take

    def counted(self: SmallChunks, chunk: Any, **more: Any) -> Any:
        found = take(self, chunk, **more)
        taken[0] += found is not None
        return found

    monkeypatch.setattr(SmallChunks, "take", counted)
    log.chunk_bytes = chunk_bytes
    found = all_said(log.batches(limits=limits))
    assert found == all_said(decoded(in_columns(log.decoder(limits=limits)), log.chunks()))
    assert taken[0] or "compressed" in told["name"] or chunk_bytes > 1000


def test_every_end_of_a_batch_is_a_place_to_start_again(log: CapturedLog) -> None:
    batches = log.batches(limits=BatchLimits(changes=2))
    tried = 0
    for number, batch in enumerate(batches):
        end = None if batch.end is None else own(batch.end)
        if end is None or end.binlog is None or end.binlog.file != log.path.name:
            continue
        decoder = ColumnDecoder(
            end, server_uuid=SERVER, flavour=log.flavour, captured=lambda _: True, **log.options
        )
        try:
            again = decoded(decoder, [log.chunk_from(end.binlog.offset)])
        except PreparedTransactionError:
            continue  # between XA PREPARE and XA COMMIT
        rest = batches[number + 1 :]
        assert sum(each.changes for each in again) == sum(each.changes for each in rest)
        assert (again or [batch])[-1].end == batches[-1].end
        tried += 1
    assert tried > 30
