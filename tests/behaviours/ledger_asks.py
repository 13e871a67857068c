"""What the behaviours of a ledger's store do with a ledger, and how they look at it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

from airflow_cdc_provider.core.idle_log import IdleRange
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.schema_changes import Difference, SchemaChange
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.engine.ledger.ledger import Ledger
from airflow_cdc_provider.engine.ledger.state import LedgerState, Part
from airflow_cdc_provider.engine.ledger.store import Ask, LedgerStore
from tests.behaviours.source_log import at

ALL = Part.OWNER | Part.REPORTS | Part.SLOTS | Part.STOPPED | Part.CHANGES


class Watched:
    """Watches a store: after each commit it must hold what it returned."""

    def __init__(self, ledger: Ledger) -> None:
        self._store, self.commits = store_of(ledger), list[LedgerState]()
        self._commit = self._store.commit

    def __enter__(self) -> list[LedgerState]:
        self._store.commit = self.commit  # type: ignore[method-assign]
        return self.commits

    def __exit__(self, *_: object) -> None:
        self._store.commit = self._commit  # type: ignore[method-assign]

    def commit(self, ask: Ask) -> LedgerState:
        whole = replace(ask, reads=ALL)
        returned = self._commit(whole)
        assert comparable(self._store.read(ALL)) == comparable(returned)
        self.commits.append(returned)
        return returned


def store_of(ledger: Ledger) -> LedgerStore:
    return ledger._store


def state(ledger: Ledger) -> LedgerState:
    """All that a ledger holds."""
    return comparable(store_of(ledger).read(ALL))


def comparable(found: LedgerState) -> LedgerState:
    """The same without what a store adds of its own: the time, its place, splits stored anew."""
    slots = tuple(replace(slot, stored=slot.stream) for slot in found.slots or ())
    stopped = tuple(replace(each, since_us=0) for each in found.stopped or ())
    place = replace(found.place, where="")
    return replace(found, slots=slots, stopped=stopped, place=place)


def moved(ledger: Ledger, start: int, end: int) -> int:
    """Pass over quiet log; return where the stream is then."""
    ledger.pass_over(IdleRange(at(start), at(end), only_ledgers=False))
    stream = ledger.stream()
    assert stream is not None
    return offset_of(stream)


def offset_of(stream: StreamSplit) -> int:
    """Return where a stream is in the made-up log."""
    offset = stream.start.facts()["pos"]
    assert isinstance(offset, int)
    return offset


def altered(plan: TablePlan, *, through: int = 110, rereads: bool = False) -> SchemaChange:
    """A column more, maybe with rows that are read again for it."""
    found = Difference(added=("c",), reread="its values may be others" if rereads else "")
    return SchemaChange(plan, plan, found, at(through), "ALTER TABLE")


def together(acts: list[Callable[[], None]]) -> None:
    """Do all of it at once, and end with the first error of any."""
    errors: list[BaseException] = []

    def run(act: Callable[[], None]) -> None:
        try:
            act()
        except BaseException as error:  # noqa: BLE001 - raised below
            errors.append(error)

    threads = [threading.Thread(target=run, args=(act,)) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    if errors:
        raise errors[0]
