"""A pair of nodes that is written to at both ends while its edges are killed.

`make soak` takes one whose writers have rows of their own, and larger topologies, for longer.
"""

from __future__ import annotations

import random
from pathlib import Path

from tests.end_to_end.nodes import nodes_of, under_load
from tests.servers.throwaway import MariaDbServer, MySqlServer


def test_a_pair_that_changes_the_same_rows_is_equal_after_a_load_with_kills(
    tmp_path: Path,
) -> None:
    seed = random.randrange(1 << 20)
    print(f"seed {seed}")
    with (
        MariaDbServer() as one,
        MySqlServer() as two,
        nodes_of([one, two], [(0, 1)], tmp_path, seed, winners=[1]) as nodes,
    ):
        under_load(nodes, seconds=15, kill_every_s=4, writers=3)
