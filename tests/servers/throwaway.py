"""Servers of one's own: started in two seconds, killed at will, gone with their owner.

A throwaway server has its own data folder, socket and port and listens on 127.0.0.1 only. It is
taken from, in this order: a DSN of the user (`CDC_TEST_MYSQL_DSN`, `CDC_TEST_MARIADB_DSN`; see
`given`), a `mysqld` or `mariadbd` on PATH, one unpacked from Debian's packages, Docker.

**It dies with its owner.** `setpriv --pdeathsig KILL` asks the kernel to kill the server when the
*thread* that forked it ends, so all servers are forked by one thread that lives as long as this
interpreter. An owner that was itself killed cannot remove its folders: each is locked by its
owner for life, and the next server started sweeps away those no one holds.

Logs are flushed to the operating system at commit but not forced to the disk: that survives
`kill -9`, which is what tests do, and not a power cut. `options` overrides this and all else.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any, ClassVar, Self

import pymysql

from tests.servers.given import SqlServer
from tests.servers.programs import Programs, mariadb_programs, mysql_programs
from tests.servers.template import (
    PASSWORD,
    USER,
    ServerSetupError,
    as_root_option,
    template_datadir,
)

Options = Mapping[str, str | int | None]

_FOLDER_PREFIX = "cdc-server-"
_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 60.0
server_forker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="server-forker")
_server_ids = itertools.count(1)

COMMON_OPTIONS: dict[str, str | int | None] = {
    "bind-address": "127.0.0.1",
    "skip-name-resolve": None,
    "log-bin": "bin",
    "binlog-format": "ROW",
    "local-infile": "ON",
    "innodb-buffer-pool-size": "128M",
    "innodb-flush-log-at-trx-commit": 2,
    "sync-binlog": 0,
    "max-connections": 200,
}
MYSQL_OPTIONS: dict[str, str | int | None] = {
    "gtid-mode": "ON",
    "enforce-gtid-consistency": "ON",
    "binlog-row-metadata": "FULL",
    "mysqlx": "OFF",
    "secure-file-priv": "NULL",
    "innodb-redo-log-capacity": "64M",
}
MARIADB_OPTIONS: dict[str, str | int | None] = {
    "binlog-row-metadata": "FULL",
    "innodb-log-file-size": "64M",
    "secure-file-priv": "",
}


class ThrowawayServer(SqlServer):
    """A server process of one's own; use it as a context manager, or `start` and `close` it.

    Options are the server's own names, with `_` or `-`: `{"gtid_mode": "OFF"}`; a value of None
    makes a bare flag (`{"skip-log-bin": None}`).
    """

    default_options: ClassVar[Mapping[str, str | int | None]] = {}

    def __init__(
        self, options: Options | None = None, *, extra_arguments: Sequence[str] = ()
    ) -> None:
        super().__init__(host="127.0.0.1", port=0, user=USER, password=PASSWORD)
        self.options = _merged(COMMON_OPTIONS, self.default_options, options or {})
        self.extra_arguments = list(extra_arguments)
        self._folder: Path | None = None
        self._lock: Any = None
        self._server: subprocess.Popen[bytes] | None = None
        self._server_id = (os.getpid() % 40_000) * 100 + next(_server_ids)

    def programs(self) -> Programs:
        """Find the installation this server runs from."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        try:
            if not self.is_running:
                self.start()
        except BaseException:  # `__exit__` is not called for what never came up
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def folder(self) -> Path:
        """Give the folder of this server: data, socket, log."""
        if self._folder is None:
            raise ServerSetupError("the server was not started, so it has no folder yet")
        return self._folder

    @property
    def datadir(self) -> Path:
        """Give the data folder, where the binary logs are too."""
        return self.folder / "data"

    @property
    def socket_path(self) -> Path:
        """Give the Unix socket."""
        return self.folder / "sql.sock"

    @property
    def error_log(self) -> str:
        """Give what the server wrote to its log so far."""
        return (self.folder / "error.log").read_text(errors="replace")

    @property
    def pid(self) -> int:
        """Give the process id of the running server."""
        if self._server is None or self._server.poll() is not None:
            raise ServerSetupError("the server is not running")
        if self.programs().image:  # the process we forked is only Docker's client
            return int((self.folder / "server.pid").read_text())
        return self._server.pid

    @property
    def is_running(self) -> bool:
        """Tell whether the process lives."""
        return self._server is not None and self._server.poll() is None

    def start(self) -> None:
        """Start the server and return when it accepts connections; the port stays over restarts."""
        if self.is_running:
            raise ServerSetupError("the server is already running")
        if self._folder is None:
            self._make_folder()
        for _ in range(5):
            self.port = self.port or free_port()
            if self._fork_and_wait():
                return
            self.port = 0
        raise ServerSetupError("found no free port in five tries")

    def stop(self) -> None:
        """Shut the server down in order; its data stays for the next `start`."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the server as a crash would; its data stays for the next `start`."""
        self._end(signal.SIGKILL)

    def restart(self, options: Options | None = None) -> None:
        """Stop in order and start again, with `options` changed if given."""
        self.stop()
        self.options = _merged(self.options, options or {})
        self.start()

    def close(self) -> None:
        """Kill the server and remove all it had."""
        self.kill()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def client_command(self, tool: str, *, user: str = "root") -> list[str]:
        """Give the words that run a client `tool` against this server, without a password."""
        where = [f"--host={self.host}", f"--port={self.port}", f"--user={user}", "--protocol=TCP"]
        return [*self.programs().client_command(tool), "--no-defaults", *where]

    def _make_folder(self) -> None:
        self._folder, self._lock = locked_folder()
        template = template_datadir(self.programs())
        copy = ["cp", "-a", "--reflink=auto", str(template), str(self.datadir)]
        subprocess.run(copy, check=True)

    def _command(self) -> list[str]:
        own: dict[str, str | int | None] = {
            "datadir": str(self.datadir),
            # MariaDB, when it starts, deletes what others have in a shared one
            "tmpdir": str(self.folder),
            "socket": str(self.socket_path),
            "pid-file": str(self.folder / "server.pid"),
            "port": self.port,
            "server-id": self._server_id,
        }
        options = _merged(own, self.options)
        words = [f"--{k}" if v is None else f"--{k}={v}" for k, v in options.items()]
        server = [*self.programs().server_command(), *as_root_option(), *words]
        # Docker's client passes TERM on to what it runs, and cannot pass on KILL.
        last_signal = "TERM" if self.programs().image else "KILL"
        return ["setpriv", "--pdeathsig", last_signal, "--", *server, *self.extra_arguments]

    def _fork_and_wait(self) -> bool:
        """Start the process; False if another program took the port in between."""
        command = self._command()
        with (self.folder / "error.log").open("ab") as log:
            forked = server_forker.submit(
                subprocess.Popen[bytes],
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self._server = forked.result()
        deadline = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self._server.poll() is not None:
                if "port" in self.error_log and "already in use" in self.error_log:
                    return False
                break
            if self._accepts():
                return True
            time.sleep(0.05)
        tail = "\n".join(self.error_log.splitlines()[-20:])
        self.kill()
        raise ServerSetupError(f"the server did not start:\n{tail}")

    def _accepts(self) -> bool:
        """Tell whether the server answers, and not another one that took the port in between."""
        try:
            with self.connect(user="root", password="", connect_timeout=5) as connection:
                cursor = connection.cursor()
                cursor.execute("SELECT @@datadir")
                ((found,),) = cursor.fetchall()
        except pymysql.err.OperationalError:
            return False
        return Path(found).resolve() == self.datadir.resolve()

    def _end(self, number: signal.Signals) -> None:
        if self._server is None:
            return
        if self.is_running:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)
        try:
            self._server.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait(_STOP_TIMEOUT_S)


