"""One session on a MySQL-protocol sink, and its transactions.

Transactions are READ COMMITTED: writers of neighbouring key ranges must not wait for one
another's gaps, and the check of the generation has to see the newest commit, not a snapshot's.
A statement is never repeated inside a transaction, because a deadlock has already undone what
came before it: `SinkSession.transaction` runs the whole of it again, a bounded number of times.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.errors import CdcError, SinkBusyError, SinkUnreachableError
from airflow_cdc_provider.systems.mysql.server.connection import (
    PreparedStatement,
    RawConnection,
    Role,
    StatementOutcome,
    connect,
    query,
    sink_session,
    sql_mode_statement,
)
from airflow_cdc_provider.systems.mysql.server.scripts import ScriptOutcome, run_script
from airflow_cdc_provider.systems.mysql.sink.sink_capabilities import (
    SinkCapabilities,
    ask_capabilities,
)

if TYPE_CHECKING:
    from airflow_cdc_provider.systems.mysql.server.connection import ServerConnection

log = logging.getLogger(__name__)
Outcome = TypeVar("Outcome")

_TRIES = 5
_FIRST_WAIT_S = 0.05
_PREPARED_PARAMETERS = 32_768
"""What a session's prepared statements may have together: about 25 MB at the server."""


class SinkSession:
    """A session on a MySQL-protocol sink: its statements, transactions and prepared statements."""

    def __init__(
        self,
        connection: ServerConnection,
        capabilities: SinkCapabilities,
        *,
        takes_scripts: bool = False,
    ) -> None:
        self.connection = connection
        self._raw = RawConnection(connection, role=Role.SINK)
        self.capabilities = capabilities
        self.in_transaction = False
        self.takes_scripts = takes_scripts and self._runs_scripts()
        """The server runs several statements that come in one command."""
        self.may_prepare = True
        """The server has not refused to prepare a statement."""
        self._prepared: dict[bytes, PreparedStatement] = {}

    @classmethod
    def open(
        cls, endpoint: Endpoint, *, purpose: str, local_files: bool = True, scripts: bool = False
    ) -> SinkSession:
        """Connect to the sink; `local_files` permits LOAD DATA LOCAL where the server allows it.

        `scripts` permits several statements in one command, where the server takes such.
        """
        connection = connect(
            endpoint,
            purpose=purpose,
            role=Role.SINK,
            local_infile=local_files,
            many_statements=scripts,
        )
        session: SinkSession | None = None
        try:
            sink_session(connection)
            isolation = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"
            query(connection, isolation, role=Role.SINK)
            capabilities = ask_capabilities(connection, local_files=local_files)
            session = cls(connection, capabilities, takes_scripts=scripts)
            return session
        finally:
            if session is None:
                connection.close()

    def _runs_scripts(self) -> bool:
        """Tell whether the server, and any proxy before it, runs two statements in one command."""
        found = run_script(self._raw, [b"DO 0", b"DO 0"])
        if found.error is not None:
            log.warning("statements are sent one by one: sink=%s cause=%s", self.where, found.error)
        return found.error is None

    def lock_gaps(self) -> None:
        """Lock absent keys, too, where a transaction deletes them: none can come meanwhile."""
        if self.capabilities.is_mariadb:
            known = self.rows("SHOW VARIABLES LIKE 'innodb_snapshot_isolation'")
            if known:  # what was read before a lock was waited for is not written by
                self.execute("SET SESSION innodb_snapshot_isolation = OFF")
        self.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")

    @property
    def is_lost(self) -> bool:
        """Tell whether the connection is closed."""
        return not self.connection.open

    @property
    def where(self) -> str:
        """Return the server's host and port, for an error message."""
        return self._raw.where

    @property
    def raw(self) -> RawConnection:
        """Return the raw connection; `SinkUnreachableError` if it was lost."""
        if self.is_lost:
            raise SinkUnreachableError(
                "the connection to the sink was lost",
                where=self.where,
                remedy="open the sink again; the ledger tells what was committed",
            )
        return self._raw

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Run a query and return its rows."""
        return query(self.connection, sql, role=Role.SINK)

    def execute(self, sql: str | bytes) -> StatementOutcome:
        """Run one statement that has no result."""
        return self.raw.execute(sql)

    def prepared(self, sql: bytes) -> PreparedStatement:
        """Return a prepared statement, from the cache or from the server.

        Nothing may be running on the connection.
        Those used last are kept.
        """
        found = self._prepared.pop(sql, None) or self.raw.prepare(sql)
        self._prepared[sql] = found
        kept = sum(each.parameters for each in self._prepared.values())
        while kept > _PREPARED_PARAMETERS and len(self._prepared) > 1:
            oldest = self._prepared.pop(next(iter(self._prepared)))
            self.raw.close_statement(oldest)
            kept -= oldest.parameters
        return found

    def begin(self) -> None:
        """Open a transaction."""
        self.execute("START TRANSACTION")
        self.in_transaction = True

    def begin_with(self, statements: Sequence[bytes]) -> ScriptOutcome:
        """Open a transaction and run statements in it, all in one round trip."""
        self.in_transaction = True
        outcome = run_script(self.raw, [b"START TRANSACTION", *statements])
        return replace(outcome, answers=outcome.answers[1:])

    def commit(self) -> None:
        """Commit; if the reply is lost, the outcome is unknown until the ledger is read."""
        self.in_transaction = False
        self.execute("COMMIT")

    def commit_with(self, statements: Sequence[str]) -> None:
        """Run what has no result and commit, all in one round trip unless that is much text.

        Nothing is committed if a statement fails, which is an error.
        """
        script = [text.encode() for text in statements]
        if not script:
            self.commit()
        elif sum(map(len, script)) > self.capabilities.statement_bytes // 2:
            for statement in script:
                self.execute(statement)
            self.commit()
        else:
            outcome = run_script(self.raw, [*script, b"COMMIT"])
            if outcome.error is not None:
                raise outcome.error
            self.in_transaction = False

    def rollback(self) -> None:
        """Roll back the open transaction.

        A session that cannot is closed, which has the same effect.
        """
        if not self.in_transaction:
            return
        self.in_transaction = False
        try:
            self.execute("ROLLBACK")
        except CdcError:
            self.close()

    def transaction(self, work: Callable[[], Outcome]) -> Outcome:
        """Run `work` in a transaction and commit it, again as a whole if a deadlock undid it."""
        attempt = 0
        while True:
            attempt += 1
            try:
                self.begin()
                outcome = work()
                self.commit()
                return outcome
            except SinkBusyError as busy:
                self.rollback()
                if attempt == _TRIES:
                    raise
                log.warning("sink was busy: attempt=%d of %d cause=%s", attempt, _TRIES, busy.what)
                # Random waits, or two that met once would meet again.
                wait = _FIRST_WAIT_S * 2**attempt
                time.sleep(random.uniform(wait / 2, wait))  # noqa: S311 - spreads, hides nothing
            finally:
                self.rollback()

    @contextmanager
    def lenient(self) -> Iterator[None]:
        """Leave strict mode within the block; the caller must check every warning."""
        is_strict = False
        self.execute(sql_mode_statement(strict=False))
        try:
            yield
        finally:
            try:
                if not self.is_lost:
                    self.execute(sql_mode_statement(strict=True))
                    is_strict = True
            finally:
                if not is_strict:
                    self.close()

    def close(self) -> None:
        """Close the connection; the server rolls an open transaction back."""
        self._raw.abandon()
