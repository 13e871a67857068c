"""lineitem to Parquet with connectorx, two partitions."""

from __future__ import annotations

import connectorx
import pyarrow as pa
import pyarrow.parquet as pq

from tests.benchmarks import subject


def main() -> None:
    given = subject.arguments()
    pa.array([1])  # the first one of an interpreter imports pandas: a start-up cost of one second
    address = f"mysql://root@127.0.0.1:{given['source']}/bench"

    def run() -> int:
        table = connectorx.read_sql(
            address,
            "SELECT * FROM lineitem",
            partition_on="l_orderkey",
            partition_num=2,
            return_type="arrow",
        )
        pq.write_table(table, given["out"], compression="zstd")
        return int(table.num_rows)

    subject.work(run)


if __name__ == "__main__":
    main()
