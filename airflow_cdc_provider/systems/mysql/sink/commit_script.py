"""A small batch in two round trips: all that its transaction does, and COMMIT.

Statement by statement such a transaction takes nine, each as long as the server and the network
need to answer, and holds the ledger's row locked all the while. Here its statements are one
command: lock and read the slot's row, write the rows, store the position, count, check the
generation. The server stops at the first that fails.

What is sent is chosen by the position that this writer committed last, and is kept only if the
row that was locked says the same: position, and what it stands for. COMMIT is sent when all
answers have been read, and only if each is what it always is. Otherwise everything is rolled back,
and the batch is applied statement by statement: that finds out what is wrong, and names it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from airflow_cdc_provider.core.codec import dumps, position_to_json
from airflow_cdc_provider.core.errors import SinkBusyError
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.engine.sink.selection import TableWork
from airflow_cdc_provider.systems.mysql.server.scripts import ScriptOutcome
from airflow_cdc_provider.systems.mysql.sink.insert_statements import TextStatement
from airflow_cdc_provider.systems.mysql.sink.sink_session import SinkSession

log = logging.getLogger(__name__)

MOST_ROWS, MOST_BYTES = 200, 1 << 16
"""More is worth a statement of its own, or LOAD DATA."""
_MOST_FAILURES = 3


def is_small(tables: Sequence[TableWork]) -> bool:
    """Tell whether a batch has few enough rows to be written and committed as one command."""
    if sum(len(table.merged) for table in tables) > MOST_ROWS:
        return False
    size = sum(table.merged.deletes.nbytes + table.merged.upserts.nbytes for table in tables)
    return bool(size <= MOST_BYTES)


@dataclass(frozen=True, slots=True)
class RowStatement:
    """A statement that writes rows of one table, as SQL text."""

    text: bytes
    count: int | None = None
    """How many rows it has to store; None where the number it tells is another."""

    @classmethod
    def of(cls, statements: Iterable[TextStatement], *, counts_rows: bool) -> list[RowStatement]:
        """Return text statements as the row statements of a commit script."""
        return [cls(each.text, each.count if counts_rows else None) for each in statements]


class CommitScripts:
    """Commits small batches as one multi-statement command, until the server refuses several."""

    def __init__(self, session: SinkSession) -> None:
        self._session = session
        self._failures = 0

    @property
    def are_taken(self) -> bool:
        """Tell whether the server runs commit scripts, and few in a row have failed."""
        return self._session.takes_scripts and self._failures < _MOST_FAILURES

    def commit(
        self,
        *,
        slot_row: str,
        at: tuple[LogPosition, str],
        rows: Sequence[RowStatement],
        store: Sequence[str],
        claim: tuple[str, int],
        last: Callable[[], Sequence[str] | None] | None = None,
    ) -> bool:
        """Send a whole sink transaction as one command and commit it; False if nothing was kept.

        `slot_row` locks and reads the slot's row, where this position and this name of the split
        are expected, `store` moves it, and `claim` asks which generation may commit, and says which
        one it has to be. `last` is asked when the rows are written: it gives what else is to be
        run, or says by None that nothing may be kept.
        """
        session = self._session
        question, generation = claim
        first, *behind = (text.encode() for text in (slot_row, *store, question))
        script = [first, *(each.text for each in rows), *behind]
        if sum(map(len, script)) > session.capabilities.statement_bytes // 2:
            return False
        try:
            said = session.begin_with(script)
            if not _is_at(said, at):
                return False
            is_usual = _is_usual(said, rows, generation)
            if is_usual:
                more = [] if last is None else last()
                if more is None:
                    return False
                session.commit_with(more)
            if is_usual:
                self._failures = 0
            elif not isinstance(said.error, SinkBusyError):
                self._failures += 1
        except SinkBusyError:  # of COMMIT: nothing was kept
            return False
        finally:
            session.rollback()
        if not is_usual:
            log.debug("not committed at once: sink=%s cause=%s", session.where, said.error)
        return is_usual


def _is_at(said: ScriptOutcome, at: tuple[LogPosition, str]) -> bool:
    """Tell whether the script's answer shows the slot at the expected position and stream split."""
    position, split = at
    expected = (dumps(position_to_json(position)), split)
    return bool(said.answers) and [tuple(row[:2]) for row in said.rows(0)] == [expected]


def _is_usual(said: ScriptOutcome, rows: Sequence[RowStatement], generation: int) -> bool:
    """Tell whether each statement of a script succeeded, without a warning, in our generation."""
    if said.error is not None:
        return False
    outcomes = [said.outcome(number) for number in range(1, len(said.answers) - 1)]
    written, moved = outcomes[: len(rows)], outcomes[len(rows)]
    for each, outcome in zip(rows, written, strict=True):
        if outcome.warnings or each.count not in {None, outcome.affected_rows}:
            return False
    claimed = said.rows(len(said.answers) - 1)
    return moved.affected_rows == 1 and [row[0] for row in claimed] == [str(generation)]
