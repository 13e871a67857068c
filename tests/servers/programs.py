"""Where a server's programs are and how they are called: on PATH, or unpacked from packages."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.servers.packages import (
    MARIADB,
    MYSQL,
    PackageSet,
    PackagesUnavailableError,
    library_dirs,
    unpacked,
)

_SYSTEM_DIRS = ("/usr/local/sbin", "/usr/sbin", "/sbin")  # a normal user's PATH may lack them


@dataclass(frozen=True, slots=True)
class Programs:
    """One installation of MySQL or MariaDB; `root` is None for the system's own."""

    is_mariadb: bool
    version: str
    root: Path | None = None
    system_server: str = ""

    def server_command(self) -> list[str]:
        """Give the words that start the server, up to where options of a run may follow."""
        if self.root is None:
            return [self.system_server, "--no-defaults"]
        usr = self.root / "usr"
        name = "mariadbd" if self.is_mariadb else "mysqld"
        messages = usr / "share" / "mysql"
        return [
            *self._loader(),
            str(usr / "sbin" / name),
            "--no-defaults",
            f"--basedir={usr}",
            f"--plugin-dir={usr / 'lib' / 'mysql' / 'plugin'}",
            f"--lc-messages-dir={messages}",
            f"--character-sets-dir={messages / 'charsets'}",
        ]

    def client_command(self, tool: str) -> list[str]:
        """Give the words that start `tool`, such as mysqldump, mysqlbinlog or mariadb-dump."""
        if self.root is None:
            found = shutil.which(tool)
            if found is None:
                raise PackagesUnavailableError(f"{tool} is not on PATH")
            return [found]
        return [*self._loader(), str(self.root / "usr" / "bin" / tool)]

    def share_dir(self) -> Path:
        """Give the folder with the server's own SQL files."""
        return (self.root or Path("/")) / "usr" / "share" / "mysql"

    def _loader(self) -> list[str]:
        loader, folders = library_dirs(self.root or Path("/"))
        return [str(loader), "--library-path", ":".join(map(str, folders))]


@cache
def mysql_programs() -> Programs:
    """Find MySQL 8.0 or newer on PATH, else unpack it."""
    return _on_path("mysqld", is_mariadb=False) or _unpacked(MYSQL)


@cache
def mariadb_programs() -> Programs:
    """Find MariaDB on PATH, else unpack it."""
    return _on_path("mariadbd", is_mariadb=True) or _unpacked(MARIADB)


def _on_path(server: str, *, is_mariadb: bool) -> Programs | None:
    found = shutil.which(server, path=os.pathsep.join([os.environ.get("PATH", ""), *_SYSTEM_DIRS]))
    if found is None:
        return None
    words = version_words([found])
    if ("MariaDB" in words) != is_mariadb:  # Debian's MariaDB also answers to the name mysqld
        return None
    return Programs(is_mariadb=is_mariadb, version=version_in(words), system_server=found)


def _unpacked(wanted: PackageSet) -> Programs:
    root = unpacked(wanted)
    bare = Programs(is_mariadb=wanted is MARIADB, version="", root=root)
    words = version_words(bare.server_command())
    return Programs(is_mariadb=bare.is_mariadb, version=version_in(words), root=root)


def version_words(command: list[str]) -> str:
    """Give what the server says of its version."""
    done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def version_in(words: str) -> str:
    """Find the version number in what a server says of itself."""
    found = re.search(r"\bVer (\d+\.\d+\.\d+)", words)
    if found is None:
        raise PackagesUnavailableError(f"no version in {words!r}")
    return found.group(1)
