"""JSON of the log prints as the server prints it."""

from __future__ import annotations

import json
import random
from typing import Any

from tests.servers.given import SqlServer
from tests.systems.mysql.binlog.captured import captured_log, rows_after
from tests.systems.mysql.binlog.json_text import invented

SCALARS = (
    "CAST(CAST('2015-01-15' AS DATE) AS JSON)",
    "CAST(CAST('2015-01-15 23:24:25.12' AS DATETIME(2)) AS JSON)",
    "CAST(TIMESTAMP'2015-01-15 23:24:25' AS JSON)",
    "CAST(CAST('-838:59:58.000001' AS TIME(6)) AS JSON)",
    "CAST(CAST('00:00:00' AS TIME) AS JSON)",
    "CAST(12345678901234567890.123456789 AS JSON)",
    "CAST(-0.00001 AS JSON)",
    "CAST(0.0 AS JSON)",
    "CAST(b'101' AS JSON)",
    "CAST(x'cafe00' AS JSON)",
    "JSON_ARRAY(CAST('2024' AS YEAR), 1e0, 1e15, 1e16, 1e17, 1e-5, 1e-15, -0e0, 1.5e300, 1e22)",
    "JSON_ARRAY(123456789012345680e0, 0.1e0, 100000e0, 1e14, 1.25e14, 1.2345e20)",
    "JSON_ARRAY(-9223372036854775808, 18446744073709551615, 65535, 65536, -32769, 4294967296)",
    "JSON_OBJECT('d', CAST('2015-01-15' AS DATE), '', NULL, 'nul', CONCAT('a', CHAR(0), 'b'))",
    "CAST(ST_GeomFromText('POINT(1 2)') AS JSON)",
    "CAST(_utf8mb4 x'22c3a95c6ef09f988022' AS JSON)",
    "JSON_ARRAY(TRUE, FALSE, NULL, '', 'a\"b\\\\c/d', CHAR(1), CHAR(127), CHAR(31))",
)


def check(server: SqlServer, database: str, values: list[tuple[str, Any]]) -> None:
    connection = server.connect(database)
    with captured_log(server) as log:
        with connection, connection.cursor() as cursor:
            cursor.execute("CREATE TABLE t (id INT PRIMARY KEY, j JSON)")
            for number, (sql, args) in enumerate(values):
                cursor.execute(f"INSERT INTO t VALUES ({number}, {sql})", args)
        found = {row["id"]: row["j"] for row in rows_after(log().batches(), "t")}
    shown = dict(server.execute("SELECT id, CAST(j AS CHAR) FROM t", database=database))
    wrong = [(values[n], found[n], shown[n]) for n in shown if found[n] != shown[n]]
    assert wrong[:5] == []


def test_every_kind_of_scalar_prints_as_the_server_prints_it(
    mysql_server: SqlServer, mysql_database: str
) -> None:
    check(mysql_server, mysql_database, [(sql, None) for sql in SCALARS])


def test_invented_documents_print_as_the_server_prints_them(
    mysql_server: SqlServer, mysql_database: str
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    source = random.Random(seed)
    documents = [json.dumps([invented(source) for _ in range(5)]) for _ in range(150)]
    documents.append(json.dumps({f"key {n}": "x" * 70 for n in range(2000)}))  # the large format
    documents.append(json.dumps([[n, -n, str(n)] for n in range(9000)]))
    check(mysql_server, mysql_database, [("%s", (document,)) for document in documents])
