"""A password that is not URL-encoded in a DSN: read rightly, or refused and shown nowhere.

Whatever reads DSNs is tried, and every way in which its error may be shown.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from airflow_cdc_provider.cli.main import main
from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.core.identifiers import PipelineName
from airflow_cdc_provider.core.jobspec import JobKind, JobSpec
from airflow_cdc_provider.databases.engines import open_engine
from airflow_cdc_provider.engine.job import JobServers
from airflow_cdc_provider.engine.scrubbing import Secrets
from airflow_cdc_provider.pipeline.connections import EnvironmentDsns, resolve_servers
from airflow_cdc_provider.pipeline.file.loader import parse_pipeline

NEEDLES = ("Xq7vKz", "Jw4TpM", "58213")
FILE = """\
pipeline: shop
source: {dsn_env: A, tables: ["a.*"]}
sink: {dsn_env: B}
state: {dsn_env: C}
"""
SAFE = "mysql://u:p@127.0.0.1:1/db"
SIGNS = st.text(alphabet="/@#?%:[] \u2100\uff0f&=+;\\'\"", max_size=3)
PASSWORDS = st.builds(
    lambda parts, signs: "".join(a + b for a, b in zip(parts, signs, strict=True)),
    st.permutations(NEEDLES),
    st.tuples(SIGNS, SIGNS, SIGNS),
)
HOSTS = st.sampled_from(["127.0.0.1:1", "127.0.0.1", "[::1]:1", ""])
SPEC = JobSpec(PipelineName("shop"), 1, JobKind.STREAM)


def endpoint(dsn: str) -> Any:
    return Endpoint.parse(dsn)


def servers_of_the_file(dsn: str) -> Any:
    environment = {"A": dsn, "B": SAFE, "C": dsn}
    return resolve_servers(parse_pipeline(FILE), EnvironmentDsns(environment))


def servers_of_a_job(dsn: str) -> Any:
    named = {SPEC.source_env: SAFE, SPEC.sink_env: SAFE, SPEC.state_env: dsn}
    servers = JobServers.from_environment(SPEC, named)
    JobServers.from_environment(SPEC, {**named, SPEC.source_env: dsn})
    return servers


def state_engine(dsn: str) -> Any:
    return open_engine(dsn)


READERS: list[Callable[[str], Any]] = [
    endpoint,
    servers_of_the_file,
    servers_of_a_job,
    state_engine,
]


def shown(error: BaseException) -> Iterator[str]:
    yield str(error)
    yield repr(error)
    yield repr(error.args)
    yield "".join(traceback.format_exception(error))
    record = logging.LogRecord("x", 0, "x", 0, "%s %r", (error, error), (None, error, None))  # type: ignore[arg-type]
    yield logging.Formatter().format(record)
    if isinstance(error, CdcError):
        yield from (error.what, error.where, error.risk, error.remedy)


def found_in(text: str) -> list[str]:
    return [needle for needle in NEEDLES if needle.lower() in text.lower()]


@pytest.mark.parametrize("read", READERS, ids=lambda read: str(read.__name__))
@pytest.mark.parametrize("scheme", ["mysql", "postgresql", "mssql+nosuchdriver"])
@given(password=PASSWORDS, host=HOSTS)
@settings(suppress_health_check=[HealthCheck.too_slow])
@example("58213/Xq7vKzJw4TpM", "127.0.0.1:1")
@example("Xq7vKz/58213Jw4TpM", "127.0.0.1:1")
@example("Xq7vKz[58213Jw4TpM]", "127.0.0.1:1")
@example("Xq7vKz\u210058213Jw4TpM", "127.0.0.1:1")
@example("Xq7vKz@58213/Jw4TpM", "127.0.0.1:1")
def test_nothing_of_it_is_shown(
    read: Callable[[str], Any], scheme: str, password: str, host: str
) -> None:
    try:
        made = read(f"{scheme}://account:{password}@{host}/db")
    except (CdcError, ValueError) as error:
        for text in shown(error):
            assert found_in(text) == []
        return
    assert found_in(f"{made} {made!r} {getattr(made, 'url', '')!r}") == []
    if isinstance(made, Endpoint):
        assert made.password == unquote(password)
        assert made.user == "account"


@given(password=PASSWORDS)
@example("58213/Xq7vKzJw4TpM")
def test_a_jobs_secrets_hide_it_whatever_the_dsn_is_worth(password: str) -> None:
    dsn = f"mysql://account:{password}@127.0.0.1:1/db"
    told = f"cannot reach {dsn}: {password!r}"
    hidden = Secrets.of_dsns(dsn).scrub(told)
    assert password not in hidden


@pytest.mark.parametrize("sign", list("/@#?%:[] \u2100"))
@pytest.mark.parametrize("section", ["A", "B", "C"])
def test_no_command_shows_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    sign: str,
    section: str,
) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(FILE)
    for name in "ABC":
        monkeypatch.setenv(name, SAFE)
    planted = f"{sign}58213{sign}Xq7vKz{sign}Jw4TpM{sign}"
    monkeypatch.setenv(section, f"mysql://account:{planted}@127.0.0.1:1/db")
    for words in (["status"], ["status", "--json"], ["run", "--until", "caught-up"]):
        assert main([*words, str(file)]) != 0
    told = capfd.readouterr()
    assert found_in(told.out + told.err) == []
    assert "Traceback" not in told.err
