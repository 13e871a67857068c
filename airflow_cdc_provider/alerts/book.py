"""Which problem was sent to whom: what the pipeline's note of notifications holds.

All decisions are here, and none of the sending. The book is moved in the state store by
compare-and-set, so of several senders that look at the same pipeline one claims each message. A
claim has a time limit: the message of a sender that died before it said how it went is sent again,
under the same id. Times are microseconds, UTC.

A problem is over when it is not seen any more while the pipeline goes forward, for half a minute:
between two tries, and while one driver takes over from another, it is only not seen.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Self

from airflow_cdc_provider.alerts.notices import Kind, Notice, Seen

_US = 1_000_000
CLAIM_S = 180.0
"""How long a sender may take over one message before another one sends it."""
WAITS_S = (10.0, 60.0, 300.0, 900.0)
"""Between the tries of one message."""
_SETTLE_US = 30 * _US
_FORGET_US = 3600 * _US
"""An end that could not be sent in so long is not sent: its receiver may be out of the file."""
_SEEN_AT_ONCE = frozenset({Kind.APPROVAL, Kind.REFUSED})
"""Whether these are over is plain in the state store."""
_LASTING = frozenset({Kind.OUTAGE, Kind.LAG})
_NOTE_SEEN_US = 600 * _US
_UNSEEN_US = 1800 * _US
"""A problem that began so long after it was last seen is another one: nobody looked meanwhile."""


class Sending(StrEnum):
    """The status of one message."""

    DUE = "due"
    CLAIMED = "claimed"
    SENT = "sent"
    DROPPED = "dropped"
    """After all tries, or there was nothing to say any more."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """One message to one receiver: its status, tries, and until when it is claimed or waits."""

    sending: Sending = Sending.DUE
    tries: int = 0
    until_us: int = 0
    """When a claim ends; before when a due one is not tried again."""

    def is_free(self, at_us: int) -> bool:
        """Tell whether a sender may claim the message now, also after another's claim ran out."""
        return self.sending in {Sending.DUE, Sending.CLAIMED} and self.until_us <= at_us


@dataclass(frozen=True, slots=True)
class Record:
    """One problem in the book, with its messages at the start and at the end."""

    notice: Notice
    begun: Mapping[str, Delivery]
    over: Mapping[str, Delivery] = field(default_factory=dict)
    clear_us: int = 0
    """Since when it is not seen any more, 0 while it is."""
    over_us: int = 0
    """When it was over, 0 before."""
    seen_us: int = 0
    """When it was last seen, to some minutes."""

    @property
    def is_done(self) -> bool:
        """Tell whether the problem is over and every message of that is sent or dropped."""
        left = {Sending.DUE, Sending.CLAIMED}
        return self.over_us > 0 and not any(each.sending in left for each in self.over.values())

    def deliveries(self, *, over: bool) -> Mapping[str, Delivery]:
        """Return the messages at the problem's end if `over`, else those at its start."""
        return self.over if over else self.begun

    def to_json(self) -> dict[str, Any]:
        stages = {"begun": self.begun, "over": self.over}
        return {
            "notice": self.notice.to_json(),
            "clear_us": self.clear_us,
            "over_us": self.over_us,
            "seen_us": self.seen_us,
            **{
                stage: {
                    name: [each.sending.value, each.tries, each.until_us]
                    for name, each in deliveries.items()
                }
                for stage, deliveries in stages.items()
            },
        }

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> Self:
        begun, over = (
            {name: Delivery(Sending(each[0]), *each[1:3]) for name, each in form[stage].items()}
            for stage in ("begun", "over")
        )
        notice = Notice.from_json(form["notice"])
        times = (int(form.get(name, 0)) for name in ("clear_us", "over_us", "seen_us"))
        return cls(notice, begun, over, *times)


Book = Mapping[str, Record]


@dataclass(frozen=True, slots=True)
class Claim:
    """One message that this sender has claimed, so no other sends it."""

    record: Record
    receiver: str
    is_over: bool
    delivery: Delivery

    @property
    def key(self) -> str:
        return self.record.notice.key

    @property
    def is_last_try(self) -> bool:
        """Tell whether a failure now drops the message."""
        return self.delivery.tries > len(WAITS_S)


def book_from_json(form: Mapping[str, Any]) -> Book:
    """Read the book of notifications from JSON."""
    return {key: Record.from_json(record) for key, record in form.get("records", {}).items()}


def book_to_json(book: Book) -> dict[str, Any]:
    """Return the book of notifications as JSON; later releases only add fields."""
    return {"records": {key: record.to_json() for key, record in book.items()}}


