"""Laws 1 to 3 and what the engine asks of any source; subclassed for each system."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pytest

from airflow_cdc_provider.core.errors import RetryableError, SnapshotRequiredError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.keys import KeyKind
from airflow_cdc_provider.core.ports import SilentListener
from airflow_cdc_provider.core.split_planner import splits_between
from airflow_cdc_provider.core.splits import SnapshotSplit, SplitReport
from airflow_cdc_provider.core.table_facts import TableKind
from airflow_cdc_provider.core.table_patterns import TablePattern
from airflow_cdc_provider.core.table_schema import TypeKind
from tests.behaviours.sink_world import Row, delete, insert, update
from tests.behaviours.source_world import (
    SourceWorld,
    changes_in,
    changes_of,
    replayed,
    within,
)

Action = Callable[[], None]


class Moments(SilentListener):
    """Runs what was put on a moment around the watermarks."""

    def __init__(self, **actions: Action) -> None:
        self._actions = actions

    def before_low(self, split: SnapshotSplit) -> None:
        self._run("before_low")

    def after_low(self, split: SnapshotSplit) -> None:
        self._run("after_low")

    def before_high(self, split: SnapshotSplit) -> None:
        self._run("before_high")

    def after_high(self, split: SnapshotSplit) -> None:
        self._run("after_high")

    def _run(self, moment: str) -> None:
        self._actions.get(moment, lambda: None)()


def read(
    world: SourceWorld, *bounds: tuple[int] | None, **actions: Action
) -> tuple[list[Row], SplitReport]:
    """Read one split, with what happens at each moment meanwhile."""
    with closing(world.split_reader(Moments(**actions))) as reader:
        rows, report = reader.read(world.split(*bounds))
    return sorted(tuple(r.values()) for b in rows.batches() for r in b.to_pylist()), report


class SourceBehaviours:
    """A source whose rows and log tell one story."""

    # --- the catalogue ------------------------------------------------------------------------

    def test_a_table_is_picked_by_its_name_and_described(self, world: SourceWorld) -> None:
        with world.source.catalogue() as catalogue:
            (found,) = catalogue.picked([TablePattern.of(TableId(world.database, "orders"))])
            schema = catalogue.schemas([found.table])[found.table]
            assert catalogue.picked([TablePattern.of(TableId(world.database, "nothing"))]) == ()
            assert catalogue.schemas([TableId(world.database, "nothing")]) == {}
        assert (found.table, found.kind) == (world.table, TableKind.BASE)
        assert schema.primary_key == ("id",)
        assert schema.key_kinds == (KeyKind.INTEGER,)
        assert [column.type.kind for column in schema.columns] == [TypeKind.INTEGER, TypeKind.TEXT]

    def test_a_definition_read_twice_has_one_fingerprint(self, world: SourceWorld) -> None:
        before = world.schema().fingerprint
        world.commit(insert(1, "a"))
        assert world.schema().fingerprint == before

    def test_a_source_tells_one_identity(self, world: SourceWorld) -> None:
        with world.source.catalogue() as one, world.source.catalogue() as other:
            assert one.identity == other.identity != ""

    # --- boundaries ---------------------------------------------------------------------------

    def test_splits_between_boundaries_hold_each_row_once(self, world: SourceWorld) -> None:
        rows = [(number * number, f"row {number}") for number in range(50)]
        world.commit(*(insert(*row) for row in rows))
        schema = world.schema()
        with world.source.boundaries(7) as find:
            cuts = list(find(schema, None))
        splits = list(splits_between(world.table, schema.primary_key, schema.key_kinds, cuts))
        assert len(splits) > 3
        found: list[Row] = []
        with closing(world.split_reader(SilentListener())) as reader:
            for split in splits:
                chunk, report = reader.read(split)
                assert report.rows == chunk.rows
                found += [tuple(r.values()) for b in chunk.batches() for r in b.to_pylist()]
        assert sorted(found) == rows

    def test_planning_goes_on_behind_a_boundary(self, world: SourceWorld) -> None:
        world.commit(*(insert(number, "x") for number in range(50)))
        with world.source.boundaries(7) as find:
            cuts = list(find(world.schema(), None))
            assert list(find(world.schema(), cuts[2])) == cuts[3:]

    def test_a_split_is_cut_within_its_rows(self, world: SourceWorld) -> None:
        world.commit(*(insert(number, "x") for number in range(40)))
        split = world.split((10,), (30,))
        middle = world.source.middle_of(split)
        assert split.keys.contains(middle)
        assert middle > (10,)

    # --- watermarks ---------------------------------------------------------------------------

    def test_law_1_l_is_seen_and_what_follows_h_is_in_the_log_behind_it(
        self, world: SourceWorld
    ) -> None:
        world.commit(insert(1, "a"))
        rows, report = read(
            world,
            before_low=lambda: world.commit(insert(2, "before L")),
            after_high=lambda: world.commit(insert(3, "after H")),
        )
        assert rows == [(1, "a"), (2, "before L")]
        assert report.high.covers(report.low)
        assert world.logged(report.high) == [insert(3, "after H")]

    def test_law_3_a_split_is_its_table_at_h_whatever_happens_meanwhile(
        self, world: SourceWorld
    ) -> None:
        world.commit(*(insert(number, "old") for number in range(5, 25)))
        rows, report = read(
            world,
            before_low=lambda: world.commit(update((5, "old"), (5, "before L"))),
            after_low=lambda: world.commit(
                insert(30, "after L"),
                update((10, "old"), (10, "after L")),
                delete(11, "old"),
                update((12, "old"), (112, "old")),
            ),
            before_high=lambda: world.commit(
                update((10, "after L"), (10, "before H")),
                update((112, "old"), (12, "moved there and back")),
                delete(30, "after L"),
            ),
            after_high=lambda: world.commit(delete(13, "old")),
        )
        behind = world.logged(report.high)
        assert delete(13, "old") in behind
        assert replayed(rows, behind) == world.held()

    def test_law_3_a_range_takes_its_own_changes_only(self, world: SourceWorld) -> None:
        world.commit(*(insert(number, "old") for number in range(5, 25)))
        rows, report = read(
            world,
            (10,),
            (20,),
            before_high=lambda: world.commit(
                update((9, "old"), (109, "old")),
                update((12, "old"), (22_000, "left")),
                update((7, "old"), (12, "came")),
            ),
        )
        keys = [row[0] for row in rows]
        assert keys == list(range(10, 20))
        behind = [within(change, 10, 20) for change in world.logged(report.high)]
        assert replayed(rows, behind) == [row for row in world.held() if 10 <= row[0] < 20]

    # --- splits that are read again -----------------------------------------------------------

    def test_a_split_is_given_its_tables_log_from_h_up_to_any_later_place(
        self, world: SourceWorld
    ) -> None:
        world.commit(*(insert(number, "old") for number in range(5, 25)))
        with closing(world.split_reader(SilentListener())) as reader:
            split = world.split((10,), (20,))
            _, report = reader.read(split)
            places = [report.high]
            for number in (5, 15):
                world.commit(update((number, "old"), (number, "new")), delete(number + 1, "old"))
                places.append(world.end())
            for place in (places[1], places[2], places[1]):
                given = changes_of(reader.changes(split, report, place))
                assert given == changes_in(world.batches(report.high, place))
            assert list(reader.changes(split, report, report.high)) == []

    def test_a_splits_log_up_to_another_sources_place_has_it_read_again(
        self, world: SourceWorld, lonely_world: SourceWorld
    ) -> None:
        with closing(world.split_reader(SilentListener())) as reader:
            split = world.split()
            _, report = reader.read(split)
            with pytest.raises(RetryableError):
                list(reader.changes(split, report, lonely_world.end()))

    # --- the log ------------------------------------------------------------------------------

    def test_changes_come_in_order_and_whole(self, world: SourceWorld) -> None:
        start = world.end()
        world.commit(insert(1, "a"), insert(2, "b"))
        world.commit(update((1, "a"), (3, "moved")), delete(2, "b"))
        assert world.logged(start) == [
            insert(1, "a"),
            insert(2, "b"),
            update((1, "a"), (3, "moved")),
            delete(2, "b"),
        ]

    def test_reading_goes_on_at_any_boundary_and_misses_and_doubles_nothing(
        self, world: SourceWorld
    ) -> None:
        start = world.end()
        for number in range(6):
            world.commit(*(insert(number * 10 + each, "x") for each in range(4)))
        end = world.end()
        whole = world.batches(start, end, batch_changes=5)
        ends = [(n + 1, batch.end) for n, batch in enumerate(whole) if batch.end is not None]
        assert len(ends) > 1
        expected = [insert(n * 10 + each, "x") for n in range(6) for each in range(4)]
        for read_batches, place in ends:
            first = changes_in(whole[:read_batches])
            assert len(first) % 4 == 0, "a boundary lies within a transaction"
            assert first + changes_in(world.batches(place, end)) == expected

    def test_the_end_of_the_log_lies_behind_all_that_is_committed(self, world: SourceWorld) -> None:
        start = world.end()
        world.commit(insert(1, "a"))
        with closing(world.source.log_end(purpose="test")) as log_end:
            found = log_end.next_end(start, bound=None, batch_bytes=1 << 20).end
            assert changes_in(world.batches(start, found)) == [insert(1, "a")]
            assert log_end.next_end(found, bound=None, batch_bytes=1 << 20).end == found

    def test_a_place_that_is_seen_has_what_was_committed_and_nothing_of_what_comes(
        self, world: SourceWorld
    ) -> None:
        start = world.end()
        world.commit(insert(1, "a"))
        with closing(world.source.log_end(purpose="test")) as log_end:
            seen = log_end.seen()
        world.commit(insert(2, "b"))
        batches = world.batches(start, world.end())
        points = [point for batch in batches for point in batch.transactions]
        assert [seen.contains(point) for point in points] == [True, False]

    def test_log_that_is_gone_is_refused_by_name(self, lonely_world: SourceWorld) -> None:
        world = lonely_world
        start = world.end()
        world.commit(insert(1, "a"))
        world.throw_log_away()
        with pytest.raises(SnapshotRequiredError):
            world.batches(start, world.end())

    def test_a_position_of_another_source_is_refused(
        self, world: SourceWorld, lonely_world: SourceWorld
    ) -> None:
        elsewhere = lonely_world.end()
        with pytest.raises(SnapshotRequiredError):
            world.source.require_history(elsewhere, [])
