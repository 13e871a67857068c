"""How the state's database is reached: verified off loopback, whichever database it is."""

from __future__ import annotations

import pytest

from airflow_cdc_provider.core.dsn import parse_dsn
from airflow_cdc_provider.core.errors import RefusedError
from airflow_cdc_provider.databases.engines import open_engine, postgres_url

VERIFIED = {"sslmode": "verify-full", "sslrootcert": "system"}


def options(dsn: str) -> dict[str, object]:
    url = postgres_url(parse_dsn(dsn), "psycopg")
    return dict(url.translate_connect_args(), **url.query)


@pytest.mark.parametrize(
    "there",
    [
        "db.example/cdc",
        "db.example:5433/cdc?connect_timeout=3",
        "localhost/cdc?host=db.example",
        "localhost/cdc?hostaddr=192.0.2.1",
        "localhost/cdc?service=elsewhere",
        "127.0.0.1.example/cdc",
    ],
)
def test_a_postgresql_off_loopback_is_verified(there: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PGSSLROOTCERT", raising=False)
    made = options(f"postgresql://u:p@{there}")
    assert {name: made.get(name) for name in VERIFIED} == VERIFIED


@pytest.mark.parametrize(
    "here", ["localhost/cdc", "127.0.0.1:5432/cdc", "[::1]/cdc", "/cdc", "h/cdc?host=/run/pg"]
)
def test_a_postgresql_on_this_machine_needs_no_certificate(here: str) -> None:
    assert "sslmode" not in options(f"postgresql://u:p@{here}")


@pytest.mark.parametrize("mode", ["allow", "prefer", "require", "no", "VERIFY-FULL", ""])
def test_a_mode_that_does_not_verify_is_refused(mode: str) -> None:
    with pytest.raises(RefusedError, match="verify-full, verify-ca or disable"):
        options(f"postgresql://u:p@db.example/cdc?sslmode={mode}")


def test_what_the_dsn_says_of_tls_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PGSSLROOTCERT", raising=False)
    own = options("postgresql://u:p@db.example/cdc?sslmode=verify-ca&sslrootcert=/ca.pem")
    assert (own["sslmode"], own["sslrootcert"]) == ("verify-ca", "/ca.pem")
    off = options("postgresql://u:p@db.example/cdc?sslmode=disable")
    assert (off["sslmode"], off.get("sslrootcert")) == ("disable", None)
    monkeypatch.setenv("PGSSLROOTCERT", "/env.pem")  # libpq's own word for it
    named = options("postgresql://u:p@db.example/cdc")
    assert (named["sslmode"], named.get("sslrootcert")) == ("verify-full", None)


def test_a_driver_that_would_not_understand_these_settings_is_refused() -> None:
    with pytest.raises(RefusedError, match="psycopg"):
        open_engine("postgresql+pg8000://u:p@db.example/cdc")


@pytest.mark.parametrize("scheme", ["mysql", "mysql+mysqldb", "mariadb+pymysql"])
def test_every_mysql_goes_by_the_driver_that_verifies(scheme: str) -> None:
    engine = open_engine(f"{scheme}://u:p@db.example/cdc")
    assert engine.dialect.driver == "pymysql"
    assert engine.url.password is None
