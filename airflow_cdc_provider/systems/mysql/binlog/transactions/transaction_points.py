"""The transactions of a batch, kept as columns and made into records only when asked for.

An OLTP log has a transaction every few rows; a record each would cost more than the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import overload

import numpy as np

from airflow_cdc_provider.columns.numpy_types import IntArray
from airflow_cdc_provider.systems.mysql.binlog.events.gtid_events import GtidColumns, joined
from airflow_cdc_provider.systems.mysql.positions.position import BinlogPosition, MySqlPoint


@dataclass(frozen=True, slots=True, eq=False)
class TransactionPoints(Sequence[MySqlPoint]):
    """The positions and GTIDs of a batch's transactions as columns; a sequence of points."""

    server_uuid: str
    base: str
    start_file: IntArray
    start: IntArray
    end_file: IntArray
    end: IntArray
    gtids: GtidColumns
    committed_us: IntArray

    def __len__(self) -> int:
        return len(self.end)

    @overload
    def __getitem__(self, index: int) -> MySqlPoint: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[MySqlPoint]: ...

    def __getitem__(self, index: int | slice) -> MySqlPoint | Sequence[MySqlPoint]:
        if isinstance(index, slice):
            return self.chosen(np.arange(len(self))[index])
        return MySqlPoint(
            self.server_uuid,
            self.gtids.gtid(index),
            BinlogPosition(int(self.start_file[index]), int(self.start[index]), self.base),
            BinlogPosition(int(self.end_file[index]), int(self.end[index]), self.base),
            int(self.committed_us[index]),
        )

    def __iter__(self) -> Iterator[MySqlPoint]:
        return (self[index] for index in range(len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    def __hash__(self) -> int:
        return hash((self.server_uuid, self.end.tobytes(), self.end_file.tobytes()))

    def chosen(self, places: IntArray) -> TransactionPoints:
        """Return the points of these indexes."""
        gtids = GtidColumns(
            self.gtids.origins,
            self.gtids.origin[places],
            self.gtids.number[places],
            self.gtids.committed_us[places],
        )
        return TransactionPoints(
            self.server_uuid,
            self.base,
            self.start_file[places],
            self.start[places],
            self.end_file[places],
            self.end[places],
            gtids,
            self.committed_us[places],
        )

    @classmethod
    def joined(cls, parts: Sequence[TransactionPoints]) -> TransactionPoints:
        """Concatenate points."""
        if len(parts) == 1:
            return parts[0]
        return replace(
            parts[-1],
            start_file=np.concatenate([part.start_file for part in parts]),
            start=np.concatenate([part.start for part in parts]),
            end_file=np.concatenate([part.end_file for part in parts]),
            end=np.concatenate([part.end for part in parts]),
            gtids=joined([part.gtids for part in parts]),
            committed_us=np.concatenate([part.committed_us for part in parts]),
        )
