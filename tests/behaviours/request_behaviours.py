"""What every state store must do with requests, whatever the database."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from sqlalchemy import insert

from airflow_cdc_provider.core.errors import FencedError, RefusedError, StateMovedError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.keys import KeyRange
from airflow_cdc_provider.core.requests import Request, RequestKind, RequestStatus, Scope
from airflow_cdc_provider.core.stored_error import StoredError
from airflow_cdc_provider.state import request_rows
from airflow_cdc_provider.state.store import SqlStateStore
from airflow_cdc_provider.state.tables import requests as request_table
from tests.behaviours.state_behaviours import ORDERS, OTHER, SHOP, at, plan_of

WAITING = RequestStatus.WAITING
ASKED, READING, DONE = RequestStatus.ASKED, RequestStatus.READING, RequestStatus.DONE
FAILED, CANCELLED = RequestStatus.FAILED, RequestStatus.CANCELLED
BROKEN = StoredError.of(RefusedError("broken", remedy="mend it").about(ORDERS))
RANGE = KeyRange((5, b"\x00a"), ("2026-01-01",))


def request_of(request_id: str = "r1", **changes: object) -> Request:
    request = Request(SHOP, request_id, RequestKind.RESYNC, Scope((ORDERS,)), "ann", 1000)
    return replace(request, **changes)  # type: ignore[arg-type]


class RequestStoreBehaviour:
    """Subclassed for each database; the subclass gives the fixture `store`."""

    def owned(self, store: SqlStateStore) -> int:
        generation = store.take_over(SHOP, "me").generation
        store.start_plan(SHOP, generation, "plan-1", [plan_of()])
        return generation

    def reading(self, store: SqlStateStore, request_id: str = "r1") -> int:
        generation = self.owned(store)
        store.ask(request_of(request_id))
        store.move_request(SHOP, generation, request_id, expected=ASKED, to=READING)
        return generation

    def test_a_request_comes_back_equal(self, store: SqlStateStore) -> None:
        asked = request_of(scope=Scope((ORDERS,), (RANGE,)), asked_by="änn 🙂", estimated_rows=7)
        stored = store.ask(asked)
        assert replace(stored, changed_us=0) == asked
        assert stored.changed_us > 0
        assert store.request(SHOP, "r1") == stored
        assert store.request(SHOP, "R1") is None
        assert store.request(OTHER, "r1") is None

    def test_the_same_request_is_stored_once_and_stays_as_it_is(self, store: SqlStateStore) -> None:
        generation = self.reading(store)
        first = store.request(SHOP, "r1")
        assert store.ask(request_of(asked_by="bob", asked_us=2000)) == first
        store.move_request(SHOP, generation, "r1", expected=READING, to=DONE)
        assert store.ask(request_of()).status is DONE
        assert len(store.requests(SHOP)) == 1

    def test_the_same_id_with_other_arguments_is_refused_and_both_are_named(
        self, store: SqlStateStore
    ) -> None:
        store.ask(request_of())
        with pytest.raises(RefusedError) as caught:
            store.ask(request_of(scope=Scope((TableId("shop", "items"),), (KeyRange((3,)),))))
        assert "shop.orders" in caught.value.what
        assert "shop.items [3, +inf)" in caught.value.what

    def test_of_many_who_ask_the_same_at_once_all_get_the_one_request(
        self, store: SqlStateStore
    ) -> None:
        gate = threading.Barrier(8)

        def ask(number: int) -> Request:
            gate.wait()
            return store.ask(request_of(asked_by=f"person {number}"))

        with ThreadPoolExecutor(8) as pool:
            answers = set(pool.map(ask, range(8)))
        assert answers == set(store.requests(SHOP))
        assert len(answers) == 1

    def test_of_many_who_ask_for_different_things_under_one_id_one_is_heard(
        self, store: SqlStateStore
    ) -> None:
        gate = threading.Barrier(8)

        def ask(number: int) -> Request | None:
            gate.wait()
            try:
                return store.ask(request_of(scope=Scope((ORDERS,), (KeyRange((number,)),))))
            except RefusedError:
                return None

        with ThreadPoolExecutor(8) as pool:
            answers = [answer for answer in pool.map(ask, range(8)) if answer is not None]
        assert tuple(answers) == store.requests(SHOP)

    def test_requests_come_oldest_first_and_closed_ones_can_be_left_out(
        self, store: SqlStateStore
    ) -> None:
        for request_id, asked_us in (("b", 20), ("a", 30), ("c", 10)):
            store.ask(request_of(request_id, asked_us=asked_us))
        store.ask(request_of("d", pipeline=OTHER))
        store.cancel_request(SHOP, "b")
        assert [each.request_id for each in store.requests(SHOP)] == ["c", "b", "a"]
        assert [each.request_id for each in store.requests(SHOP, only_open=True)] == ["c", "a"]

    def test_what_the_owner_tells_is_kept(self, store: SqlStateStore) -> None:
        generation = self.reading(store)
        told = request_of(splits=3, rows=300, tables_done=1, position=at(77), error=BROKEN)
        noted = store.note_request(generation, told)
        assert replace(noted, changed_us=0) == replace(told, status=READING)
        assert store.request(SHOP, "r1") == noted

    def test_the_owner_learns_of_a_cancel_when_it_tells_how_far_it_is(
        self, store: SqlStateStore
    ) -> None:
        generation = self.reading(store)
        wanted = store.cancel_request(SHOP, "r1")
        assert (wanted.status, wanted.is_cancel_wanted) == (READING, True)
        assert store.note_request(generation, request_of(rows=3)).is_cancel_wanted

    def test_what_nobody_began_is_cancelled_at_once(self, store: SqlStateStore) -> None:
        generation = self.owned(store)
        store.ask(request_of())
        assert store.cancel_request(SHOP, "r1").status is CANCELLED
        with pytest.raises(StateMovedError, match="is cancelled, not asked"):
            store.move_request(SHOP, generation, "r1", expected=ASKED, to=READING)

    def test_what_waits_is_nobodys_to_do_until_it_is_approved(self, store: SqlStateStore) -> None:
        generation = self.owned(store)
        waiting = store.ask(request_of(status=WAITING))
        assert store.requests(SHOP, only_open=True) == (waiting,)
        assert store.to_do(SHOP) == ()
        with pytest.raises(StateMovedError):
            store.move_request(SHOP, generation, "r1", expected=ASKED, to=READING)
        with pytest.raises(StateMovedError):
            store.move_request(SHOP, generation, "r1", expected=WAITING, to=READING)
        approved = store.approve_request(SHOP, "r1")
        assert approved.status is ASKED
        assert store.approve_request(SHOP, "r1") == approved
        assert store.to_do(SHOP) == (approved,)
        store.move_request(SHOP, generation, "r1", expected=ASKED, to=READING)
        assert store.approve_request(SHOP, "r1").status is READING

    def test_what_waits_is_cancelled_at_once_and_not_approved_then(
        self, store: SqlStateStore
    ) -> None:
        self.owned(store)
        store.ask(request_of(status=WAITING))
        assert store.cancel_request(SHOP, "r1").status is CANCELLED
        with pytest.raises(RefusedError, match="ask again under another id"):
            store.approve_request(SHOP, "r1")
        assert store.to_do(SHOP) == ()

    def test_when_a_table_was_last_added_is_known_whatever_else_was_done(
        self, store: SqlStateStore
    ) -> None:
        generation = self.owned(store)
        for number, kind in enumerate((RequestKind.RESYNC, RequestKind.ADD, RequestKind.ADD)):
            store.ask(request_of(f"r{number}", kind=kind))
            assert store.added_us(SHOP) == 0
        done = []
        for number in (0, 2, 1):
            name = f"r{number}"
            store.move_request(SHOP, generation, name, expected=ASKED, to=READING)
            store.move_request(SHOP, generation, name, expected=READING, to=DONE)
            done.append(store.added_us(SHOP))
        assert done[0] == 0 < done[1] <= done[2]
        assert store.added_us(OTHER) == 0

    def test_a_person_who_cancels_and_an_owner_who_begins_never_both_win(
        self, store: SqlStateStore
    ) -> None:
        generation = self.owned(store)
        for number in range(20):
            request_id, gate = f"r{number}", threading.Barrier(2)
            store.ask(request_of(request_id))

            def begin(request_id: str = request_id, gate: threading.Barrier = gate) -> bool:
                gate.wait()
                try:
                    store.move_request(SHOP, generation, request_id, expected=ASKED, to=READING)
                except StateMovedError:
                    return False
                return True

            with ThreadPoolExecutor(1) as pool:
                beginning = pool.submit(begin)
                gate.wait()
                cancelled = store.cancel_request(SHOP, request_id).status is CANCELLED
            found = store.request(SHOP, request_id)
            assert found is not None
            assert beginning.result() is not cancelled
            assert (found.status, found.is_cancel_wanted) == (
                CANCELLED if cancelled else READING,
                True,
            )

    def test_what_is_closed_stays_as_it_is(self, store: SqlStateStore) -> None:
        generation = self.reading(store)
        store.move_request(SHOP, generation, "r1", expected=READING, to=FAILED, error=BROKEN)
        closed = store.request(SHOP, "r1")
        assert closed is not None
        assert closed.error == BROKEN
        assert store.cancel_request(SHOP, "r1") == closed
        assert store.note_request(generation, request_of(rows=9)) == closed
        for to in RequestStatus:
            with pytest.raises(StateMovedError):
                store.move_request(SHOP, generation, "r1", expected=FAILED, to=to)

    def test_a_request_that_is_not_there_is_refused_by_name(self, store: SqlStateStore) -> None:
        generation = self.owned(store)
        calls: list[Callable[[], object]] = [
            lambda: store.cancel_request(SHOP, "r9"),
            lambda: store.note_request(generation, request_of("r9")),
            lambda: store.move_request(SHOP, generation, "r9", expected=ASKED, to=READING),
        ]
        for call in calls:
            with pytest.raises(RefusedError, match="no request 'r9'"):
                call()

    def test_an_old_generation_moves_no_request(self, store: SqlStateStore) -> None:
        old = self.reading(store)
        store.take_over(SHOP, "newer")
        before = store.requests(SHOP)
        calls: list[Callable[[], object]] = [
            lambda: store.note_request(old, request_of(rows=9)),
            lambda: store.move_request(SHOP, old, "r1", expected=READING, to=DONE),
        ]
        for call in calls:
            with pytest.raises(FencedError):
                call()
        assert store.requests(SHOP) == before

    def test_a_new_plan_cancels_what_is_open_and_says_why(self, store: SqlStateStore) -> None:
        generation = self.reading(store)
        store.ask(request_of("r2"))
        store.ask(request_of("r3", pipeline=OTHER))
        store.move_request(SHOP, generation, "r2", expected=ASKED, to=FAILED, error=BROKEN)
        store.start_plan(SHOP, generation, "plan-2", [plan_of()])
        first, second = store.requests(SHOP)
        assert (first.status, second.status) == (CANCELLED, FAILED)
        assert "new plan" in str(first.error)
        assert second.error == BROKEN
        assert store.requests(OTHER, only_open=True) != ()

    def test_a_pipeline_that_is_forgotten_has_no_requests(self, store: SqlStateStore) -> None:
        generation = self.reading(store)
        store.ask(request_of("r3", pipeline=OTHER))
        store.forget(SHOP, generation)
        assert store.requests(SHOP) == ()
        assert len(store.requests(OTHER)) == 1

    def test_of_closed_requests_the_newest_are_kept_and_open_ones_all(
        self, store: SqlStateStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(request_rows, "CLOSED_KEPT", 3)
        generation = self.reading(store, "oldest")
        many = [request_of(f"r{n}", asked_us=2000, status=DONE) for n in range(5)]
        with store._engine.begin() as connection:
            rows = [request_rows.request_values(each) for each in many]
            connection.execute(insert(request_table), rows)
        store.ask(request_of("last", asked_us=1))
        store.move_request(SHOP, generation, "last", expected=ASKED, to=FAILED)
        kept = [each.request_id for each in store.requests(SHOP)]
        assert kept == ["oldest", "r2", "r3", "r4"]
