"""Updates that log parts of JSON documents decode to the documents that SELECT gives."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from airflow_cdc_provider.core.errors import CdcError, CorruptLogError, IntegrityError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.systems.mysql.binlog.events.event_types import EventType
from airflow_cdc_provider.systems.mysql.binlog.json.json_diffs import changed_document
from airflow_cdc_provider.systems.mysql.binlog.json.json_text import json_text
from airflow_cdc_provider.systems.mysql.binlog.json.json_tree import read_tree, write_tree
from tests.servers.given import SqlServer
from tests.systems.mysql.binlog.captured import CapturedLog, log_of, replayed
from tests.systems.mysql.binlog.json_text import invented

LONG = "x" * 90
PARTIAL = "SET SESSION binlog_row_value_options = 'PARTIAL_JSON'"
TABLE = "CREATE TABLE t (id INT PRIMARY KEY, a JSON, n VARCHAR(300), b JSON, d DATETIME(3), c JSON)"
DOCUMENT = {
    "a": 1,
    "bb": [1, 2, 3],
    "c d": {"x": LONG, "0": None},
    'q"\\\n': [[1], {"k": LONG}],
    "é.[0]": 1,
    "s": 5,
    "e": [],
}
UPDATES = (
    "a = JSON_SET(a, '$.a', 77, '$.bb[last]', 9, '$.new', 'v')",
    "a = JSON_SET(a, '$.bb[20]', 4, '$.bb[last-1]', 8, '$.e[last]', 1, '$.e[last-4]', 0)",
    "a = JSON_ARRAY_INSERT(a, '$.bb[0]', 4), b = JSON_ARRAY_APPEND(b, '$.bb', 8)",
    "a = JSON_REMOVE(a, '$.\"c d\".x', '$.bb[0]'), b = JSON_REMOVE(b, '$.bb[last-1]')",
    "a = JSON_SET(a, '$.s[1]', 7), b = JSON_SET(b, '$.s[0]', 7, '$.s[last]', 'w')",
    'a = JSON_SET(a, \'$."q\\\\"\\\\\\\\\\\\n"[1].k\', 7, \'$."é.[0]"\', CAST(1.50 AS JSON))',
    "a = JSON_SET(a, '$.zz', 1, '$.b', 2, '$.\"\"', 3, '$.aa', 4), n = 'other'",
    "a = JSON_SET(a, '$.t', TIMESTAMP'2015-01-15 23:24:25.12', '$.u', CAST(x'ff' AS JSON))",
    "b = NULL, a = JSON_REPLACE(a, '$.a', JSON_OBJECT('k', JSON_ARRAY(1, 2e0, TRUE)))",
    "c = JSON_SET(c, '$', 5)",
    "c = JSON_SET(c, '$[0]', 6), n = NULL",
    "c = JSON_SET(c, '$[1]', 7), d = NOW(3)",
    "n = 'no document'",
    "a = JSON_SET(a, '$.a', 1), c = b, b = '[1, 2]'",
    "id = id + 100, a = JSON_SET(a, '$.a', 'moved')",
    "a = JSON_SET(a, '$.none.more', 1)",
)


def inserted(number: int, *documents: Any) -> tuple[str, tuple[Any, ...]]:
    a, b, c = (None if each is None else json.dumps(each) for each in documents)
    return "INSERT INTO t VALUES (%s, %s, 'note', %s, NULL, %s)", (number, a, b, c)


def partial_events(log: CapturedLog) -> int:
    return sum(
        chunk.buffer[start + 4] == EventType.PARTIAL_UPDATE_ROWS
        for chunk in log.chunks()
        for start in chunk.starts
    )


def check(log: CapturedLog, server: SqlServer, database: str) -> None:
    found = replayed(log.batches(), "t")
    shown = server.execute("SELECT id, a, b, c, n FROM t ORDER BY id", database=database)
    assert shown
    assert [
        (row["id"], row["a"], row["b"], row["c"], row["n"]) for _, row in sorted(found.items())
    ] == list(shown)


def test_every_kind_of_partial_update_gives_the_document_that_select_gives(
    mysql_server: SqlServer, mysql_database: str
) -> None:
    log = log_of(
        mysql_server,
        mysql_database,
        TABLE,
        PARTIAL,
        inserted(1, DOCUMENT, DOCUMENT, [LONG]),
        inserted(2, DOCUMENT, {"bb": [1], "s": {}}, LONG),
        inserted(3, {"q": 1}, None, None),
        *(f"UPDATE t SET {update}" for update in UPDATES),
    )
    assert partial_events(log) >= len(UPDATES) - 3
    check(log, mysql_server, mysql_database)
    log.chunk_bytes = 500
    check(log, mysql_server, mysql_database)


def test_partial_updates_inside_a_compressed_transaction_are_whole(
    mysql_server: SqlServer, mysql_database: str
) -> None:
    log = log_of(
        mysql_server,
        mysql_database,
        TABLE,
        PARTIAL,
        inserted(1, DOCUMENT, DOCUMENT, [LONG]),
        "SET SESSION binlog_transaction_compression = ON",
        "BEGIN",
        *(f"UPDATE t SET {update}" for update in UPDATES),
        inserted(7, DOCUMENT, None, 1),
        "DELETE FROM t WHERE id = 7",
        "COMMIT",
    )
    assert partial_events(log) == 0
    check(log, mysql_server, mysql_database)


def path_into(source: random.Random, document: Any) -> str:
    """Return a path that leads into a document, or just past what it holds."""
    path, node = "$", document
    while isinstance(node, dict | list) and source.random() < 0.8:
        if isinstance(node, dict):
            key = source.choice([*node, "k", "new é"])
            path += f".{json.dumps(key)}"
            node = node.get(key)
        else:
            index = source.randrange(len(node) + 2)
            at_end = index < len(node) and source.random() < 0.3
            path += f"[last-{len(node) - 1 - index}]" if at_end else f"[{index}]"
            node = node[index] if index < len(node) else None
    return path


def test_invented_updates_of_invented_documents_give_what_select_gives(
    mysql_server: SqlServer, mysql_database: str
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    source = random.Random(seed)
    statements: list[Any] = [TABLE, PARTIAL]
    for number in range(40):
        first = {"a": [LONG, invented(source)], "b": invented(source), "": {"é": LONG}}
        statements.append(inserted(number, first, [first], None))
        for _ in range(6):
            column, root = source.choice((("a", first), ("b", [first])))
            verb = source.choice(("SET", "SET", "REPLACE", "REMOVE", "ARRAY_INSERT"))
            path = path_into(source, root)
            if (verb == "REMOVE" and path == "$") or (verb == "ARRAY_INSERT" and path[-1] != "]"):
                continue
            value = json.dumps(invented(source, depth=3))
            arguments = (path,) if verb == "REMOVE" else (path, value)
            change = f"{column} = JSON_{verb}({column}, %s"
            change += ")" if verb == "REMOVE" else ", CAST(%s AS JSON))"
            statements.append(
                (f"UPDATE t SET {change}, n = %s WHERE id = %s", (*arguments, path[:300], number))
            )
    log = log_of(mysql_server, mysql_database, *statements)
    assert partial_events(log) > 60
    check(log, mysql_server, mysql_database)


def test_partial_updates_of_other_tables_move_the_position_only(
    mysql_server: SqlServer, mysql_database: str
) -> None:
    log = log_of(
        mysql_server,
        mysql_database,
        TABLE,
        PARTIAL,
        inserted(1, DOCUMENT, None, None),
        f"UPDATE t SET {UPDATES[0]}",
    )
    (batch,) = log.batches(captured={TableId(mysql_database, "other")})
    assert batch.changes == 0
    assert batch.end == log.batches()[-1].end


def test_partial_updates_with_incomplete_images_are_refused_by_name(
    mysql_server: SqlServer, mysql_database: str
) -> None:
    log = log_of(
        mysql_server,
        mysql_database,
        TABLE,
        PARTIAL,
        inserted(1, DOCUMENT, None, None),
        "SET SESSION binlog_row_image = 'MINIMAL'",
        f"UPDATE t SET {UPDATES[0]}",
    )
    assert partial_events(log) == 1
    with pytest.raises(IntegrityError, match="incomplete row images"):
        log.batches()


def diff(operation: int, path: str, value: bytes = b"") -> bytes:
    data = bytes([operation, len(path)]) + path.encode()
    return data + (bytes([len(value)]) + value if value else b"")


FIVE = b"\x05\x05\x00"
SMALL = write_tree({b"a": [FIVE, FIVE], b"o": {}})


@pytest.mark.parametrize(
    "broken",
    [
        diff(0, "$.b", FIVE),
        diff(0, "$.a[2]", FIVE),
        diff(0, "$.a.b", FIVE),
        diff(1, "$.a", FIVE),
        diff(1, "$", FIVE),
        diff(1, "$.o[1]", FIVE),
        diff(2, "$"),
        diff(2, "$.o[1]"),
        diff(2, "$.a[last-2]"),
        diff(0, "$a", FIVE),
        diff(0, "a", FIVE),
        diff(3, "$.a", FIVE),
        diff(0, "$.a", FIVE)[:-1],
        diff(0, "$.a", b"\x0b\x01"),
        diff(0, "$.a", b"\x0d\x01"),
        diff(0, "$.a", b"\x0c\x05abc"),
        diff(0, "$.a", b"\x02\x02\x00"),
        diff(0, '$."a', FIVE),
        diff(0, '$."\\x"', FIVE),
    ],
)
def test_a_diff_that_does_not_fit_its_document_is_an_error(broken: bytes) -> None:
    with pytest.raises(CdcError):
        changed_document(SMALL, broken)


def test_a_document_is_never_changed_in_part() -> None:
    with pytest.raises(CorruptLogError):
        changed_document(SMALL, diff(0, "$.a[0]", b"\x04\x00") + diff(2, "$.x"))
    assert json_text(SMALL) == '{"a": [5, 5], "o": {}}'
    assert write_tree(read_tree(SMALL)) == SMALL
