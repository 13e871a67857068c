"""Commits rows one at a time at an even rate, in a process of its own; prints when each was done.

What measures looks for them meanwhile: in one process the two would wait for each other.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import closing

from airflow_cdc_provider.core.endpoint import Endpoint
from tests.servers.given import SqlServer


def commits(source: SqlServer, *, first: int, rate: float, count: int) -> list[float]:
    """Commit `count` rows with keys from `first` on; returns when the server had said so."""
    done: list[float] = []
    with closing(source.connect(autocommit=True)) as connection:
        cursor = connection.cursor()
        began = time.perf_counter()
        while len(done) < count:
            due = began + len(done) / rate
            if (now := time.perf_counter()) < due:
                time.sleep(due - now)
            cursor.execute("INSERT INTO shop.orders VALUES (%s, 'x')", (first + len(done),))
            done.append(time.perf_counter())
    return done


def main() -> None:
    given = json.loads(sys.argv[1])
    at = Endpoint.parse(given.pop("source"))
    source = SqlServer(host=at.host, port=at.port, user=at.user, password=at.password)
    print(json.dumps(commits(source, **given)), flush=True)


if __name__ == "__main__":
    main()
