"""Nodes that follow each other in the shapes of a tree, under load, with edges that are killed."""

from __future__ import annotations

import os
import random
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.end_to_end.nodes import nodes_of, under_load
from tests.servers.throwaway import MariaDbServer, MySqlServer, ThrowawayServer

SECONDS = float(os.environ.get("CDC_SOAK_SECONDS", "60"))
SHAPES: dict[str, tuple[list[type[ThrowawayServer]], list[tuple[int, int]]]] = {
    "pair": ([MySqlServer, MySqlServer], [(0, 1)]),
    "pair of both families": ([MariaDbServer, MySqlServer], [(0, 1)]),
    "star": ([MySqlServer, MariaDbServer, MySqlServer], [(0, 1), (0, 2)]),
    "chain": ([MariaDbServer, MySqlServer, MariaDbServer], [(0, 1), (1, 2)]),
}


@pytest.mark.skipif(not os.environ.get("CDC_SOAK_SEEDS"), reason="`make soak` takes these")
@pytest.mark.timeout(0)
@pytest.mark.parametrize("rule", ["own rows", "priority", "column"])
@pytest.mark.parametrize("shape", SHAPES)
def test_all_nodes_are_equal_after_a_load_with_kills(shape: str, rule: str, tmp_path: Path) -> None:
    """Each writer has rows of its own, or all write the same rows and conflicts are settled."""
    kinds, pairs = SHAPES[shape]
    seed = random.randrange(1 << 20)
    print(f"{shape}, {rule}: seed {seed}")
    winners = [] if rule == "own rows" else [random.Random(seed).choice(pair) for pair in pairs]
    with ExitStack() as stack:
        servers = [stack.enter_context(kind()) for kind in kinds]
        with nodes_of(
            servers, pairs, tmp_path, seed, winners=winners, by_column=rule == "column"
        ) as nodes:
            under_load(nodes, seconds=SECONDS, kill_every_s=5, writers=4)
