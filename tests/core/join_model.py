"""A small world after the hand-off: ranges are read again while the stream flows.

The source is `convergence_model`'s: a transaction is in the log before readers see it, and the
stream may be ahead of what they see. The sink holds rows, the positions of the stream's writers,
the owner's generation and the splits that have joined; each step changes them in one transaction.
The sink begins drifted: rows are missing, extra or altered. What a crash loses is what an owner
holds in memory; the next one begins behind the last split that has joined, while the one before may
still be alive. `JoinLaws` switches single rules off, to show that the model notices.

A row's value is its version, which grows with the log, and in the last digit its unique column.

After each transaction of the sink (`World._judge`):

- a key that has not drifted, or whose split has joined since, or that the stream has written, is
  what the source had at its writer's position, and no reader has seen a later version of it;
- a key that is still drifted has not changed, but for a row that was taken away because it held a
  joined row's unique value, inside the request's range;
- a request that ends early leaves no row missing that it took away for others' values;
- a request that is done leaves no drifted key in its range; one for an interval leaves none that is
  in the interval by the source's value, or by the sink's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from airflow_cdc_provider.core.keys import KeyKind, KeyRange
from airflow_cdc_provider.core.splits import Interval
from airflow_cdc_provider.core.stream_split import TableProgress
from airflow_cdc_provider.engine.requests.joined_rows import joined_rows
from airflow_cdc_provider.engine.requests.ranges import left_of, next_number, splits_of
from airflow_cdc_provider.engine.sink.port import JoinedRows
from tests.core.convergence_model import TABLE, Change, Rows, Source, length, put
from tests.core.join_records import JoinLaws, Owner, Read, Request, Sink, Start, Status
from tests.core.model_columns import (
    changes_of,
    from_columns,
    keys_from_columns,
    keys_to_columns,
    schema_of,
    to_columns,
)

KEYS = range(6)
UNIQUE_VALUES = 3
READ_AHEAD = 2


class BrokenLawError(AssertionError):
    """The sink is in a state that it must not be in."""


class World:
    """Everything, and the steps that can be taken."""

    def __init__(self, start: Start, laws: JoinLaws | None = None) -> None:
        self.start = start
        self.laws = laws or JoinLaws()
        self.schema = schema_of(start.kind)
        self.source = Source()
        self.write(start.rows)
        self.source.show(1)
        self.sink = Sink({}, [self.source.position(1)] * start.writers)
        self.drifted = set(KEYS)
        self.requests: list[Request] = []
        if not start.is_added:
            self._hold_drifted_rows()
            self._capture(1)
            self._ask()
        self.owner = Owner(1, start.cuts)
        self.old: Owner | None = None
        self._versions: dict[int, int] = {}

    # --- the source ---------------------------------------------------------------------------

    def write(self, wishes: Iterable[tuple[int, int | None]]) -> None:
        """Log one transaction, without what a unique column refuses."""
        version, rows = len(self.source.log) + 1, dict(self.source.rows)
        done: list[tuple[int, int | None]] = []
        for key, unique in wishes:
            value = None if unique is None else version * 10 + unique
            if value is None or self._holder(rows, key, value) is None:
                put(rows, key, value)
                done.append((key, value))
        self.source.write(done)

    def show(self, count: int) -> None:
        """Let readers see some more transactions."""
        self.source.show(count)

    def _holder(self, rows: Rows, key: int, value: int) -> int | None:
        """Return another key's row that holds the unique value of a row."""
        if not self.start.is_unique:
            return None
        held = (other for other in rows if other != key and rows[other] % 10 == value % 10)
        return next(held, None)

    def _hold_drifted_rows(self) -> None:
        rows = dict(self.source.rows)
        for key, unique in self.start.drift.items():
            if unique is None or self._holder(rows, key, unique) is None:
                put(rows, key, unique)
        self.sink.rows = rows
        self.drifted = {key for key in KEYS if rows.get(key) != self.source.rows.get(key)}

    # --- the stream ---------------------------------------------------------------------------

    def stream(self, writer: int, transactions: int) -> None:
        """Let a writer apply some transactions in one of the sink's."""
        writer %= self.start.writers
        at = length(self.sink.positions[writer])
        end = min(at + transactions, len(self.source.log))
        rows, written = dict(self.sink.rows), set()
        for index in range(at, end):
            for change in self._taken(writer, index):
                put(rows, change.key, change.after)
                written.add(change.key)
        holders = {self._holder(rows, key, rows[key]) for key in written & rows.keys()} - {None}
        if holders:  # the sink refuses a row, and the stream stays where it is
            if not holders & self.drifted:
                raise BrokenLawError(f"the stream is refused by rows that are right: {holders}")
            return
        before, self.sink.rows = self.sink.rows, rows
        self.sink.positions[writer] = self.source.position(end)
        self.drifted -= written
        self._judge(before)

    def _taken(self, writer: int, index: int) -> list[Change]:
        captured, point = self.sink.captured, self.source.point(index)
        if captured is None:
            return []
        return [
            change
            for change in self.source.log[index]
            if self._writer_of(change.key) == writer and captured.owns((change.key,), point)
        ]

    def _writer_of(self, key: int) -> int:
        """Return who writes a key; a table that cannot be spread is one writer's."""
        is_spread = self.start.kind is KeyKind.INTEGER and not self.start.is_unique
        return key % self.start.writers if is_spread else self.start.writers - 1

    # --- what people do -----------------------------------------------------------------------

    def add(self) -> None:
        """Add the table: what the log holds from its end on is the stream's."""
        if self.start.is_added and not self.requests:
            if self.laws.captures_first:
                self._capture(len(self.source.log))
            self._ask()

    def _capture(self, at: int) -> None:
        self.sink.captured = TableProgress(TABLE, self.source.position(at))

    def _ask(self) -> None:
        self.requests = [Request(number, keys) for number, keys in enumerate(self.start.ranges)]

    def cancel(self, number: int) -> None:
        if self.requests:
            self.requests[number % len(self.requests)].is_cancel_wanted = True

    def take_over(self, cuts: Sequence[int]) -> None:
        """Give the pipeline a new owner; the old one may not have heard."""
        self.sink.generation += 1
        self.begin_again(cuts)

    def begin_again(self, cuts: Sequence[int]) -> None:
        """Let the owner begin anew what it carries out; what it did before may live on."""
        self.old = self.owner
        self.sink.epoch += 1
        self.owner = Owner(self.sink.generation, cuts, self.sink.epoch)

    # --- reading again ------------------------------------------------------------------------

    @property
    def open_requests(self) -> list[Request]:
        return [request for request in self.requests if request.status is Status.OPEN]

    def read(self, steps: int) -> None:
        """Take some steps of reading what is left of the first open request."""
        for _ in range(steps):
            self._step_read()

    def _step_read(self) -> None:
        owner = self.owner
        if owner.request is None and not self._begin(owner):
            return
        read = next((each for each in owner.reads if not each.is_whole), None)
        if read is None:
            if owner.left and len(owner.reads) < READ_AHEAD:
                owner.reads.append(Read(owner.left.popleft()))
        elif read.held is None and read.split.chosen is not None and not read.split.listed:
            read.held = frozenset(self._of(read, self.sink.rows))
        elif read.low is None:
            read.low = self.source.visible
        elif read.rows is None:
            read.rows = self._of(read, self.source.snapshots[self.source.visible])
        elif read.high is None:
            read.high = len(self.source.log)
            self._list(owner, read)
            if read.split.is_backfilled(wanted=True):
                backfill = self.source.log[read.low : read.high]
                read.rows = from_columns(self._joined_rows(read, backfill).rows)

    def _of(self, read: Read, rows: Rows) -> Rows:
        """Return those of some rows that a read is about."""
        if read.listed is not None:
            return {key: rows[key] for key in rows if key in read.listed}
        mine = {key: rows[key] for key in rows if read.split.keys.contains((key,))}
        return {key: value for key, value in mine.items() if self._is_wanted(value)}

    def _list(self, owner: Owner, read: Read) -> None:
        """Read first, by their keys, what the sink alone has of an interval's piece."""
        listed = (read.held or frozenset()) - set(read.rows or ())
        if listed and self.laws.looks_at_sink:
            number = 1000 * (1 + read.split.number) + owner.generation
            split = replace(read.split, number=number, listed=True)
            first = Read(split, listed)
            if not self.laws.looks_up_listed:
                first.low, first.rows, first.high = read.low, {}, read.high
            owner.reads.insert(owner.reads.index(read), first)

    def _is_wanted(self, value: int | None) -> bool:
        wanted = self.start.interval
        return value is not None and (wanted is None or value % 10 in wanted)

    @property
    def _interval(self) -> Interval | None:
        """Return what marks a split; which rows it is about is the start's to say."""
        return None if self.start.interval is None else Interval("value", 0, 0)

    def _begin(self, owner: Owner) -> bool:
        owner.request = next(iter(self.open_requests), None)
        if owner.request is None:
            return False
        keys = owner.request.keys
        joined = self.sink.joined.get(owner.request.number, [])
        pieces = [split for split in joined if not split.listed]
        for part in left_of((keys,), pieces):
            start, number = part.start, next_number(pieces)
            cuts = [(cut,) for cut in sorted(set(owner.cuts)) if start is None or (cut,) > start]
            for split in splits_of(self.schema, part, cuts, number=number):
                owner.left.append(replace(split, chosen=self._interval))
        self._close_if_over(owner, owner.request)
        return owner.request is not None

    def _close_if_over(self, owner: Owner, request: Request) -> None:
        """Close the request if nothing is left of it, or somebody has cancelled it."""
        if owner is not self.owner:
            return  # the state store refuses it, too
        if owner.leaving is not None:
            if not owner.reads:
                self._leave(owner, request, owner.leaving)
        elif not owner.left and not owner.reads:
            request.status = Status.DONE
            if self.sink.captured is None:
                self._capture(max(map(length, self.sink.positions)))
            wrong = [key for key in self.drifted if self._is_asked_for(request, key)]
            if wrong:
                raise BrokenLawError(f"request {request.number} is done, and {wrong} are not right")
        elif request.is_cancel_wanted:
            self._leave(owner, request, Status.CANCELLED)
        if request.status is not Status.OPEN:
            owner.forget()

    def _leave(self, owner: Owner, request: Request, how: Status) -> None:
        """End a request early, once the rows are back that it took away."""
        owner.left.clear()
        owner.reads.clear()
        owner.leaving = how
        freed = self.sink.freed.get(request.number, set())
        if freed - owner.brought and self.laws.brings_back:
            joined = self.sink.joined[request.number]
            split = replace(joined[0], number=5000 + len(joined), listed=True)
            owner.reads.append(Read(split, frozenset(freed - owner.brought)))
            owner.brought |= freed
            return
        request.status = how
        if freed & self.drifted:
            raise BrokenLawError(f"{freed & self.drifted} were taken away, and are not back")

    def _is_asked_for(self, request: Request, key: int) -> bool:
        there = self.source.snapshots[length(self.sink.positions[self._writer_of(key)])].get(key)
        sides = self.sink.rows.get(key), there
        is_wanted = self.start.interval is None or any(map(self._is_wanted, sides))
        return is_wanted and request.keys.contains((key,))

    # --- joining ------------------------------------------------------------------------------

    def join(self) -> None:
        """Try to join the first split that was read."""
        self._join(self.owner)

    def join_unanswered(self) -> None:
        """Try to join it, and do not hear whether that was committed."""
        self._join(self.owner, is_answered=False)

    def old_owner_joins(self) -> None:
        """Let the owner that was replaced try it."""
        if self.old is not None:
            self._join(self.old)

    def crash_in_join(self) -> None:
        """Try it and crash before COMMIT; the next owner takes over."""
        request, reads = self.owner.request, self.owner.reads
        if request is not None and reads and reads[0].is_whole and not self.laws.notes_with_rows:
            self._note(request, reads[0])
        self.take_over(self.owner.cuts)
        self.old = None

    def _join(self, owner: Owner, *, is_answered: bool = True) -> None:
        request = owner.request
        if request is None or not owner.reads or not owner.reads[0].is_whole:
            return
        if owner.generation != self.sink.generation and self.laws.fences_old_owner:
            owner.forget()
            return
        is_older = owner.epoch != self.sink.epoch and self.laws.fences_old_begin
        if is_older and (owner.generation == self.sink.generation or self.laws.fences_old_owner):
            owner.forget()
            return
        read = owner.reads[0]
        joined = self.sink.joined.get(request.number, [])
        if read.split.number not in {split.number for split in joined}:
            position = self._position(read)
            if position is None:
                self._close_if_over(owner, request)
                return
            if not self._commit(request, read, position):
                self._refuse(owner, request)
                return
        if is_answered:
            owner.reads.popleft()
            self._close_if_over(owner, request)

    def _refuse(self, owner: Owner, request: Request) -> None:
        if owner is self.owner and owner.leaving is None:
            self._leave(owner, request, Status.REFUSED)
        elif owner is self.owner:
            request.status = Status.REFUSED  # what was taken away is told, and stays away
        if owner is not self.owner or request.status is not Status.OPEN:
            owner.forget()

    def _position(self, read: Read) -> int | None:
        """Return the stream's position for a split, None if it is to wait."""
        if read.looked_at is not None:
            return read.looked_at
        positions = self.sink.positions
        if self.laws.needs_one_position and len(set(map(str, positions))) > 1:
            return None
        high = self.source.position(read.high or 0)
        if self.laws.waits_for_high and not positions[0].covers(high):
            return None
        if self.laws.locks_before_position:
            return length(positions[0])
        read.looked_at = length(positions[0])
        return None

    def _commit(self, request: Request, read: Read, position: int) -> bool:
        """Replace the range and note the split; False if a unique value is held elsewhere."""
        new, touched = self._rows_at(read, position)
        rows = dict(self.sink.rows)
        if read.split.is_whole_range:
            mine = {key for key in KEYS if read.split.keys.contains((key,))} | touched
        else:
            mine = touched | set(new)
        freed: set[int] = set()
        for key in mine & rows.keys() if self.laws.replaces_range else ():
            del rows[key]
        for key, value in new.items():
            while (holder := self._holder(rows, key, value)) is not None:
                may_go = self.start.interval is None and request.keys.contains((holder,))
                if not may_go and self.laws.refuses_outside:
                    return False
                del rows[holder]
                freed.add(holder)
            rows[key] = value
        before, self.sink.rows = self.sink.rows, rows
        self.sink.freed.setdefault(request.number, set()).update(freed)
        self._note(request, read)
        self.drifted -= mine
        self._judge(before, request.keys)
        return True

    def _note(self, request: Request, read: Read) -> None:
        self.sink.joined.setdefault(request.number, []).append(read.split)

    def _rows_at(self, read: Read, position: int) -> tuple[Rows, set[int]]:
        """Return a split's rows at a position, and the keys that the log has touched since."""
        keeps = self.laws.replays_to_position
        if not read.split.is_backfilled(wanted=True):
            keeps = self.laws.replays_touched
        changes = self.source.log[read.settled : position] if keeps else []
        joined = self._joined_rows(read, changes)
        return from_columns(joined.rows), keys_from_columns(joined.touched)

    def _joined_rows(self, read: Read, log: Sequence[Sequence[Change]]) -> JoinedRows:
        kind = self.start.kind
        changes = changes_of([change for each in log for change in each], kind)
        rows = to_columns(read.rows or {}, kind)
        listed = None if read.listed is None else keys_to_columns(read.listed, kind)
        run = [changes] if len(changes) else []
        return joined_rows(rows, run, self.schema, read.split, listed=listed)

    # --- the laws -----------------------------------------------------------------------------

    def _judge(self, before: Rows, joined: KeyRange | None = None) -> None:
        for key in KEYS:
            now = self.sink.rows.get(key)
            if key in self.drifted:
                may_go = now is None and joined is not None and joined.contains((key,))
                if now != before.get(key) and not may_go:
                    raise BrokenLawError(f"{key} has drifted, and nobody may change it: {now}")
                continue
            position = length(self.sink.positions[self._writer_of(key)])
            wanted = self.source.snapshots[position].get(key)
            if now != wanted:
                raise BrokenLawError(f"{key} is {now}, the source had {wanted} at {position}")
            self._watch(key, now)

    def _watch(self, key: int, value: int | None) -> None:
        """See what a reader at the sink sees."""
        if value is not None and value // 10 < self._versions.get(key, 0):
            raise BrokenLawError(f"{key} went back from {self._versions[key]} to {value // 10}")
        if value is not None:
            self._versions[key] = value // 10

    def finish(self) -> None:
        """Let everything come to its end, if the stream is not refused."""
        self.source.show(len(self.source.log))
        self.add()
        for writer in range(self.start.writers):
            self.stream(writer, len(self.source.log))
        while self.open_requests and not self.is_stuck:
            self.read(1)
            self.old_owner_joins()
            self.join()
        if self.is_stuck and not self.start.is_unique:
            raise BrokenLawError("nothing keeps the stream from going on, and it does not")

    @property
    def is_stuck(self) -> bool:
        """Tell whether a row that has drifted keeps the stream from going on."""
        return any(length(each) < len(self.source.log) for each in self.sink.positions)