def after_look(book: Book, seen: Seen, receivers: Collection[str]) -> Book:
    """Return the book with new problems added, and those marked that are over."""
    now = {notice.key: notice for notice in seen.notices}
    kept = {
        key: _looked_at(record, seen, is_seen=key in now)
        for key, record in book.items()
        if not _is_replaced(record, seen, now)
    }
    kept = {
        key: record
        for key, record in kept.items()
        if not record.is_done and not 0 < record.over_us < seen.at_us - _FORGET_US
    }
    is_failed = any(each.notice.kind is Kind.FAILED and not each.over_us for each in kept.values())
    for notice in seen.notices:
        is_explained = is_failed and notice.kind is Kind.OUTAGE
        if notice.key in seen.ripe and notice.key not in kept and not is_explained:
            begun = {name: Delivery() for name in receivers}
            kept[notice.key] = Record(notice, begun, seen_us=seen.at_us)
    return kept


def _is_replaced(record: Record, seen: Seen, now: Mapping[str, Notice]) -> bool:
    """Tell whether another problem replaces this one, so no message says that it is over."""
    if record.over_us:  # it is back before all heard of its end, and who did not need not now
        return record.notice.key in seen.ripe
    before, found = record.notice, now.get(record.notice.key)
    if found is not None and before.kind is Kind.TABLE:
        return found.code != before.code and found.key in seen.ripe
    if found is not None and before.kind in _LASTING:
        return found.since_us > record.seen_us + _UNSEEN_US
    if not seen.has_failed:
        return False
    return before.kind is Kind.OUTAGE or (before.kind is Kind.FAILED and found is None)


def _looked_at(record: Record, seen: Seen, *, is_seen: bool) -> Record:
    """Return a problem's record after a check: still there, or over since when."""
    if record.over_us or seen.is_paused:
        return record
    at_once = record.notice.kind in _SEEN_AT_ONCE or seen.has_ended_well
    if is_seen or not (seen.is_well or at_once):
        is_noted = not is_seen or seen.at_us - record.seen_us < _NOTE_SEEN_US
        return replace(record, clear_us=0, seen_us=record.seen_us if is_noted else seen.at_us)
    clear_us = record.clear_us or seen.at_us
    if not at_once and seen.at_us - clear_us < _SETTLE_US:
        return replace(record, clear_us=clear_us)
    told = {Sending.SENT, Sending.CLAIMED}
    over = {name: Delivery() for name, each in record.begun.items() if each.sending in told}
    return replace(record, clear_us=clear_us, over_us=clear_us, over=over)


def claimed(book: Book, receivers: Collection[str], at_us: int) -> tuple[Book, Claim | None]:
    """Claim the next message that is due; return the book, and the claim or None."""
    for key, record in book.items():
        is_over = record.over_us > 0
        for name, delivery in record.deliveries(over=is_over).items():
            if name in receivers and delivery.is_free(at_us):
                until_us = at_us + int(CLAIM_S * _US)
                mine = Delivery(Sending.CLAIMED, delivery.tries + 1, until_us)
                changed = _with(record, name, mine, is_over=is_over)
                return {**book, key: changed}, Claim(changed, name, is_over, mine)
    return book, None


def settled(book: Book, claim: Claim, *, is_sent: bool, at_us: int) -> Book:
    """Return the book with a claimed message marked sent, dropped, or due again later."""
    record = book.get(claim.key)
    if record is None or record.notice.since_us != claim.record.notice.since_us:
        return book
    if is_sent:
        result = Delivery(Sending.SENT, claim.delivery.tries)
    elif claim.is_last_try or (record.over_us and not claim.is_over):
        result = Delivery(Sending.DROPPED, claim.delivery.tries)
    else:
        wait_us = int(WAITS_S[claim.delivery.tries - 1] * _US)
        result = Delivery(Sending.DUE, claim.delivery.tries, at_us + wait_us)
    changed = _with(record, claim.receiver, result, is_over=claim.is_over)
    if not is_sent and not claim.is_over and record.over_us:  # it knows of no problem
        changed = _with(changed, claim.receiver, Delivery(Sending.DROPPED), is_over=True)
    return {**book, claim.key: changed}


def hurried(book: Book) -> Book:
    """Return the book with waiting messages due now, for a sender that ends."""
    return {
        key: replace(record, begun=_hurried(record.begun), over=_hurried(record.over))
        for key, record in book.items()
    }


def _hurried(deliveries: Mapping[str, Delivery]) -> dict[str, Delivery]:
    """Return the messages with those due now that wait for another try."""
    return {
        name: replace(each, until_us=0) if each.sending is Sending.DUE else each
        for name, each in deliveries.items()
    }


def _with(record: Record, receiver: str, delivery: Delivery, *, is_over: bool) -> Record:
    """Return the record with one receiver's message changed."""
    if is_over:
        return replace(record, over={**record.over, receiver: delivery})
    return replace(record, begun={**record.begun, receiver: delivery})
