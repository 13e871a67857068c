"""Preflight of the patterns: may there be tables that the account does not see.

A server lists only the tables an account has some right on, and says nothing of the others. A
pattern with a star would then pick fewer tables than there are, and nobody would know.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from airflow_cdc_provider.columns.source_port import Pattern
from airflow_cdc_provider.core.findings import Finding, Level
from airflow_cdc_provider.core.identifiers import quote_identifier
from airflow_cdc_provider.core.name_patterns import NamePattern
from airflow_cdc_provider.systems.mysql.preflight.codes import Code
from airflow_cdc_provider.systems.mysql.server.capabilities import Capabilities
from airflow_cdc_provider.systems.mysql.server.privileges import Grants


def hidden_findings(
    grants: Grants, capabilities: Capabilities, subject: str, patterns: Iterable[Pattern]
) -> Iterator[Finding]:
    """Yield findings for patterns that may match tables which the account cannot see."""
    for pattern in patterns:
        if pattern.is_exact:
            continue  # a table that is named and not seen is refused by its name
        if not _sees_all(grants, capabilities, pattern.database):
            yield _hidden(grants, subject, pattern)


def _sees_all(grants: Grants, capabilities: Capabilities, database: NamePattern) -> bool:
    """Tell whether the account can see all tables of the databases of a pattern."""
    name = _only_name(database)
    if name is None:
        return any(grants.holds_on_all("SELECT", names) for names in _granted_as(database))
    names = {name, name.lower() if capabilities.names_fold_case else name}
    return any(grants.holds("SELECT", name) for name in names)


def _only_name(database: NamePattern) -> str | None:
    """Return the one database that a pattern fits; None if it may fit others.

    A regular expression of letters alone fits what it says.
    """
    is_plain = not database.stars and re.fullmatch(r"\w+", database.text, re.ASCII)
    return database.text if database.is_exact or is_plain else None


def _granted_as(database: NamePattern) -> list[str]:
    """Return the names of databases, as a grant has them, that hold all of a pattern.

    Of a regular expression only the letters are known that each name begins with.
    """
    if database.stars:
        return [database.text.replace("_", "\\_").replace("*", "%")]
    letters = "" if "|" in database.text else _sure_letters(database.text)
    return [f"{letters[:end]}%".replace("_", "\\_") for end in range(len(letters) + 1)]


def _sure_letters(regex: str) -> str:
    """Return the letters that begin all that a regular expression without alternatives fits."""
    begins = re.match(r"(\w*)([*?{]?)", regex, re.ASCII)
    letters, is_optional = ("", "") if begins is None else begins.groups()
    return letters[:-1] if is_optional else letters


def _hidden(grants: Grants, subject: str, pattern: Pattern) -> Finding:
    """Return the finding for a pattern that may match hidden tables."""
    name = _only_name(pattern.database)
    every = name is None
    if name is None:
        # the last one has no more databases than it must
        least = _granted_as(pattern.database)[-1]
        level = "*" if least == "%" else quote_identifier(least)
    else:
        level = quote_identifier(name)
    return Finding(
        Code.TABLE_HIDDEN,
        Level.BLOCK,
        subject,
        f"cannot tell which tables fit {pattern}: a server lists only those that an account has "
        "rights on",
        f"SELECT on all {'databases that fit' if every else 'tables of the database'}",
        "tables that the account does not see would not be copied, and nothing would tell",
        f"GRANT SELECT ON {level}.* TO {grants.account}; or name "
        f"{'the databases' if every else 'the tables'} in source.tables, one by one",
    )
