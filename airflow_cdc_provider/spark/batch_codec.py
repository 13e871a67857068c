"""A `ChangeBatch` as bytes, so that changes of many tables travel in one Spark column.

One batch is a 4-byte header length, a JSON header, and Arrow IPC streams one behind another: first
the transactions as columns, then each table with its before and after images side by side. Reading
makes no copy: the arrays look into the bytes. A batch is cut into parts of bounded size on its way
through Spark, because a row of Spark is copied whole more than once.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from airflow_cdc_provider.columns.changes import ChangeBatch, Statement, TableChanges
from airflow_cdc_provider.columns.transactions import transactions_of
from airflow_cdc_provider.core.codec import (
    effect_from_json,
    effect_to_json,
    known_from_json,
    known_to_json,
    position_from_json,
    position_to_json,
)
from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.positions import TransactionPoint

PART_BYTES = 4 * 1024 * 1024
_LENGTH = struct.Struct("<I")
_PLACES = ("transaction", "ordinal", "op")


def encode(batch: ChangeBatch) -> bytes:
    """Return a batch of changes as bytes."""
    transactions = transactions_of(batch.start.system)
    streams = [_write(transactions.to_columns(batch.transactions))]
    streams += [_write(_side_by_side(changes)) for changes in batch.tables]
    barrier = batch.barrier
    header = {
        "system": batch.start.system,
        "start": position_to_json(batch.start),
        "end": None if batch.end is None else position_to_json(batch.end),
        "bytes": batch.bytes,
        "only_ledgers": batch.only_ledgers,
        "origins": sorted(batch.origins),
        "knew": None if batch.knew is None else known_to_json(batch.knew),
        "barrier": None if barrier is None else _statement_form(barrier),
        "tables": [
            {
                "table": str(changes.table),
                "columns": changes.before.num_columns,
                "has_facts": changes.facts is not None,
            }
            for changes in batch.tables
        ],
        "lengths": [stream.size for stream in streams],
    }
    if barrier is not None:
        points = _write(transactions.to_columns((barrier.point,)))
        streams.append(points)
        header["lengths"].append(points.size)
    text = json.dumps(header).encode()
    return b"".join((_LENGTH.pack(len(text)), text, *(memoryview(stream) for stream in streams)))


def decode(encoded: bytes) -> ChangeBatch:
    """Return the batch of changes that `encode` made bytes of; its arrays share their memory."""
    (length,) = _LENGTH.unpack_from(encoded)
    header = json.loads(encoded[_LENGTH.size : _LENGTH.size + length])
    streams = _streams(pa.py_buffer(encoded), _LENGTH.size + length, header["lengths"])
    points_of = transactions_of(header["system"]).from_columns
    transactions = points_of(next(streams))
    tables = tuple(_apart(next(streams), **form) for form in header["tables"])
    barrier = header["barrier"]
    return ChangeBatch(
        start=position_from_json(header["start"]),
        end=None if header["end"] is None else position_from_json(header["end"]),
        transactions=transactions,
        tables=tables,
        barrier=None if barrier is None else _statement(barrier, points_of(next(streams))[0]),
        bytes=header["bytes"],
        only_ledgers=header["only_ledgers"],
        origins=frozenset(header["origins"]),
        knew=None if header["knew"] is None else known_from_json(header["knew"]),
    )


def _statement_form(statement: Statement) -> dict[str, object]:
    """Return the JSON form of a statement of the log."""
    return {
        "database": statement.database,
        "sql": statement.sql,
        "effect": effect_to_json(statement.effect),
        "facts": dict(statement.facts),
        "refusal": None if statement.refusal is None else statement.refusal.to_json(),
    }


def _statement(form: dict[str, Any], point: TransactionPoint) -> Statement:
    """Read a statement of the log from its JSON form."""
    effect = effect_from_json(form["effect"])
    refusal = None if form["refusal"] is None else CdcError.from_json(form["refusal"])
    return Statement(form["database"], form["sql"], point, effect, form["facts"], refusal)


def parts_of(encoded: bytes, part_bytes: int = PART_BYTES) -> Iterator[tuple[bytes, bool]]:
    """Cut an encoded batch into parts; each comes with whether it is the batch's last."""
    view = memoryview(encoded)
    for start in range(0, len(view), part_bytes):
        yield bytes(view[start : start + part_bytes]), start + part_bytes >= len(view)


def joined(parts: Iterable[tuple[bytes, bool]]) -> Iterator[bytes]:
    """Join the parts of each encoded batch."""
    pending: list[bytes] = []
    for part, is_last in parts:
        pending.append(part)
        if is_last:
            yield pending[0] if len(pending) == 1 else b"".join(pending)
            pending = []


def _write(batch: pa.RecordBatch) -> pa.Buffer:
    """Return a record batch as an Arrow IPC stream."""
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, batch.schema) as writer:
        writer.write_batch(batch)
    return stream.getvalue()


def _streams(buffer: pa.Buffer, offset: int, lengths: Sequence[int]) -> Iterator[pa.RecordBatch]:
    """Read record batches from Arrow IPC streams of given lengths."""
    for length in lengths:
        with pa.ipc.open_stream(buffer.slice(offset, length)) as reader:
            yield reader.read_next_batch()
        offset += length


def _side_by_side(changes: TableChanges) -> pa.RecordBatch:
    """Return a table's changes as one record batch: places, before and after images, facts."""
    before, after = changes.before, changes.after
    places = [changes.transaction, changes.ordinal, changes.op]
    fields = [pa.field(name, place.type) for name, place in zip(_PLACES, places, strict=True)]
    arrays = [*places, *before.columns, *after.columns]
    fields += [*before.schema, *after.schema]
    if changes.facts is not None:
        arrays += changes.facts.columns
        fields += changes.facts.schema
    schema = pa.schema(fields, metadata=before.schema.metadata)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _apart(batch: pa.RecordBatch, *, table: str, columns: int, has_facts: bool) -> TableChanges:
    """Return a table's changes from the record batch that `_side_by_side` made."""

    def part(first: int, last: int, metadata: dict[bytes, bytes] | None) -> pa.RecordBatch:
        schema = pa.schema(list(batch.schema)[first:last], metadata=metadata)
        return pa.RecordBatch.from_arrays(batch.columns[first:last], schema=schema)

    first, metadata = len(_PLACES), batch.schema.metadata
    middle, last = first + columns, first + 2 * columns
    return TableChanges(
        TableId.parse(table),
        batch.column(0),
        batch.column(1),
        batch.column(2),
        part(first, middle, metadata),
        part(middle, last, metadata),
        part(last, batch.num_columns, None) if has_facts else None,
    )
