"""A writer that notes where the log ends after each of its transactions, and the rows then.

Nobody else writes to these logs, so each place has its rows.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from airflow_cdc_provider.systems.mysql.positions.position import BinlogPosition
from tests.pipeline.conftest import Shop

Rows = list[tuple[object, ...]]
_FIRST_TIMES_S = itertools.count(int(datetime.now(UTC).timestamp()) + 100_000, 100_000)
"""Commit times are set, ten seconds apart and later than anything else in the log."""


@dataclass
class Noted:
    """The end of the log behind a transaction, and the rows then."""

    place: BinlogPosition
    gtids: str
    rows: Rows
    time_s: int


@dataclass
class Writer:
    """Writes transactions to a shop and notes what each leaves."""

    shop: Shop
    connection: Any
    rng: random.Random
    noted: list[Noted] = field(default_factory=list)
    first_s: int = field(default_factory=_FIRST_TIMES_S.__next__)

    @property
    def is_mariadb(self) -> bool:
        return "MariaDB" in self.shop.source.version

    def write(self, count: int = 1) -> None:
        for _ in range(count):
            self._transaction()
            self.noted.append(self._note())

    def _transaction(self) -> None:
        cursor, rng = self.connection.cursor(), self.rng
        at = self.time_s
        if self.is_mariadb:
            cursor.execute(f"SET timestamp = {at}")
        else:
            cursor.execute(f"SET SESSION original_commit_timestamp = {at * 1_000_000}")
        cursor.execute("BEGIN")
        for _ in range(rng.randint(1, 4)):
            key = rng.randint(1, 500)
            cursor.execute(
                rng.choice(
                    [
                        "INSERT INTO orders VALUES (%s, %s) ON DUPLICATE KEY UPDATE note = 'again'",
                        "UPDATE orders SET note = CONCAT(%s, '-', %s) WHERE id >= 400 LIMIT 3",
                    ]
                ),
                (key, rng.random()),
            )
        cursor.execute("DELETE FROM orders WHERE id = %s", (rng.randint(1, 500),))
        cursor.execute("INSERT INTO moves VALUES (NULL, %s)", (at,))
        cursor.execute("COMMIT")

    @property
    def time_s(self) -> int:
        return self.first_s + 10 * len(self.noted)

    def _note(self) -> Noted:
        cursor = self.connection.cursor()
        if self.is_mariadb:
            cursor.execute("SHOW MASTER STATUS")
            file, offset = cursor.fetchone()[:2]
            cursor.execute("SELECT @@gtid_binlog_pos")
            gtids = cursor.fetchone()[0]
        else:
            cursor.execute("SHOW BINARY LOG STATUS")
            file, offset, _, _, gtids = cursor.fetchone()
        rows = all_rows(cursor)
        return Noted(BinlogPosition.of(file, offset), gtids, rows, self.time_s)

    def at(self, place: BinlogPosition) -> Rows:
        """Return the rows as of a place behind one of the transactions."""
        return next(each.rows for each in self.noted if each.place == place)


def all_rows(cursor: Any) -> Rows:
    cursor.execute("SELECT 'orders', id, note FROM orders UNION SELECT 'moves', id, at FROM moves")
    return sorted((tuple(map(str, row)) for row in cursor.fetchall()), key=str)


@contextmanager
def written_meanwhile(writer: Writer) -> Iterator[None]:
    """Write one transaction after the other until the end of the block."""
    is_over = threading.Event()

    def go_on() -> None:
        while not is_over.wait(0.01):
            writer.write()

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
