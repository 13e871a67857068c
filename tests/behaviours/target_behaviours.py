"""Claims of a sink's tables: who may write where, as every sink must keep it."""

from __future__ import annotations

from contextlib import suppress
from copy import copy
from typing import Any

import pytest

from airflow_cdc_provider.core.errors import FencedError, RefusedError
from airflow_cdc_provider.core.identifiers import PipelineName
from tests.behaviours.sink_world import SinkWorld


class TargetBehaviours:
    """The world's pipeline owns itself under generation 1."""

    def test_nothing_is_claimed_before_anybody_has_claimed_it(self, world: SinkWorld) -> None:
        targets = targets_of(world)
        assert (targets.plan_id(), targets.routes(), targets.stopped()) == ("", (), ())
        assert targets.changing() == frozenset()
        assert targets.conflicts([world.orders, world.seats]) == ()
        assert targets.routes() == ()

    def test_a_claim_lasts_until_it_is_given_up(self, world: SinkWorld) -> None:
        targets = targets_of(world)
        assert targets.claim([world.orders, world.seats]) == ()
        assert targets.claim([world.seats]) == ()
        route = {plan: (plan.schema.table, plan.sink_table) for plan in (world.orders, world.seats)}
        assert targets_of(world).routes() == (route[world.orders], route[world.seats])
        targets.release(keep=[world.seats])
        assert targets_of(world).routes() == (route[world.seats],)
        targets.release()
        assert targets_of(world).routes() == ()

    def test_another_pipelines_table_is_refused_by_its_name_and_nothing_is_claimed(
        self, world: SinkWorld
    ) -> None:
        targets_of(world).claim([world.orders])
        other = another(world)
        theirs = targets_of(other)
        found = theirs.conflicts([world.orders])
        assert [each.table for each in found] == [world.orders.sink_table]
        assert [each.pipeline for each in found] == [str(world.pipeline)]
        for known in (
            (),
            [(world.orders.schema.table, world.orders.sink_table)],
        ):  # whoever says that the rows are theirs
            with pytest.raises(RefusedError, match=str(world.pipeline)):
                theirs.claim([world.orders], known=known, replace_rows=True)
        assert len(targets_of(world).routes()) == 1

    def test_what_a_split_has_written_is_not_foreign_to_its_pipeline(
        self, world: SinkWorld
    ) -> None:
        targets = targets_of(world)
        targets.claim([world.orders])
        world.publish(world.splits(), world.split(), (1, "a"))
        assert targets.conflicts([world.orders]) == ()
        assert targets.claim([world.orders]) == ()

    def test_an_old_generation_claims_and_releases_nothing(self, world: SinkWorld) -> None:
        old = targets_of(world)
        old.claim([world.orders])
        world.ledger.take_over(2)
        with pytest.raises(FencedError):
            old.claim([world.seats])
        with pytest.raises(FencedError):
            old.release()
        assert len(targets_of(world, 2).routes()) == 1


def targets_of(world: SinkWorld, generation: int = 1) -> Any:
    """Open the claims of the world's pipeline."""
    return world.opened(world.under(generation).open_targets())


def another(world: SinkWorld) -> SinkWorld:
    """Return the same sink as a pipeline of another name sees it, which owns itself if it may."""
    other = copy(world)
    other.pipeline = PipelineName(f"other_{world.pipeline}")
    other.ledger = world.opened(other.under(1).open_ledger())
    with suppress(RefusedError):  # a sink may be one pipeline's as a whole
        other.ledger.take_over(1)
    return other
