"""Read splits whose every row changes meanwhile; a program, with a database.

The DSN is in `WIDE_DSN`: other tests look at the arguments of all processes for passwords.

Prints the peak of the process's resident memory, bytes.
"""

from __future__ import annotations

import os
import sys
from contextlib import closing
from pathlib import Path

from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.keys import KeyRange
from airflow_cdc_provider.core.splits import SnapshotSplit
from airflow_cdc_provider.systems.mysql.server.connection import connect, query
from airflow_cdc_provider.systems.mysql.server.introspection import read_schema
from airflow_cdc_provider.systems.mysql.source.snapshot_reader import SnapshotReader
from tests.systems.mysql.splits import SERVER_ID, Hooks

ROWS = 7000
_UPDATED_AT_ONCE = 500


def main() -> None:
    source, table = Endpoint.parse(os.environ["WIDE_DSN"]), TableId(sys.argv[1], "wide")
    with closing(connect(source, purpose="writing")) as writer:
        schema = read_schema(writer, table)
        split = SnapshotSplit(table, 0, schema.primary_key, schema.key_kinds, KeyRange())

        def change_every_row() -> None:
            for low in range(0, ROWS, _UPDATED_AT_ONCE):
                query(
                    writer,
                    f"UPDATE {table} SET n = n + 1 "
                    f"WHERE id > {low} AND id <= {low + _UPDATED_AT_ONCE}",
                )

        hooks = Hooks(before_high=change_every_row)
        reader = SnapshotReader(source, {table: schema}, server_id=SERVER_ID, listener=hooks)
        with closing(reader):
            for _ in range(3):
                rows, report = reader.read(split)
                if (report.rows, report.changes) != (ROWS, ROWS):
                    raise SystemExit(f"not every row was read and changed: {report}")
                for _batch in rows.batches():
                    pass
                del rows, _batch
    print(_peak_bytes())


def _peak_bytes() -> int:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise SystemExit("the system does not tell the peak of resident memory")


if __name__ == "__main__":
    main()
