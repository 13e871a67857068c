"""Peers that Debian packages: mydumper and MariaDB's JDBC driver, unpacked like the servers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.servers.packages import PackageSet, unpacked

_PEERS = PackageSet("bench-peers", "bookworm", ("mydumper", "libmariadb-java"))


@dataclass(frozen=True, slots=True)
class DebianPeers:
    """Where the unpacked peers are."""

    root: Path

    @classmethod
    def fetched(cls) -> DebianPeers:
        """Fetch the packages once and keep them in the user's cache."""
        return cls(unpacked(_PEERS))

    @property
    def jdbc_jar(self) -> Path:
        return self.root / "usr/share/java/mariadb-java-client.jar"

    def command(self, tool: str) -> str:
        """Return the shell words that run an unpacked tool with its own libraries."""
        folders = (*self.root.glob("usr/lib/*-linux-gnu"), *self.root.glob("lib/*-linux-gnu"))
        libraries = ":".join(str(folder) for folder in folders)
        plugins = next(self.root.glob("usr/lib/*-linux-gnu/libmariadb3/plugin"))
        return (
            f"LD_LIBRARY_PATH={libraries} MARIADB_PLUGIN_DIR={plugins} {self.root}/usr/bin/{tool}"
        )
