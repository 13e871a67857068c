"""Requests: scopes that make no sense, and what tells two requests apart."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_cdc_provider.core.errors import StateMovedError
from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.keys import KeyRange
from airflow_cdc_provider.core.requests import (
    Request,
    RequestKind,
    RequestStatus,
    Scope,
    check_request_move,
    scope_from_json,
    scope_to_json,
)

ORDERS, ITEMS = TableId("shop", "orders"), TableId("shop", "items")


@pytest.mark.parametrize("tables", [(), (ORDERS, ORDERS)])
def test_a_scope_names_its_tables_and_each_once(tables: tuple[TableId, ...]) -> None:
    with pytest.raises(ValueError, match="at least one table"):
        Scope(tables)


def test_a_range_of_keys_is_one_tables() -> None:
    with pytest.raises(ValueError, match="one table's"):
        Scope((ORDERS, ITEMS), (KeyRange((1,), None),))


@pytest.mark.parametrize(
    "ranges", [(KeyRange((3,), (5,)), KeyRange((4,), (6,))), (KeyRange((3,)), KeyRange((4,), (6,)))]
)
def test_ranges_are_in_order_and_apart(ranges: tuple[KeyRange, ...]) -> None:
    with pytest.raises(ValueError, match="in order and apart"):
        Scope((ORDERS,), ranges)


@pytest.mark.parametrize(
    "ranges",
    [
        (),
        (KeyRange((1, b"\x00a"), None),),
        (KeyRange(None, ("2026-01-01",)),),
        (KeyRange(None, (3,)), KeyRange((3,), (5,)), KeyRange((9,), None)),
    ],
)
def test_a_scope_is_read_back_as_it_was_written(ranges: tuple[KeyRange, ...]) -> None:
    scope = Scope((ORDERS,), ranges)
    assert scope_from_json(scope_to_json(scope)) == scope


def test_only_kind_and_scope_tell_two_requests_of_one_id_apart() -> None:
    one = Request(PipelineName("shop"), "r1", RequestKind.RESYNC, Scope((ORDERS,)), "ann", 1)
    assert replace(one, asked_by="bob", rows=7).arguments_hash == one.arguments_hash
    other = replace(one, scope=Scope((ORDERS,), (KeyRange((5,), None),)))
    assert other.arguments_hash != one.arguments_hash


def test_a_request_only_goes_forward_and_what_is_closed_stays_closed() -> None:
    allowed = set()
    for current in RequestStatus:
        for to in RequestStatus:
            try:
                check_request_move(current, to)
            except StateMovedError:
                continue
            allowed.add(f"{current} -> {to}")
    ends = {
        f"{current} -> {to}"
        for current in ("waiting", "asked", "reading")
        for to in ("failed", "cancelled")
    }
    assert allowed == ends | {
        "waiting -> asked",
        "asked -> reading",
        "reading -> reading",
        "reading -> done",
    }


def test_an_id_that_is_given_again_is_another_request_to_the_ledger() -> None:
    one = Request(PipelineName("shop"), "nightly", RequestKind.RESYNC, Scope((ORDERS,)), "ann", 1)
    assert replace(one, rows=7).ledger_key == one.ledger_key
    assert replace(one, asked_us=2).ledger_key != one.ledger_key
