"""The hook against a real server: what the connection form's Test button says."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from airflow_cdc_provider.hooks.cdc import CdcHook

if TYPE_CHECKING:
    from tests.servers.given import SqlServer

ENVIRONMENT = "AIRFLOW_CONN_SHOP"


@pytest.fixture
def hook(mysql_server: SqlServer, monkeypatch: pytest.MonkeyPatch) -> CdcHook:
    form = {
        "conn_type": "cdc_mysql",
        "host": mysql_server.host,
        "port": mysql_server.port,
        "login": mysql_server.user,
        "password": mysql_server.password,
        "extra": {"ssl_ca": None, "ssl_disabled": False, "ssl_verify_identity": True},
    }
    monkeypatch.setenv(ENVIRONMENT, json.dumps(form))
    return CdcHook("shop")


def test_the_test_says_which_server_answered(hook: CdcHook, mysql_server: SqlServer) -> None:
    fine, text = hook.test_connection()
    assert fine
    assert mysql_server.version.partition("-")[0] in text


def test_a_connection_is_open_and_autocommits(hook: CdcHook) -> None:
    connection = hook.get_conn()
    try:
        assert connection.get_autocommit()
    finally:
        connection.close()


def test_a_wrong_password_is_told_without_it(
    hook: CdcHook, mysql_server: SqlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENVIRONMENT, mysql_server.dsn(mysql_server.user, "wr0ng-secret"))
    fine, text = hook.test_connection()
    assert not fine
    assert "CDC-CFG-006" in text
    assert "wr0ng-secret" not in text


def test_a_server_that_is_not_there_is_told(hook: CdcHook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENVIRONMENT, "mysql://u:p@127.0.0.1:1/")
    fine, text = hook.test_connection()
    assert not fine
    assert "CDC-SRC-001" in text


def test_the_endpoint_shows_no_password(hook: CdcHook, mysql_server: SqlServer) -> None:
    assert mysql_server.password not in repr(hook.endpoint())
