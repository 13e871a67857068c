"""What merging, overlap and not copying are worth when rows are written by INSERT.

The steps are those that MatrixOne's CDC published figures for. Rows of lineitem are held as Arrow
batches of 8,192 rows, and each step adds one thing to the one before:

- `start`: one statement a batch, made, sent and waited for one after the other;
- `merged`: statements filled up to the sink's packet limit;
- `overlap`: the next statement is made while the server runs the last;
- `no copy`: a statement goes to the socket in the pieces it was made of.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.identifiers import quote_table
from airflow_cdc_provider.systems.mysql.server.connection import (
    RawConnection,
    connect,
    sink_session,
)
from airflow_cdc_provider.systems.mysql.source.snapshot_reader import SnapshotReader
from airflow_cdc_provider.systems.mysql.wire.sql_text import RowsText, values_sql
from tests.benchmarks import subject
from tests.benchmarks.ours.setting import Setting, setting

STEPS = ("start", "merged", "overlap", "no copy")
_BATCH = 8192
_LIMIT = 4 << 20
_Parts = list[bytes | memoryview]


def main() -> None:
    given = subject.arguments()
    step = STEPS.index(given["step"])
    bench = setting(given, "lineitem")
    batches = _rows(bench)
    tables = bench.sink.open_tables()
    tables.create_missing(bench.plans)
    tables.close()
    connection = connect(Endpoint.parse(subject.dsn(given["sink"])), purpose="ablation")
    sink_session(connection)
    raw = RawConnection(connection)
    raw.execute("BEGIN")

    def run() -> int:
        waiting = False
        for statement in _statements(bench, batches, merged=step >= 1):
            parts = statement if step >= 3 else [b"".join(statement)]
            if waiting:
                raw.read_outcome()
            raw.send_statement(parts)
            waiting = step >= 2
            if not waiting:
                raw.read_outcome()
        if waiting:
            raw.read_outcome()
        raw.execute("COMMIT")
        return sum(batch.num_rows for batch in batches)

    subject.work(run)
    connection.close()


def _rows(bench: Setting) -> list[pa.RecordBatch]:
    reader = SnapshotReader(
        bench.source,
        {bench.schema.table: bench.schema},
        server_id=9906,
        backfill=False,
        max_split_bytes=1 << 32,
    )
    rows, _ = reader.read(bench.whole_table)
    table = pa.Table.from_batches(list(rows.batches()))
    reader.close()
    batches: list[pa.RecordBatch] = table.combine_chunks().to_batches(max_chunksize=_BATCH)
    return batches


def _statements(bench: Setting, batches: list[pa.RecordBatch], *, merged: bool) -> Iterator[_Parts]:
    head = f"INSERT INTO {quote_table(bench.schema.table)} VALUES ".encode()
    parts: _Parts = [head]
    size = len(head)
    for batch in batches:
        text: RowsText = values_sql(batch, bench.schema.copied_columns)
        for first, end in text.runs(_LIMIT - len(head)):
            piece = text.run(first, end)
            if len(parts) > 1 and (not merged or size + len(piece) > _LIMIT):
                yield parts
                parts, size = [head], len(head)
            parts += [b",", piece] if len(parts) > 1 else [piece]
            size += len(piece) + 1
    if len(parts) > 1:
        yield parts


if __name__ == "__main__":
    main()
