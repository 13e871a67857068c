"""Tables that follow a sink's log of files, by commits of their own beside the stream.

The stream commits rows and position to the log; that alone says what the sink has. A thread of the
driver brings the tables to the log's end every so many seconds, and once more when the stream ends.
Whatever dies meanwhile, the next commit of a table begins where its last one says that it is.

A table that may not be committed to stands still alone, where the pipeline isolates tables: the log
takes its changes, the others flow on, and the table is tried again at each interval until a person
has mended what the outage says. A run that comes to an end of its own then ends with that error.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress

from airflow_cdc_provider.core.errors import (
    CdcError,
    FencedError,
    IntegrityError,
    RefusedError,
    RetryableError,
)
from airflow_cdc_provider.core.records import NoteKind
from airflow_cdc_provider.engine.job import Job
from airflow_cdc_provider.engine.outages import Outages, Part
from airflow_cdc_provider.engine.sink.port import CommitsLater
from airflow_cdc_provider.engine.stream.stream_control import Following

log = logging.getLogger(__name__)


class PublishedTables:
    """Brings the sink's tables to the end of its log while open; a context manager.

    It does nothing for a sink whose rows are in its tables with each commit.
    """

    def __init__(self, job: Job, following: Following, outages: Outages) -> None:
        self._job = job
        self._sink = self._sink_now()
        self._following = following
        self._outages = outages
        self._found: Exception | None = None
        self._turn, self._closing = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="cdc-published", daemon=True)

    def __enter__(self) -> PublishedTables:
        if self._sink is not None:
            self._thread.start()
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self._closing.set()
        if self._sink is None:
            return
        self._thread.join(timeout=60)
        if error is None and self._found is not None:
            raise self._found

    def publish(self, logged_us: int | None = None) -> None:
        """Bring the tables to the end of the log now; behind who is at it, not beside.

        The log is known to have what the source committed up to `logged_us`, a time since 1970; or,
        without that, what the last heartbeat said.
        """
        with self._turn:
            if self._sink is None or self._found is not None:
                return
            with suppress(RetryableError):  # while the state store is away, by the plans of before
                self._sink = self._sink_now() or self._sink
            at_us = max(self._logged_us(), logged_us or 0)
            self._sink.publish_tables()
            if at_us:
                self._tell(at_us)

    def publish_last(self, logged_us: int | None) -> None:
        """Bring the tables to the end of the log as the stream ends; arguments as for `publish`.

        A table that is not committed to is an error of a run that came to its end, and an event
        where a stream without one was asked to stop or begins again.
        """
        following = self._following
        try:
            self.publish(logged_us)
        except (RefusedError, IntegrityError, RetryableError) as error:
            is_last = following.has_end and not following.begins_again
            if is_last or not self._flows_on(error):
                raise
            following.left_behind = True
            self._job.store.tell(self._job.spec.pipeline, self._scrubbed(error), level="error")

    def _sink_now(self) -> CommitsLater | None:
        """Return the sink with the plans of now; None if its tables have none to wait for."""
        sink = self._job.sink()
        return sink if isinstance(sink, CommitsLater) else None

    def _flows_on(self, error: CdcError) -> bool:
        """Tell whether the stream goes on while tables stand still by an error."""
        is_alone = bool(error.tables) and self._job.spec.isolates_tables
        return is_alone or self._following.has_end

    def _scrubbed(self, error: CdcError) -> str:
        """Return an error's text without the job's passwords."""
        return self._job.servers.secrets.scrub(str(error))

    def _logged_us(self) -> int:
        """Return up to when the log has what the source committed; 0 if that is not known."""
        with suppress(CdcError):  # who cannot be asked says nothing new
            told = self._job.store.stream(self._job.spec.pipeline)
            if told is not None and told.heartbeat_us and told.lag_us is not None:
                return told.heartbeat_us - told.lag_us
        return 0

    def _tell(self, at_us: int) -> None:
        """Note up to when the tables have what was committed, for those who look."""
        job = self._job
        try:
            job.store.keep_note(job.spec.pipeline, NoteKind.PUBLISHED, {"at_us": at_us})
        except CdcError as error:
            log.warning("how far the tables are is not told: cause=%s", error)

    def _run(self) -> None:
        """Publish at once and at each interval; an error that no retry mends ends the stream."""
        failures = 0
        while True:
            began_s = time.monotonic()
            try:
                self.publish()
            except FencedError as fenced:
                self._following.end(fenced)
                return
            except (RefusedError, IntegrityError, RetryableError) as error:
                if not isinstance(error, RetryableError) and not self._flows_on(error):
                    self._end(error)
                    return
                failures += 1
                self._note(error, failures, began_s)
            except Exception as error:  # noqa: BLE001 - raised where the stream ends
                self._end(error)
                return
            else:
                failures = 0
                self._outages.over(Part.TABLES)
            if self._closing.wait(self._every_s):
                return

    def _end(self, error: Exception) -> None:
        """End the stream with an error."""
        self._found = error
        self._following.ending.set()

    @property
    def _every_s(self) -> float:
        """Return the seconds from one commit of a table to the next."""
        return 0.0 if self._sink is None else self._sink.commit_every_s

    def _note(self, error: CdcError, failures: int, began_s: float) -> None:
        """Note that tables cannot follow, as an outage of the pipeline: since a try began."""
        for_s = time.monotonic() - began_s
        self._outages.note(Part.TABLES, error, tries=failures, wait_s=self._every_s, for_s=for_s)
        log.warning("tables wait at the sink: cause=%s", self._scrubbed(error))
