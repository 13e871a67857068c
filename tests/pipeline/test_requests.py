"""What may be asked of a pipeline, what is refused before it is stored, and who waits for it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_cdc_provider.core.endpoint import Folder
from airflow_cdc_provider.core.errors import (
    ACCEPT_PURGED,
    FencedError,
    LeaseHeldError,
    LogPurgedError,
    RefusedError,
    RequestEndedError,
    RetryableError,
    SinkUnreachableError,
    StreamEndedError,
)
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.keys import KeyRange
from airflow_cdc_provider.core.lifecycle import Phase
from airflow_cdc_provider.core.requests import Request, RequestStatus, Scope
from airflow_cdc_provider.core.stored_error import NO_ERROR, StoredError
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps import estimating, range_requests
from airflow_cdc_provider.pipeline.steps.estimating import Estimate, TableEstimate, estimate
from airflow_cdc_provider.pipeline.steps.handing_off import hand_off
from airflow_cdc_provider.pipeline.steps.pausing import pause, resume
from airflow_cdc_provider.pipeline.steps.planning import plan
from airflow_cdc_provider.pipeline.steps.range_requests import (
    approve,
    ask_resync,
    resync_scope,
    wait_for,
    who_carries_out,
)
from airflow_cdc_provider.pipeline.steps.reset_drop import drop, reset
from tests.pipeline.conftest import Shop
from tests.pipeline.shop_steps import snapshot_done

WAITING, ASKED = RequestStatus.WAITING, RequestStatus.ASKED
READING, DONE, FAILED = RequestStatus.READING, RequestStatus.DONE, RequestStatus.FAILED


@pytest.fixture
def run(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A pipeline that is handed off, with keys of several kinds, and nobody at work."""
    shop.at_source("CREATE TABLE texts (id VARCHAR(9) PRIMARY KEY)")
    shop.at_source("CREATE TABLE wide (a INT, b VARBINARY(9), day DATE, PRIMARY KEY (a, b, day))")
    monkeypatch.setattr(range_requests, "_POLL_S", 0.02)
    run = shop.run()
    plan(run)
    snapshot_done(shop, run)
    hand_off(run)
    run.store.release_lease(run.name, run.store.ensure(run.name).generation)
    return run


def table(shop: Shop, name: str = "orders") -> TableId:
    return TableId(shop.database, name)


def names(shop: Shop, *tables: str) -> list[str]:
    return [str(table(shop, name)) for name in tables]


def test_without_a_name_all_tables_are_meant(shop: Shop, run: Run) -> None:
    assert resync_scope(run) == Scope((table(shop), table(shop, "texts"), table(shop, "wide")))


def test_a_table_that_is_named_twice_is_read_once(shop: Shop, run: Run) -> None:
    found = resync_scope(run, names(shop, "texts", "orders", "texts"))
    assert found.tables == (table(shop, "texts"), table(shop))


def test_a_range_is_read_by_the_keys_kinds(shop: Shop, run: Run) -> None:
    found = resync_scope(run, names(shop, "wide"), from_key="5,0x00ff,2026-01-01", to_key="5,0x01")
    assert found.ranges == (KeyRange((5, b"\x00\xff", "2026-01-01"), (5, b"\x01")),)
    half = resync_scope(run, names(shop, "wide"), to_key="7")
    assert half.ranges == (KeyRange(None, (7,)),)


WRONG: list[tuple[list[str], str | None, str | None, str]] = [
    (["order"], None, None, "did you mean {}.orders?"),
    (["nothing_like_it"], None, None, "as the source spells it"),
    ([], "1", None, "one table's"),
    ([], "", None, "one table's"),
    (["orders", "wide"], "1", None, "one table's"),
    (["orders"], "x", None, "--from-key: 'x' is no int for id: write a whole number"),
    (["orders"], "", None, "--from-key: '' is no int for id"),
    (["orders"], "2", "", "--to-key: '' is no int for id"),
    (["orders"], " 1", None, "--from-key: ' 1' is no int for id"),
    (["orders"], None, "5,6", "--to-key: 2 parts; the key has 1: id"),
    (["orders"], "5", "5", "no key of {}.orders lies from 5 up to 5"),
    (["wide"], "5,0x01", "5", "lies from"),
    (["texts"], "a", None, "(id) is the server's own"),
]


def test_what_cannot_be_read_again_is_refused_by_name(shop: Shop, run: Run) -> None:
    for tables, from_key, to_key, what in WRONG:
        with pytest.raises(RefusedError) as caught:
            resync_scope(run, names(shop, *tables), from_key=from_key, to_key=to_key)
        assert what.format(shop.database) in str(caught.value)


def test_a_name_that_is_none_is_refused(run: Run) -> None:
    with pytest.raises(RefusedError, match=r"write database\.table"):
        resync_scope(run, ["orders"])


