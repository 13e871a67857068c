"""Transactions in the log of MySQL and MariaDB as columns: compared, written and read as such.

Names are numbers within an origin: a server's uuid and tag, or a domain and server of MariaDB. So
whether a GTID set contains a transaction is a binary search in its intervals, for all at once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_cdc_provider.columns.arrow_arrays import as_numpy, numbers_of, texts_of
from airflow_cdc_provider.columns.byte_views import distinct
from airflow_cdc_provider.columns.moments import moments_of
from airflow_cdc_provider.columns.numpy_types import BoolArray, IntArray
from airflow_cdc_provider.core.positions import LogPosition, TransactionPoint
from airflow_cdc_provider.systems.mysql.binlog.events.gtid_events import GtidColumns, GtidOrigin
from airflow_cdc_provider.systems.mysql.binlog.transactions.transaction_points import (
    TransactionPoints,
)
from airflow_cdc_provider.systems.mysql.positions.gtid import Gtid, GtidSet, GtidSource, MariaDbGtid
from airflow_cdc_provider.systems.mysql.positions.position import AnyGtid, own, own_point

_NUMBERS = ("start_file", "start", "end_file", "end", "committed_us")


@dataclass(frozen=True, slots=True)
class _Columns:
    """The points of transactions as columns, of one server's log or several."""

    servers: Sequence[tuple[str, str]]
    """Each with the base of its log's file names."""
    server: IntArray
    """Index into `servers`, an entry a transaction."""
    points: TransactionPoints
    """As if all were of the first server's."""

    @classmethod
    def of(cls, points: Sequence[TransactionPoint]) -> _Columns:
        """Return the points of transactions as columns."""
        if isinstance(points, TransactionPoints):
            one = [(points.server_uuid, points.base)]
            return cls(one, np.zeros(len(points), np.int64), points)
        records = [own_point(point) for point in points]
        servers: dict[tuple[str, str], int] = {}
        server = [
            servers.setdefault((each.server_uuid, each.start.base), len(servers))
            for each in records
        ]
        first = next(iter(servers), ("", ""))
        committed = _ints([each.committed_us for each in records])
        columns = TransactionPoints(
            *first,
            start_file=_ints([each.start.file_number for each in records]),
            start=_ints([each.start.offset for each in records]),
            end_file=_ints([each.end.file_number for each in records]),
            end=_ints([each.end.offset for each in records]),
            gtids=_gtid_columns([each.gtid for each in records], committed),
            committed_us=committed,
        )
        return cls(list(servers), _ints(server), columns)


class MySqlTransactionIndex:
    """The transactions of a batch, prepared to be compared with positions many at a time."""

    def __init__(self, points: Sequence[TransactionPoint]) -> None:
        self._points = points
        columns = _Columns.of(points)
        self._servers = {server for server, _ in columns.servers}
        self._file, self._offset = columns.points.end_file, columns.points.end
        self._gtids = columns.points.gtids
        used = distinct(self._gtids.origin) if len(points) else []
        origins = [(place, self._gtids.origins[place]) for place in used]
        self._sources = [(place, each) for place, each in origins if isinstance(each, GtidSource)]
        self._named = len(self._sources) == len(origins)
        """Every transaction has a GTID of MySQL's."""

    def __len__(self) -> int:
        return len(self._points)

    def within(self, position: LogPosition, chosen: IntArray) -> BoolArray:
        """Tell which of the chosen transactions are at or before a position."""
        ours = own(position)
        has_set = isinstance(ours.gtids, GtidSet)
        if isinstance(ours.gtids, GtidSet) and self._named:
            return self._in_set(ours.gtids, chosen)
        if ours.binlog is not None and not has_set and self._servers <= {ours.server_uuid}:
            file, offset = self._file[chosen], self._offset[chosen]
            passed: BoolArray = file < ours.binlog.file_number
            passed |= (file == ours.binlog.file_number) & (offset <= ours.binlog.offset)
            return passed
        some, back = np.unique(chosen, return_inverse=True)
        answers = [ours.contains(self._points[place]) for place in some.tolist()]
        return np.array(answers, np.bool_)[back]

    def _in_set(self, gtids: GtidSet, chosen: IntArray) -> BoolArray:
        """Tell which of the chosen transactions a GTID set contains."""
        origin, number = self._gtids.origin[chosen], self._gtids.number[chosen]
        inside = np.zeros(len(chosen), np.bool_)
        for place, source in self._sources:
            spans = gtids.intervals.get(source, ())
            if spans:
                # An odd place in [start0, end0, start1, ...] is inside an interval.
                found = np.searchsorted(np.array(spans).ravel(), number, side="right") % 2 == 1
                inside |= (origin == place) & found
        return inside


