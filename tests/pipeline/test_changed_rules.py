"""Other rules for conflicts: both edges of a pair take them at once, when nothing is on its way."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace

import pytest

from airflow_cdc_provider.core.errors import CdcError, PipelineFileError, PreflightError
from airflow_cdc_provider.core.lifecycle import LEASE_S
from airflow_cdc_provider.pipeline.steps.changed_rules import take_changed_rules
from airflow_cdc_provider.pipeline.steps.sink import open_ledger
from airflow_cdc_provider.pipeline.steps.start_jobs import start_stream
from tests.pipeline.pairs import Edge, MakePair, Pair, conflicts_of
from tests.servers.given import SqlServer


@pytest.fixture
def pair(mysql_server: SqlServer, mariadb_server: SqlServer, make_pair: MakePair) -> Pair:
    made = make_pair(mysql_server, mariadb_server, winner="one")
    made.one.execute("CREATE TABLE items (id INT PRIMARY KEY, v VARCHAR(40), version INT)")
    made.one.execute("INSERT INTO items VALUES (1, 'first', 0), (2, 'first', 0), (3, 'first', 0)")
    made.begin()
    return made


def write_rules(*edges: Edge, rules: str = "policy: priority, winner: two") -> None:
    for edge in edges:
        head, _, tail = edge.path.read_text().partition("conflicts: {")
        edge.path.write_text(f"{head}conflicts: {{{rules}}}{tail.partition('}')[2]}")


def change_at_both(pair: Pair, key: int, version: int = 0) -> None:
    for node in (pair.one, pair.two):
        version += 1
        node.execute(f"UPDATE items SET v = '{node.name}', version = {version} WHERE id = {key}")


def value_of(pair: Pair, key: int) -> object:
    assert pair.is_equal
    return pair.one.execute(f"SELECT v FROM items WHERE id = {key}")[0][0]


def test_a_pair_that_has_caught_up_takes_them(pair: Pair) -> None:
    change_at_both(pair, 1)
    pair.catch_up()
    assert value_of(pair, 1) == "one"
    write_rules(pair.there, pair.back)
    pair.back.catch_up()  # the first one takes them for both
    change_at_both(pair, 2)
    pair.catch_up()
    assert value_of(pair, 2) == "two"
    with pair.there.opened() as run:
        texts = [event.text for event in run.store.events(run.name)]
        assert not any("rules for conflicts" in text for text in texts)
    with pair.back.opened() as run:
        texts = [event.text for event in run.store.events(run.name)]
        assert "rules for conflicts: two wins; before: one wins" in texts
    write_rules(pair.there, pair.back, rules="policy: column, column: version, winner: one")
    pair.catch_up()
    change_at_both(pair, 3, version=5)
    pair.catch_up()
    assert value_of(pair, 3) == "two"
    assert len(conflicts_of(pair.there)) == len(conflicts_of(pair.back)) == 3


@pytest.mark.parametrize("writer", ["one", "two"])
def test_what_one_node_lacks_is_brought_by_the_former_rules_first(pair: Pair, writer: str) -> None:
    change_at_both(pair, 1)
    pair.there.catch_up()  # settled there by the former rule, and not at the other node yet
    node = pair.one if writer == "one" else pair.two
    node.execute("UPDATE items SET v = 'more' WHERE id = 2")
    write_rules(pair.there, pair.back)
    for edge in (pair.there, pair.back):
        with pytest.raises(CdcError, match="has changes that t_"):
            edge.catch_up()
    write_rules(pair.there, pair.back, rules="policy: priority, winner: one")
    pair.catch_up()
    assert value_of(pair, 1) == "one"
    write_rules(pair.there, pair.back)
    pair.catch_up()
    change_at_both(pair, 3)
    pair.catch_up()
    assert value_of(pair, 3) == "two"


def test_they_are_those_of_both_files(pair: Pair) -> None:
    write_rules(pair.there)
    for edge in (pair.there, pair.back):
        with pytest.raises(PreflightError, match="its rule for conflicts is here that"):
            edge.catch_up()
    with pair.there.opened() as run, closing(open_ledger(run)) as ledger:
        with pytest.raises(CdcError, match="and in the file of the edge back one wins"):
            take_changed_rules(run, ledger)
        with pytest.raises(PipelineFileError, match="write the former ones, or begin a whole run"):
            start_stream(run)


def test_the_edge_back_may_not_be_at_work(pair: Pair) -> None:
    write_rules(pair.there, pair.back)
    with pair.back.opened() as back:
        back.store.take_over(back.name, "somebody", lease_s=LEASE_S)
        with pytest.raises(CdcError, match="change for both edges at once, and somebody runs"):
            pair.there.catch_up()
        back.store.release_lease(back.name, back.store.ensure(back.name).generation)
    pair.there.catch_up()


def test_rules_that_an_earlier_release_stored_are_the_same(pair: Pair) -> None:
    with pair.there.opened() as run:
        origin = run.store.origin(run.name)
        assert origin is not None
        form = json.loads(origin.topology)
        older = {key: form[key] for key in form if key not in {"column", "rules", "stops"}}
        generation = run.store.take_over(run.name, run.owner).generation
        stored = replace(origin, topology=json.dumps(older))
        run.store.keep_origin(run.name, generation, stored)
        run.store.release_lease(run.name, generation)
    change_at_both(pair, 1)
    pair.catch_up()
    assert value_of(pair, 1) == "one"
