"""Where a server's programs are and how they are called.

They are taken from PATH, else unpacked from Debian's packages, else run in a container. A container
shares the network, the process ids and the folders of servers with the machine, so that a server
inside is started, reached and killed like one outside, and only the first words of commands differ.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from tests.servers.cache import cache_dir
from tests.servers.packages import (
    MARIADB,
    MYSQL,
    PackageSet,
    PackagesUnavailableError,
    library_dirs,
    unpacked,
)

_SYSTEM_DIRS = ("/usr/local/sbin", "/usr/sbin", "/sbin")  # a normal user's PATH may lack them
_OLDEST_MYSQL = (8, 0)


class NoServerError(Exception):
    """No server can be had on this machine; the message names every way to get one."""


@dataclass(frozen=True, slots=True)
class Programs:
    """One installation of MySQL or MariaDB: the system's, an unpacked one, or an image's."""

    is_mariadb: bool
    version: str = ""
    system_server: str = ""
    root: Path | None = None
    image: str = ""

    @property
    def server_name(self) -> str:
        """Give the name of the server's program."""
        return "mariadbd" if self.is_mariadb else "mysqld"

    def server_command(self) -> list[str]:
        """Give the words that start the server, up to where options of a run may follow."""
        if self.image:
            return [*self._in_container(self.server_name), "--no-defaults"]
        if self.root is None:
            return [self.system_server, "--no-defaults"]
        usr = self.root / "usr"
        messages = usr / "share" / "mysql"
        return [
            *_loader(self.root),
            str(usr / "sbin" / self.server_name),
            "--no-defaults",
            f"--basedir={usr}",
            f"--plugin-dir={usr / 'lib' / 'mysql' / 'plugin'}",
            f"--lc-messages-dir={messages}",
            f"--character-sets-dir={messages / 'charsets'}",
        ]

    def client_command(self, tool: str) -> list[str]:
        """Give the words that start `tool`, such as mysqldump, mysqlbinlog or mariadb-dump."""
        if self.image:
            return self._in_container(tool)
        if self.root is not None:
            return [*_loader(self.root), str(self.root / "usr" / "bin" / tool)]
        found = shutil.which(tool)
        if found is None:
            raise NoServerError(f"the server is {self.system_server}, but {tool} is not on PATH")
        return [found]

    def sql_file(self, name: str) -> str:
        """Give the text of one of the server's own SQL files."""
        file = (self.root or Path("/")) / "usr" / "share" / "mysql" / name
        if not self.image:
            return file.read_text(encoding="utf-8")
        command = [*self._in_container("cat"), str(file)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def _in_container(self, program: str) -> list[str]:
        shared = {str(cache_dir()), tempfile.gettempdir()}
        return [
            *("docker", "run", "--rm", "--interactive", "--network=host", "--pid=host"),
            f"--user={os.getuid()}:{os.getgid()}",
            *(f"--volume={folder}:{folder}" for folder in sorted(shared)),
            f"--entrypoint={program}",
            self.image,
        ]


@cache
def mysql_programs() -> Programs:
    """Find MySQL 8.0 or newer."""
    return _find(MYSQL, "mysqld", image="mysql:lts")


@cache
def mariadb_programs() -> Programs:
    """Find MariaDB."""
    return _find(MARIADB, "mariadbd", image="mariadb:10.11")


def _find(wanted: PackageSet, server: str, *, image: str) -> Programs:
    is_mariadb = wanted is MARIADB
    found = _on_path(server, is_mariadb=is_mariadb)
    if found is not None:
        return found
    try:
        return _with_version(Programs(is_mariadb=is_mariadb, root=unpacked(wanted)))
    except PackagesUnavailableError as unavailable:
        if _docker_answers():
            return _with_version(Programs(is_mariadb=is_mariadb, image=image))
        raise NoServerError(
            f"there is no {wanted.name} server here. Any one of these gives one:"
            f" 1. a DSN of a server you run, in CDC_TEST_{wanted.name.upper()}_DSN;"
            f" 2. {server} on PATH;"
            f" 3. Debian's packages, unpacked into your cache folder ({unavailable});"
            f" 4. Docker with a running engine"
        ) from unavailable


def _on_path(server: str, *, is_mariadb: bool) -> Programs | None:
    found = shutil.which(server, path=os.pathsep.join([os.environ.get("PATH", ""), *_SYSTEM_DIRS]))
    if found is None:
        return None
    words = _version_words([found])
    if ("MariaDB" in words) != is_mariadb:  # Debian's MariaDB also answers to the name mysqld
        return None
    version = version_in(words)
    if not is_mariadb and tuple(map(int, version.split(".")[:2])) < _OLDEST_MYSQL:
        return None
    return Programs(is_mariadb=is_mariadb, version=version, system_server=found)


def _with_version(programs: Programs) -> Programs:
    return replace(programs, version=version_in(_version_words(programs.server_command())))


def _version_words(command: list[str]) -> str:
    done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def version_in(words: str) -> str:
    """Find the version number in what a server says of itself."""
    found = re.search(r"\bVer (\d+\.\d+\.\d+)", words)
    if found is None:
        raise NoServerError(f"the server does not tell its version: {words!r}")
    return found.group(1)


def _docker_answers() -> bool:
    if shutil.which("docker") is None:
        return False
    command = ["docker", "version", "--format", "{{.Server.Version}}"]
    return subprocess.run(command, capture_output=True, timeout=30, check=False).returncode == 0


def _loader(root: Path) -> list[str]:
    loader, folders = library_dirs(root)
    return [str(loader), "--library-path", ":".join(map(str, folders))]