index_of = MySqlTransactionIndex
"""Makes transactions ready to be asked for often."""


def to_columns(points: Sequence[TransactionPoint]) -> pa.RecordBatch:
    """Return transactions as a record batch; servers and origins are in its metadata."""
    columns = _Columns.of(points)
    gtids = columns.points.gtids
    beside = {"servers": columns.servers, "origins": [_origin_form(each) for each in gtids.origins]}
    arrays = {name: numbers_of(getattr(columns.points, name)) for name in _NUMBERS}
    arrays |= {
        "server": numbers_of(columns.server),
        "origin": numbers_of(gtids.origin),
        "number": numbers_of(gtids.number),
    }
    fields = [pa.field(name, pa.int64()) for name in arrays]
    schema = pa.schema(fields, metadata={"beside": json.dumps(beside)})
    return pa.RecordBatch.from_arrays(list(arrays.values()), schema=schema)


def from_columns(columns: pa.RecordBatch) -> Sequence[TransactionPoint]:
    """Read transactions from the record batch of `to_columns`."""
    beside = json.loads(columns.schema.metadata[b"beside"])
    of = {name: as_numpy(columns.column(name)) for name in columns.schema.names}
    servers = beside["servers"]
    if not servers:
        return ()
    origins = [_origin_of(form) for form in beside["origins"]]
    uuid, base = servers[0]
    first = TransactionPoints(
        uuid,
        base,
        start_file=of["start_file"],
        start=of["start"],
        end_file=of["end_file"],
        end=of["end"],
        gtids=GtidColumns(origins, of["origin"], of["number"], of["committed_us"]),
        committed_us=of["committed_us"],
    )
    if len(servers) == 1:
        return first
    by_server = [replace(first, server_uuid=server, base=base) for server, base in servers]
    return tuple(by_server[server][place] for place, server in enumerate(of["server"].tolist()))


def facts_of(points: Sequence[TransactionPoint]) -> Mapping[str, pa.Array]:
    """Return the facts of transactions by Debezium's names, for envelopes."""
    records = [own_point(point) for point in points]
    return {
        "gtid": texts_of([None if p.gtid is None else str(p.gtid) for p in records]),
        "file": texts_of([point.start.file for point in records]),
        "pos": numbers_of([point.start.offset for point in records]),
    }


def stamps_of(points: Sequence[TransactionPoint]) -> pa.RecordBatch:
    """Return what metadata columns say of transactions: position, commit time and server."""
    columns = _Columns.of(points)
    of = columns.points
    bases = [base for _, base in columns.servers]
    logs, log = np.unique(columns.server << 32 | of.start_file, return_inverse=True)
    files = [(bases[each >> 32], each & 0xFFFFFFFF) for each in logs.tolist()]
    names = texts_of([f"{base}.{number:06d}:" for base, number in files])
    offsets = numbers_of(of.start).cast(pa.string())
    placed = [names.take(numbers_of(log)), offsets, texts_of([""])[0]]
    arrays = {
        "position": pc.binary_join_element_wise(*placed),
        "committed_at": moments_of(of.committed_us),
        "server": texts_of([uuid for uuid, _ in columns.servers]).take(numbers_of(columns.server)),
    }
    return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))


def _ints(values: Sequence[int]) -> IntArray:
    """Return 64-bit integers as an array."""
    return np.array(values, np.int64)


def _gtid_columns(gtids: Sequence[AnyGtid | None], committed_us: IntArray) -> GtidColumns:
    """Return GTIDs as columns: each one's server or domain, and its number there."""
    origins: dict[GtidOrigin, int] = {}
    origin, number = [], []
    for gtid in gtids:
        counted_in: GtidOrigin = None
        count = 0
        if isinstance(gtid, Gtid):
            counted_in, count = gtid.source, gtid.number
        elif isinstance(gtid, MariaDbGtid):
            counted_in, count = (gtid.domain, gtid.server), gtid.sequence
        origin.append(origins.setdefault(counted_in, len(origins)))
        number.append(count)
    return GtidColumns(list(origins), _ints(origin), _ints(number), committed_us)


def _origin_form(origin: GtidOrigin) -> list[str | int] | None:
    """Return a GTID's origin as JSON."""
    if isinstance(origin, GtidSource):
        return [origin.uuid, origin.tag]
    return None if origin is None else list(origin)


def _origin_of(form: list[str | int] | None) -> GtidOrigin:
    """Read a GTID's origin from JSON."""
    if form is None:
        return None
    first, second = form
    if isinstance(first, int) and isinstance(second, int):
        return first, second
    return GtidSource(str(first), str(second))
