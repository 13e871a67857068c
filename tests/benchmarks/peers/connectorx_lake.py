"""lineitem to a table of Iceberg or Delta with connectorx and the format's library."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import connectorx
import pyarrow as pa
from deltalake import write_deltalake
from pyiceberg.catalog.sql import SqlCatalog

from tests.benchmarks import subject

if TYPE_CHECKING:
    from collections.abc import Callable


def main() -> None:
    given = subject.arguments()
    pa.array([1])  # the first one of an interpreter imports pandas: a start-up cost of one second
    address = f"mysql://root@127.0.0.1:{given['source']}/bench"
    write = {"iceberg": _iceberg, "delta": _delta}[given["form"]]
    given_to = write(Path(given["out"]))

    def run() -> int:
        table = connectorx.read_sql(
            address,
            "SELECT * FROM lineitem",
            partition_on="l_orderkey",
            partition_num=2,
            return_type="arrow",
        )
        given_to(table)
        return int(table.num_rows)

    subject.work(run)


def _iceberg(folder: Path) -> Callable[[pa.Table], None]:
    folder.mkdir(parents=True)
    catalog = SqlCatalog("bench", uri=f"sqlite:///{folder}/catalog.db", warehouse=str(folder))
    catalog.create_namespace("bench")

    def write(rows: pa.Table) -> None:
        # its decimals come as floating numbers, which Iceberg takes as such
        catalog.create_table("bench.lineitem", schema=rows.schema).append(rows)

    return write


def _delta(folder: Path) -> Callable[[pa.Table], None]:
    return lambda rows: write_deltalake(str(folder / "lineitem"), rows)


if __name__ == "__main__":
    main()
