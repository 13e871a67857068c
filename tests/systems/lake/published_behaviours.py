"""What tables hold wherever they are published: the tests that each store and catalog passes."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_cdc_provider.core.errors import FencedError, SinkUnreachableError
from airflow_cdc_provider.systems.lake.tables.table import TableMovedError
from tests.behaviours.sink_join_behaviours import join
from tests.behaviours.sink_world import Row, delete, insert, update
from tests.systems.lake.steps import again_by, begun, change
from tests.systems.lake.world import LakeWorld


class PublishedBehaviours:
    """Subclasses say how others read a table and compact it; their fixture `world` is the place."""

    loaded: Any
    """The class of a loaded table, whose `append` and `replace` commit."""

    def published(self, world: LakeWorld) -> list[Row]:
        """What the table's changes add up to, as others read them."""
        raise NotImplementedError

    def compact(self, world: LakeWorld) -> None:
        """Put other files in the place of the table's, as others do."""
        raise NotImplementedError

    def check_place(self, world: LakeWorld) -> None:
        """Assert where the table and its two changes are."""

    def test_a_table_follows_the_log_and_holds_each_change_once(self, world: LakeWorld) -> None:
        begun(world, (1, "a"), (2, "b"))
        world.lake.publish_tables()
        assert self.published(world) == [(1, "a"), (2, "b")]
        sink = world.changes()
        sink.apply(world.batch([update((1, "a"), (1, "A")), insert(3, "c")]))
        sink.apply(world.batch([update((3, "c"), (4, "c")), delete(2, "b")], start=110))
        for _ in range(2):
            world.lake.publish_tables()
            assert self.published(world) == [(1, "A"), (4, "c")]
            assert not world.lake.has_unpublished()
        self.check_place(world)
        joins = world.opened(world.lake.open_joins())
        join(world, joins, world.split(), (1, "A"), (5, "e"), high=120)
        world.lake.publish_tables()
        assert self.published(world) == [(1, "A"), (5, "e")]
        self.compact(world)
        change(world, 12)
        world.lake.publish_tables()
        assert self.published(world) == [(1, "A"), (5, "e"), (12, "x")]

    def test_a_table_of_an_older_plan_is_exchanged_and_its_late_owner_stops(
        self, world: LakeWorld
    ) -> None:
        begun(world, (1, "a"))
        change(world, 10)
        world.lake.publish_tables()
        again_by(world, 2, (1, "new"))
        world.under(2).publish_tables()
        with pytest.raises(FencedError):
            world.lake.publish_tables()
        assert self.published(world) == [(1, "new")]

    def test_a_commit_that_arrives_late_finds_its_files_or_is_refused(
        self, world: LakeWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        begun(world, (1, "a"))
        world.lake.publish_tables()
        change(world, 10)
        late: list[tuple[Any, ...]] = []
        name = "replace" if world.mirror_mb else "append"
        commit = getattr(self.loaded, name)

        def timed_out(*given: Any) -> None:
            late.append(given)
            raise OSError("no answer in time")

        with monkeypatch.context() as patched:
            patched.setattr(self.loaded, name, timed_out)
            for _ in range(2):
                with pytest.raises(SinkUnreachableError, match="no answer in time"):
                    world.lake.publish_tables()
        commit(*late[0])
        with pytest.raises(TableMovedError):
            commit(*late[1])
        for _ in range(2):
            world.lake.publish_tables()
            assert self.published(world) == [(1, "a"), (10, "x")]
