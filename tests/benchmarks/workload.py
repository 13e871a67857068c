"""What is written to the source to make the logs that are decoded and applied."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pymysql.cursors import Cursor

LINEITEM = """
CREATE TABLE lineitem (
 l_orderkey BIGINT NOT NULL, l_partkey INT NOT NULL, l_suppkey INT NOT NULL,
 l_linenumber INT NOT NULL, l_quantity DECIMAL(15,2) NOT NULL,
 l_extendedprice DECIMAL(15,2) NOT NULL, l_discount DECIMAL(15,2) NOT NULL,
 l_tax DECIMAL(15,2) NOT NULL, l_returnflag CHAR(1) NOT NULL, l_linestatus CHAR(1) NOT NULL,
 l_shipdate DATE NOT NULL, l_commitdate DATE NOT NULL, l_receiptdate DATE NOT NULL,
 l_shipinstruct CHAR(25) NOT NULL, l_shipmode CHAR(10) NOT NULL, l_comment VARCHAR(44) NOT NULL,
 PRIMARY KEY (l_orderkey, l_linenumber)) DEFAULT CHARSET=utf8mb4
"""

_NARROW = (
    "CREATE TABLE {name} (id INT NOT NULL PRIMARY KEY, k INT NOT NULL, c CHAR(120) NOT NULL, "
    "pad CHAR(60) NOT NULL) DEFAULT CHARSET=utf8mb4"
)
_NARROW_ROWS = (
    "INSERT INTO {name} WITH RECURSIVE n AS (SELECT 1 i UNION ALL SELECT i + 1 FROM n "
    "WHERE i < {count}) SELECT i, i % 1000, CONCAT('c-', i, '-', REPEAT('68487932199-', 9)), "
    "CONCAT('pad-', i, '-', REPEAT('67847967377-', 4)) FROM n"
)
_NARROW_VALUES = (
    "{number} * 7919 % 1000000, CONCAT('c-', {number}, '-', REPEAT('68487932199-', 9)), "
    "CONCAT('pad-', {number}, '-', REPEAT('67847967377-', 4))"
)
_SEED = 20_260_101
_CALLED_AT_ONCE = 50_000
_UPDATED_KEYS = 90_000
_DELETED_KEYS = 100_000
_LINEITEM_COLUMNS = re.findall(r"(l_\w+) [A-Z]", LINEITEM)

_W1_CHANGES = f"""
CREATE PROCEDURE w1_changes(low INT, high INT)
BEGIN
 DECLARE number INT DEFAULT low;
 WHILE number < high DO
  IF number % 1000 = 0 THEN START TRANSACTION; END IF;
  SET number = number + 1;
  INSERT INTO w1 VALUES (number, {_NARROW_VALUES.format(number="number")});
  IF number % 1000 = 0 THEN COMMIT; END IF;
 END WHILE;
 SELECT high - low;
END
"""
_W3_CHANGES = f"""
CREATE PROCEDURE w3_changes(low INT, high INT)
BEGIN
 DECLARE number INT DEFAULT low;
 DECLARE changed INT DEFAULT 0;
 WHILE number < high DO
  IF number % 10 < 2 THEN
   INSERT INTO w3 VALUES (2000000 + number, {_NARROW_VALUES.format(number="number")});
  ELSEIF number % 10 < 8 THEN
   UPDATE w3 SET k = k + 1, c = CONCAT('u-', number, '-', REPEAT('31451373586-', 9))
   WHERE id = 1 + number * 48271 % {_UPDATED_KEYS};
  ELSE
   DELETE FROM w3 WHERE id = {_UPDATED_KEYS + 1} + number DIV 10 * 2 + number % 2;
  END IF;
  SET changed = changed + ROW_COUNT();
  SET number = number + 1;
 END WHILE;
 SELECT changed;
END
"""
"""A fifth are inserts, a fifth deletes, each in a transaction of its own."""
MARKER = "marks"
_MARK = (
    f"START TRANSACTION; INSERT INTO {MARKER} VALUES ('there', 'there', 'here', 1) "
    "ON DUPLICATE KEY UPDATE n = n + 1;"
)
_W6_CHANGES = (
    _W3_CHANGES.replace("w3", "w6")
    .replace("  IF number % 10 < 2 THEN", f"  {_MARK}\n  IF number % 10 < 2 THEN")
    .replace("  SET number = number + 1;", "  COMMIT;\n  SET number = number + 1;")
)
"""The same, as what another node of a topology has written."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A table, what fills it, and the changes that are logged."""

    table: str
    prepare: tuple[str, ...]
    run: Callable[[Cursor], int]
    """Returns the number of row changes."""


def _narrow_row(number: int) -> str:
    c = f"c-{number}-" + "68487932199-" * 9
    pad = f"pad-{number}-" + "67847967377-" * 4
    return f"({number},{number * 7919 % 1_000_000},'{c}','{pad}')"


def _single_inserts(cursor: Cursor, rows: int = 600_000) -> int:
    return _called(cursor, "w1_changes", rows)


