"""A log decoded one transaction of ten rows at a time, as a stream that keeps up does.

Rows a second here tell what a batch costs before its rows do: ten of them divided by it.
"""

from __future__ import annotations

from pathlib import Path

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.systems.mysql.binlog.event_chunks import EventChunk
from airflow_cdc_provider.systems.mysql.binlog.events.event_types import EventType
from airflow_cdc_provider.systems.mysql.binlog.transactions.decoder import ColumnDecoder
from airflow_cdc_provider.systems.mysql.positions.gtid import GtidSet
from airflow_cdc_provider.systems.mysql.positions.position import BinlogPosition, MySqlPosition
from tests.benchmarks import subject
from tests.systems.mysql.binlog.log_file import read_file

_TYPE_AT = 4


def _transactions(path: Path) -> list[EventChunk]:
    """Return a chunk of its own for each transaction."""
    (chunk,) = read_file(path, 1 << 30)
    found, first = [], 0
    for place, start in enumerate(chunk.starts):
        if chunk.buffer[start + _TYPE_AT] == EventType.XID:
            origin = chunk.starts[first]
            found.append(
                EventChunk(
                    chunk.buffer[origin : chunk.ends[place]],
                    chunk.starts[first : place + 1] - origin,
                    chunk.ends[first : place + 1] - origin,
                )
            )
            first = place + 1
    return found


def main() -> None:
    given = subject.arguments()
    transactions = _transactions(Path(given["path"]))
    decoder = ColumnDecoder(
        MySqlPosition(
            given["server_uuid"],
            BinlogPosition.of(given["file"], 4),
            GtidSet.parse(given["gtids"]),
        ),
        server_uuid=given["server_uuid"],
        captured=frozenset({TableId("bench", given["table"])}),
    )

    def run() -> int:
        rows = 0
        for transaction in transactions:
            rows += sum(batch.changes for batch in decoder.feed(transaction))
            batch = decoder.flush()
            rows += batch.changes if batch else 0
        return rows

    subject.work(run)


if __name__ == "__main__":
    main()
