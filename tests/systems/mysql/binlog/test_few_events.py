"""Few events followed one by one say what the vector steps say of them, and refuse the same."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_cdc_provider.columns.changes import ChangeBatch
from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.systems.mysql.binlog.event_chunks import BatchLimits, EventChunk
from airflow_cdc_provider.systems.mysql.binlog.events.event_types import EventType
from airflow_cdc_provider.systems.mysql.binlog.transactions import few_events
from airflow_cdc_provider.systems.mysql.binlog.transactions.decoder import ColumnDecoder
from airflow_cdc_provider.systems.mysql.binlog.transactions.few_events import SmallChunks
from airflow_cdc_provider.systems.mysql.dialect.value_model import ZeroDates
from tests.systems.mysql.binlog.capture import FOLDER
from tests.systems.mysql.binlog.captured import CapturedLog
from tests.systems.mysql.binlog.damage import chosen_event, damaged_event
from tests.systems.mysql.wire.type_cases import MARIADB, MYSQL, every_type_schema

NAMES = sorted(path.name.removesuffix(".json") for path in FOLDER.glob("*.json"))
ENDS = {EventType.XID, EventType.QUERY}


@dataclass(frozen=True)
class Log:
    """A captured log as single events."""

    made: CapturedLog
    events: tuple[bytes, ...]
    has_checksums: bool

    def chunks(self, places: set[int]) -> Iterator[EventChunk]:
        """Yield the events in chunks that end before these places, each in a buffer of its own."""
        for first, last in pairwise(sorted({0, len(self.events), *places})):
            ends = np.cumsum([len(event) for event in self.events[first:last]])
            starts = np.concatenate([[0], ends[:-1]])
            yield EventChunk(b"".join(self.events[first:last]), starts, ends)

    @property
    def transaction_ends(self) -> list[int]:
        """Statements that are no BEGIN end one, too."""
        return [
            number
            for number, event in enumerate(self.events, 1)
            if event[4] in ENDS and b"BEGIN" not in event
        ]


@cache
def captured(name: str) -> Log:
    told = json.loads((FOLDER / f"{name}.json").read_text())
    kind = MARIADB if name.startswith("mariadb") else MYSQL
    schema = every_type_schema(TableId("shop", "every_type"), kind)
    with TemporaryDirectory() as folder:
        made = CapturedLog(
            Path(folder) / told["file"], kind, options={"schemas": {schema.table: schema}.get}
        )
        made.path.write_bytes(gzip.decompress((FOLDER / f"{name}.bin.gz").read_bytes()))
        made.chunk_bytes = 1 << 30
        (whole,) = made.chunks()
    events = tuple(
        bytes(whole.buffer[start:end]) for start, end in zip(whole.starts, whole.ends, strict=True)
    )
    return Log(made, events, "no_checksum" not in name)


@dataclass
class Said:
    """What a decoder said, chunk by chunk, and what it was asked in between."""

    batches: list[ChangeBatch]
    asides: list[Any]
    followed: int = 0
    """Chunks that were followed event by event."""


def said(log: Log, places: set[int], *, flush: bool, **options: Any) -> Said:
    found = Said([], [])
    decoder = log.made.decoder(**options)
    try:
        for chunk in log.chunks(places):
            found.batches += decoder.feed(chunk)
            last = decoder.flush() if flush else None
            found.batches += [] if last is None else [last]
            found.asides.append(state_of(decoder))
        last = decoder.flush()
        found.batches += [] if last is None else [last]
    except CdcError as error:
        found.asides.append((type(error), error.what.split(":")[0], error.where, error.risk))
    found.asides += [(batch.bytes, batch.only_ledgers) for batch in found.batches]
    return found


def state_of(decoder: ColumnDecoder) -> tuple[Any, ...]:
    exact = decoder.position.exact
    return exact, decoder.has_changes, decoder.in_transaction, dict(decoder.nulled)


def in_both_ways(log: Log, places: set[int], **options: Any) -> Said:
    """Decode in both ways; return what they agree on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(few_events, "MOST_EVENTS", 0)
        vector = said(log, places, **options)
    take, followed = SmallChunks.take, []

    def counting(
        self: SmallChunks, chunk: EventChunk, *, checksums: bool | None
    ) -> Iterator[ChangeBatch] | None:
        found = take(self, chunk, checksums=checksums)
        followed.append(found is not None)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SmallChunks, "take", counting)
        singly = said(log, places, **options)
    assert singly.batches == vector.batches
    assert singly.asides == vector.asides
    singly.followed = sum(followed)
    return singly


OPTIONS = st.fixed_dictionaries(
    {
        "flush": st.booleans(),
        "limits": st.sampled_from([BatchLimits(), BatchLimits(changes=2), BatchLimits(bytes=900)]),
        "captured": st.sampled_from(
            [lambda _table: True, lambda table: table.table != "orders", frozenset()]
        ),
        "zero_dates": st.sampled_from([ZeroDates.FAIL, ZeroDates.NULL]),
        "prepared_as_committed": st.booleans(),
    }
)


@pytest.mark.parametrize("name", NAMES)
def test_transactions_of_a_plain_log_are_followed_event_by_event(name: str) -> None:
    log = captured(name)
    found = in_both_ways(log, set(log.transaction_ends), flush=True, zero_dates=ZeroDates.NULL)
    with_rows = sum(batch.changes > 0 for batch in found.batches)
    assert with_rows
    if "compressed" in name or "tagged" in name:
        assert found.followed < with_rows  # the vector steps read such transactions
    else:
        assert found.followed > with_rows / 2


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
@settings(max_examples=40, deadline=None)
@pytest.mark.sample(3)
def test_both_ways_say_the_same_wherever_the_log_is_cut(name: str, data: st.DataObject) -> None:
    log = captured(name)
    places = st.integers(1, len(log.events) - 1)
    ends = data.draw(st.sets(st.sampled_from(log.transaction_ends)))
    options = data.draw(OPTIONS)
    in_both_ways(log, ends | data.draw(st.sets(places, max_size=12)), **options)


@pytest.mark.parametrize("name", NAMES)
@given(seed=st.integers(0, 1 << 32), singly=st.booleans(), options=OPTIONS)
@settings(max_examples=50, deadline=None)
@pytest.mark.sample(2)
def test_both_ways_refuse_the_same_damage(
    name: str, seed: int, singly: bool, options: dict[str, Any]
) -> None:
    log = captured(name)
    random, events = Random(seed), list(log.events)
    number = chosen_event(events[1:], random) + 1
    events[number] = damaged_event(events[number], random, checksum=log.has_checksums)
    ends = set(range(1, len(events))) if singly else set(log.transaction_ends)
    in_both_ways(Log(log.made, tuple(events), log.has_checksums), ends, **options)
