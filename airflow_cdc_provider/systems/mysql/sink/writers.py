"""Sessions that may hold row locks, so that a new owner need not wait for a hung one.

A writer that hangs keeps its connection, and with it the locks of its open transaction. It could
never commit, but the new owner would wait for it. So each writing session takes a named lock of
its own and notes the name; the server drops the lock when the session ends. A new owner asks
which connection holds the locks of older generations and ends it. A connection is found by its
lock, never by a remembered number, because numbers are used again after a restart.

Two sessions of one owner may have the same split: a reader that is taken for dead may live. A lock
named after the split lets one of them publish at a time.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from airflow_cdc_provider.core.errors import (
    AccessDeniedError,
    IntegrityError,
    RetryableError,
    SinkBusyError,
)
from airflow_cdc_provider.core.splits import SnapshotSplit
from airflow_cdc_provider.engine.sink.port import Owner
from airflow_cdc_provider.systems.mysql.dialect.sql import literal
from airflow_cdc_provider.systems.mysql.sink.ledger_schema import LEDGER
from airflow_cdc_provider.systems.mysql.sink.sink_session import SinkSession

log = logging.getLogger(__name__)

_OTHER_ATTEMPT_S = 60


def register_writer(session: SinkSession, owner: Owner) -> str:
    """Take a named lock that marks this session as a writer of the owner; return its name."""
    name = f"airflow_cdc_{secrets.token_hex(16)}"
    session.rows(f"SELECT GET_LOCK({literal(name)}, 0)")
    session.execute(
        f"INSERT INTO {LEDGER}.writer VALUES "
        f"({literal(name)}, {literal(str(owner.pipeline))}, {owner.generation})"
    )
    return name


def unregister_writer(session: SinkSession, name: str) -> None:
    """Delete the note of a writer's lock, or leave it to the next owner if the session is lost."""
    if session.is_lost or session.in_transaction:
        return
    with suppress(RetryableError):
        session.execute(f"DELETE FROM {LEDGER}.writer WHERE lock_name = {literal(name)}")


@contextmanager
def split_lock(session: SinkSession, owner: Owner, split: SnapshotSplit) -> Iterator[None]:
    """Hold a lock that keeps the owner's other sessions from publishing the same split."""
    whole = f"{owner.pipeline} {owner.generation} {split.table} {split.number}".encode()
    name = literal(f"airflow_cdc_{hashlib.sha256(whole).hexdigest()[:32]}")
    if session.rows(f"SELECT GET_LOCK({name}, {_OTHER_ATTEMPT_S})")[0][0] != 1:
        raise SinkBusyError(
            f"split {split.split_id} is still being published by another session",
            where=session.where,
            risk="none: nothing was written",
            remedy="nothing: the split is tried again; if it stays, end that session",
        )
    try:
        yield
    finally:
        if not session.is_lost:  # else the server has dropped it
            with suppress(RetryableError):
                session.rows(f"SELECT RELEASE_LOCK({name})")


def end_older(session: SinkSession, owner: Owner) -> None:
    """Kill the sessions of older generations that write for the owner's pipeline."""
    older = f"pipeline = {literal(str(owner.pipeline))} AND generation < {owner.generation}"
    found = session.rows(
        f"SELECT lock_name, IS_USED_LOCK(lock_name) FROM {LEDGER}.writer WHERE {older}"
    )
    for name, connection in found:
        if connection is not None:
            log.warning("ending an older writer: pipeline=%s lock=%s", owner.pipeline, name)
            _end(session, int(connection))
    # also rows of this generation whose session is gone
    session.execute(
        f"DELETE FROM {LEDGER}.writer WHERE pipeline = {literal(str(owner.pipeline))} "
        f"AND (generation < {owner.generation} OR IS_USED_LOCK(lock_name) IS NULL)"
    )


def _end(session: SinkSession, connection: int) -> None:
    """Kill a connection of the sink; a refusal is logged."""
    try:
        session.execute(f"KILL {connection}")
    except (AccessDeniedError, IntegrityError) as error:
        # gone meanwhile, or another account's: it still cannot commit, only be waited for
        log.warning("an older writer was not ended: cause=%s", error)
