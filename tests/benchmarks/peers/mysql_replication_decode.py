"""A log decoded by mysql-replication: every row of every row event, a part of the log."""

from __future__ import annotations

from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent

from tests.benchmarks import subject


def main() -> None:
    given = subject.arguments()
    reader = BinLogStreamReader(
        connection_settings={
            "host": "127.0.0.1",
            "port": given["source"],
            "user": "root",
            "ssl_disabled": True,
        },
        server_id=9901,
        log_file=given["file"],
        log_pos=4,
        resume_stream=True,
        blocking=False,
        only_events=[WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent],
        only_tables=[given["table"]],
    )

    def run() -> int:
        rows = 0
        for event in reader:
            rows += len(event.rows)
            if rows >= given["limit"]:
                break
        return rows

    subject.work(run)
    reader.close()


if __name__ == "__main__":
    main()
