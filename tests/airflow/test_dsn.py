"""Airflow's connections become DSNs that mean the same server, the same way in."""

from __future__ import annotations

import json
from typing import Any

import pytest
from airflow.sdk import Connection
from hypothesis import given
from hypothesis import strategies as st

from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.errors import RefusedError
from airflow_cdc_provider.databases.engines import open_engine
from airflow_cdc_provider.hooks.dsn import AirflowDsns, dsn_of
from airflow_cdc_provider.hooks.steps import find_spark_master
from airflow_cdc_provider.pipeline.connections import EnvironmentDsns, EnvironmentMasters
from airflow_cdc_provider.pipeline.file.model import Reference


def connection(**fields: Any) -> Connection:
    extra = fields.pop("extra", None)
    text = json.dumps(extra) if extra is not None else None
    return Connection(conn_id="shop", **{"conn_type": "mysql", **fields, "extra": text})


def endpoint(**fields: Any) -> Endpoint:
    found = connection(**fields)
    return Endpoint.parse(dsn_of(found, found.extra_dejson))


@given(
    user=st.text(min_size=1),
    password=st.text(),
    port=st.integers(1, 65535),
    database=st.text(),
)
def test_an_account_comes_through_whatever_its_characters(
    user: str, password: str, port: int, database: str
) -> None:
    found = endpoint(host="db1", login=user, password=password, port=port, schema=database)
    assert (found.user, found.password, found.port) == (user, password, port)


@pytest.mark.parametrize("kind", ["mysql", "mariadb", "cdc_mysql", "cdc-mysql", "cdc_mysql_sink"])
def test_a_mysql_connection_of_any_type_is_the_same_server(kind: str) -> None:
    assert endpoint(conn_type=kind, host="db1").host == "db1"


def test_an_address_of_ipv6_is_an_address() -> None:
    assert endpoint(host="2001:db8::1", port=3307).host == "2001:db8::1"


def test_tls_settings_of_ours_and_of_airflows_mysql_provider_mean_the_same() -> None:
    ours = endpoint(host="db1", extra={"ssl_ca": "/ca", "ssl_cert": "/c", "ssl_key": "/k"})
    theirs = endpoint(host="db1", extra={"ssl": {"ca": "/ca", "cert": "/c", "key": "/k"}})
    nested = endpoint(host="db1", extra={"ssl": '{"ca": "/ca", "cert": "/c", "key": "/k"}'})
    assert ours == theirs == nested


def test_flags_of_the_connection_form_are_read() -> None:
    extra = {"ssl_disabled": True, "ssl_verify_identity": False, "ssl_ca": None, "ssl_key": ""}
    found = endpoint(host="db1", extra=extra)
    assert (found.ssl_disabled, found.ssl_verify_identity, found.ssl_ca) == (True, False, "")


@pytest.mark.parametrize(
    ("mode", "disabled", "verified"),
    [("VERIFY_IDENTITY", False, True), ("verify_ca", False, False), ("DISABLED", True, True)],
)
def test_an_ssl_mode_is_translated(mode: str, disabled: bool, verified: bool) -> None:
    found = endpoint(host="db1", extra={"ssl_mode": mode})
    assert (found.ssl_disabled, found.ssl_verify_identity) == (disabled, verified)


@pytest.mark.parametrize(
    "extra", [{"ssl_mode": "PREFERRED"}, {"ssl": "yes"}, {"ssl": {"cipher": "x"}}]
)
def test_a_tls_setting_that_is_not_understood_is_refused_and_never_dropped(
    extra: dict[str, Any],
) -> None:
    with pytest.raises(RefusedError, match="connection shop"):
        endpoint(host="db1", extra=extra)


def test_settings_of_other_drivers_do_no_harm() -> None:
    assert endpoint(host="db1", extra={"charset": "utf8", "cursor": "sscursor"}).host == "db1"


def test_a_setting_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ValueError, match="no_such_option"):
        endpoint(host="db1", extra={"no_such_option": "1"})


@pytest.mark.parametrize(
    "uri", ["sqlite:////tmp/some/state.db", "sqlite://%2Ftmp%2Fsome%2Fstate.db"]
)
def test_a_file_of_sqlite_is_found_as_airflow_writes_it(uri: str) -> None:
    found = Connection.from_uri(uri, conn_id="state")
    assert str(open_engine(dsn_of(found, {})).url.database) == "/tmp/some/state.db"


