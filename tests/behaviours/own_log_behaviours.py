"""What the engine asks of a sink that offers its own log; subclassed for each such system."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager

from airflow_cdc_provider.columns.changes import ChangeBatch
from airflow_cdc_provider.columns.source_port import LogReading, TailReader
from airflow_cdc_provider.core.findings import Level
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.engine.sink.own_log import HasOwnLog, OwnLog
from tests.behaviours.sink_world import Change, SinkWorld, delete, insert, update
from tests.behaviours.source_world import changes_of

OF_THE_SOURCE = {"server_ids": [5400, 5499]}
"""The options of the readers at the source, as a job's spec has them."""
WAIT_S = 60.0


def own_log_of(world: SinkWorld) -> OwnLog:
    sink = world.under(1)
    assert isinstance(sink, HasOwnLog)
    return sink.own_log()


def noted(log: OwnLog) -> LogPosition:
    with closing(log.log_end(purpose="test")) as end:
        return end.seen()


@contextmanager
def reading(
    world: SinkWorld, log: OwnLog, start: LogPosition, *, reader: int = 0
) -> Iterator[TailReader]:
    tables = [world.orders.sink_table, world.seats.sink_table]
    with log.catalogue() as catalogue:
        schemas = catalogue.schemas(tables)
    settings = LogReading(schemas, reader, options=OF_THE_SOURCE)
    with closing(log.log_reader(StreamSplit(start, None, ()), settings)) as opened:
        yield opened


def batches_since(world: SinkWorld, log: OwnLog, start: LogPosition) -> list[ChangeBatch]:
    """What the log has from a place to its end."""
    with closing(log.log_end(purpose="test")) as end, reading(world, log, start) as reader:
        found = list(reader.read_up_to(end.now(), batch_s=1.0))
        assert end.bytes_behind(reader.position) == 0
    return found


def commits_of(batches: Iterable[ChangeBatch], table: TableId) -> list[list[Change]]:
    """The changes of a table by transaction, in log order; within one they are sorted."""
    found: list[list[Change]] = []
    for batch in batches:
        for part in (each for each in batch.tables if each.table == table):
            numbers = part.transaction.to_pylist()
            changes = changes_of([part])
            for number in sorted(set(numbers)):
                pairs = zip(numbers, changes, strict=True)
                found.append(sorted((each for of, each in pairs if of == number), key=repr))
    return found


def as_sets(*commits: Sequence[Change]) -> list[list[Change]]:
    return [sorted(changes, key=repr) for changes in commits]


class OwnLogBehaviours:
    """A sink whose own log tells what was committed there, whoever wrote it."""

    def test_what_the_sink_committed_is_read_back_by_transaction_in_commit_order(
        self, world: SinkWorld
    ) -> None:
        log = own_log_of(world)
        start = noted(log)
        world.hand_off(orders=[(1, "a"), (2, "b")], seats=[])
        changes = world.changes()
        changes.apply(world.batch([insert(3, "c"), update((1, "a"), (1, "A"))], [delete(2, "b")]))
        changes.apply(world.batch([insert(9, "x")], start=120))
        found = commits_of(batches_since(world, log, start), world.orders.sink_table)
        assert found == as_sets(
            [insert(1, "a"), insert(2, "b")],
            [insert(3, "c"), update((1, "a"), (1, "A")), delete(2, "b")],
            [insert(9, "x")],
        )

    def test_each_commit_of_the_sink_ends_behind_the_one_before(self, world: SinkWorld) -> None:
        log = own_log_of(world)
        world.hand_off(orders=[(1, "a")], seats=[])
        changes, places = world.changes(), [noted(log)]
        for number in range(3):
            changes.apply(world.batch([insert(10 + number, "x")], start=100 + 10 * number))
            places.append(noted(log))
        for number, place in enumerate(places):
            found = commits_of(batches_since(world, log, place), world.orders.sink_table)
            assert found == [[insert(10 + later, "x")] for later in range(number, 3)]

    def test_a_commit_of_the_ledger_alone_moves_the_log_and_changes_no_table(
        self, world: SinkWorld
    ) -> None:
        log = own_log_of(world)
        world.hand_off(orders=[(1, "a")], seats=[])
        start = noted(log)
        world.ledger.take_over(2)
        found = batches_since(world, log, start)
        assert found
        assert all(batch.only_ledgers and not batch.changes for batch in found)

    def test_a_reader_follows_while_the_pipeline_streams_and_another_goes_on_anywhere(
        self, world: SinkWorld
    ) -> None:
        log, table = own_log_of(world), world.orders.sink_table
        world.hand_off(orders=[(0, "first")], seats=[])
        rows, start = [[insert(1 + number, f"row {number}")] for number in range(20)], noted(log)
        failures: list[Exception] = []

        def stream() -> None:
            try:
                changes = world.changes()
                for number, change in enumerate(rows):
                    changes.apply(world.batch(change, start=100 + 10 * number))
                    time.sleep(0.01)
            except Exception as error:  # noqa: BLE001 - shown by the test's own thread
                failures.append(error)

        writer = threading.Thread(target=stream)
        batches: list[ChangeBatch] = []
        with reading(world, log, start) as reader:
            writer.start()
            deadline = time.monotonic() + WAIT_S
            for batch in reader.follow(batch_s=0.05, wait_s=0.05):
                assert not failures
                assert time.monotonic() < deadline, "the changes did not come"
                batches += [] if batch is None else [batch]
                if len(commits_of(batches, table)) == len(rows):
                    break
        writer.join(WAIT_S)
        assert commits_of(batches, table) == rows
        places = [batch.end for batch in batches]
        for number in {0, len(places) // 2, len(places) - 1}:
            place, before = places[number], batches[: number + 1]
            assert place is not None
            rest = commits_of(batches_since(world, log, place), table)
            assert commits_of(before, table) + rest == rows

    def test_what_a_person_writes_at_the_sink_is_in_its_log(self, world: SinkWorld) -> None:
        log = own_log_of(world)
        world.hand_off(orders=[(1, "a")], seats=[])
        start = noted(log)
        self.write_by_hand(world, 5, "by hand")
        found = commits_of(batches_since(world, log, start), world.orders.sink_table)
        assert found == [[insert(5, "by hand")]]

    def test_preflight_finds_nothing_in_the_way(self, world: SinkWorld) -> None:
        found = own_log_of(world).preflight(is_new=True)
        assert [finding for finding in found if finding.level is Level.BLOCK] == []

    def write_by_hand(self, world: SinkWorld, key: int, name: str) -> None:
        """Insert a row into `orders` at the sink, beside the pipeline."""
        raise NotImplementedError
