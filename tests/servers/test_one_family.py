"""A test of several families is taken for one of them, by a seed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from tests.servers.one_family import VARIABLE

ROOT = Path(__file__).parents[2]
FILES = ("tests/pipeline/test_pairs.py", "tests/pipeline/test_stream_starts.py")
FAMILIES = ("TestMySql", "TestFromMariaDb", "TestToMariaDb", "mysql", "mariadb")


SAMPLED = ("tests/engine/test_ledger_machine.py", "tests/systems/lake/test_compacting.py")


def taken(seed: str, files: Iterable[str] = FILES) -> set[str]:
    """Return the tests of these files that are run under a seed."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-n0", *files]
    environment = {**os.environ, VARIABLE: seed}
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return {line for line in done.stdout.splitlines() if "::" in line}


def test_each_behaviour_is_taken_once_and_for_another_family_by_another_seed() -> None:
    behaviours = defaultdict(set)
    for name in taken("all"):
        behaviours[re.sub("::Test[A-Za-z]+|mysql|mariadb", "", name)].add(name)
    assert {len(names) for names in behaviours.values()} == {1, 2, 3}
    one, again, other = (taken(seed) for seed in ("1", "1", "2"))
    assert one == again != other
    for chosen in (one, other):
        assert {len(names & chosen) for names in behaviours.values()} == {1}
        assert set(FAMILIES) == set(re.findall("|".join(FAMILIES), " ".join(chosen)))


def test_of_many_cases_a_sample_is_taken_and_of_each_format_one_mode() -> None:
    every, one, again, other = (taken(seed, SAMPLED) for seed in ("all", "1", "1", "2"))
    assert one == again != other
    for chosen in (one, other):
        assert chosen < every
        assert sum("notices_a_broken_law" in each for each in chosen) == 4
        left = {each for each in every - chosen if "notices_a_broken_law" not in each}
        assert all("iceberg" in each or "delta" in each for each in left)
        kept = {each.replace("_mirror", "") for each in chosen}
        assert {each.replace("_mirror", "") for each in left} <= kept
