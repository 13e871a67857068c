"""Errors of the state store's database as the product's errors, in any database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import IntegrityError as DuplicateRowError

from airflow_cdc_provider.core.errors import StateUnreachableError

_DENIED = {1044, 1045, 1130, 1142, 1143, 1698}
"""MySQL's and MariaDB's errors for an account, a host or a privilege."""
_DENIED_STATES = {"28000", "28P01", "42501"}
"""PostgreSQL's SQLSTATEs for the same."""
_DENIED_WORDS = ("password authentication failed", "no pg_hba.conf entry")
"""What PostgreSQL's drivers say of a connection that is refused, as they give no SQLSTATE then."""


@contextmanager
def explained(engine: Engine) -> Iterator[None]:
    """Turn database errors in the block into `StateUnreachableError`, which may be retried.

    An account that is refused is one too: a password may be changed at the server and in the
    connection at different times, and a stream goes on without the state store.
    """
    try:
        yield
    except DuplicateRowError:
        raise  # an answer, and the caller knows what it means
    except DBAPIError as error:
        raise _unreachable(engine, error) from error


def _unreachable(engine: Engine, error: DBAPIError) -> StateUnreachableError:
    """Return the error of a state store that did not answer, or that refused the account."""
    found = error.orig
    is_denied = found is not None and _is_denial(found)
    return StateUnreachableError(
        f"the state store {'refused the account' if is_denied else 'did not answer'}: {found}",
        where=f"state store {_place(engine)}",
        risk="none: the sink's ledger has what is committed",
        remedy="correct user and password of the state store's connection, or what its account "
        "may do; then run again"
        if is_denied
        else "bring the state database back; the next run goes on by itself",
    )


def _is_denial(error: BaseException) -> bool:
    """Tell whether a driver's error says that the account or its host is refused."""
    if error.args and error.args[0] in _DENIED:
        return True
    sqlstate = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    return sqlstate in _DENIED_STATES or any(words in str(error) for words in _DENIED_WORDS)


def _place(engine: Engine) -> str:
    """Return the database's place without user and password."""
    url = engine.url
    if not url.host:
        return str(url.database)
    port = "" if url.port is None else f":{url.port}"
    return f"{url.host}{port}/{url.database or ''}"
