"""A ledger is brought up to date by a newer release, and left alone by an older one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.errors import AccessDeniedError, RefusedError
from airflow_cdc_provider.systems.mysql.sink import ledger_schema
from airflow_cdc_provider.systems.mysql.sink.ledger_schema import create_ledger, ledger_version
from airflow_cdc_provider.systems.mysql.sink.sink_session import SinkSession
from tests.servers.accounts import sink_account
from tests.servers.throwaway import MySqlServer


@pytest.fixture
def session() -> Iterator[SinkSession]:
    """A session on a sink of the test's own: there is one ledger a server."""
    with (
        MySqlServer() as server,
        closing(SinkSession.open(Endpoint.parse(server.dsn()), purpose="test")) as opened,
    ):
        yield opened


def versions(session: SinkSession) -> list[int]:
    return [int(row[0]) for row in session.rows("SELECT version FROM airflow_cdc.ledger_version")]


def test_an_older_ledger_gets_what_it_lacks_and_keeps_its_rows(
    session: SinkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_ledger(session)
    assert versions(session) == [ledger_schema.VERSION]
    session.execute("INSERT INTO airflow_cdc.pipeline (pipeline, generation) VALUES ('shop', 3)")
    later = ledger_schema.VERSION + 1
    with monkeypatch.context() as newer:
        newer.setattr(ledger_schema, "VERSION", later)
        newer.setitem(ledger_schema._TABLES, "made_up", "`number` INT PRIMARY KEY")
        assert ledger_version(session) == later - 1
        for _ in range(2):
            create_ledger(session)
        assert versions(session) == [later]
        assert session.rows("SELECT COUNT(*) FROM airflow_cdc.made_up")[0][0] == 0
        rows = session.rows("SELECT pipeline, generation FROM airflow_cdc.pipeline")
        assert [tuple(row) for row in rows] == [("shop", 3)]
    with pytest.raises(RefusedError, match=f"has version {later}, this release knows"):
        create_ledger(session)


def test_counts_are_added_to_an_older_ledger_and_a_running_older_stream_goes_on(
    session: SinkSession,
) -> None:
    create_ledger(session)
    counts = ledger_schema._LATER["changed_table"]
    dropped = ", ".join(f"DROP COLUMN `{name}`" for name in counts)
    session.execute(f"ALTER TABLE airflow_cdc.changed_table {dropped}")
    session.execute("UPDATE airflow_cdc.ledger_version SET version = 6")
    before = (
        "INSERT INTO airflow_cdc.changed_table (pipeline, table_name, changes, position) "
        "VALUES ('shop', 'a.b', 3, '{}') ON DUPLICATE KEY UPDATE "
        "changes = changes + VALUES(changes), position = VALUES(position)"
    )
    session.execute(before)
    create_ledger(session)
    session.execute(before)
    found = session.rows(f"SELECT changes, {', '.join(counts)} FROM airflow_cdc.changed_table")
    assert [tuple(row) for row in found] == [(6, 0, 0, 0, 0)]


def test_an_account_that_may_not_read_the_ledger_is_told_the_grant() -> None:
    with MySqlServer() as server:
        with closing(SinkSession.open(Endpoint.parse(server.dsn()), purpose="test")) as opened:
            create_ledger(opened)
        account = sink_account(server, "shop")
        (right,) = (
            each
            for each in account.rights
            if "airflow_cdc" in each.level and each.privilege == "SELECT"
        )
        account.revoke(right)
        with (
            closing(SinkSession.open(Endpoint.parse(account.dsn), purpose="test")) as session,
            pytest.raises(AccessDeniedError) as refused,
        ):
            create_ledger(session)
    assert "GRANT SELECT, INSERT" in refused.value.remedy
