"""A PostgreSQL of one's own, for the state store: Debian's packages, like the other servers.

Its programs look for one another, and for their files, from where they themselves are; and none of
them runs as root. So each server has a copy of the unpacked packages, in which a program's place is
taken by a script that starts it with its own C library, and root runs all of it as nobody.
"""

from __future__ import annotations

import itertools
import os
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote, unquote, urlsplit

import psutil
import psycopg

from tests.servers.packages import POSTGRES, library_dirs, unpacked
from tests.servers.template import PASSWORD, USER, ServerSetupError
from tests.servers.throwaway import free_port, locked_folder, server_forker

POSTGRES_DSN = "CDC_TEST_POSTGRES_DSN"
_NOBODY = 65_534
_START_TIMEOUT_S = 60.0
_PROGRAMS = ("postgres", "initdb")
_numbers = itertools.count(1)
_SCRIPT = """\
#!/bin/sh
exec {loader} --library-path {folders} --argv0 "$0" {program} "$@"
"""


class SqlDatabase:
    """A PostgreSQL one can connect to as an administrator."""

    def __init__(self, *, port: int, host: str = "127.0.0.1", user: str, password: str) -> None:
        self.host = host
        self.port = port
        self.user = user
        self.password = password

    @classmethod
    def from_environment(cls) -> Self | None:
        """Read the DSN that the user gave, if there is one."""
        dsn = os.environ.get(POSTGRES_DSN, "")
        if not dsn:
            return None
        given = urlsplit(dsn)
        names = {"user": unquote(given.username or ""), "password": unquote(given.password or "")}
        return cls(host=given.hostname or "", port=given.port or 5432, **names)

    def dsn(self, database: str = "postgres") -> str:
        """Give the address as Airflow's connection URIs are written."""
        account = f"{quote(self.user, safe='')}:{quote(self.password, safe='')}"
        return f"postgresql://{account}@{self.host}:{self.port}/{database}"

    def execute(self, sql: str, database: str = "postgres") -> list[Any]:
        """Run one statement on a connection of its own and give its rows, if it has any."""
        with psycopg.connect(self.dsn(database), autocommit=True) as connection:
            cursor = connection.execute(sql.encode())
            return cursor.fetchall() if cursor.description else []

    @property
    def version(self) -> str:
        """Give the server's own version text."""
        return str(self.execute("SHOW server_version")[0][0])

    @contextmanager
    def fresh_database(self) -> Iterator[str]:
        """Make a database of a new name; it is dropped in the end."""
        name = f"t{next(_numbers)}_{secrets.token_hex(3)}"
        self.execute(f"CREATE DATABASE {name}")
        try:
            yield name
        finally:
            self.execute(f"DROP DATABASE {name} WITH (FORCE)")


class PostgresServer(SqlDatabase):
    """A server process of one's own; a context manager."""

    def __init__(self) -> None:
        super().__init__(port=free_port(), user=USER, password=PASSWORD)
        self._server: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._folder, self._lock = locked_folder()
        try:
            self._folder.chmod(0o755)
            self._bin = _installed(unpacked(POSTGRES), self._folder / "installation")
            self._make_data()
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.send_signal(signal.SIGINT)
            try:
                self._server.wait(30)
            except subprocess.TimeoutExpired:
                self._server.kill()
                self._server.wait()
        shutil.rmtree(self._folder, ignore_errors=True)
        self._lock.close()

    @contextmanager
    def hung(self) -> Iterator[None]:
        """Let none of its processes go on meanwhile."""
        if self._server is None:
            raise ServerSetupError("the server is not started")
        main = psutil.Process(self._server.pid)
        processes = [main, *main.children(recursive=True)]
        for process in processes:
            process.suspend()
        try:
            yield
        finally:
            for process in processes:
                process.resume()

    def _make_data(self) -> None:
        data, words = self._folder / "data", self._folder / "password"
        data.mkdir(mode=0o700)
        words.write_text(PASSWORD)
        if os.geteuid() == 0:
            os.chown(data, _NOBODY, _NOBODY)
        options = [f"--pgdata={data}", f"--username={USER}", f"--pwfile={words}", "--no-sync"]
        options += ["--auth=scram-sha-256", "--encoding=UTF8", "--no-locale"]
        command = [*_as_nobody(), str(self._bin / "initdb"), *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
        words.unlink()
        if done.returncode != 0:
            raise ServerSetupError(f"initdb failed:\n{done.stdout}{done.stderr}")

    def _start(self) -> None:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": "",
            "dynamic_shared_memory_type": "mmap",
            "fsync": "off",
            "jit": "off",
        }
        words = [f"--{name}={value}" for name, value in settings.items()]
        command = [*_as_nobody("--pdeathsig", "KILL"), str(self._bin / "postgres")]
        with (self._folder / "server.log").open("wb") as log:
            forked = server_forker.submit(
                subprocess.Popen[bytes],
                [*command, "-D", str(self._folder / "data"), *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd="/",
            )
            self._server = forked.result()
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not self._accepts():
            if self._server.poll() is not None or time.monotonic() > deadline:
                said = (self._folder / "server.log").read_text(errors="replace")
                raise ServerSetupError(f"PostgreSQL did not start:\n{said[-3000:]}")
            time.sleep(0.05)

    def _accepts(self) -> bool:
        try:
            psycopg.connect(self.dsn(), connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True


def _as_nobody(*more: str) -> list[str]:
    """Give the words before a command that must not run as root."""
    ids = [f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups"]
    words = [*(ids if os.geteuid() == 0 else ()), *more]
    return ["setpriv", *words, "--"] if words else []


def _installed(root: Path, folder: Path) -> Path:
    """Copy the unpacked packages and give the folder of programs that can be called."""
    subprocess.run(["cp", "-a", "--reflink=auto", str(root), str(folder)], check=True)
    loader, libraries = library_dirs(folder)
    (programs,) = folder.glob("usr/lib/postgresql/*/bin")
    for name in _PROGRAMS:
        moved = programs / f".{name}"
        (programs / name).rename(moved)
        text = _SCRIPT.format(loader=loader, folders=":".join(map(str, libraries)), program=moved)
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    folder.chmod(0o755)
    return programs