class MySqlServer(ThrowawayServer):
    """MySQL: GTIDs on and full row metadata unless told otherwise."""

    default_options = MYSQL_OPTIONS

    def programs(self) -> Programs:
        return mysql_programs()


class MariaDbServer(ThrowawayServer):
    """MariaDB with its binary log on."""

    default_options = MARIADB_OPTIONS

    def programs(self) -> Programs:
        return mariadb_programs()


def free_port() -> int:
    """Find a free port below the range the kernel hands out to clients.

    A port from that range could be taken by any outgoing connection while the server restarts.
    """
    for _ in range(200):
        port = random.SystemRandom().randrange(15_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise ServerSetupError("found no free port between 15000 and 32000")


def locked_folder() -> tuple[Path, IO[str]]:
    """Make a server's folder, which is its owner's as long as the file is open."""
    sweep_abandoned()
    # It gets the name that sweepers look for once its lock is held: a lock outlives a renaming.
    unnamed = Path(tempfile.mkdtemp(prefix=f".{_FOLDER_PREFIX}"))
    lock = (unnamed / "owner.lock").open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    return unnamed.rename(unnamed.with_name(unnamed.name.lstrip("."))), lock


def sweep_abandoned() -> None:
    """Remove folders whose owner died without doing so."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_FOLDER_PREFIX}*"):
        try:
            with (folder / "owner.lock").open("r") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            continue  # held by its owner, another user's, or swept by another


def _merged(*layers: Options) -> dict[str, str | int | None]:
    """Lay options over one another; `_` and `-` in a name are the same to a server."""
    merged: dict[str, str | int | None] = {}
    for layer in layers:
        merged |= {name.replace("_", "-"): value for name, value in layer.items()}
    return merged
