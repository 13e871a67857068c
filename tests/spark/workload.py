"""Tables to copy, and someone who keeps writing to them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from tests.beside import beside
from tests.servers.given import SqlServer

TABLES = ("orders", "names", "parts")


class Written(Protocol):
    """A pipeline, for who writes to its source."""

    source: SqlServer
    source_database: str


def fill(pipeline: Written, rows: int) -> None:
    """Make three tables: an integer key with holes, a text key, a composite key."""
    with pipeline.source.connect(pipeline.source_database) as connection:
        cursor = connection.cursor()
        for statement in (
            "CREATE TABLE orders (id INT PRIMARY KEY, note VARCHAR(40), amount DECIMAL(20,4))",
            "CREATE TABLE names (name VARCHAR(40) PRIMARY KEY, born DATE)",
            "CREATE TABLE parts (o INT, n INT, t TIMESTAMP(3) NULL, PRIMARY KEY (o, n))",
        ):
            cursor.execute(statement)
        cursor.executemany(
            "INSERT INTO orders VALUES (%s, %s, %s)",
            [(i * 3, f"note {i} \\ é'\n\t", f"{i / 7:.4f}") for i in range(1, rows + 1)],
        )
        cursor.executemany(
            "INSERT INTO names VALUES (%s, DATE('2000-01-01') + INTERVAL %s DAY)",
            [(f"Name {i}", i % 9000) for i in range(1, rows + 1)],
        )
        cursor.executemany(
            "INSERT INTO parts VALUES (%s, %s, NULL)",
            [(1 + i // 1000, i % 1000) for i in range(1, rows + 1)],
        )


@contextmanager
def writing(pipeline: Written, *, every_s: float = 0.002, keys: int = 4000) -> Iterator[None]:
    """Insert, update, delete and move keys all the while."""
    seed = random.randrange(1 << 32)
    print(f"writer's seed: {seed}")
    rng = random.Random(seed)
    with pipeline.source.connect(pipeline.source_database, autocommit=False) as connection:

        def write() -> None:
            with connection.cursor() as cursor:
                for statement in statements(rng, keys):
                    cursor.execute(statement)
            connection.commit()

        with beside(write, every_s=every_s):
            yield


def statements(rng: random.Random, keys: int) -> list[str]:
    """Give one transaction."""
    one, other = rng.randrange(keys), rng.randrange(keys)
    every = [
        f"REPLACE INTO orders (id, note, amount) VALUES ({one}, 'new {other}', {rng.random()})",
        f"UPDATE IGNORE orders SET id = {other} WHERE id = {one}",
        f"DELETE FROM orders WHERE id = {other + 1}",
        f"UPDATE names SET born = NULL WHERE name = 'Name {one}'",
        f"UPDATE IGNORE names SET name = 'name {other}' WHERE name = 'Name {other + 1}'",
        f"DELETE FROM names WHERE name = 'Name {other}'",
        f"REPLACE INTO parts (o, n, t) VALUES ({one % 9}, {other % 1000}, NOW(3))",
        f"UPDATE IGNORE parts SET o = o + 1 WHERE o = {one % 9} AND n = {one % 1000}",
    ]
    return rng.sample(every, rng.randrange(1, len(every)))