def _bulk_inserts(cursor: Cursor, passes: int = 2) -> int:
    rows = 0
    cursor.execute("SELECT MAX(l_orderkey) FROM lineitem")
    ((largest,),) = cursor.fetchall()
    for behind in range(passes):
        for low in range(0, largest + 1, 4000):
            rows += cursor.execute(
                f"INSERT INTO w2 SELECT l_orderkey + {behind * (largest + 1)}, "
                + ", ".join(_LINEITEM_COLUMNS[1:])
                + f" FROM lineitem WHERE l_orderkey >= {low} AND l_orderkey < {low + 4000}"
            )
    return rows


def _oltp(cursor: Cursor, statements: int = 500_000) -> int:
    return _called(cursor, "w3_changes", statements)


def _marked(cursor: Cursor, statements: int = 300_000) -> int:
    return _called(cursor, "w6_changes", statements)


def _called(cursor: Cursor, procedure: str, statements: int) -> int:
    """Have the server itself run so many statements of one row each; return the rows."""
    rows = 0
    for first in range(0, statements, _CALLED_AT_ONCE):
        cursor.execute(f"CALL {procedure}({first}, {first + _CALLED_AT_ONCE})")
        ((changed,),) = cursor.fetchall()
        rows += changed
        cursor.nextset()
    return rows


def _transactions_of_ten(cursor: Cursor, transactions: int = 10_000) -> int:
    """Mixed changes, ten rows a transaction, uniform over 100,000 keys; a tenth are deletes."""
    rng = random.Random(_SEED)
    rows = 0
    for number in range(transactions):
        cursor.execute("BEGIN")
        first = rng.randint(1, 100_000)
        values = ", ".join(map(_narrow_row, range(first, first + 3)))
        c = f"t-{number}-" + "31451373586-" * 9
        rows += (
            cursor.execute(
                f"INSERT INTO w5 VALUES {values} AS new "
                f"ON DUPLICATE KEY UPDATE k = new.k + {number}, c = '{c}'"
            )
            and 3
        )
        keys = ", ".join(str(rng.randint(1, 100_000)) for _ in range(6))
        rows += cursor.execute(f"UPDATE w5 SET k = k + 1, c = '{c}' WHERE id IN ({keys})")
        rows += cursor.execute(f"DELETE FROM w5 WHERE id = {rng.randint(1, 100_000)}")
        cursor.execute("COMMIT")
    return rows


def _wide_columns() -> str:
    kinds = ("INT", "BIGINT", "VARCHAR(80)", "DECIMAL(18,4)", "DATETIME(6)", "DOUBLE")
    return ", ".join(f"c{i} {kinds[i % 6]} NULL" for i in range(60))


def _wide_values() -> str:
    kinds = (
        "l_partkey",
        "l_orderkey * 1000003",
        "l_comment",
        "l_extendedprice",
        "l_shipdate",
        "l_tax * 1.5",
    )
    return ", ".join("NULL" if i % 12 == 4 else kinds[i % 6] for i in range(60))


def _wide_updates(cursor: Cursor, rows: int = 50_000, passes: int = 2) -> int:
    changed = 0
    for low in [*range(0, rows, 500)] * passes:
        changed += cursor.execute(
            "UPDATE w4 SET c6 = c6 + 1, c12 = c12 + 1, c3 = c3 + 1 "
            f"WHERE id > {low} AND id <= {low + 500}"
        )
    return changed


WORKLOADS = {
    "w1": Workload("w1", (_NARROW.format(name="w1"), _W1_CHANGES), _single_inserts),
    "w2": Workload("w2", ("CREATE TABLE w2 LIKE lineitem",), _bulk_inserts),
    "w3": Workload(
        "w3",
        (
            _NARROW.format(name="w3"),
            "SET SESSION cte_max_recursion_depth = 200000",
            _NARROW_ROWS.format(name="w3", count=_UPDATED_KEYS + _DELETED_KEYS),
            _W3_CHANGES,
        ),
        _oltp,
    ),
    "w5": Workload(
        "w5",
        (
            _NARROW.format(name="w5"),
            "SET SESSION cte_max_recursion_depth = 200000",
            _NARROW_ROWS.format(name="w5", count=100_000),
        ),
        _transactions_of_ten,
    ),
    "w6": Workload(
        "w6",
        (
            _NARROW.format(name="w6"),
            f"CREATE TABLE {MARKER} (data_origin_node VARCHAR(255), src_node VARCHAR(255), "
            "dst_node VARCHAR(255), n BIGINT, PRIMARY KEY (data_origin_node, src_node, dst_node))",
            "SET SESSION cte_max_recursion_depth = 200000",
            _NARROW_ROWS.format(name="w6", count=_UPDATED_KEYS + _DELETED_KEYS),
            _W6_CHANGES,
        ),
        _marked,
    ),
    "w4": Workload(
        "w4",
        (
            f"CREATE TABLE w4 (id INT NOT NULL PRIMARY KEY, {_wide_columns()})",
            f"INSERT INTO w4 SELECT ROW_NUMBER() OVER (), {_wide_values()} "
            "FROM (SELECT * FROM lineitem LIMIT 50000) t",
        ),
        _wide_updates,
    ),
}
