"""The thread that looks at a pipeline and notifies receivers.

Who sends is whoever watches, not the job that copies: a job that is killed, or cannot begin, could
tell nobody. In Airflow these are the triggers of `consistent` and `follow`, and each task of a
pipeline for as long as it runs; outside Airflow the command `run`. All of them look into the state
store, so it does not matter which one sees a problem first, nor whether several do: a message
is claimed there before it is sent, see `book`.

The thread has a connection of its own to the state store. Nothing that a receiver or the store does
reaches the thread that watches: what is not sent is a line of the log and a warning among the
pipeline's events, without the URL or a password, and is tried again. A receiver that did not take a
message is left alone for a while, so that the others are not kept waiting for it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from airflow_cdc_provider.alerts.book import (
    WAITS_S,
    Book,
    Claim,
    after_look,
    book_from_json,
    book_to_json,
    claimed,
    hurried,
    settled,
)
from airflow_cdc_provider.alerts.messages import Message
from airflow_cdc_provider.alerts.notices import Notice, seen
from airflow_cdc_provider.alerts.sending import NotSentError, send
from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.core.identifiers import PipelineName
from airflow_cdc_provider.core.records import NoteKind
from airflow_cdc_provider.pipeline.receivers import Receiver
from airflow_cdc_provider.state.store import SqlStateStore
from airflow_cdc_provider.views.status import status

log = logging.getLogger(__name__)

LOOK_S = 5.0
_SHARE_OF_LOOKS = 20
"""Looks take one in so many parts of the time: where there are thousands of tables one is long."""
_LONGEST_WAIT_S = 60.0
END_S = 20.0
"""How long the end of a watch waits for its last messages."""
_LAST_TRIES = 3
_LAST_PAUSE_S = 1.0
_RACES = 20
"""How often a note is read again that another sender changed meanwhile."""


@dataclass(frozen=True, slots=True)
class Watched:
    """The pipeline to be watched for notifications, and the settings of that."""

    name: PipelineName
    after_s: float
    freshness_s: int | None = None
    link: str = ""
    """Address of the pipeline's page, if it is known."""
    way: Callable[[str, str], str] | None = None
    """What to do instead of a remedy, given that and the table, such as in Airflow."""


class Notifier:
    """Checks a pipeline and sends messages on its problems; for use in one thread."""

    def __init__(
        self,
        watched: Watched,
        store: SqlStateStore,
        receivers: Sequence[Receiver],
        *,
        begun_us: int = 0,
    ) -> None:
        self._watched = watched
        self._store = store
        self._receivers = {receiver.name: receiver for receiver in receivers}
        self._begun_us = begun_us
        self._resting: dict[str, float] = {}
        self._unsettled: list[Claim] = []
        self.looked_s = 0.0
        """Seconds that the last look took, without sending."""

    def close(self) -> None:
        """Close the state store."""
        with suppress(CdcError):
            self._store.close()

    def look(self, ended_with: CdcError | None = None) -> None:
        """Check the pipeline once, and send the messages that are due."""
        store, watched = self._store, self._watched
        while self._unsettled:
            self._settle(self._unsettled[-1], is_sent=True)
            self._unsettled.pop()
        began_s = time.monotonic()
        now = status(store, watched.name, now_us=store.now_us(), freshness_s=watched.freshness_s)
        self.looked_s = time.monotonic() - began_s
        found = seen(now, after_s=watched.after_s, begun_us=self._begun_us, ended_with=ended_with)
        self._move(lambda book: after_look(book, found, self._receivers))
        self.send_due()

    def send_due(self) -> None:
        """Claim and send messages until none is due."""
        while (claim := self._claim()) is not None:
            try:
                send(self._receivers[claim.receiver], self._message(claim))
            except NotSentError as error:
                self._settle(claim, is_sent=False)
                self._rest(claim)
                self._tell(claim, str(error))
            else:
                self._note_sent(claim)
                self._resting.pop(claim.receiver, None)
                log.info("notified: receiver=%s message=%s", claim.receiver, claim.key)

    def hurry(self) -> bool:
        """Have messages that wait for another try be due now; False if there are none."""
        self._resting.clear()
        book = self._move(hurried)
        _, claim = claimed(book, self._receivers, self._store.now_us())
        return claim is not None

    def _move(self, change: Callable[[Book], Book]) -> Book:
        """Change the stored book, again if another sender changed it meanwhile; return the book."""
        store, name = self._store, self._watched.name
        for _ in range(_RACES):
            note = store.note(name, NoteKind.NOTIFICATIONS)
            before = book_from_json({} if note is None else note.form)
            after = change(before)
            form = book_to_json(after)
            if after == before or store.move_note(
                name, NoteKind.NOTIFICATIONS, form, expected=note
            ):
                return after
        log.info("left to other senders: pipeline=%s", name)
        return {}

    def _claim(self) -> Claim | None:
        """Claim the next message that is due, None if there is none."""
        claim: Claim | None = None
        awake = {
            name for name in self._receivers if self._resting.get(name, 0.0) <= time.monotonic()
        }

        def change(book: Book) -> Book:
            nonlocal claim
            book, claim = claimed(book, awake, self._store.now_us())
            return book

        return claim if self._move(change) else None

    def _note_sent(self, claim: Claim) -> None:
        """Store that a message was sent; at the next check if the state store is away."""
        try:
            self._settle(claim, is_sent=True)
        except CdcError:
            self._unsettled.append(claim)
            raise

    def _settle(self, claim: Claim, *, is_sent: bool) -> None:
        """Store whether a claimed message was sent."""
        now_us = self._store.now_us()
        self._move(lambda book: settled(book, claim, is_sent=is_sent, at_us=now_us))

    def _rest(self, claim: Claim) -> None:
        """Send nothing to a receiver for a while after a failure."""
        wait_s = WAITS_S[min(claim.delivery.tries, len(WAITS_S)) - 1]
        self._resting[claim.receiver] = time.monotonic() + min(wait_s, WAITS_S[1])

    def _message(self, claim: Claim) -> Message:
        """Return the message for a claim, with what to do in Airflow added."""
        notice, way = claim.record.notice, self._watched.way
        if way is not None:
            table = notice.subject if notice.kind == "table" else ""
            in_airflow = way(notice.remedy, table)
            notice = _advising(notice, "; ".join(filter(None, (notice.remedy, in_airflow))))
        over_us = claim.record.over_us if claim.is_over else 0
        return Message(str(self._watched.name), notice, over_us, self._watched.link)

    def _tell(self, claim: Claim, cause: str) -> None:
        """Log that a message was not sent; record it at the first try and the last."""
        log.warning(
            "not notified: receiver=%s message=%s try=%d cause=%s",
            claim.receiver,
            claim.key,
            claim.delivery.tries,
            cause,
        )
        if claim.delivery.tries == 1 or claim.is_last_try:
            later = "it is not tried again" if claim.is_last_try else "it is tried again"
            self._store.tell(
                self._watched.name,
                f"{claim.receiver} was not notified of {claim.key}: {cause}; {later}. See "
                f"notify.{claim.receiver} in the pipeline file, and what it names",
                level="warning",
            )


