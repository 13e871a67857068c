"""References become servers, and what is missing is named with its line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from airflow_cdc_provider.core.catalog_access import CatalogAccess
from airflow_cdc_provider.core.endpoint import Endpoint, Folder, parse_sink
from airflow_cdc_provider.core.errors import PipelineFileError, RefusedError
from airflow_cdc_provider.core.jobspec import JobSpec
from airflow_cdc_provider.core.store_access import StoreAccess
from airflow_cdc_provider.engine.job import JobServers
from airflow_cdc_provider.pipeline.connections import (
    EnvironmentDsns,
    EnvironmentMasters,
    resolve_servers,
)
from airflow_cdc_provider.pipeline.default_state import default_state_of
from airflow_cdc_provider.pipeline.file.loader import LoadedPipeline, parse_pipeline
from airflow_cdc_provider.pipeline.file.model import Reference
from airflow_cdc_provider.pipeline.steps.jobs import snapshot_spec, stream_spec
from tests.pipeline.pipeline_files import FULL, SMALL

DSN = "mysql://cdc:planted%40secret@db.example:3307/?ssl_ca=/ca.pem"


def small(path: Path) -> LoadedPipeline:
    return parse_pipeline(SMALL, path / "shop.yaml")


def test_environment_variables_hold_the_dsns(tmp_path: Path) -> None:
    dsns = EnvironmentDsns({"SHOP_DSN": DSN, "DR_DSN": "mysql://root@127.0.0.1/"})
    servers = resolve_servers(small(tmp_path), dsns)
    assert (servers.source.host, servers.source.port) == ("db.example", 3307)
    assert servers.source.password == "planted@secret"
    assert servers.default_state == tmp_path / "shop.state.db"
    assert servers.state_dsn == f"sqlite:///{tmp_path}/shop.state.db"


def test_no_repr_shows_a_password(tmp_path: Path) -> None:
    dsns = EnvironmentDsns({"SHOP_DSN": DSN, "DR_DSN": DSN})
    assert "planted" not in repr(resolve_servers(small(tmp_path), dsns))
    assert "planted" not in repr(dsns)


def test_a_variable_that_is_not_set_is_named_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(PipelineFileError, match="DR_DSN is not set") as caught:
        resolve_servers(small(tmp_path), EnvironmentDsns({"SHOP_DSN": DSN}))
    assert "line 6, sink.dsn_env" in caught.value.what


def hashed(reference: str, *, at: Path) -> LoadedPipeline:
    mask = f"{{mail: {{sha256: {reference}}}}}"
    text = f'{SMALL}tables:\n  "shop.people":\n    columns: {{mask: {mask}}}\n'
    return parse_pipeline(text, at / "shop.yaml")


def test_a_salt_is_found_handed_to_the_job_and_hidden(tmp_path: Path) -> None:
    salt = "planted salt / of 16"
    stored = {"conn_type": "generic", "password": salt}
    environment = {
        "SHOP_DSN": DSN,
        "DR_DSN": DSN,
        "SHOP_SALT": salt,
        "AIRFLOW_CONN_SHOP_SALT": json.dumps(stored),
    }
    for reference in ("salt_env: SHOP_SALT", "conn_id: shop_salt"):
        loaded = hashed(f"{{{reference}}}", at=tmp_path)
        servers = resolve_servers(loaded, EnvironmentDsns(environment))
        spec = snapshot_spec(loaded.model, 1)
        assert spec.salts == (reference.replace(":", ""),)
        assert set(spec.secret_envs) == servers.environment().keys()
        assert "planted" not in f"{servers!r}{spec.to_json()}"
        assert JobSpec.from_json(spec.to_json()) == spec
        of_job = JobServers.from_environment(spec, servers.environment())
        assert [each.text for each in of_job.salts] == [salt]
        assert "planted" not in repr(of_job)
        assert of_job.secrets.scrub(f"no {salt}") == servers.secrets.scrub("no ***") == "no ***"
        assert JobSpec.from_json(stream_spec(loaded.model, 1).to_json()).salts == spec.salts


@pytest.mark.parametrize(
    ("reference", "environment", "why"),
    [
        ("{salt_env: SHOP_SALT}", {}, "variable SHOP_SALT is not set, and is the salt"),
        ("{salt_env: SHOP_SALT}", {"SHOP_SALT": "planted"}, "SHOP_SALT has 7 bytes: a salt has 16"),
        ("{salt_env: SHOP_SALT}", {"SHOP_SALT": "\udcff" * 20}, "bytes that are no text in UTF-8"),
        (
            "{salt_env: SHOP_SALT}",
            {"SHOP_SALT": "0123456789abcde\ufffd"},
            "bytes that are no text in UTF-8",
        ),
        (
            "{conn_id: shop_salt}",
            {"AIRFLOW_CONN_SHOP_SALT": "generic://:%FF%FE%FD%FC%FB%FA@h"},
            "bytes that are no text in UTF-8",
        ),
        ("{conn_id: shop_salt}", {}, "connection 'shop_salt' is not set"),
        ("{conn_id: shop_salt}", {"AIRFLOW_CONN_SHOP_SALT": "x://h"}, "'shop_salt' is not set"),
        ("{}", {}, "wanted one of conn_id and salt_env, neither is there"),
        ("{conn_id: a, salt_env: B}", {}, "wanted one of conn_id and salt_env, both are there"),
    ],
)
def test_a_salt_that_is_missing_or_short_is_refused_with_its_line(
    tmp_path: Path, reference: str, environment: dict[str, str], why: str
) -> None:
    dsns = EnvironmentDsns({"SHOP_DSN": DSN, "DR_DSN": DSN, **environment})
    with pytest.raises(PipelineFileError, match=re.escape(why)) as refused:
        resolve_servers(hashed(reference, at=tmp_path), dsns)
    assert 'line 9, tables["shop.people"].columns.mask.mail.sha256' in refused.value.what
    assert "planted" not in str(refused.value)


def test_a_dsn_that_is_none_is_refused_without_repeating_it(tmp_path: Path) -> None:
    wrong = "oracle://u:planted@h/"
    with pytest.raises(PipelineFileError) as caught:
        resolve_servers(small(tmp_path), EnvironmentDsns({"SHOP_DSN": wrong, "DR_DSN": DSN}))
    assert "planted" not in str(caught.value)


def test_connections_are_found_where_airflow_keeps_them_in_the_environment() -> None:
    stored = {
        "conn_type": "mysql",
        "host": "dr.example",
        "login": "cdc",
        "password": "p@ss/word",
        "extra": {"ssl_disabled": True},
    }
    dsns = EnvironmentDsns(
        {
            "AIRFLOW_CONN_SHOP_MYSQL": DSN,
            "AIRFLOW_CONN_DR_MYSQL": json.dumps(stored),
            "AIRFLOW_CONN_CDC_STATE": "mysql://cdc@127.0.0.1/state",
        }
    )
    servers = resolve_servers(parse_pipeline(FULL), dsns)
    assert isinstance(servers.sink, Endpoint)
    assert (servers.sink.host, servers.sink.password) == ("dr.example", "p@ss/word")
    assert servers.sink.ssl_disabled
    assert servers.default_state is None


@pytest.mark.parametrize(
    "stored",
    [
        json.dumps({"conn_type": "cdc_mysql", "host": "dr.example", "login": "cdc"}),
        json.dumps({"conn_type": "mariadb", "host": "dr.example", "login": "cdc"}),
        "cdc-mysql://cdc@dr.example/",
        "cdc_mysql://cdc@dr.example/",
    ],
)
def test_a_connection_of_our_own_type_is_a_server_like_any_other(stored: str) -> None:
    dsns = EnvironmentDsns(
        {
            "AIRFLOW_CONN_SHOP_MYSQL": DSN,
            "AIRFLOW_CONN_DR_MYSQL": stored,
            "AIRFLOW_CONN_CDC_STATE": "postgres://cdc@127.0.0.1/state",
        }
    )
    servers = resolve_servers(parse_pipeline(FULL), dsns)
    assert isinstance(servers.sink, Endpoint)
    assert (servers.sink.host, servers.sink.user) == ("dr.example", "cdc")
    assert servers.state_dsn == "postgresql://cdc@127.0.0.1/state"


def stored_connection(**fields: object) -> str:
    return json.dumps({"conn_type": "mysql", "host": "dr.example", "login": "cdc"} | fields)


@pytest.mark.parametrize(
    "stored",
    [
        stored_connection(extra={"ssl_mode": "VERIFY_CA", "charset": "utf8"}),
        stored_connection(extra=json.dumps({"ssl": {"ca": "/ca.pem"}, "ssl_mode": "verify_ca"})),
        stored_connection(extra={"ssl_verify_identity": False}),
        "mysql://cdc@dr.example/?ssl_mode=VERIFY_CA&charset=utf8",
        "mysql://cdc@dr.example/?__extra__=%7B%22ssl_mode%22%3A+%22VERIFY_CA%22%7D",
    ],
)
def test_a_connection_of_the_environment_means_what_it_means_to_airflow(stored: str) -> None:
    dsn = EnvironmentDsns({"AIRFLOW_CONN_DR": stored})(Reference(conn_id="dr"))
    found = Endpoint.parse(dsn or "")
    assert (found.host, found.user, found.ssl_verify_identity) == ("dr.example", "cdc", False)


def test_a_tls_setting_of_the_environment_that_is_not_understood_is_refused() -> None:
    stored = stored_connection(extra={"ssl_mode": "PREFERRED"})
    with pytest.raises(RefusedError, match="connection dr"):
        EnvironmentDsns({"AIRFLOW_CONN_DR": stored})(Reference(conn_id="dr"))


@pytest.mark.parametrize(
    ("stored", "dsn"),
    [
        (stored_connection(host="::1", port=3307), "mysql://cdc@[::1]:3307/"),
        ('{"conn_type": "sqlite", "host": "/tmp/state.db"}', "sqlite:////tmp/state.db"),
        ("sqlite:////tmp/state.db", "sqlite:////tmp/state.db"),
        ("sqlite://%2Ftmp%2Fstate.db", "sqlite:////tmp/state.db"),
        ('{"conn_type": "postgres", "host": "pg"}', "postgresql://pg/"),
    ],
)
def test_a_connection_of_the_environment_is_written_as_one_dsn(stored: str, dsn: str) -> None:
    assert EnvironmentDsns({"AIRFLOW_CONN_DR": stored})(Reference(conn_id="dr")) == dsn


@pytest.mark.parametrize(
    ("stored", "master"),
    [
        ("spark://host:7077", "spark://host:7077"),
        ("spark://host", "spark://host:7077"),
        ('{"conn_type": "spark", "host": "host", "port": 7078}', "spark://host:7078"),
        ('{"conn_type": "spark", "host": "spark://host", "port": 7078}', "spark://host:7078"),
        ('{"conn_type": "spark", "host": "sc://host:15002"}', "sc://host:15002"),
        ("spark://sc%3A%2F%2Fhost:15002", "sc://host:15002"),
        ('{"conn_type": "spark", "host": "local[2]"}', "local[2]"),
        ("spark://local%5B2%5D", "local[2]"),
    ],
)
def test_a_master_is_read_the_same_way_wherever_its_connection_is(stored: str, master: str) -> None:
    assert EnvironmentMasters({"AIRFLOW_CONN_S": stored})("s") == master


def test_a_connection_that_is_not_there_is_named_with_its_line() -> None:
    with pytest.raises(PipelineFileError, match="no connection 'shop_mysql'") as caught:
        resolve_servers(parse_pipeline(FULL), EnvironmentDsns({}))
    assert "line 3, source.conn_id" in caught.value.what


def test_a_folder_is_named_by_the_file_and_needs_no_dsn() -> None:
    small = parse_pipeline(
        'pipeline: p\nsource: {dsn_env: A, tables: ["a.*"]}\n'
        "sink: {type: changelog, path: '/data/my changes@1', format: parquet}\n"
    )
    servers = resolve_servers(small, EnvironmentDsns({"A": DSN}))
    assert servers.sink == Folder("/data/my changes@1", "parquet")
    assert parse_sink(servers.sink_dsn) == servers.sink


@pytest.fixture
def airflow_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    monkeypatch.setenv("AIRFLOW_HOME", str(home))
    return home


def default_state(folder: Path, *, in_airflow: bool) -> Path:
    return default_state_of(small(folder).model, folder / "shop.yaml", in_airflow=in_airflow)


def test_airflow_keeps_a_state_that_is_not_named_out_of_the_dag_folder(
    tmp_path: Path, airflow_home: Path
) -> None:
    kept = default_state(tmp_path, in_airflow=True)
    assert kept == airflow_home / "cdc" / "shop.state.db"
    assert default_state(tmp_path, in_airflow=False) == tmp_path / "shop.state.db"


@pytest.mark.parametrize("begins_in_airflow", [True, False])
def test_airflow_and_the_command_line_find_the_state_that_either_has_made(
    tmp_path: Path, airflow_home: Path, begins_in_airflow: bool
) -> None:
    made = default_state(tmp_path, in_airflow=begins_in_airflow)
    made.parent.mkdir(parents=True, exist_ok=True)
    made.touch()
    assert default_state(tmp_path, in_airflow=True) == made
    assert default_state(tmp_path, in_airflow=False) == made


def test_a_state_beside_the_file_of_before_goes_before_one_in_airflow_s_home(
    tmp_path: Path, airflow_home: Path
) -> None:
    for place in (tmp_path, airflow_home / "cdc"):
        place.mkdir(parents=True, exist_ok=True)
        (place / "shop.state.db").touch()
    assert default_state(tmp_path, in_airflow=True) == tmp_path / "shop.state.db"


KEY = "planted/secret+1"


def logged(path: Path, more: str = "  dsn_env: CHANGES_S3\n") -> LoadedPipeline:
    to_s3 = f"  type: changelog\n  path: s3://bucket/logs/shop\n{more}"
    return parse_pipeline(SMALL.replace("  dsn_env: DR_DSN\n", to_s3), path / "shop.yaml")


@pytest.mark.parametrize(
    ("reference", "stored"),
    [
        ("dsn_env: CHANGES_S3", "aws://id:planted%2Fsecret%2B1@/?region_name=eu-west-1&{}"),
        (
            "conn_id: changes_s3",
            '{{"conn_type": "aws", "login": "id", "password": "planted/secret+1", '
            '"extra": {{"region_name": "eu-west-1", "endpoint_url": "https://s3.example:9000", '
            '"aws_session_token": "planted-token="}}}}',
        ),
    ],
)
def test_the_key_of_a_store_goes_to_the_job_and_is_hidden(
    tmp_path: Path, reference: str, stored: str
) -> None:
    more = "endpoint_url=https%3A//s3.example%3A9000&aws_session_token=planted-token%3D"
    name = "CHANGES_S3" if reference.startswith("dsn_env") else "AIRFLOW_CONN_CHANGES_S3"
    environment = {"SHOP_DSN": DSN, name: stored.format(more)}
    loaded = logged(tmp_path, f"  {reference}\n")
    servers = resolve_servers(loaded, EnvironmentDsns(environment))
    access = StoreAccess("id", KEY, "planted-token=", "eu-west-1", "https://s3.example:9000")
    assert servers.sink == Folder("s3://bucket/logs/shop", "json", access=access)
    assert servers.sink.identity == "s3://bucket/logs/shop?form=json"
    spec = snapshot_spec(loaded.model, 1)
    of_job = JobServers.from_environment(spec, servers.environment())
    assert of_job.sink == servers.sink
    assert "planted" not in f"{servers!r}{of_job!r}{spec.to_json()}{servers.sink}"
    assert of_job.secrets.scrub(f"{KEY} planted-token=") == "*** ***"
    assert servers.secrets.scrub(servers.sink_dsn).count("planted") == 0


def test_without_a_reference_the_environment_says_how_to_get_into_a_store(tmp_path: Path) -> None:
    servers = resolve_servers(logged(tmp_path, ""), EnvironmentDsns({"SHOP_DSN": DSN}))
    assert servers.sink == Folder("s3://bucket/logs/shop", "json")
    assert servers.sink_dsn == "s3://bucket/logs/shop?form=json"


@pytest.mark.parametrize(
    ("stored", "why"),
    [
        ("", "CHANGES_S3 is not set"),
        ("mysql://id:planted@host/", "is of type 'mysql'"),
        ("aws://id@/", "a key id and no secret"),
        ("aws://id:planted@/?role_arn=planted", "role_arn is not known of a store"),
        ("aws://id:planted@host/?region_name=x", "host is not known of a store"),
        ("aws://id:planted@/?endpoint_url=planted", "the endpoint is no URL"),
        ("aws://id:planted@/?endpoint_url=https%3A//u%3Aplanted%40h", "has an account in it"),
        ("aws://:@/?aws_session_token=planted", "no key that it is of"),
        ("planted", "neither JSON nor a URI|does not begin with a scheme"),
    ],
)
def test_a_key_of_a_store_that_is_none_is_refused_without_repeating_it(
    tmp_path: Path, stored: str, why: str
) -> None:
    dsns = EnvironmentDsns({"SHOP_DSN": DSN, "CHANGES_S3": stored})
    with pytest.raises(RefusedError, match=why) as refused:
        resolve_servers(logged(tmp_path), dsns)
    assert "planted" not in str(refused.value)


PASSWORD = "planted/secret+2"


def in_lake(path: Path, catalog: str) -> LoadedPipeline:
    to_lake = f"  type: iceberg\n  path: s3://bucket/lake\n  catalog: {{{catalog}}}\n"
    return parse_pipeline(SMALL.replace("  dsn_env: DR_DSN\n", to_lake), path / "shop.yaml")


@pytest.mark.parametrize(
    ("kind", "stored", "dsn"),
    [
        (
            "sql",
            "postgresql://me:planted%2Fsecret%2B2@db:5433/lake?sslmode=verify-ca",
            "postgresql://me:planted%2Fsecret%2B2@db:5433/lake?sslmode=verify-ca",
        ),
        (
            "sql",
            '{"conn_type": "mysql", "host": "db", "schema": "lake", "login": "me", '
            '"password": "planted/secret+2"}',
            "mysql://me:planted%2Fsecret%2B2@db/lake",
        ),
        (
            "rest",
            "https://me:planted%2Fsecret%2B2@cat:8181/api%2Fcatalog",
            "https://me:planted%2Fsecret%2B2@cat:8181/api%2Fcatalog",
        ),
        (
            "rest",
            '{"conn_type": "iceberg", "host": "https://cat/api/catalog", "login": "me", '
            '"password": "planted/secret+2"}',
            "https://me:planted%2Fsecret%2B2@cat/api%2Fcatalog",
        ),
        (
            "rest",
            '{"conn_type": "http", "host": "cat", "port": 8181, "password": "planted/secret+2"}',
            "http://:planted%2Fsecret%2B2@cat:8181/",
        ),
    ],
)
@pytest.mark.parametrize("reference", ["dsn_env: LAKE", "conn_id: lake"])
def test_the_account_of_a_catalog_goes_to_the_job_and_is_hidden(
    tmp_path: Path, reference: str, kind: str, stored: str, dsn: str
) -> None:
    name = "LAKE" if reference.startswith("dsn_env") else "AIRFLOW_CONN_LAKE"
    loaded = in_lake(tmp_path, f"type: {kind}, {reference}, name: company")
    servers = resolve_servers(loaded, EnvironmentDsns({"SHOP_DSN": DSN, name: stored}))
    access = CatalogAccess(kind, "company", dsn)
    assert servers.sink == Folder("s3://bucket/lake", "iceberg", commit_seconds=60, catalog=access)
    assert servers.sink.identity == "s3://bucket/lake?form=iceberg"
    spec = snapshot_spec(loaded.model, 1)
    of_job = JobServers.from_environment(spec, servers.environment())
    assert of_job.sink == servers.sink
    assert "planted" not in f"{servers!r}{of_job!r}{spec.to_json()}{servers.sink}"
    assert of_job.secrets.scrub(PASSWORD) == "***"
    assert "planted" not in servers.secrets.scrub(servers.sink_dsn)


def test_a_job_knows_which_views_a_catalog_is_to_have(tmp_path: Path) -> None:
    loaded = in_lake(tmp_path, "type: rest, dsn_env: LAKE, view: '{table} & now'")
    servers = resolve_servers(loaded, EnvironmentDsns({"SHOP_DSN": DSN, "LAKE": "http://cat/"}))
    spec = snapshot_spec(loaded.model, 1)
    of_job = JobServers.from_environment(spec, servers.environment()).sink
    assert isinstance(of_job, Folder)
    assert of_job.catalog is not None
    assert of_job.catalog.view == "{table} & now"


def test_glue_is_a_catalog_without_an_account_of_its_own(tmp_path: Path) -> None:
    loaded = in_lake(tmp_path, "type: glue, properties: {glue.region: eu-west-1}")
    servers = resolve_servers(loaded, EnvironmentDsns({"SHOP_DSN": DSN}))
    access = CatalogAccess("glue", "lake", properties=(("glue.region", "eu-west-1"),))
    assert servers.sink == Folder("s3://bucket/lake", "iceberg", commit_seconds=60, catalog=access)


@pytest.mark.parametrize(
    ("kind", "stored", "why"),
    [
        ("sql", "", "LAKE is not set"),
        ("sql", "sqlite:////planted/catalog.db", "a catalog of SQLite is a file in the folder"),
        ("sql", "https://me:planted@cat/", "is of type 'https'"),
        ("rest", "postgresql://me:planted@db/lake", "is of type 'postgresql'"),
        ("rest", "https://me:planted@cat/?scope=planted", "scope is not known of a catalog"),
        (
            "rest",
            '{"conn_type": "iceberg", "host": "https://me:planted@cat/"}',
            "its host is no URL of a server",
        ),
        (
            "rest",
            '{"conn_type": "iceberg", "host": "ftp://cat/"}',
            "its host is no URL of a server",
        ),
    ],
)
def test_an_account_of_a_catalog_that_is_none_is_refused_without_repeating_it(
    tmp_path: Path, kind: str, stored: str, why: str
) -> None:
    dsns = EnvironmentDsns({"SHOP_DSN": DSN, "LAKE": stored})
    with pytest.raises(RefusedError, match=why) as refused:
        resolve_servers(in_lake(tmp_path, f"type: {kind}, dsn_env: LAKE"), dsns)
    assert "planted" not in str(refused.value)
