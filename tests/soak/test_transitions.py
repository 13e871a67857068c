"""Every transition, under a random load and killed in its middle, ends equal.

`make soak SEEDS=20` takes every transition under so many seeds, for both families. Without it a
quarter of them are taken for the one family, and another quarter for the other; which, the seed
decides. It is another one each time, and printed.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.servers.families import FAMILIES
from tests.servers.given import SqlServer
from tests.soak.life import Life, kill, living
from tests.soak.transitions import TRANSITIONS, Transition
from tests.spark.workload import fill, writing

SEEDS = os.environ.get("CDC_SOAK_SEEDS", "")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(not SEEDS, reason="`make soak` takes these"),
]


NUMBERS = SEEDS[1:].split(",") if SEEDS.startswith("=") else [""] * int(SEEDS or 1)


@FAMILIES
@pytest.mark.parametrize("number", NUMBERS)
def test_every_transition_under_load_and_killed_in_its_middle_ends_equal(
    family: str,
    number: str,
    request: pytest.FixtureRequest,
    fresh_database: Callable[[SqlServer], str],
    tmp_path: Path,
) -> None:
    seed = int(number or random.SystemRandom().randrange(1 << 31))
    print(f"soak: seed {seed}")
    rng = random.Random(seed)
    source: SqlServer = request.getfixturevalue(f"{family}_server")
    sink: SqlServer = request.getfixturevalue("mysql_sink")
    life = Life(
        source,
        sink,
        fresh_database(source),
        fresh_database(sink),
        tmp_path,
        rng,
        ("orders", "names", "parts"),
    )
    fill(life, 600)
    source.execute("CREATE TABLE added LIKE orders", database=life.source_database)
    source.execute("INSERT INTO added SELECT * FROM orders", database=life.source_database)
    with living(life):
        life.stream()
        life.wait_until(life.is_quiet, "the first snapshot is not done")
        for name in rng.sample(sorted(TRANSITIONS), len(TRANSITIONS)):
            began = time.monotonic()
            with writing(life, every_s=0.02):
                through(life, TRANSITIONS[name])
            life.assert_equal()
            print(f"{name}: {time.monotonic() - began:.1f} s")


def through(life: Life, transition: Transition) -> None:
    """Begin, kill somebody in the middle, and see to it that it ends."""
    started = transition.begin(life)
    time.sleep(life.rng.uniform(0, 2.5))
    victims = life.rng.choice(("owner", "command", "both"))
    for process in started:
        if victims != "owner":
            kill(process)
        else:
            process.wait(60)
    if victims != "command" or not started:
        life.kill_owner()
    life.stream()
    transition.finish(life)