def _advising(notice: Notice, remedy: str) -> Notice:
    """Return a problem with another remedy."""
    return Notice.from_json({**notice.to_json(), "remedy": remedy})


class NotifyingThread:
    """A thread that checks a pipeline every few seconds and notifies its receivers."""

    def __init__(
        self,
        watched: Watched,
        open_store: Callable[[], SqlStateStore],
        receivers: Sequence[Receiver],
        *,
        look_s: float | None = None,
    ) -> None:
        self._watched = watched
        self._open_store = open_store
        self._receivers = receivers
        self._look_s = LOOK_S if look_s is None else look_s
        self._begun_us = time.time_ns() // 1000
        self._ended = threading.Event()
        self._ended_with: CdcError | None = None
        self._has_last_look = False
        self._notifier: Notifier | None = None
        self._thread = threading.Thread(
            target=self._run, name=f"notify {watched.name}", daemon=True
        )

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def end(
        self,
        *,
        ended_with: CdcError | None = None,
        has_last_look: bool = True,
        wait_s: float = END_S,
    ) -> None:
        """Check once more if `has_last_look`, end the thread, and wait for that up to `wait_s`.

        `ended_with` is the error with which the watched run ends.
        """
        self._ended_with, self._has_last_look = ended_with, has_last_look
        self._ended.set()
        self._thread.join(wait_s)

    def _run(self) -> None:
        """Check at each interval until ended; a slow check makes the interval longer."""
        wait_s = self._look_s
        while not self._ended.wait(wait_s):
            self._look(Notifier.look)
            took_s = 0.0 if self._notifier is None else self._notifier.looked_s
            wait_s = max(self._look_s, min(_SHARE_OF_LOOKS * took_s, _LONGEST_WAIT_S))
        if self._has_last_look:
            self._look(lambda notifier: _last_look(notifier, self._ended_with))
        if self._notifier is not None:
            self._notifier.close()

    def _look(self, look: Callable[[Notifier], None]) -> None:
        """Check the pipeline; an error is only logged, so that the watched run goes on."""
        try:
            if self._notifier is None:
                store = self._open_store()
                self._notifier = Notifier(
                    self._watched, store, self._receivers, begun_us=self._begun_us
                )
            look(self._notifier)
        except CdcError as error:
            log.warning("nobody is notified now: pipeline=%s cause=%s", self._watched.name, error)
        except Exception as error:  # noqa: BLE001 - a mistake here must not end what is watched
            # its text may hold anything, so it is left out
            kind = type(error).__name__
            log.warning("nobody is notified now: pipeline=%s cause=%s", self._watched.name, kind)


def _last_look(notifier: Notifier, ended_with: CdcError | None) -> None:
    """Check the pipeline, and retry unsent messages a few times without waiting long."""
    notifier.look(ended_with)
    for _ in range(_LAST_TRIES - 1):
        if not notifier.hurry():
            return
        time.sleep(_LAST_PAUSE_S)
        notifier.send_due()
