"""A log decoded to Arrow columns by the log reader, over its connection."""

from __future__ import annotations

from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.markers import EdgeOrigins
from airflow_cdc_provider.systems.mysql.positions.gtid import GtidSet
from airflow_cdc_provider.systems.mysql.positions.position import BinlogPosition, MySqlPosition
from airflow_cdc_provider.systems.mysql.source.log_reader import LogReader
from tests.benchmarks import subject
from tests.benchmarks.workload import MARKER


def main() -> None:
    given = subject.arguments()
    echo = given.get("echo", False)
    reader = LogReader(
        Endpoint.parse(subject.dsn(given["source"])),
        server_id=9900,
        start=MySqlPosition(
            given["server_uuid"],
            BinlogPosition.of(given["file"], 4),
            GtidSet.parse(given["gtids"]),
        ),
        captured=frozenset({TableId("bench", given["table"])}),
        origins=EdgeOrigins(TableId("bench", MARKER), "here", "there") if echo else None,
    )
    end = BinlogPosition.of(given["file"], given["size"])

    def run() -> int:
        changes = sum(batch.changes for batch in reader.read_to(end))
        if echo and changes:
            raise AssertionError(f"{changes} changes of another node were not left out")
        return given["rows"] if echo else changes

    subject.work(run)
    reader.close()


if __name__ == "__main__":
    main()
