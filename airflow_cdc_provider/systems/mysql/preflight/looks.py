"""The result of a query of a server: rows, no rows, or denied, with what the denial may hide.

A look that was denied says nothing about what it would have shown. So whoever looks gets one of
three values and has to say what each of them means; an empty answer and a denied one are never the
same. What cannot be told is a finding: it blocks where rows are at risk, and names the grant.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from airflow_cdc_provider.core.errors import AccessDeniedError
from airflow_cdc_provider.core.findings import Finding, FindingCode, Level

Sight = TypeVar("Sight")


@dataclass(frozen=True, slots=True)
class Seen(Generic[Sight]):
    """An answered query of a server, with what it found."""

    what: Sight


@dataclass(frozen=True, slots=True)
class NothingFound:
    """An answered query of a server that found nothing."""


@dataclass(frozen=True, slots=True)
class QueryDenied:
    """A query that the server denied to the account."""

    reason: str
    """What the server said."""


Look = Seen[Sight] | NothingFound | QueryDenied


def look(ask: Callable[[], Sight]) -> Look[Sight]:
    """Run a query; return its result, that there is none, or that the server denied it.

    Any other error is one: the look goes wrong, it does not end.
    """
    try:
        seen = ask()
    except AccessDeniedError as denied:
        return QueryDenied(denied.what)
    return Seen(seen) if seen else NothingFound()


@dataclass(frozen=True, slots=True)
class Doubt:
    """What a denied query leaves unknown, what that may hide, and the grant that helps."""

    what: str
    """What cannot be told: `whether this server is a replica`."""
    why: str
    """What that may hide."""
    grant: str
    """The statement that would let the account see."""


def unseen(
    code: FindingCode, level: Level, subject: str, denied: QueryDenied, doubt: Doubt
) -> Finding:
    """Return the finding for a denied query: what it may hide, and which grant helps."""
    observed = f"cannot tell {doubt.what}: {denied.reason}"
    return Finding(
        code,
        level,
        subject,
        observed,
        "an account that may look",
        doubt.why,
        doubt.grant,
        lacks=doubt.grant.removeprefix("GRANT ").partition(" ON ")[0],
    )


def grant_everywhere(privilege: str, account: str) -> str:
    """Return the statement that grants a privilege on the whole server."""
    return f"GRANT {privilege} ON *.* TO {account};"
