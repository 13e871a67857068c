"""A server that speaks S3, on loopback in a process of its own: one for a test session.

    python -m tests.servers.s3

prints its port and serves until its input ends, so that it never outlives who started it.

**What of it is proven.** It answers a put with `If-None-Match: *` on a name that is there with 412,
as S3 does. It carries requests out side by side, without S3's promise that of two puts at the same
moment only one is done: `_one_at_a_time` makes that promise here. What S3 itself does with two puts
at once is in its documentation, and is tried nowhere here.

It speaks Glue, too. Glue refuses a change of a table that is no more of the version that the
request names; this server changes it, so `_compare_versions` makes that promise here.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

from airflow_cdc_provider.core.endpoint import Folder, Store
from airflow_cdc_provider.core.store_access import StoreAccess

_numbers = count(1)


@dataclass(frozen=True)
class S3Server:
    """A server that speaks S3, or a proxy before it."""

    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def access(self) -> StoreAccess:
        return StoreAccess("the-key", "s3cret/key+", region="eu-central-1", endpoint_url=self.url)

    @property
    def conn_uri(self) -> str:
        """The server as an Airflow connection."""
        return f"aws://the-key:s3cret%2Fkey%2B@/?region_name=eu-central-1&endpoint_url={self.url}"

    def fresh_bucket(self) -> str:
        """Create a bucket that is empty; return its name."""
        bucket = f"bucket-{next(_numbers)}"
        self.request("PUT", f"/{bucket}")
        return bucket

    def store(self, bucket: str, prefix: str = "log") -> Store:
        return Store(f"s3://{bucket}/{prefix}", self.access)

    def folder(self, bucket: str, prefix: str = "log", form: str = "json") -> Folder:
        return Folder(f"s3://{bucket}/{prefix}", form, access=self.access)

    def request(self, method: str, path: str, content: bytes | None = None) -> bytes:
        """Ask the server without the code under test."""
        asked = urllib.request.Request(f"{self.url}{path}", content, method=method)
        asked.add_header("Content-Type", "text/plain")
        with urllib.request.urlopen(asked, timeout=10) as answer:
            return bytes(answer.read())


@contextmanager
def running_s3() -> Iterator[S3Server]:
    """Run a server until the block ends."""
    command = [sys.executable, "-m", "tests.servers.s3"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield S3Server(int(process.stdout.readline()))
        finally:
            process.kill()


def _one_at_a_time(application: Any) -> Any:
    """Return the server's application, which then carries out one request after the other."""
    turn = threading.Lock()

    def in_turn(environ: Any, start_response: Any) -> Any:
        with turn:
            return list(application(environ, start_response))

    return in_turn


def _compare_versions() -> None:
    """Let Glue refuse a change of a table's version that another change has taken the place of."""
    from moto.glue.exceptions import GlueClientError  # noqa: PLC0415
    from moto.glue.responses import GlueResponse  # noqa: PLC0415

    class ConcurrentModificationException(GlueClientError):  # noqa: N818 - Glue's own name
        pass

    change = GlueResponse.update_table

    def compared(self: Any) -> Any:
        asked = self.parameters
        table = self.glue_backend.get_table(asked["DatabaseName"], asked["TableInput"]["Name"])
        if asked.get("VersionId") not in (None, table.as_dict()["VersionId"]):
            name = ConcurrentModificationException.__name__
            raise ConcurrentModificationException(name, "Update table failed due to concurrent ...")
        return change(self)

    GlueResponse.update_table = compared  # type: ignore[method-assign]


def main() -> None:
    from moto.moto_server.werkzeug_app import (  # noqa: PLC0415
        DomainDispatcherApplication,
        create_backend_app,
    )
    from werkzeug.serving import make_server  # noqa: PLC0415

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    _compare_versions()
    application = _one_at_a_time(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, application, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write(f"{server.port}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
