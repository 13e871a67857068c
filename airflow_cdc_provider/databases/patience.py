"""A limit to how long a database may keep a caller waiting.

A server that hangs takes connections and statements, and never answers. MySQL's driver has a limit
of its own. PostgreSQL's waits without end: its connection is given one here.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import Engine, event

if TYPE_CHECKING:
    from sqlalchemy import Dialect

ANSWER_S = 30.0
"""A limit for those who write."""
MIGRATION_S = 600.0
LOOK_S = 5.0
"""A limit for those who look: a page must not wait for one of its stores."""
CONNECT_S = 10
Answer = TypeVar("Answer")


def limit_psycopg(engine: Engine, answer_s: float) -> None:
    """Limit how long connections of a psycopg engine wait for the server's answer."""
    from psycopg import Connection, OperationalError  # noqa: PLC0415 - installed where it is used

    class ImpatientConnection(Connection[Any]):
        """Fails, and is closed, when the server does not answer in time."""

        def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
            """Wait for an answer of the server."""
            silent = OperationalError(f"no answer within {answer_s:g} s")
            try:
                return super().wait(_bounded(gen, answer_s, silent), *args, **kwargs)
            except OperationalError as error:
                if error is silent:
                    self.close()
                raise

    def connect(
        _dialect: Dialect, _record: object, arguments: list[Any], options: dict[str, Any]
    ) -> Connection[Any]:
        limit = {"connect_timeout": max(2, int(min(answer_s, CONNECT_S)))}
        return ImpatientConnection.connect(*arguments, **{**limit, **options})

    event.listen(engine, "do_connect", connect)


def _bounded(
    waits: Generator[Any, Any, Answer], answer_s: float, silent: Exception
) -> Generator[Any, Any, Answer]:
    """Pass on psycopg's waits; raise `silent` when no answer came in time."""
    until_s = time.monotonic() + answer_s
    try:
        wanted = next(waits)
        while True:
            ready = yield wanted
            if not ready and time.monotonic() >= until_s:
                raise silent
            wanted = waits.send(ready)
    except StopIteration as done:
        answer: Answer = done.value
        return answer