def test_before_the_hand_off_there_is_nothing_to_read_again(shop: Shop) -> None:
    run = shop.run()
    with pytest.raises(RefusedError, match="its snapshot is not done"):
        resync_scope(run)
    plan(run)
    with pytest.raises(RefusedError, match="`run` it first"):
        resync_scope(run)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ("ALTER TABLE orders ADD COLUMN more INT", "has another definition now"),
        ("DROP TABLE orders", "is gone at the source"),
    ],
)
def test_a_table_that_is_not_the_planned_one_is_refused_also_after_it_was_checked(
    shop: Shop, run: Run, change: str, what: str
) -> None:
    scope = resync_scope(run, names(shop, "orders"))
    known = ask_resync(run, scope, request_id="before")
    shop.at_source(change)
    with pytest.raises(RefusedError, match=what):
        resync_scope(run, names(shop, "orders"))
    with pytest.raises(RefusedError, match=what):
        ask_resync(run, scope)
    assert ask_resync(run, scope, request_id="before") == known
    assert resync_scope(run, names(shop, "wide")).tables == (table(shop, "wide"),)
    assert run.store.requests(run.name) == (known,)


def test_a_file_that_says_otherwise_is_refused(shop: Shop, run: Run) -> None:
    shop.path.write_text(shop.path.read_text().replace(f"{shop.target}.*", "elsewhere.*"))
    with pytest.raises(RefusedError, match=r"goes to elsewhere\.orders now"):
        resync_scope(shop.run())


def test_a_stream_that_ended_for_good_carries_out_nothing(run: Run) -> None:
    state = run.store.ensure(run.name)
    error = "CDC-INT-002 event 99 is not known; where: bin.7:99"
    run.store.move(
        run.name, state.generation, expected=state.phase, to=Phase.FAILED, error=StoredError(error)
    )
    with pytest.raises(StreamEndedError, match="event 99"):
        resync_scope(run)


def test_a_stream_that_ended_at_a_purged_log_says_that_it_can_be_accepted(run: Run) -> None:
    state = run.store.ensure(run.name)
    purged = LogPurgedError("bin.3 is gone", "bin.3", "changes are lost", ACCEPT_PURGED)
    run.store.move(
        run.name,
        state.generation,
        expected=state.phase,
        to=Phase.FAILED,
        error=StoredError.of(purged),
    )
    with pytest.raises(StreamEndedError) as ended:
        resync_scope(run)
    assert ended.value.remedy == ACCEPT_PURGED


def test_a_change_log_keeps_what_it_was_given(run: Run, tmp_path: Path) -> None:
    sink = run.model.sink.model_copy(update={"type": "changelog"})
    loaded = replace(run.loaded, model=run.model.model_copy(update={"sink": sink}))
    servers = replace(run.servers, sink=Folder(str(tmp_path), "json"))
    with pytest.raises(RefusedError, match="keeps what it was given"):
        resync_scope(replace(run, loaded=loaded, servers=servers))


def test_rows_are_counted_on_both_sides_and_in_the_range_alone(shop: Shop, run: Run) -> None:
    with closing(shop.sink.connect(database=shop.target)) as connection:
        connection.cursor().execute("INSERT INTO orders (id, note) VALUES (2, 'b'), (9, 'more')")
        connection.commit()
    found = estimate(run, resync_scope(run, names(shop, "orders", "wide")))
    assert [(each.source_rows, each.sink_rows) for each in found.tables] == [(3, 2), (0, 0)]
    assert found.source_rows == 3
    some = resync_scope(run, names(shop, "orders"), from_key="2", to_key="3")
    assert [(each.source_rows, each.sink_rows) for each in estimate(run, some).tables] == [(1, 1)]


