"""End a prepared XA transaction from another session than the one that prepared it."""

from __future__ import annotations

import time

from pymysql.err import MySQLError

from tests.servers.given import SqlServer

_DETACHED_WITHIN_S = 20


def finish_prepared(server: SqlServer, verb: str, xid: str) -> None:
    """Commit or roll back `xid`, once the server has let go of the session that prepared it.

    Until then it answers that it does not know the transaction, however long ago that session
    was closed at this end.
    """
    deadline = time.monotonic() + _DETACHED_WITHIN_S
    while True:
        try:
            server.execute(f"XA {verb} {xid}")
        except MySQLError as error:
            if "XAER" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return
