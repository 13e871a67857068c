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

from airflow_cdc_provider.core.identifiers import TableId, quote_identifier
from airflow_cdc_provider.systems.mysql.dialect.sql_tokens import Token, tokens
from airflow_cdc_provider.systems.mysql.server.connection import Role, query

if TYPE_CHECKING:
    from airflow_cdc_provider.systems.mysql.server.connection import ServerConnection

_MAX_NAME = 1000
_SYNONYMS = {
    "ALL": "ALL PRIVILEGES",
    "BINLOG MONITOR": "REPLICATION CLIENT",
    "REPLICATION REPLICA": "REPLICATION SLAVE",
}


@dataclass(frozen=True, slots=True)
class Grant:
    """The privileges of one grant, on a database and table; `*` is all of them."""

    privileges: frozenset[str]
    database: str
    table: str

    def reaches(self, database: str, *, exact_names: bool = False) -> bool:
        """Tell whether the grant applies to a database; with `exact_names` without wildcards."""
        if self.database == "*":
            return True
        if exact_names or self.table != "*":
            return self.database == database
        return _like(self.database, database)


@dataclass(frozen=True, slots=True)
class Grants:
    """All grants and partial revokes of an account."""

    account: str
    """`'user'@'host'` as the server matched it, to be written into a GRANT."""
    grants: tuple[Grant, ...]
    revoked: tuple[Grant, ...] = ()
    """MySQL's partial revokes: what a grant everywhere does not reach."""
    exact_names: bool = False
    """No `%` and `_` in a database's name is a wildcard, as on MySQL with `partial_revokes`."""

    def holds(self, privilege: str, database: str = "*", table: str = "*") -> bool:
        """Tell whether the account has a privilege on a table, a database or everywhere."""
        wanted = {privilege, "ALL PRIVILEGES"}
        holding = [
            grant
            for grant in self._that_count(database)
            if grant.table in {"*", table} and wanted & grant.privileges
        ]
        if any(r.database == database and wanted & r.privileges for r in self.revoked):
            return any(grant.table != "*" for grant in holding)
        return bool(holding)

    def holds_on_all(self, privilege: str, databases: str) -> bool:
        """Tell whether the account has a privilege on all databases that match a wildcard name."""
        wanted = {privilege, "ALL PRIVILEGES"}
        everywhere = not any(wanted & grant.privileges for grant in self.revoked)
        return any(
            wanted & grant.privileges
            and grant.table == "*"
            and ((grant.database == "*" and everywhere) or grant.database == databases)
            for grant in self.grants
        )

    def _that_count(self, database: str) -> list[Grant]:
        """Return the grants that the server applies to a database.

        Of those to whole databases it takes only one, whose name has its first wildcard last.
        """
        reaching = [g for g in self.grants if g.reaches(database, exact_names=self.exact_names)]
        whole = [g for g in reaching if g.database != "*" and g.table == "*"]
        nearest = max((_literal_length(g.database) for g in whole), default=0)
        return [g for g in reaching if g not in whole or _literal_length(g.database) == nearest]

    def missing_on(
        self, privileges: Sequence[str], tables: Iterable[TableId]
    ) -> dict[str, set[str]]:
        """Return, by database, the privileges that the account lacks on any of these tables."""
        lacking: dict[str, set[str]] = {}
        for table in tables:
            for privilege in privileges:
                if not self.holds(privilege, table.database, table.table):
                    lacking.setdefault(table.database, set()).add(privilege)
        return lacking


def read_grants(connection: ServerConnection, *, role: Role = Role.SOURCE) -> Grants:
    """Query the connected account's privileges, active roles included."""
    roles = str(query(connection, "SELECT CURRENT_ROLE()", role=role)[0][0] or "NONE")
    statement = "SHOW GRANTS FOR CURRENT_USER()"
    if roles != "NONE" and "@" in roles:  # MySQL lists a role's rights only when told to
        statement += f" USING {roles}"
    lines = [str(row[0]) for row in query(connection, statement, role=role)]
    if roles != "NONE" and "@" not in roles:
        told = query(connection, f"SHOW GRANTS FOR {quote_identifier(roles)}", role=role)
        lines += [str(row[0]) for row in told]
    revokes = query(connection, "SHOW GLOBAL VARIABLES LIKE 'partial_revokes'", role=role)
    exact = any(str(value).upper() == "ON" for _, value in revokes)
    return parse_grants(lines, account_name(connection, role=role), exact_names=exact)


def account_name(connection: ServerConnection, *, role: Role = Role.SOURCE) -> str:
    """Return the account as the server matched it, to be written into a GRANT."""
    user, _, host = str(query(connection, "SELECT CURRENT_USER()", role=role)[0][0]).rpartition("@")
    return f"'{user}'@'{host}'"


def parse_grants(lines: Iterable[str], account: str, *, exact_names: bool = False) -> Grants:
    """Parse the lines of SHOW GRANTS; grants of roles are left out.

    With `exact_names` no `%` and `_` is a wildcard.
    """
    granted: list[Grant] = []
    revoked: list[Grant] = []
    for line in lines:
        parts = tuple(tokens(line))
        grant = _grant(parts)
        if grant is not None:
            (revoked if parts[0].is_word("REVOKE") else granted).append(grant)
    return Grants(account, tuple(granted), tuple(revoked), exact_names)


def _grant(parts: Sequence[Token]) -> Grant | None:
    """Parse one line of SHOW GRANTS; None if it grants a role."""
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
    """Yield the privileges in a grant's list; those on single columns are left out."""
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
    """Return a privilege's name, the same for both families."""
    name = " ".join(words)
    return _SYNONYMS.get(name, name)


def _literal_length(pattern: str) -> int:
    """Return the length of a database name before its first wildcard."""
    wildcard = re.search(r"(?<!\\)[%_]", pattern)
    return _MAX_NAME if wildcard is None else wildcard.start()


def _like(pattern: str, name: str) -> bool:
    """Tell whether a database name matches a grant's pattern: `%` and `_`, unless escaped."""
    regex, at = "", 0
    while at < len(pattern):
        if pattern[at] == "\\" and at + 1 < len(pattern):
            regex += re.escape(pattern[at + 1])
            at += 2
            continue
        regex += {"%": ".*", "_": "."}.get(pattern[at], re.escape(pattern[at]))
        at += 1
    return re.fullmatch(regex, name, re.DOTALL) is not None
