"""The GTID algebra against the server's own functions."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from airflow_cdc_provider.systems.mysql.positions.gtid import GtidSet, GtidSource
from tests.strategies import TAGS, UUIDS

if TYPE_CHECKING:
    from tests.servers.throwaway import MySqlServer


def drawn_set(rng: random.Random) -> GtidSet:
    spans = {}
    for uuid in UUIDS:
        for tag in TAGS:
            if rng.random() < 0.5:
                numbers = sorted({rng.randint(1, 15) for _ in range(rng.randint(1, 6))})
                spans[GtidSource(uuid, tag)] = [(number, number + 1) for number in numbers]
    text = ",".join(f"{source}:{start}" for source, parts in spans.items() for start, _ in parts)
    return GtidSet.parse(text)


def test_subset_and_subtract_agree_with_the_server(mysql_server: MySqlServer) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    connection = mysql_server.connect()
    try:
        with connection.cursor() as cursor:
            for _ in range(300):
                left, right = drawn_set(rng), drawn_set(rng)
                if rng.random() < 0.3:
                    right = right.intersection(left)
                cursor.execute(
                    "SELECT GTID_SUBSET(%s, %s), GTID_SUBTRACT(%s, %s)",
                    (str(right), str(left), str(left), str(right)),
                )
                subset, rest = cursor.fetchone()
                assert bool(subset) == left.covers(right), (seed, left, right)
                assert GtidSet.parse(rest) == left.subtract(right), (seed, left, right)
                assert "".join(rest.split()).lower() == str(left.subtract(right)), seed
    finally:
        connection.close()