def test_a_postgres_connection_becomes_the_states_dsn() -> None:
    found = connection(conn_type="postgres", host="pg", login="u", password="p w", schema="cdc")
    assert dsn_of(found, {"sslmode": "require"}) == "postgresql://u:p%20w@pg/cdc?sslmode=require"


@pytest.mark.parametrize(
    ("extra", "dsn"),
    [
        ({"kind": "mysql", "ssl_ca": "/ca"}, "mysql://u:p%20w@db/cdc?ssl_ca=%2Fca"),
        ({"kind": "postgresql"}, "postgresql://u:p%20w@db/cdc"),
        (
            {"kind": "postgresql", "ssl_ca": "/ca", "ssl_verify_identity": False, "ssl_key": None},
            "postgresql://u:p%20w@db/cdc?sslrootcert=%2Fca&sslmode=verify-ca",
        ),
        (
            {"kind": "postgresql", "ssl_verify_identity": True, "ssl_disabled": True},
            "postgresql://u:p%20w@db/cdc?sslmode=disable",
        ),
        ({"kind": "sqlite", "ssl_disabled": False}, "sqlite:////db"),
    ],
)
def test_a_state_connection_is_one_of_the_database_it_names(
    extra: dict[str, Any], dsn: str
) -> None:
    stored = {"host": "db", "login": "u", "password": "p w", "schema": "cdc", "extra": extra}
    assert dsn_of(connection(conn_type="cdc_state", **stored), extra) == dsn
    outside = {"AIRFLOW_CONN_STATE": json.dumps({"conn_type": "cdc_state", **stored})}
    assert EnvironmentDsns(outside)(Reference(conn_id="state")) == dsn


@pytest.mark.parametrize("extra", [{}, {"kind": "oracle"}, {"kind": None}])
def test_a_state_connection_of_no_kind_is_refused_by_name(extra: dict[str, Any]) -> None:
    with pytest.raises(RefusedError, match="which kind of database") as caught:
        dsn_of(connection(conn_type="cdc_state", host="db", password="planted"), extra)
    assert "planted" not in str(caught.value)


def test_a_server_without_a_host_is_refused_by_name() -> None:
    with pytest.raises(RefusedError, match="names no host"):
        endpoint(conn_type="cdc_mysql", login="cdc")


def test_another_kind_of_connection_is_refused_by_name() -> None:
    with pytest.raises(RefusedError, match="'ftp'"):
        dsn_of(connection(conn_type="ftp"), {})


def test_a_reference_to_the_environment_is_looked_up_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SHOP_DSN", "mysql://u:p@db1/")
    assert AirflowDsns()(Reference(dsn_env="SHOP_DSN")) == "mysql://u:p@db1/"
    assert AirflowDsns()(Reference(dsn_env="NO_SUCH_DSN")) is None


def test_a_connection_that_does_not_exist_is_no_dsn() -> None:
    assert AirflowDsns()(Reference(conn_id="nowhere_to_be_found")) is None


@pytest.mark.parametrize("password", ["58213/Xq7vKz", "58213?Xq7vKz", "58213#Xq7vKz"])
def test_a_uri_whose_password_is_not_encoded_is_refused_and_not_shown(
    password: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Airflow itself takes the first for host `account`, port 58213 and schema `Xq7vKz@db1`."""
    monkeypatch.setenv("AIRFLOW_CONN_PLANTED", f"mysql://account:{password}@db1/shop")
    try:
        found = str(AirflowDsns()(Reference(conn_id="planted")) or "")
        shown = str(Endpoint.parse(found)) if found else ""
    except (RefusedError, ValueError) as error:
        shown = f"{error!r} {error}"
    shown += "".join(capfd.readouterr())
    assert "58213" not in shown
    assert "Xq7vKz" not in shown


@pytest.mark.parametrize(
    ("host", "port", "master"),
    [
        ("host", 7078, "spark://host:7078"),
        ("spark://host", 7078, "spark://host:7078"),
        ("sc://host", 15002, "sc://host:15002"),
        ("local[2]", None, "local[2]"),
    ],
)
def test_a_master_is_what_it_is_without_airflow(
    host: str, port: int | None, master: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = json.dumps({"conn_type": "spark", "host": host, "port": port})
    monkeypatch.setenv("AIRFLOW_CONN_S", stored)
    assert find_spark_master("s") == EnvironmentMasters({"AIRFLOW_CONN_S": stored})("s") == master
