"""Accounts with exactly the grants that the page of rights lists, and not one more.

The statements are the page's own: what a user copies from there is what the tests run under. Only
the names of the account and of the databases are put in.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.servers.given import SqlServer

PAGE = Path(__file__).resolve().parents[2] / "airflow_cdc_provider" / "docs" / "rights.md"
MYSQL_SOURCE = "source, MySQL"
MARIADB_SOURCE = "source, MariaDB"
WITHOUT_GTIDS = "source, MySQL without GTIDs"
SINK = "sink"

_BLOCK = re.compile(r"# Rights at the servers\n.*?```sql\n(.*?)```", re.DOTALL)
_GRANT = re.compile(r"GRANT (?P<privileges>.+) ON (?P<level>\S+) TO 'cdc'@'%';")
_ROUTED = {"`shop`.*", "`dr_shop`.*"}
"""Where the page's example has a database of its own, the test's databases are named."""
_PASSWORD = "least/@:% word"


@dataclass(frozen=True, slots=True)
class Right:
    """One privilege at one level, such as `SELECT` on `` `shop`.* ``."""

    privilege: str
    level: str

    def __str__(self) -> str:
        return f"{self.privilege} on {self.level}"


def rights(heading: str) -> tuple[Right, ...]:
    """Return what the page grants under one of its headings, privilege by privilege."""
    found = _sections()[heading]
    return tuple(
        Right(privilege.strip(), level)
        for privileges, level in found
        for privilege in privileges.split(",")
    )


def _sections() -> dict[str, list[tuple[str, str]]]:
    block = _BLOCK.search(PAGE.read_text(encoding="utf-8"))
    if block is None:
        raise ValueError(f"{PAGE} has no SQL under 'Rights at the servers'")
    sections: dict[str, list[tuple[str, str]]] = {}
    heading = ""
    for line in block[1].splitlines():
        if line.startswith("-- "):
            heading = re.split(r"[:;]", line.removeprefix("-- "))[0].strip()
            sections[heading] = []
            continue
        match = _GRANT.fullmatch(line)
        if match is None:
            raise ValueError(f"{line!r} of the page is no GRANT to 'cdc'@'%'")
        sections[heading].append((match["privileges"], match["level"]))
    return sections


@dataclass(frozen=True, slots=True)
class Account:
    """An account on a server, and what it may do there."""

    server: SqlServer
    user: str
    rights: tuple[Right, ...]
    password: str = _PASSWORD

    @property
    def dsn(self) -> str:
        """Give the address to log in with."""
        return self.server.dsn(user=self.user, password=self.password)

    def revoke(self, right: Right) -> None:
        """Take a right away."""
        self.server.execute(f"REVOKE {right.privilege} ON {right.level} FROM '{self.user}'@'%'")

    def grant(self, right: Right) -> None:
        """Give a right."""
        self.server.execute(f"GRANT {right.privilege} ON {right.level} TO '{self.user}'@'%'")

    def drop(self) -> None:
        """Remove it."""
        self.server.execute(f"DROP USER IF EXISTS '{self.user}'@'%'")


def source_account(
    server: SqlServer, *databases: str, gtids: bool = True, password: str = _PASSWORD
) -> Account:
    """Make an account that may read these databases, with the page's rights at a source."""
    wanted = rights(MARIADB_SOURCE if "mariadb" in server.version.lower() else MYSQL_SOURCE)
    more = () if gtids else rights(WITHOUT_GTIDS)
    return _make_account(server, (*wanted, *more), databases, password)


def sink_account(server: SqlServer, *databases: str, password: str = _PASSWORD) -> Account:
    """Make an account that may fill these databases, with the page's rights at a sink."""
    return _make_account(server, rights(SINK), databases, password)


def _make_account(
    server: SqlServer, wanted: Iterable[Right], databases: Iterable[str], password: str
) -> Account:
    """Make an account with these rights; those on the page's example are given on `databases`."""
    user = f"least_{secrets.token_hex(4)}"
    server.execute("CREATE USER %s@'%%' IDENTIFIED BY %s", (user, password))
    names = tuple(databases)
    given = tuple(
        Right(right.privilege, level) for right in wanted for level in _levels(right.level, names)
    )
    account = Account(server, user, given, password)
    for right in given:
        account.grant(right)
    return account


def _levels(level: str, databases: Iterable[str]) -> Iterator[str]:
    if level not in _ROUTED:
        yield level
        return
    for database in databases:
        yield f"`{database}`.*"


@contextmanager
def least_privileged(*accounts: Account) -> Iterator[tuple[Account, ...]]:
    """Drop accounts at the end: for servers that live on."""
    try:
        yield accounts
    finally:
        for account in accounts:
            account.drop()
