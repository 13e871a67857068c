"""Of tests that are alike some are taken: which ones, a seed decides.

**One family of servers** for each test that holds on several.

In `FOLDERS` tests are written once and run from and to both families: by classes of one behaviour,
such as `TestMySql(Pairs)` and `TestPairsFromMariaDb(Pairs)`, or by a parameter of a family's name.
So are those of the oldest and the newest PySpark, of two formats of files, and of a lake's four
kinds; `tests/systems/lake` takes each format, in one of its modes. `make test` takes
one of them, another one each time; `make test FAMILIES=all` takes all, and `FAMILIES=7` those
of seed 7. Without the Makefile all are taken.

**A sample of cases.** Of a test with many cases, or of tests that show one thing in several costly
ways, `@pytest.mark.sample(2)` takes two by the same seed; `of="a name"` has those of several tests
drawn together.
"""

from __future__ import annotations

import os
import random
import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest

VARIABLE = "CDC_FAMILIES"
FOLDERS = {"cli", "end_to_end", "pipeline", "spark"}
_OF_A_FAMILY = re.compile(r"Test\w*(MySql|MariaDb)")
_ALIKE = {
    *("mysql", "mariadb"),
    *("oldest", "newest"),
    *("json", "parquet"),
    *("iceberg", "delta", "iceberg_mirror", "delta_mirror"),
}
"""Parameters of which one is taken."""


def fix_seed() -> None:
    """Choose the seed for this process and for those that it starts, where it is to be chosen."""
    if os.environ.get(VARIABLE) == "one":
        os.environ[VARIABLE] = str(random.SystemRandom().randrange(1_000_000))


def seed_text() -> str:
    """Return which families are taken, for people."""
    seed = os.environ.get(VARIABLE, "all")
    return seed if seed == "all" else f"one a test, by seed {seed}; FAMILIES={seed} repeats it"


def left_out(items: Sequence[pytest.Item], root: Path) -> set[pytest.Item]:
    """Return the tests that are not taken, as another family was chosen for them."""
    seed = os.environ.get(VARIABLE, "all")
    if seed == "all":
        return set()
    alike: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        folders = item.path.relative_to(root).parts[1:]
        if isinstance(item, pytest.Function) and folders[0] in FOLDERS:
            alike[_behaviour(item)].append(item)
        elif folders[:2] == ("systems", "lake"):
            alike[item.nodeid.replace("_mirror", "")].append(item)
    gone: set[pytest.Item] = set()
    for behaviour, several in alike.items():
        one = random.Random(f"{seed} {behaviour}").choice(
            sorted(several, key=lambda each: each.nodeid)
        )
        gone |= {each for each in several if each is not one}
    return gone | _beyond_samples([each for each in items if each not in gone], seed)


def _beyond_samples(items: Sequence[pytest.Item], seed: str) -> set[pytest.Item]:
    """Return the tests that are in no sample, of those that are marked."""
    drawn: dict[str, list[pytest.Item]] = defaultdict(list)
    counts: dict[str, int] = {}
    for item in items:
        marker = item.get_closest_marker("sample")
        if marker is not None:
            group = marker.kwargs.get("of") or item.nodeid.partition("[")[0]
            drawn[group].append(item)
            counts[group] = marker.args[0]
    gone: set[pytest.Item] = set()
    for group, several in drawn.items():
        ordered = sorted(several, key=lambda each: each.nodeid)
        taken = random.Random(f"{seed} {group}").sample(ordered, min(counts[group], len(ordered)))
        gone |= set(several) - set(taken)
    return gone


def _behaviour(item: pytest.Function) -> str:
    """Return what tests of one behaviour have in common, whatever their families are."""
    kind = "" if item.cls is None else _shared_class(item.cls, item.originalname)
    callspec = getattr(item, "callspec", None)
    parts = () if callspec is None else callspec.id.split("-")
    others = "-".join(part for part in parts if part not in _ALIKE)
    return f"{item.path}::{kind}::{item.originalname}[{others}]"


def _shared_class(found: type, function: str) -> str:
    """Return the class that has the test: the behaviour's, if that of a family inherits it."""
    if _OF_A_FAMILY.fullmatch(found.__name__) is None:
        return found.__name__
    return next(each.__name__ for each in found.__mro__ if function in vars(each))
