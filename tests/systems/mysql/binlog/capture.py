"""Make the captured logs of tests/data/binlogs from throwaway servers.

    python -m tests.systems.mysql.binlog.capture

Each log lies beside a JSON file with what the tables held at its end, as the server told it. The
statements are the same on every server as far as it knows them.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from airflow_cdc_provider.core.identifiers import TableId
from tests.servers.throwaway import MariaDbServer, MySqlServer, ThrowawayServer
from tests.systems.mysql.wire.type_cases import MARIADB, MYSQL, create_statement, insert_statements

FOLDER = Path(__file__).parents[3] / "data" / "binlogs"

SHOP = (
    "CREATE TABLE orders "
    "(id INT PRIMARY KEY AUTO_INCREMENT, total DECIMAL(12,2), note VARCHAR(40))",
    "CREATE TABLE lines_ (o INT, n INT, item VARCHAR(300), PRIMARY KEY (o, n))",
    *(f"INSERT INTO orders (total, note) VALUES ({i}.25, 'order {i}')" for i in range(1, 41)),
    "INSERT INTO lines_ SELECT id, 1, REPEAT(CONCAT('item ', id, ' '), 20) FROM orders",
    "INSERT INTO lines_ SELECT id, 2, 'second' FROM orders WHERE id % 2 = 0",
    "UPDATE orders SET total = total * 2, note = NULL WHERE id % 3 = 0",
    "UPDATE orders SET id = id + 1000 WHERE id <= 5",
    "DELETE FROM lines_ WHERE o % 4 = 0",
    "BEGIN",
    "INSERT INTO orders (id, note) VALUES (5000, 'kept')",
    "SAVEPOINT s",
    "INSERT INTO orders (id, note) VALUES (5001, 'undone')",
    "ROLLBACK TO SAVEPOINT s",
    "UPDATE lines_ SET item = 'changed' WHERE o = 7",
    "COMMIT",
    "XA START 'shop'",
    "INSERT INTO orders (id, note) VALUES (6000, 'distributed')",
    "XA END 'shop'",
    "XA PREPARE 'shop'",
    "XA COMMIT 'shop'",
    "ALTER TABLE orders ADD COLUMN extra BIGINT UNSIGNED DEFAULT 18446744073709551615 AFTER id",
    "INSERT INTO orders (id, note) VALUES (7000, 'wider')",
    "FLUSH TABLES",
    "DELETE FROM orders WHERE id > 6500 AND note = 'none'",
    "UPDATE orders SET extra = 1 WHERE id < 20",
)


def capture(server: ThrowawayServer, name: str, kind: str, *session: str) -> None:
    """Run the statements and keep the log they made."""
    server.execute("CREATE DATABASE shop")
    server.execute("FLUSH BINARY LOGS")
    file = server.execute("SHOW BINARY LOGS")[-1][0]
    connection = server.connect("shop")
    with connection, connection.cursor() as cursor:
        for statement in (*session, *SHOP):
            cursor.execute(statement)
        cursor.execute("SET SESSION sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'")
        table = TableId("shop", "every_type")
        for statement in (create_statement(table, kind), *insert_statements(table, kind)):
            if "65536" not in statement:  # long texts are tested on live servers
                cursor.execute(statement)
    server.execute("FLUSH BINARY LOGS")
    (FOLDER / f"{name}.bin.gz").write_bytes(
        gzip.compress((server.datadir / file).read_bytes(), mtime=0)
    )
    told: dict[str, Any] = {
        "server": server.version,
        "file": file,
        "orders": server.execute("SELECT id, CAST(total AS CHAR), note FROM shop.orders"),
        "lines_": server.execute("SELECT o, n, item FROM shop.lines_"),
        "every_type": server.execute("SELECT COUNT(*) FROM shop.every_type")[0][0],
    }
    (FOLDER / f"{name}.json").write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n")


def main() -> None:
    """Capture every log."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with MySqlServer() as server:
        capture(server, "mysql_9_7", MYSQL)
    with MySqlServer() as server:
        capture(server, "mysql_9_7_compressed", MYSQL, "SET binlog_transaction_compression = ON")
    with MySqlServer() as server:
        capture(server, "mysql_9_7_tagged", MYSQL, "SET gtid_next = 'AUTOMATIC:blue'")
    with MySqlServer({"binlog-checksum": "NONE", "gtid-mode": "OFF"}) as server:
        capture(server, "mysql_9_7_no_checksum_no_gtid", MYSQL)
    with MariaDbServer() as server:
        capture(server, "mariadb_10_11", MARIADB)
    with MariaDbServer({"log-bin-compress": "ON", "binlog-checksum": "NONE"}) as server:
        capture(server, "mariadb_10_11_compressed_no_checksum", MARIADB)


if __name__ == "__main__":
    main()
