"""Joins beside a stream that flows, under random changes, with someone who looks at the sink."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from tests.beside import beside
from tests.systems.mysql.sink.joins import JoinWorld, Read

ROWS = 40
CHANGES = 300


class RaceBehaviours:
    """Whatever the family, and however many writers."""

    @pytest.mark.parametrize("key", ["INT", "VARCHAR(9) COLLATE utf8mb4_general_ci"])
    def test_no_row_goes_back_while_its_range_is_read_again_beside_the_stream(
        self, world: JoinWorld, key: str
    ) -> None:
        seed = random.randrange(1 << 30)
        print(f"seed {seed}")
        keys = Keys(random.Random(seed), is_text=key != "INT")
        initial = ", ".join(f"({keys.literal(n)}, 0, REPEAT('x', 300))" for n in range(ROWS))
        world.make(f"k {key} PRIMARY KEY, version INT NOT NULL, pad TEXT", initial)
        world.start()
        world.at_sink("DELETE FROM t WHERE MOD(version + CRC32(k), 7) = 0")
        sink, readers, joined = world.joins(), (world.reader(), world.reader()), 0
        with beside(world.advance), watching(world), ThreadPoolExecutor(1) as pool:
            changing = pool.submit(change, world, keys)
            while not changing.done() or joined < 4:
                for read in reads(world, keys, joined, readers):
                    while read.join(sink) is None:
                        pass
                    joined += 1
            changing.result()
        world.advance()
        assert world.held() == world.held_at_source()
        assert joined >= 4


class Keys:
    """Keys for random changes: a version is greater than all given before."""

    def __init__(self, rng: random.Random, *, is_text: bool) -> None:
        self.rng = rng
        self._is_text = is_text
        self.version = 0

    def literal(self, number: int) -> str:
        """Write a key; a text is spelt in either way, which is one key to the server."""
        if not self._is_text:
            return str(number)
        text = f"Key{number:03}"
        return f"'{self.rng.choice((text, text.lower(), text.upper()))}'"

    def bound(self, number: int) -> Any:
        return (f"key{number:03}",) if self._is_text else (number,)

    def statement(self) -> str:
        self.version += 1
        number, other = (self.rng.randrange(ROWS) for _ in range(2))
        k, version = self.literal(number), self.version
        put = f"version = {version}, pad = REPEAT('y', {self.rng.randrange(300)})"
        match self.rng.randrange(8):
            case 0:
                return f"DELETE FROM t WHERE k = {k}"
            case 1:
                return f"INSERT INTO t VALUES ({k}, {version}, 'new') ON DUPLICATE KEY UPDATE {put}"
            case 2:
                return f"UPDATE IGNORE t SET k = {self.literal(other)}, {put} WHERE k = {k}"
            case 3:
                return f"UPDATE t SET {put} WHERE k >= {k} ORDER BY k LIMIT 5"
            case _:
                return f"UPDATE t SET k = {k}, {put} WHERE k = {k}"


def change(world: JoinWorld, keys: Keys) -> None:
    with world.source_server.connect(world.database) as connection, connection.cursor() as cursor:
        for _ in range(CHANGES):
            cursor.execute(keys.statement())
            connection.commit()


def reads(world: JoinWorld, keys: Keys, number: int, readers: Sequence[Any]) -> list[Read]:
    """Read the table again in two splits, the second while the first has not joined."""
    cut = keys.bound(keys.rng.randrange(1, ROWS))
    return [
        world.read(None, cut, number, reader=readers[0]),
        world.read(cut, None, number + 1, reader=readers[1]),
    ]


@contextmanager
def watching(world: JoinWorld) -> Iterator[None]:
    """Look at the sink all the time: no key may come with an older version than before."""
    seen: dict[str, int] = {}
    with world.sink_server.connect(world.sink_database) as connection:

        def look() -> None:
            with connection.cursor() as cursor:
                cursor.execute("SELECT k, version FROM t")
                for key, version in cursor.fetchall():
                    name = str(key).lower()
                    assert version >= seen.get(name, 0), f"{key} went back to {version}"
                    seen[name] = version

        with beside(look):
            yield
    assert seen