@pytest.mark.parametrize("name", ["many", "texts"])
def test_many_rows_are_told_about_by_their_boundaries(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    shop.at_source("CREATE TABLE many (id INT PRIMARY KEY)")
    shop.at_source("CREATE TABLE texts (id VARCHAR(9) PRIMARY KEY)")
    made = "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 950) "
    shop.at_source(f"INSERT INTO {name} {made} SELECT i FROM n")
    run = shop.run()
    plan(run)
    snapshot_done(shop, run)
    hand_off(run)
    monkeypatch.setattr(estimating, "MOST_COUNTED", 100)
    monkeypatch.setattr(estimating, "_ROWS_A_LOOK", 50)
    (found,) = estimate(run, resync_scope(run, names(shop, name))).tables
    assert (found.source_rows, found.sink_rows) == (950, 0)
    if name == "many":
        half = resync_scope(run, names(shop, name), from_key="301", to_key="701")
        assert estimate(run, half).source_rows == 400
    monkeypatch.setattr(estimating, "_LOOK_FOR_S", -1)
    assert estimate(run, resync_scope(run, names(shop, name))).source_rows is None


def test_a_sink_table_that_is_gone_is_refused(shop: Shop, run: Run) -> None:
    scope = resync_scope(run, names(shop, "orders"))
    with closing(shop.sink.connect(database=shop.target)) as connection:
        connection.cursor().execute("DROP TABLE orders")
    with pytest.raises(RefusedError, match=r"orders is not there"):
        estimate(run, scope)


def test_a_sink_table_that_lacks_a_column_is_refused_before_it_is_looked_at(
    shop: Shop, run: Run
) -> None:
    scope = resync_scope(run, names(shop, "orders"))
    shop.sink.execute("ALTER TABLE orders DROP COLUMN note", database=shop.target)
    with pytest.raises(RefusedError, match="column note is missing"):
        resync_scope(run, names(shop, "orders"))
    with pytest.raises(RefusedError, match="column note is missing"):
        ask_resync(run, scope)


def test_a_request_gets_a_short_id_and_says_who_asked(run: Run) -> None:
    scope = resync_scope(run)
    found = Estimate((TableEstimate(scope.tables[0], 5, 7),))
    one, other = (ask_resync(run, scope, estimated=found) for _ in range(2))
    assert one.request_id != other.request_id
    assert len(one.request_id) == len("resync-abcdef")
    assert one.asked_by == range_requests.this_person() != ""
    assert one.estimated_rows == 5
    assert run.store.requests(run.name, only_open=True) == (one, other)


def test_what_is_about_more_rows_than_the_file_allows_waits_to_be_approved(
    shop: Shop, run: Run
) -> None:
    text = shop.path.read_text() + "requests: {approve_above_rows: 2}\n"
    shop.path.write_text(text)
    run = shop.run()
    large = ask_resync(run, resync_scope(run, names(shop, "orders")))
    assert (large.status, large.estimated_rows) == (WAITING, 3)
    assert "waits: `approve` lets it begin" in who_carries_out(run, large)
    few = resync_scope(run, names(shop, "orders"), from_key="2")
    assert ask_resync(run, few).status is ASKED
    # rows that only the sink has are deleted, and count as well
    extra = "INSERT INTO orders VALUES (7, '', 7), (8, '', 8), (9, '', 9)"
    shop.sink.execute(extra, database=shop.target)
    assert ask_resync(run, few).status is WAITING
    unknown = Estimate((TableEstimate(table(shop), None, 1),))
    assert ask_resync(run, few, estimated=unknown).status is WAITING
    assert len(run.store.to_do(run.name)) == 1
    approved = approve(run, large.request_id, by="ann")
    assert approved.status is ASKED
    assert approve(run, large.request_id) == approved
    assert len(run.store.to_do(run.name)) == 2
    told = [event.text for event in run.store.events(run.name)]
    assert told.count(f"request {large.request_id} approved by ann") == 1


def test_whoever_waits_for_a_request_that_is_to_be_approved_does_nothing_until_then(
    shop: Shop, run: Run
) -> None:
    shop.path.write_text(shop.path.read_text() + "requests: {approve_above_rows: 0}\n")
    run = shop.run()
    asked, work, seen = ask_resync(run, resync_scope(run)), Worker(run), 0

    def on_tick(request: Request) -> None:
        nonlocal seen
        seen += request.status is WAITING
        assert work.calls == 0
        if seen == 3:
            approve(run, request.request_id)

    done = wait_for(run, asked.request_id, work, on_tick=on_tick)
    assert (done.status, work.calls, seen) == (DONE, 1, 3)


def test_overlapping_requests_queue(shop: Shop, run: Run) -> None:
    whole = ask_resync(run, resync_scope(run))
    part = ask_resync(run, resync_scope(run, names(shop, "orders"), from_key="1"))
    assert [each.request_id for each in run.store.requests(run.name)] == [
        whole.request_id,
        part.request_id,
    ]


def test_an_id_that_is_none_is_refused(run: Run) -> None:
    for wrong in ("a b", "-x", "x" * 65, "a/b", "ä", "a\n"):
        with pytest.raises(RefusedError, match="is no id of a request"):
            ask_resync(run, resync_scope(run), request_id=wrong)
    assert run.store.requests(run.name) == ()


def test_the_same_id_for_other_rows_is_refused(shop: Shop, run: Run) -> None:
    ask_resync(run, resync_scope(run), request_id="nightly:2026-01-01T00:00:00+00:00")
    with pytest.raises(RefusedError, match="ask under another id"):
        ask_resync(
            run,
            resync_scope(run, names(shop, "orders")),
            request_id="nightly:2026-01-01T00:00:00+00:00",
        )


class Worker:
    """Stands for the one who takes the pipeline over and carries requests out."""

    def __init__(
        self, run: Run, *, to: RequestStatus = DONE, error: StoredError = NO_ERROR
    ) -> None:
        self.run, self.to, self.error, self.calls = run, to, error, 0

    def __call__(self) -> None:
        self.calls += 1
        store, name = self.run.store, self.run.name
        generation = store.take_over(name, "worker").generation
        for each in store.requests(name, only_open=True):
            place = name, generation, each.request_id
            store.move_request(*place, expected=each.status, to=READING)
            store.move_request(*place, expected=READING, to=self.to, error=self.error)
        store.release_lease(name, generation)


def test_where_nobody_is_at_work_whoever_waits_does_it(run: Run) -> None:
    asked, work = ask_resync(run, resync_scope(run)), Worker(run)
    assert "give --wait" in who_carries_out(run)
    seen: list[RequestStatus] = []
    done = wait_for(run, asked.request_id, work, on_tick=lambda each: seen.append(each.status))
    assert (done.status, work.calls, seen[0]) == (DONE, 1, RequestStatus.ASKED)
    assert wait_for(run, asked.request_id, work).status is DONE
    assert work.calls == 1


def test_where_someone_is_at_work_whoever_waits_only_waits(run: Run) -> None:
    asked, work = ask_resync(run, resync_scope(run)), Worker(run)
    generation = run.store.take_over(run.name, "the stream").generation
    assert "the stream is at work" in who_carries_out(run)
    moves = iter([(RequestStatus.ASKED, READING), (READING, DONE)])

    def move_on(_: object) -> None:
        expected, to = next(moves)
        run.store.move_request(run.name, generation, asked.request_id, expected=expected, to=to)

    assert wait_for(run, asked.request_id, work, on_tick=move_on).status is DONE
    assert work.calls == 0


@pytest.mark.parametrize("faster", [LeaseHeldError("held"), FencedError("fenced")])
def test_where_another_one_is_faster_it_is_waited_for(run: Run, faster: Exception) -> None:
    asked, worker = ask_resync(run, resync_scope(run)), Worker(run)
    fails = iter([faster])

    def work() -> None:
        for error in fails:
            raise error
        worker()

    assert wait_for(run, asked.request_id, work).status is DONE


def test_what_failed_is_told_with_its_error(run: Run) -> None:
    asked = ask_resync(run, resync_scope(run))
    what = "the sink is gone; what to do: nothing"
    error = StoredError.of(SinkUnreachableError(what, "sink", "none", "bring it back"))
    with pytest.raises(RequestEndedError, match=f"has failed: {what}; where: sink") as caught:
        wait_for(run, asked.request_id, Worker(run, to=FAILED, error=error))
    assert (caught.value.where, caught.value.remedy) == ("sink", "bring it back")


def test_a_mistake_of_the_program_is_told_whole(run: Run) -> None:
    asked = ask_resync(run, resync_scope(run))
    what = "a mistake in this program: KeyError; where: here"
    with pytest.raises(RequestEndedError, match="has failed: ") as caught:
        wait_for(run, asked.request_id, Worker(run, to=FAILED, error=StoredError.saying(what)))
    assert caught.value.what.endswith(what)
    assert caught.value.where.startswith("request of ")


def by_hand(run: Run, request_id: str) -> None:
    run.store.cancel_request(run.name, request_id)


def by_a_reset(run: Run, _: str) -> None:
    reset(run)


@pytest.mark.parametrize(("how", "why"), [(by_hand, ""), (by_a_reset, ": a new plan")])
def test_what_was_cancelled_is_told(run: Run, how: Callable[[Run, str], None], why: str) -> None:
    asked = ask_resync(run, resync_scope(run))
    how(run, asked.request_id)
    with pytest.raises(RequestEndedError, match=f"was cancelled{why}"):
        wait_for(run, asked.request_id, Worker(run))


def test_what_was_dropped_is_waited_for_no_longer(run: Run) -> None:
    asked = ask_resync(run, resync_scope(run))
    drop(run)
    with pytest.raises(RefusedError, match="has no request"):
        wait_for(run, asked.request_id, Worker(run))


def test_work_that_closes_nothing_is_not_tried_for_ever(run: Run) -> None:
    asked, calls = ask_resync(run, resync_scope(run)), []
    with pytest.raises(RetryableError, match="still asked, and nobody is at work"):
        wait_for(run, asked.request_id, lambda: calls.append(1))
    assert len(calls) == 5


def test_while_it_is_paused_nobody_carries_it_out(run: Run) -> None:
    pause(run)
    asked = ask_resync(run, resync_scope(run))
    assert "is paused" in who_carries_out(run)
    resume(run)
    assert wait_for(run, asked.request_id, Worker(run)).status is DONE
