"""The state store on MySQL: the behaviours of every store, over the DSN that a user would write."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest

from airflow_cdc_provider.core.errors import RefusedError, StateUnreachableError
from airflow_cdc_provider.state.store import SqlStateStore, open_store
from tests.behaviours.request_behaviours import RequestStoreBehaviour
from tests.behaviours.sample_behaviours import SampleBehaviour
from tests.behaviours.state_behaviours import StateStoreBehaviour
from tests.servers.given import SqlServer


@pytest.fixture
def dsn(mysql_server: SqlServer, mysql_database: str) -> str:
    return mysql_server.dsn(database=mysql_database)


@pytest.fixture
def store(dsn: str) -> Iterator[SqlStateStore]:
    opened = open_store(dsn)
    yield opened
    opened.close()


class TestMySqlStore(StateStoreBehaviour):
    """All behaviours, on MySQL."""


class TestMySqlRequests(RequestStoreBehaviour):
    """All behaviours of requests, on MySQL."""


class TestMySqlSamples(SampleBehaviour):
    """All behaviours of samples and overviews, on MySQL."""


def test_stores_that_are_opened_at_once_all_succeed(dsn: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        for opened in pool.map(open_store, [dsn] * 4):
            opened.close()


def test_a_dsn_without_a_database_is_refused_without_its_password(
    mysql_server: SqlServer,
) -> None:
    with pytest.raises(RefusedError, match="no database") as caught:
        open_store("mysql://cdc:planted-secret@127.0.0.1:3306/")
    assert "planted-secret" not in str(caught.value)


def test_a_server_that_is_not_there_may_come_back(fresh_database: Callable[..., str]) -> None:
    with pytest.raises(StateUnreachableError) as caught:
        open_store("mysql://cdc:planted-secret@127.0.0.1:1/state")
    assert "planted-secret" not in str(caught.value)


def test_a_password_that_is_wrong_is_told_with_the_place(dsn: str) -> None:
    parts = urlsplit(dsn)
    wrong = parts._replace(netloc=f"{parts.username}:planted-secret@{parts.hostname}:{parts.port}")
    with pytest.raises(StateUnreachableError, match="state store refused the account") as caught:
        open_store(wrong.geturl())
    assert caught.value.where == f"state store {parts.hostname}:{parts.port}{parts.path}"
    assert "password of the state store's connection" in caught.value.remedy
    assert "planted-secret" not in str(caught.value)
