"""Writes to the source all the while: inserts, updates, deletes and moved keys, on every table.

One thread, one connection, transactions of several rows over several tables, from one seed. The
rate and the time are bounded: a writer that nobody stops ends by itself.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

import pymysql

from tests.servers.given import SqlServer

if TYPE_CHECKING:
    from pymysql.cursors import Cursor

_LARGE = 1 << 31
_DEADLOCK, _LOCK_WAIT = 1213, 1205


class Writer:
    """A context manager: writes from its start until it is stopped."""

    def __init__(
        self,
        server: SqlServer,
        *,
        seed: int | None = None,
        transactions_per_s: float = 50.0,
        longest_s: float = 1200.0,
    ) -> None:
        self.seed = random.SystemRandom().randrange(_LARGE) if seed is None else seed
        self.transactions = 0
        self.changes: Counter[str] = Counter()
        self._server = server
        self._pause_s = 1.0 / transactions_per_s
        self._longest_s = longest_s
        self._rng = random.Random(self.seed)
        self._over = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._write, name="writer", daemon=True)
        self._next_key = 1_000_000_000

    def __enter__(self) -> Self:
        print(f"writer: seed {self.seed}")
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join(30)

    def stop(self) -> None:
        """Stop writing; everything written is committed. A failure of the writer is raised."""
        self._over.set()
        self._thread.join(30)
        if self._failure is not None:
            raise self._failure

    def _write(self) -> None:
        try:
            connection = self._server.connect(autocommit=False)
            try:
                with connection.cursor() as cursor:
                    self._loop(connection, cursor)
            finally:
                connection.close()
        except BaseException as failure:  # noqa: BLE001 - raised again by `stop`, in its thread
            self._failure = failure

    def _loop(self, connection: pymysql.Connection[Cursor], cursor: Cursor) -> None:
        deadline = time.monotonic() + self._longest_s
        kinds: list[Callable[[Cursor], None]] = [
            self._new_order,
            self._changed_prices,
            self._deleted_order,
            self._moved_lines,
            self._awkward_keys,
            self._rest_of_tpch,
        ]
        while not self._over.is_set() and time.monotonic() < deadline:
            changes = self.changes.copy()
            try:
                for kind in self._rng.sample(kinds, 2):
                    kind(cursor)
                connection.commit()
                self.transactions += 1
            except pymysql.err.OperationalError as error:
                if error.args[0] not in {_DEADLOCK, _LOCK_WAIT}:
                    raise
                connection.rollback()  # the copy itself takes no locks; two writers might
                self.changes = changes
            self._over.wait(self._pause_s)

    def _run(self, cursor: Cursor, kind: str, sql: str) -> int:
        rows = int(cursor.execute(sql))
        self.changes[kind] += rows
        return rows

    def _key(self) -> int:
        self._next_key += 1
        return self._next_key

    def _some_order(self, cursor: Cursor) -> int:
        """Pick an order; new ones as often as old ones."""
        if self._rng.random() < 0.5:
            near = self._rng.randint(1_000_000_000, self._next_key)
        else:
            near = self._rng.randint(1, 60_000)
        cursor.execute(f"SELECT MIN(o_orderkey) FROM tpch.orders WHERE o_orderkey >= {near}")
        found = cursor.fetchone()
        return int(found[0]) if found and found[0] is not None else 1

    def _new_order(self, cursor: Cursor) -> None:
        order = self._key()
        customer = self._rng.choice([1, 2, 4, 5, 7, 8, 10])
        self._run(
            cursor,
            "inserts",
            f"INSERT INTO tpch.orders VALUES ({order}, {customer}, 'O', {order % 10_000}.25, "
            "'2026-11-01', '1-URGENT', 'Clerk#000000001', 0, 'fresh; \\'quoted\\' \\\\ é')",
        )
        lines = ", ".join(
            f"({order}, {1 + self._rng.randint(0, 199)}, 1, {line}, {line}.00, {line * 10}.50, "
            "0.04, 0.02, 'N', 'O', '2026-11-02', '2026-11-03', '2026-11-04', 'NONE', 'AIR', 'new')"
            for line in range(1, self._rng.randint(2, 6))
        )
        self._run(cursor, "inserts", f"INSERT INTO tpch.lineitem VALUES {lines}")

    def _changed_prices(self, cursor: Cursor) -> None:
        order = self._some_order(cursor)
        self._run(
            cursor,
            "updates",
            f"UPDATE tpch.orders SET o_totalprice = o_totalprice + 1 WHERE o_orderkey = {order}",
        )
        self._run(
            cursor,
            "updates",
            "UPDATE tpch.lineitem SET l_quantity = l_quantity + 1, l_comment = "
            f"'changed {self.transactions}' WHERE l_orderkey = {order}",
        )

    def _deleted_order(self, cursor: Cursor) -> None:
        order = self._some_order(cursor)
        for table, column in (("lineitem", "l_orderkey"), ("orders", "o_orderkey")):
            self._run(cursor, "deletes", f"DELETE FROM tpch.{table} WHERE {column} = {order}")

    def _moved_lines(self, cursor: Cursor) -> None:
        """Move lines behind the others: a change of key, now and then across splits."""
        order = self._some_order(cursor)
        self._run(
            cursor,
            "key moves",
            "UPDATE tpch.lineitem SET l_linenumber = l_linenumber + 1000 "
            f"WHERE l_orderkey = {order} ORDER BY l_linenumber DESC",
        )

    def _awkward_keys(self, cursor: Cursor) -> None:
        number = self._key()
        self._run(
            cursor,
            "inserts",
            f"INSERT INTO extras.text_key (code, label) VALUES ('Zz-{number}', 'new'), "
            f"('aA-{number}', NULL)",
        )
        self._run(
            cursor,
            "key moves",
            "UPDATE extras.text_key SET code = CONCAT('m', code) "
            f"WHERE code LIKE '{self._rng.randrange(16):x}{self._rng.randrange(16):x}%' "
            "AND CHAR_LENGTH(code) < 38 LIMIT 2",
        )
        self._run(
            cursor,
            "key moves",
            "UPDATE extras.composite_key SET number = number + 10000000, "
            f"tenant = IF(tenant = 'main', 'other', 'main') WHERE tenant = 'main' "
            f"AND number = {self._rng.randint(1, 30_000)}",
        )
        self._run(
            cursor,
            "deletes",
            "DELETE FROM extras.composite_key WHERE tenant = 'main' "
            f"AND number = {self._rng.randint(1, 30_000)}",
        )

    def _rest_of_tpch(self, cursor: Cursor) -> None:
        for table, column, key in (
            ("customer", "c_acctbal = c_acctbal + 1", "c_custkey"),
            ("supplier", "s_acctbal = s_acctbal - 1", "s_suppkey"),
            ("part", "p_size = p_size + 1", "p_partkey"),
            ("partsupp", "ps_availqty = ps_availqty + 1", "ps_partkey"),
            ("nation", "n_comment = CONCAT('c', LEFT(n_comment, 100))", "n_nationkey"),
            ("region", "r_comment = CONCAT('r', LEFT(r_comment, 100))", "r_regionkey"),
        ):
            number = self._rng.randint(0, 1000)
            if table in {"nation", "region"}:
                number %= 5
            self._run(cursor, "updates", f"UPDATE tpch.{table} SET {column} WHERE {key} = {number}")
