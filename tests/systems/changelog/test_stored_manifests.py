"""A change log that an earlier release wrote goes on, and an earlier release reads what is new."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from airflow_cdc_provider.core.identifiers import PipelineName
from airflow_cdc_provider.core.idle_log import IdleRange
from tests.behaviours.ledger_asks import offset_of
from tests.behaviours.sink_world import insert
from tests.behaviours.source_log import at
from tests.systems.changelog.world import ChangelogWorld

STORED = Path(__file__).parents[2] / "data/stored/manifests_0.1.0.json"
NEW_EACH_TIME = {"at_us", "path", "bytes"}
Form = dict[str, Any]


def stored() -> list[Form]:
    manifests: list[Form] = json.loads(STORED.read_text())["manifests"]
    return manifests


def test_the_ledger_of_an_earlier_release_is_read_and_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "log" / "_manifest"
    folder.mkdir(parents=True)
    for form in stored():
        (folder / f"manifest-{form['version']:08d}.json").write_text(json.dumps(form))
    world = ChangelogWorld(root=tmp_path / "log", pipeline=PipelineName("shop"), generation=3)
    ledger = world.ledger
    assert (ledger.generation(), ledger.plan_id()) == (3, "plan one")
    assert ledger.finished_ids() == {"shop.orders#0", "shop.seats#0"}
    assert (ledger.counts().batches, offset_of(ledger.stream())) == (1, 150)
    assert ledger.table_changes()[world.orders.schema.table].changes == 1
    applied = world.changes(3).apply(world.batch([insert(3, "c")], start=150))
    assert (applied.changes, ledger.stream().start) == (1, at(160))


def test_the_same_requests_are_stored_in_the_same_forms(tmp_path: Path) -> None:
    world = ChangelogWorld(root=tmp_path / "log", pipeline=PipelineName("shop"))
    world.opened(world.sink.open_targets()).claim((world.orders, world.seats))
    world.ledger.start_plan("plan one")
    world.ledger.start_plan("plan one")
    world.ledger.store_stream(world.hand_off(orders=[(1, "a")]))
    world.changes().apply(world.batch([insert(2, "b")]))
    world.ledger.pass_over(IdleRange(at(110), at(150), only_ledgers=False))
    world.ledger.take_over(2)
    files = sorted((world.root / "_manifest").glob("manifest-*.json"))
    written = [json.loads(file.read_text()) for file in files]
    assert [_lasting(each) for each in written] == [_lasting(each) for each in stored()]


def _lasting(form: Any) -> Any:
    """A stored form without times, and without what files are called and how big they are."""
    if isinstance(form, dict):
        return {name: _lasting(form[name]) for name in form if name not in NEW_EACH_TIME}
    return [_lasting(each) for each in form] if isinstance(form, list) else form
