"""Other rules for conflicts: both edges of a pair take them at once, when nothing is on its way."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace

import pytest

from airflow_cdc_provider.core.errors import (
    CdcError,
    PipelineFileError,
    PreflightError,
    UndecidedConflictError,
)
from airflow_cdc_provider.core.lifecycle import LEASE_S
from airflow_cdc_provider.engine.ledger.ledger import Ledger
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps import changed_rules
from airflow_cdc_provider.pipeline.steps.changed_rules import take_changed_rules
from airflow_cdc_provider.pipeline.steps.sink import open_ledger
from airflow_cdc_provider.pipeline.steps.start_jobs import start_stream
from tests.pipeline.pairs import STOP, Edge, MakePair, Pair, conflicts_of
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
        said = "tables without a rule of their own: two wins, before: one wins"
        assert f"rules for conflicts changed: {said}" in texts
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


class KilledError(Exception):
    """What ends a run in the middle, as a SIGKILL would."""


def killed_between(monkeypatch: pytest.MonkeyPatch, edge: Edge) -> None:
    """Have an edge's run die between storing new rules for the edge back and for itself."""
    keep, calls = changed_rules._keep, []

    def once(run: Run, ledger: Ledger, topology: str) -> None:
        calls.append(run.name)
        if len(calls) == 2:
            raise KilledError
        keep(run, ledger, topology)

    with monkeypatch.context() as patched:
        patched.setattr(changed_rules, "_keep", once)
        with pytest.raises(KilledError):
            edge.catch_up()
    assert len(calls) == 2


def test_rules_that_a_killed_run_took_for_one_edge_hold_for_the_other_one_too(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_rules(pair.there, pair.back)
    killed_between(monkeypatch, pair.there)
    change_at_both(pair, 1)
    pair.back.catch_up()  # by the new rules, which it has
    # what the killed run began is ended by whoever comes next, the file may say what it will
    write_rules(pair.there, pair.back, rules="policy: priority, winner: one")
    for edge in (pair.there, pair.back):
        with pytest.raises(CdcError, match="has changes that t_"):
            edge.catch_up()
    write_rules(pair.there, pair.back)
    pair.catch_up()
    assert value_of(pair, 1) == "two"


def test_an_edge_that_was_killed_meanwhile_does_not_stream_by_its_former_rules(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_rules(pair.there, pair.back)
    killed_between(monkeypatch, pair.there)
    write_rules(pair.there, pair.back, rules="policy: priority, winner: one")
    with pair.there.opened() as run, pytest.raises(PipelineFileError, match="begin a whole run"):
        start_stream(run)
    change_at_both(pair, 1)
    with pytest.raises(CdcError, match="has changes that t_"):
        pair.there.catch_up()
    write_rules(pair.there, pair.back)
    pair.catch_up()
    assert value_of(pair, 1) == "two"


def test_a_run_that_is_killed_before_it_took_any_leaves_the_former_rules(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_rules(pair.there, pair.back)

    def never(*_: object) -> None:
        raise KilledError

    with monkeypatch.context() as patched:
        patched.setattr(changed_rules, "_keep", never)
        with pytest.raises(KilledError):
            pair.there.catch_up()
    write_rules(pair.there, pair.back, rules="policy: priority, winner: one")
    change_at_both(pair, 1)
    pair.catch_up()
    assert value_of(pair, 1) == "one"


def test_after_a_conflict_of_stop_a_killed_run_leaves_no_other_choice(
    mysql_server: SqlServer,
    mysql_sink: SqlServer,
    make_pair: MakePair,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pair = make_pair(mysql_server, mysql_sink, winner=STOP)
    pair.one.execute("CREATE TABLE items (id INT PRIMARY KEY, v VARCHAR(40), version INT)")
    pair.one.execute("INSERT INTO items VALUES (1, 'first', 0)")
    pair.begin()
    change_at_both(pair, 1)
    for edge in (pair.there, pair.back):
        with pytest.raises(UndecidedConflictError):
            edge.catch_up()
    write_rules(pair.there, pair.back, rules="policy: priority, winner: one")
    killed_between(monkeypatch, pair.there)
    pair.back.catch_up()
    write_rules(pair.there, pair.back)
    with pytest.raises(CdcError, match="has changes that t_"):
        pair.there.catch_up()
    write_rules(pair.there, pair.back, rules="policy: priority, winner: one")
    pair.catch_up()
    assert value_of(pair, 1) == "one"


def test_an_edge_whose_state_is_lost_has_the_rules_of_the_other_one(pair: Pair) -> None:
    change_at_both(pair, 2)
    pair.catch_up()  # so that the ledger says what each node knew
    change_at_both(pair, 1)
    pair.there.catch_up()
    for file in pair.back.path.parent.glob(f"{pair.back.path.stem}*.state.db*"):
        file.unlink()
    write_rules(pair.there, pair.back)
    with pytest.raises(CdcError, match="the edge went by that one wins"):
        pair.back.catch_up()
    write_rules(pair.there, pair.back, rules="policy: priority, winner: one")
    pair.catch_up()
    assert value_of(pair, 1) == "one"


def test_edges_whose_states_are_both_lost_have_the_rules_of_their_ledgers(pair: Pair) -> None:
    change_at_both(pair, 2)
    pair.catch_up()
    write_rules(pair.there, pair.back)
    pair.catch_up()  # both take other rules, which their ledgers have, too
    change_at_both(pair, 1)
    pair.there.catch_up()
    for file in pair.back.path.parent.glob("*.state.db*"):
        file.unlink()
    write_rules(pair.there, pair.back, rules="policy: priority, winner: one")
    for edge in (pair.there, pair.back):
        with pytest.raises(CdcError, match="the edge went by that two wins"):
            edge.catch_up()
    write_rules(pair.there, pair.back)
    pair.catch_up()
    assert value_of(pair, 1) == "two"


def test_a_way_back_from_another_folder_has_the_rules_of_the_way_there(
    mysql_server: SqlServer, mysql_sink: SqlServer, make_pair: MakePair
) -> None:
    pair = make_pair(mysql_server, mysql_sink, winner="one")
    pair.one.execute("CREATE TABLE items (id INT PRIMARY KEY, v VARCHAR(40), version INT)")
    pair.there.catch_up()
    write_rules(pair.back)
    far = pair.back.path.parent / "far"
    far.mkdir()
    back = replace(pair.back, path=pair.back.path.rename(far / pair.back.path.name))
    with pytest.raises(CdcError, match="are settled here by that two wins, and in one_to_two"):
        back.seed_from(pair.there)
    write_rules(back, rules="policy: priority, winner: one")
    back.seed_from(pair.there)
