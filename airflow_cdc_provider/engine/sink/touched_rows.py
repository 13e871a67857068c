"""Which rows of a table some changes touch, change by change: to look up a few of them by key."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from airflow_cdc_provider.columns.changes import Op
from airflow_cdc_provider.columns.plain_changes import PlainChanges

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_cdc_provider.core.positions import LogPosition
    from airflow_cdc_provider.engine.sink.row_identity import RowIdentity, RowKey
    from airflow_cdc_provider.engine.sink.their_changes import KeptChanges

_INSERT, _DELETE = int(Op.INSERT), int(Op.DELETE)


class NotPlainError(Exception):
    """Rows that cannot be compared as Python objects: they are compared as columns."""


class Step(NamedTuple):
    """What one change does to one row: it writes the row, or takes it away."""

    key: RowKey
    change: int
    """The change's place in its part."""
    takes: bool


class TheirStep(NamedTuple):
    """A step of the sink's node."""

    part: KeptChanges
    change: int
    takes: bool

    @property
    def place(self) -> str:
        """Return where its transaction is in the sink's log."""
        return self.part.place(self.transaction)

    @property
    def transaction(self) -> int:
        """Return its transaction's index in its part."""
        return self.changes.transactions[self.change]

    @property
    def changes(self) -> PlainChanges:
        """Return the changes of its part."""
        return _plain(self.part)


def steps_of(changes: PlainChanges, key: Sequence[str], identity: RowIdentity) -> Iterator[Step]:
    """Yield the steps of changes in log order; a key that changes is taken away, then written.

    `NotPlainError` if a key has a NULL.
    """
    before = _keys(changes, key, identity, before=True)
    after = _keys(changes, key, identity, before=False)
    for change, (taken, put) in enumerate(zip(before, after, strict=True)):
        if taken is not None and taken != put:
            yield Step(taken, change, takes=True)
        if put is not None:
            yield Step(put, change, takes=False)


def _keys(
    changes: PlainChanges, key: Sequence[str], identity: RowIdentity, *, before: bool
) -> list[RowKey | None]:
    """Return the key of each change's row before or after it, None if there is no such row."""
    absent = _INSERT if before else _DELETE
    there = [place for place, op in enumerate(changes.ops) if op != absent]
    columns = {name: changes.column(name, before=before) for name in key}
    wanted = {name: [values[place] for place in there] for name, values in columns.items()}
    if any(None in values for values in wanted.values()):
        raise NotPlainError
    found: list[RowKey | None] = [None] * len(changes)
    for place, each in zip(there, identity.of_few(wanted), strict=True):
        found[place] = each
    return found


class TouchedRows:
    """The steps of what the sink's node has changed in one table, by the keys of its rows."""

    def __init__(self) -> None:
        self._parts: deque[KeptChanges] = deque()
        self._steps: dict[RowKey, deque[TheirStep]] = defaultdict(deque)
        self._keys: deque[list[RowKey]] = deque()
        """Of each part that is taken in, the first ones of all."""
        self._identity: RowIdentity | None = None
        self._kinds: Mapping[str, pa.DataType] = {}

    def __bool__(self) -> bool:
        return bool(self._parts)

    def __iter__(self) -> Iterator[KeptChanges]:
        return iter(self._parts)

    @property
    def first(self) -> KeptChanges:
        """Return what came first in the log."""
        return self._parts[0]

    def add(self, part: KeptChanges) -> None:
        """Add what came last in the log."""
        self._parts.append(part)

    def drop_first(self) -> None:
        """Forget what came first in the log."""
        self._parts.popleft()
        if not self._keys:
            return
        for key in self._keys.popleft():
            steps = self._steps[key]
            steps.popleft()
            if not steps:
                del self._steps[key]

    def behind(self, key: RowKey, known: LogPosition) -> list[TheirStep]:
        """Return the steps of one row that a position does not contain, in log order."""
        return [
            step
            for step in self._steps.get(key, ())
            if not step.part.is_known(step.transaction, known)
        ]

    def places(self) -> set[str]:
        """Return where the transactions are in the sink's log."""
        return {part.place(each) for part in self._parts for each in set(_plain(part).transactions)}

    def take_in(
        self, key: Sequence[str], kinds: Mapping[str, pa.DataType], identity: RowIdentity
    ) -> None:
        """Take in what was added; `NotPlainError` if something cannot be.

        `kinds` are the types that the columns of the key, and others, are to have.
        """
        if identity is not self._identity or kinds != self._kinds:
            self._steps.clear()
            self._keys.clear()
            self._identity, self._kinds = identity, kinds
        for part in list(islice(self._parts, len(self._keys), None)):
            changes = _plain(part)
            require_kinds(changes.schema, kinds)
            steps = list(steps_of(changes, key, identity))
            for step in steps:
                self._steps[step.key].append(TheirStep(part, step.change, step.takes))
            self._keys.append([step.key for step in steps])


def require_kinds(schema: pa.Schema, kinds: Mapping[str, pa.DataType]) -> None:
    """Raise `NotPlainError` unless columns are there with these types."""
    for name, kind in kinds.items():
        place = schema.get_field_index(name)
        if place < 0 or schema.field(place).type != kind:
            raise NotPlainError


def _plain(part: KeptChanges) -> PlainChanges:
    """Return a part's changes as Python objects."""
    if part.plain is None:
        raise NotPlainError
    return part.plain
