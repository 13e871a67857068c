"""Preflight of the patterns: may there be tables that the account does not see.

A server lists only the tables an account has some right on, and says nothing of the others. A
pattern with a star would then pick fewer tables than there are, and nobody would know.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from airflow_cdc_provider.columns.source_port import Pattern
from airflow_cdc_provider.core.findings import Finding, Level
from airflow_cdc_provider.core.identifiers import quote_identifier
from airflow_cdc_provider.systems.mysql.preflight.codes import Code
from airflow_cdc_provider.systems.mysql.server.capabilities import Capabilities
from airflow_cdc_provider.systems.mysql.server.privileges import Grants


def hidden_findings(
    grants: Grants, capabilities: Capabilities, subject: str, patterns: Iterable[Pattern]
) -> Iterator[Finding]:
    """Yield findings for patterns that may match tables which the account cannot see."""
    for pattern in patterns:
        if "*" not in pattern.database + pattern.table:
            continue  # a table that is named and not seen is refused by its name
        if not _sees_all(grants, capabilities, pattern.database):
            yield _hidden(grants, subject, pattern)


def _sees_all(grants: Grants, capabilities: Capabilities, database: str) -> bool:
    """Tell whether the account can see all tables of the databases of a pattern."""
    if "*" in database:
        return grants.holds_on_all("SELECT", database.replace("_", "\\_").replace("*", "%"))
    names = {database, database.lower() if capabilities.names_fold_case else database}
    return any(grants.holds("SELECT", name) for name in names)


def _hidden(grants: Grants, subject: str, pattern: Pattern) -> Finding:
    """Return the finding for a pattern that may match hidden tables."""
    every = "*" in pattern.database
    level = "*" if every else quote_identifier(pattern.database)
    return Finding(
        Code.TABLE_HIDDEN,
        Level.BLOCK,
        subject,
        f"cannot tell which tables fit {pattern}: a server lists only those that an account has "
        "rights on",
        f"SELECT on all {'databases' if every else 'tables of the database'}",
        "tables that the account does not see would not be copied, and nothing would tell",
        f"GRANT SELECT ON {level}.* TO {grants.account}; or name "
        f"{'the databases' if every else 'the tables'} in source.tables, one by one",
    )
