"""The grammar of DSNs: what is written encoded is read back, and nothing that is refused shows."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_cdc_provider.core.dsn import Dsn, DsnError, parse_dsn, passwords_in
from airflow_cdc_provider.core.endpoint import Endpoint

TEXTS = st.text(max_size=20)


@given(user=TEXTS, password=TEXTS, path=TEXTS, port=st.none() | st.integers(0, 65_535))
def test_what_is_url_encoded_is_read_back(
    user: str, password: str, path: str, port: int | None
) -> None:
    written = "" if port is None else f":{port}"
    account = ":".join(quote(part, safe="") for part in (user, password))
    read = parse_dsn(f"mysql://{account}@DB.example{written}/{quote(path, safe='')}?a=b&c=")
    assert (read.user, read.password, read.path) == (user, password, path)
    assert (read.host, read.port, read.options) == ("db.example", port, {"a": "b", "c": ""})


@given(
    account=st.tuples(TEXTS, TEXTS),
    host=st.sampled_from(["", "db.example", "2001:db8::1"]),
    port=st.none() | st.integers(1, 65_535),
    path=TEXTS,
    options=st.dictionaries(TEXTS, TEXTS),
)
def test_what_is_written_is_read_back(
    account: tuple[str, str], host: str, port: int | None, path: str, options: dict[str, str]
) -> None:
    dsn = Dsn("mysql", host, port, *account, path, options)
    assert parse_dsn(dsn.text()) == dsn


def test_an_ipv6_address_is_a_host() -> None:
    read = parse_dsn("mysql://u@[::1]:3307")
    assert (read.host, read.port, read.path) == ("::1", 3307, "")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "mysql",
        "mysql:u:p@h",
        "://u@h",
        "mysql://u:p@h:x/",
        "mysql://u:p@h:65536/",
        "mysql://u:p@h:1:2/",
        "mysql://u:p@[::1/",
        "mysql://u:p\n@h/",
        "mysql://u:1/2@h/",
        "mysql://u:1?2@h/",
        "mysql://u:1#2@h/",
    ],
)
def test_what_is_none_is_refused(text: str) -> None:
    with pytest.raises(DsnError):
        parse_dsn(text)


@given(st.text(min_size=3, max_size=12), st.booleans())
def test_the_password_is_found_encoded_or_not(password: str, encoded: bool) -> None:
    written = quote(password, safe="") if encoded else password
    dsn = f"mysql://user:{written}@host:3306/"
    assert written in passwords_in(dsn)


def test_an_option_that_looks_like_none_is_refused_and_not_shown() -> None:
    with pytest.raises(ValueError, match="unknown DSN options") as refused:
        Endpoint.parse("mysql://u@h/?Xq7vKz=1&ssl_cq=2")
    assert "ssl_cq" in str(refused.value)
    assert "Xq7vKz" not in str(refused.value)
