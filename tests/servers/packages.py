"""Database servers from Debian's packages, without root and without touching the system.

Debian 12 has MariaDB 10.11 and no MySQL; Debian unstable has MySQL, which runs anywhere when it
brings its own C library and loader. So the packages are fetched by apt itself, set up in a private
folder with one source: the mirror this machine's apt already uses. apt checks the index against the
signed `InRelease` and every package against the index. `dpkg -x` then unpacks them side by side.

An unpacked folder is kept in the user's cache by version and used for ever after, also offline;
delete it, or set `CDC_TEST_REFRESH_SERVERS=1`, to take what the mirror has now.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.servers.cache import cache_dir, locked, made_once

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
TOOLS = ("apt-get", "apt-cache", "dpkg", "gpgv")
# Their maintainer scripts never run here, and they would pull in a whole system.
NOT_NEEDED = re.compile(
    r"^(perl|debconf|cdebconf|systemd|init-system|dpkg|adduser|passwd|psmisc|lsof|gawk|mawk|awk"
    r"|galera|rsync|socat|iproute2|procps|mysql-common|mariadb-common|ucf|coreutils|sensible"
    r"|postgresql-common|postgresql-client-common|libllvm|ssl-cert|locales|libc-l10n|sysvinit)"
)

_APT_CONF = """\
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
Dir::Etc::SourceList "{root}/sources.list";
Dir::Etc::SourceParts "/dev/null";
Dir::State "{root}";
Dir::State::Lists "{root}/lists";
Dir::State::Status "{root}/status";
Dir::Cache "{root}/cache";
APT::Sandbox::User "";
Acquire::Languages "none";
"""


class PackagesUnavailableError(Exception):
    """Debian's packages cannot be had on this machine; the message says why."""


@dataclass(frozen=True, slots=True)
class PackageSet:
    """A server with its client tools, as one Debian suite packages them."""

    name: str
    suite: str
    packages: tuple[str, ...]


MYSQL = PackageSet("mysql", "unstable", ("mysql-server-core", "mysql-client-core"))
MARIADB = PackageSet(
    "mariadb",
    "bookworm",
    ("mariadb-server-core", "mariadb-server", "mariadb-client-core", "mariadb-client"),
)
POSTGRES = PackageSet("postgresql", "bookworm", ("postgresql-15",))


def unpacked(wanted: PackageSet) -> Path:
    """Give the folder that holds the newest unpacked version, fetching one if there is none."""
    home = cache_dir() / "packages" / wanted.name
    kept = sorted((p for p in home.glob("[0-9]*") if p.is_dir()), key=_version_key)
    if kept and os.environ.get("CDC_TEST_REFRESH_SERVERS", "") in ("", "0"):
        return kept[-1]
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing or not KEYRING.exists():
        raise PackagesUnavailableError(
            f"unpacking {wanted.name} needs Debian's package tools and keyring;"
            f" missing: {', '.join(missing) or KEYRING}"
        )
    with locked(home / ".apt.lock"):
        apt = PrivateApt.for_suite(wanted.suite, root=home / "apt")
        version = apt.candidate(wanted.packages[0])
        return made_once(home / version, lambda folder: apt.unpack(wanted.packages, folder))


