"""Which privileges the connected account really holds, read from SHOW GRANTS.

Granted at any level counts: everywhere, on a database (whose name may hold the wildcards `%` and
`_`) or on a table. Rights on single columns do not: a copy reads and writes all of them. Roles
that are active in the session are included.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.sql_tokens import Token, tokens
from airflow_cdc_provider.mysql.connection import Role, query

if TYPE_CHECKING:
    from airflow_cdc_provider.mysql.connection import ServerConnection

_SYNONYMS = {
    "ALL": "ALL PRIVILEGES",
    "BINLOG MONITOR": "REPLICATION CLIENT",
    "REPLICATION REPLICA": "REPLICATION SLAVE",
}


@dataclass(frozen=True, slots=True)
class Grant:
    """Privileges on a database and table; `*` is all of them."""

    privileges: frozenset[str]
    database: str
    table: str

    def reaches(self, database: str, table: str) -> bool:
        """Tell whether the grant holds for that table; `*` asks for all."""
        if self.database == "*":
            return True
        if not _like(self.database, database):
            return False
        return self.table == "*" or self.table == table


@dataclass(frozen=True, slots=True)
class Grants:
    """All an account may do."""

    account: str
    """`'user'@'host'` as the server matched it, to be written into a GRANT."""
    grants: tuple[Grant, ...]
    revoked: tuple[Grant, ...] = ()
    """MySQL's partial revokes: what a grant everywhere does not reach."""

    def holds(self, privilege: str, database: str = "*", table: str = "*") -> bool:
        """Tell whether the account has a privilege on a table, a database or everywhere."""
        wanted = {privilege, "ALL PRIVILEGES"}
        if any(r.database == database and privilege in r.privileges for r in self.revoked):
            return False
        return any(
            wanted & grant.privileges and grant.reaches(database, table) for grant in self.grants
        )

    def missing_on(
        self, privileges: Sequence[str], tables: Iterable[TableId]
    ) -> dict[str, set[str]]:
        """Return, for each database, the privileges that lack on one of its tables."""
        lacking: dict[str, set[str]] = {}
        for table in tables:
            for privilege in privileges:
                if not self.holds(privilege, table.database, table.table):
                    lacking.setdefault(table.database, set()).add(privilege)
        return lacking


def read_grants(connection: ServerConnection, *, role: Role = Role.SOURCE) -> Grants:
    """Ask for the connected account's privileges, active roles included."""
    roles = str(query(connection, "SELECT CURRENT_ROLE()", role=role)[0][0] or "NONE")
    statement = "SHOW GRANTS FOR CURRENT_USER()"
    if roles != "NONE" and "@" in roles:  # MySQL lists a role's rights only when told to
        statement += f" USING {roles}"
    lines = [str(row[0]) for row in query(connection, statement, role=role)]
    if roles != "NONE" and "@" not in roles:
        lines += [str(r[0]) for r in query(connection, f"SHOW GRANTS FOR {roles}", role=role)]
    user, _, host = str(query(connection, "SELECT CURRENT_USER()", role=role)[0][0]).rpartition("@")
    return parse_grants(lines, f"'{user}'@'{host}'")


def parse_grants(lines: Iterable[str], account: str) -> Grants:
    """Read the lines of SHOW GRANTS; those that grant roles are left out."""
    granted: list[Grant] = []
    revoked: list[Grant] = []
    for line in lines:
        parts = tuple(tokens(line))
        grant = _grant(parts)
        if grant is not None:
            (revoked if parts[0].is_word("REVOKE") else granted).append(grant)
    return Grants(account, tuple(granted), tuple(revoked))


def _grant(parts: Sequence[Token]) -> Grant | None:
    on = next((at for at, token in enumerate(parts) if token.is_word("ON")), None)
    if on is None:
        return None
    level = parts[on + 1 :]
    if level and level[0].is_word("TABLE"):
        level = level[1:]
    if len(level) < 3 or not level[1].is_mark("."):
        return None
    return Grant(frozenset(_privileges(parts[1:on])), level[0].text, level[2].text)


def _privileges(parts: Sequence[Token]) -> Iterable[str]:
    """Yield the privileges of a comma-separated list; those on columns are left out."""
    words: list[str] = []
    depth, on_columns = 0, False
    for token in parts:
        depth += token.is_mark("(") - token.is_mark(")")
        on_columns = on_columns or depth > 0
        if depth == 0 and token.is_mark(","):
            if words and not on_columns:
                yield _privilege(words)
            words, on_columns = [], False
        elif depth == 0 and token.is_name:
            words.append(token.text.upper())
    if words and not on_columns:
        yield _privilege(words)


def _privilege(words: Sequence[str]) -> str:
    name = " ".join(words)
    return _SYNONYMS.get(name, name)


def _like(pattern: str, name: str) -> bool:
    """Match a database name the way grants do: `%` and `_` are wildcards unless escaped."""
    regex, at = "", 0
    while at < len(pattern):
        if pattern[at] == "\\" and at + 1 < len(pattern):
            regex += re.escape(pattern[at + 1])
            at += 2
            continue
        regex += {"%": ".*", "_": "."}.get(pattern[at], re.escape(pattern[at]))
        at += 1
    return re.fullmatch(regex, name, re.DOTALL) is not None
