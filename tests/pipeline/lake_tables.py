"""Tables that others are to read right in a lake: of every type, of each kind of partition."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from tests.end_to_end.test_lake import COLUMNS
from tests.pipeline.conftest import Shop

_LIST = ", ".join(f"`{name}` {definition}" for name, (definition, _, _) in COLUMNS.items())
_VALUES = ", ".join(value for _, value, _ in COLUMNS.values())
TRANSFORMS = "['bucket(3, id)', 'month(at)', 'truncate(2, region)']"
"""By which `parts` may be partitioned."""


def write_every(shop: Shop) -> None:
    """Make a table of every type, with values and with none."""
    shop.at_source(f"CREATE TABLE every (id INT PRIMARY KEY, {_LIST})")
    shop.at_source(f"INSERT INTO every VALUES (1, {_VALUES})")
    shop.at_source("INSERT INTO every (id) VALUES (2)")


def change_every(shop: Shop) -> None:
    """Change its rows in every way, and its columns."""
    shop.at_source(f"INSERT INTO every VALUES (3, {_VALUES})")
    shop.at_source("UPDATE every SET name = NULL WHERE id = 1")
    shop.at_source("ALTER TABLE every ADD COLUMN more BIGINT")
    shop.at_source("UPDATE every SET more = 7 WHERE id = 2")
    shop.at_source("DELETE FROM every WHERE id = 3")


def write_parts(shop: Shop) -> None:
    """Make a table with rows of many partitions."""
    shop.at_source(
        "CREATE TABLE parts (id INT PRIMARY KEY, region VARCHAR(9) COLLATE utf8mb4_bin, "
        "at DATETIME(6))"
    )
    regions = ("'ü '", "'x,y'", "'x,yz'", "NULL", "'a=b/c%'")
    times = ("NULL", "'1969-12-31 23:59:59.999999'", "'2024-05-06 07:08:00'", "'9999-12-31'")
    rows = [f"({n}, {regions[n % 5]}, {times[n % 4]})" for n in range(30)]
    shop.at_source(f"INSERT INTO parts VALUES {', '.join(rows)}")


def change_parts(shop: Shop) -> None:
    """Move rows to other partitions, and delete one."""
    shop.at_source("UPDATE parts SET region = 'x,y' WHERE id % 7 = 0")
    shop.at_source("UPDATE parts SET at = '2024-05-06 07:08:00.000001' WHERE id % 6 = 0")
    shop.at_source("DELETE FROM parts WHERE id = 11")


def asked_of_parts(kind: str) -> dict[str, Callable[[dict[str, Any]], bool]]:
    """Return conditions that partitions help to answer, and which rows they choose.

    `kind` is what the engine writes before a time that has no zone.
    """
    later, before = datetime(2024, 5, 6, 7, 8), datetime(1970, 1, 1)  # noqa: DTZ001 - no zone
    return {
        "id = 5": lambda row: row["id"] == 5,
        "region = 'ü '": lambda row: row["region"] == "ü ",
        "region LIKE 'x,%'": lambda row: (row["region"] or "").startswith("x,"),
        "region IS NULL": lambda row: row["region"] is None,
        f"at >= {kind} '2024-05-06 07:08:00'": lambda row: (
            row["at"] is not None and row["at"] >= later
        ),
        f"at < {kind} '1970-01-01 00:00:00'": lambda row: (
            row["at"] is not None and row["at"] < before
        ),
    }
