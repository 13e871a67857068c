"""Ends dumps that a server has killed, and that live on because their reader hangs.

Of two dumps with one server id the server ends the older one. MariaDB has the newer one wait until
it is gone, and a dump whose reader hangs stands in a write to a full socket: it is gone after
`net_write_timeout`, an hour. A second KILL closes the socket, so the write fails at once.
"""

from __future__ import annotations

import logging
from contextlib import closing
from typing import TYPE_CHECKING

from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.systems.mysql.server.connection import connect, query, query_named

if TYPE_CHECKING:
    from airflow_cdc_provider.core.endpoint import Endpoint

log = logging.getLogger(__name__)


def end_hung_dumps(endpoint: Endpoint) -> None:
    """Kill this user's binlog dumps that were killed before and hang in a write.

    Needs no grant: a user sees and kills its own sessions. A session that is gone by then is as
    good as ended, and where it could not be ended the new dump goes on waiting.
    """
    with closing(connect(endpoint, purpose="hung dumps")) as connection:
        for session in query_named(connection, "SHOW PROCESSLIST"):
            is_ours = session["User"] == endpoint.user
            if not is_ours or session["Command"] != "Killed" or session["Info"]:
                continue  # a dump runs no statement
            log.warning("ending a dump whose reader hangs: session=%s", session["Id"])
            try:
                query(connection, f"KILL HARD CONNECTION {session['Id']}")
            except CdcError as error:
                log.warning("dump not ended: session=%s cause=%s", session["Id"], error)
