"""lineitem to Parquet with PyMySQL's streaming cursor, as people write it; a part of the rows."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pymysql
import pymysql.cursors

from tests.benchmarks import subject

_BATCH = 20_000


def main() -> None:
    given = subject.arguments()
    pa.array([1])  # the first one of an interpreter imports pandas: a start-up cost of one second
    connection = pymysql.connect(
        host="127.0.0.1",
        port=given["source"],
        user="root",
        database="bench",
        ssl_disabled=True,
        cursorclass=pymysql.cursors.SSCursor,
    )

    def run() -> int:
        rows = 0
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT * FROM lineitem LIMIT {given['limit']}")
            names = [column[0] for column in cursor.description]
            writer = None
            while fetched := cursor.fetchmany(_BATCH):
                table = pa.Table.from_arrays(
                    [pa.array(column) for column in zip(*fetched, strict=True)], names
                )
                if writer is None:
                    writer = pq.ParquetWriter(given["out"], table.schema, compression="zstd")
                writer.write_table(table.cast(writer.schema))
                rows += len(fetched)
            if writer is not None:
                writer.close()
        return rows

    subject.work(run)


if __name__ == "__main__":
    main()