def _version_key(folder: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", folder.name)]


@dataclass(frozen=True, slots=True)
class PrivateApt:
    """apt with one source, its own lists and an empty system."""

    root: Path

    @classmethod
    def for_suite(cls, suite: str, *, root: Path) -> PrivateApt:
        """Set apt up for `suite` under `root` and read the suite's index."""
        for folder in ("lists/partial", "cache/archives/partial"):
            (root / folder).mkdir(parents=True, exist_ok=True)
        (root / "status").touch()
        (root / "apt.conf").write_text(_APT_CONF.format(root=root))
        source = f"deb [signed-by={KEYRING}] {debian_mirror()} {suite} main\n"
        (root / "sources.list").write_text(source)
        apt = cls(root)
        apt.run("apt-get", "--quiet", "--error-on=any", "update")
        return apt

    def run(self, tool: str, *arguments: str, cwd: Path | None = None) -> str:
        """Run `tool` of apt in this setting and give what it wrote."""
        command = [tool, "-c", str(self.root / "apt.conf"), *arguments]
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise PackagesUnavailableError(f"{' '.join(command)} failed: {done.stderr.strip()}")
        return done.stdout

    def candidate(self, package: str) -> str:
        """Give the version that would be installed."""
        found = re.search(r"Candidate: (\S+)", self.run("apt-cache", "policy", package))
        if found is None or found.group(1) == "(none)":
            raise PackagesUnavailableError(f"the mirror's index has no package {package}")
        return found.group(1).rpartition(":")[2]  # without its epoch

    def closure(self, packages: Iterable[str]) -> list[str]:
        """Give `packages` and all they depend on, without what only an installed system needs."""
        found: set[str] = set()
        frontier = set(packages)
        while frontier:
            found |= frontier
            listing = self.run("apt-cache", "depends", "--important", *sorted(frontier))
            frontier = {name for name in _first_choices(listing) if not NOT_NEEDED.match(name)}
            frontier -= found
        return sorted(found)

    def unpack(self, packages: Iterable[str], folder: Path) -> None:
        """Fetch `packages` with their dependencies and unpack them all into `folder`."""
        fetched = self.root / "fetched"
        shutil.rmtree(fetched, ignore_errors=True)
        fetched.mkdir()
        self.run("apt-get", "--quiet", "download", *self.closure(packages), cwd=fetched)
        for archive in sorted(fetched.glob("*.deb")):
            subprocess.run(["dpkg", "-x", str(archive), str(folder)], check=True)
        shutil.rmtree(fetched)
        for unneeded in ("usr/share/doc", "usr/share/man", "usr/share/locale"):
            shutil.rmtree(folder / unneeded, ignore_errors=True)


def _first_choices(listing: str) -> set[str]:
    """Read `apt-cache depends`: of alternatives the first, of a virtual package its first provider.

    A line is `  Depends: name`, with `|` before it when the next line is an alternative; a virtual
    package is `<name>`, and its providers follow, further indented.
    """
    chosen: set[str] = set()
    is_alternative = wants_provider = False
    for line in listing.splitlines():
        depends = re.match(r"^ ([ |])(?:Pre)?Depends: (\S+)$", line)
        if depends is None:
            if wants_provider and line.startswith("    "):
                chosen.add(line.strip().partition(":")[0])
            wants_provider = False
            continue
        name = depends.group(2)
        wants_provider = not is_alternative and name.startswith("<")
        if not is_alternative and not name.startswith("<"):
            chosen.add(name.partition(":")[0])
        is_alternative = depends.group(1) == "|"
    return chosen


def debian_mirror() -> str:
    """Give the address of the Debian mirror this machine's apt is set up for."""
    command = ["apt-get", "indextargets", "Created-By: Packages", "--format"]
    listing = subprocess.run(
        [*command, "$(REPO_URI) $(COMPONENT)"], capture_output=True, text=True, check=True
    ).stdout
    for line in listing.splitlines():
        address, _, component = line.partition(" ")
        if component == "main" and address.rstrip("/").endswith("/debian"):
            return address
    raise PackagesUnavailableError("apt on this machine is not set up for a Debian mirror")


def library_dirs(root: Path) -> tuple[Path, list[Path]]:
    """Give the unpacked C library's loader and the folders it shall search."""
    machine = platform.machine()
    loader = {"x86_64": "ld-linux-x86-64.so.2", "aarch64": "ld-linux-aarch64.so.1"}.get(machine)
    if loader is None:
        raise PackagesUnavailableError(f"unpacked servers are not known to run on {machine}")
    folders = [root / part / f"{machine}-linux-gnu" for part in ("usr/lib", "lib")]
    for folder in folders:
        if (folder / loader).exists():
            private = folder / "mysql" / "private"
            return folder / loader, [*folders, private]
    raise PackagesUnavailableError(f"{root} holds no {loader}; delete it to have it unpacked again")
