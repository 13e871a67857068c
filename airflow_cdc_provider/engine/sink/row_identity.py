"""Which keys name one row at the sink: texts may be written in several ways and be equal there.

What a collation takes for equal is for its server to say. Values of other kinds are compared as
they are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow.compute as pc

from airflow_cdc_provider.columns.arrow_arrays import as_numpy, binaries_of, mask_of, numbers_of
from airflow_cdc_provider.columns.changes import Op, TableChanges
from airflow_cdc_provider.columns.numpy_types import BoolArray, IntArray
from airflow_cdc_provider.columns.row_keys import key_codes
from airflow_cdc_provider.core.keys import KeyKind

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_cdc_provider.core.conflicts import Values
    from airflow_cdc_provider.core.table_schema import ColumnType, TableSchema

_MANY = 100_000
RowKey = tuple[Any, ...]
"""Python objects that are the same for the same row."""


class Weights(Protocol):
    """Says what the sink's server sees of texts."""

    def of(self, kind: ColumnType, texts: Sequence[str]) -> Sequence[bytes]:
        """Return bytes for each text of a column, the same where the server takes texts for equal.

        `kind` is the column's type at the sink.
        """


class RowIdentity:
    """Turns a sink table's keys into values that are equal where the sink sees one row."""

    def __init__(self, at_sink: TableSchema, weights: Weights) -> None:
        self._weigher = weights
        self._types = {
            name: at_sink.column(name).type
            for name in at_sink.primary_key
            if at_sink.column(name).type.key_kind is KeyKind.TEXT
        }
        prefixes = at_sink.key_prefixes or (0,) * len(at_sink.primary_key)
        self._prefixes = dict(zip(at_sink.primary_key, prefixes, strict=True))
        self._known: dict[str, dict[str, bytes]] = {name: {} for name in self._types}

    @property
    def is_large(self) -> bool:
        """Tell whether it remembers so many texts that a new one is to take its place."""
        return any(len(known) > _MANY for known in self._known.values())

    def of(self, keys: pa.RecordBatch) -> list[pa.Array]:
        """Return an array for each key column; other columns are not allowed, nor NULL."""
        return [
            self._seen(name, column)
            for name, column in zip(keys.schema.names, keys.columns, strict=True)
        ]

    def _seen(self, name: str, column: pa.Array) -> pa.Array:
        """Return what tells rows apart of one key column."""
        prefix = self._prefixes[name]
        if name in self._types:
            column = pc.utf8_slice_codeunits(column, 0, prefix) if prefix else column
            return self._weights(name, column)
        return pc.binary_slice(column, 0, prefix) if prefix else column

    def of_few(self, columns: Mapping[str, Sequence[Any]]) -> list[RowKey]:
        """Return what tells rows apart of a few, from the Python objects of their key columns.

        It is the same for rows for which `of` gives the same.
        """
        seen = [self._seen_few(name, values) for name, values in columns.items()]
        return list(zip(*seen, strict=True))

    def _seen_few(self, name: str, values: Sequence[Any]) -> Sequence[Any]:
        """Return what tells a few rows apart of one key column."""
        prefix = self._prefixes[name]
        if prefix:
            values = [value[:prefix] for value in values]
        return self._asked(name, values) if name in self._types else values

    def names(self, keys: Sequence[Values]) -> list[str]:
        """Return a name for each key, by its values as JSON holds them; the same for one row."""
        columns = [[_plain(key.get(name)) for key in keys] for name in self._prefixes]
        for at, (name, prefix) in enumerate(self._prefixes.items()):
            if name in self._types:
                texts = [str(value)[: prefix or None] for value in columns[at]]
                columns[at] = [weight.hex() for weight in self._asked(name, texts)]
            elif prefix:  # of bytes, as 0x and two digits each
                columns[at] = [str(value)[: 2 + 2 * prefix] for value in columns[at]]
        return [json.dumps(values) for values in zip(*columns, strict=True)]

    def _weights(self, name: str, column: pa.Array) -> pa.Array:
        """Return what the server sees of a column's texts."""
        encoded = column.dictionary_encode()
        weights = self._asked(name, encoded.dictionary.to_pylist())
        return binaries_of(weights).take(encoded.indices)

    def _asked(self, name: str, texts: Sequence[str]) -> list[bytes]:
        """Return what the server sees of texts; what it said once is remembered."""
        known = self._known[name]
        unknown = [*dict.fromkeys(text for text in texts if text not in known)]
        known.update(zip(unknown, self._weigher.of(self._types[name], unknown), strict=True))
        return [known[text] for text in texts]


def _plain(value: object) -> object:
    """Return a key's value; -0.0 and 0.0 are one key."""
    return value + 0.0 if isinstance(value, float) else value


@dataclass(frozen=True, slots=True)
class KeyedRows:
    """Some rows of one table at the sink."""

    keys: pa.RecordBatch
    """Key columns of the plan's target, each row once."""
    identity: RowIdentity

    def __len__(self) -> int:
        return int(self.keys.num_rows)

    def only(self, wanted: BoolArray) -> KeyedRows:
        """Return some of the rows."""
        return replace(self, keys=self.keys.filter(mask_of(wanted)))

    def places(self, changes: TableChanges) -> tuple[IntArray, IntArray]:
        """Return which of the rows each change takes away, and which it writes.

        That is the row number of the key before and behind it; -1 if it is none of these rows.
        """
        names, op = self.keys.schema.names, as_numpy(changes.op)
        changed = [np.flatnonzero(op != Op.INSERT), np.flatnonzero(op != Op.DELETE)]
        sides = [
            side.select(names).cast(self.keys.schema).take(numbers_of(wanted))
            for side, wanted in zip((changes.before, changes.after), changed, strict=True)
        ]
        codes = key_codes([self.identity.of(each) for each in (self.keys, *sides)])
        place_of = np.full(codes.count, -1, np.int64)
        place_of[codes.groups[0]] = np.arange(len(self))
        found = [np.full(len(op), -1, np.int64) for _ in range(2)]
        for places, wanted, group in zip(found, changed, codes.groups[1:], strict=True):
            places[wanted] = place_of[group]
        return found[0], found[1]
