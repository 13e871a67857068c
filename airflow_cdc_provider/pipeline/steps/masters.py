"""Whether Spark's master answers, asked before a job is started.

Spark itself waits a minute for a master that is not there, without a word, and ends with an error
that names none. The job runs in client mode from this machine, so what this process cannot reach
the job cannot reach either. Masters that are no single address (YARN, Kubernetes, `local`) are left
to Spark.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator

from airflow_cdc_provider.core.errors import SparkUnreachableError

_PATIENCE_S = 5.0
_PORTS = {"spark": 7077, "sc": 15002}


def require_master(master: str) -> None:
    """Raise `SparkUnreachableError` if no master answers at any of its addresses."""
    problems = []
    for host, port in _addresses(master):
        try:
            socket.create_connection((host, port), _PATIENCE_S).close()
        except OSError as error:
            problems.append(f"{host}:{port}: {error.strerror or error}")
        else:
            return
    if problems:
        raise SparkUnreachableError(
            f"Spark's master does not answer at {', '.join(problems)}",
            where=f"master {master}",
            risk="none: no job was started",
            remedy="start it, or correct spark.conn_id or --master; without either the job runs "
            "on this machine, as local[*]",
        )


def _addresses(master: str) -> Iterator[tuple[str, int]]:
    """Yield host and port of each address in a Spark master's URL."""
    scheme, mark, rest = master.partition("://")
    if not mark or scheme not in _PORTS:
        return
    for place in rest.partition("/")[0].split(","):
        host, colon, port = place.rpartition(":")
        if colon and port.isdecimal():
            yield host.strip("[]"), int(port)
        else:
            yield place.strip("[]"), _PORTS[scheme]
