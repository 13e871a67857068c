"""Receivers by connections as Airflow's command line stores them, without Airflow's providers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.airflow.real_airflow import RealAirflow
from tests.alerts.conftest import HttpReceiver
from tests.alerts.conftest import receiver as receiver

pytestmark = pytest.mark.timeout(600)
FILE = """\
pipeline: shop
source: {dsn_env: SHOP_DSN, tables: ["shop.*"]}
sink: {dsn_env: DR_DSN}
"""


@pytest.fixture
def airflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RealAirflow:
    for number, name in enumerate(("SHOP_DSN", "DR_DSN"), 1):  # nobody listens there
        monkeypatch.setenv(name, f"mysql://u:p@127.0.0.1:{number}/")
    made = RealAirflow(tmp_path / "home")
    made.migrate()
    return made


def stored(airflow: RealAirflow, name: str, conn_type: str, *flags: str) -> str:
    """Add a connection as a person does; return what Airflow says of it."""
    done = airflow.run("connections", "add", name, "--conn-type", conn_type, *flags)
    assert done.code == 0, done.err
    return done.out


def test_types_that_no_provider_brings_are_stored_as_generic_and_are_notified(
    airflow: RealAirflow, receiver: HttpReceiver
) -> None:
    login = ("--conn-login", "bot", "--conn-password", "Hook/S3c")
    assert "generic" in stored(airflow, "ops", "http", "--conn-host", receiver.url, *login)
    token = ("--conn-password", receiver.url)
    assert "generic" in stored(airflow, "slack_ops", "slackwebhook", *token)
    file = airflow.home / "shop.yaml"
    file.write_text(FILE + "notify: {webhook: {conn_id: ops}, slack: {conn_id: slack_ops}}\n")
    said = airflow.run("cdc", "run", str(file))
    assert said.code == 3, (said.out, said.err)
    assert [len(told) > 1 for told in receiver.got].count(True) == 1, receiver.got
    logins = {
        len(told) > 1: headers.get("Authorization")
        for told, headers in zip(receiver.got, receiver.headers, strict=True)
    }
    assert logins == {True: "Basic Ym90Okhvb2svUzNj", False: None}
    assert "Hook/S3c" not in said.out + said.err


def test_a_connection_of_another_type_is_found_by_check_with_what_to_do(
    airflow: RealAirflow,
) -> None:
    assert "cdc_mysql" in stored(airflow, "ops", "cdc_mysql", "--conn-host", "127.0.0.1")
    file = airflow.home / "shop.yaml"
    file.write_text(FILE + "notify: {webhook: {conn_id: ops}}\n")
    said = airflow.run("cdc", "check", str(file))
    assert said.code != 0
    text = " ".join((said.out + said.err).split())
    assert "connection 'ops' is of type 'cdc_mysql'" in text, text
    assert "name one of type http" in text
