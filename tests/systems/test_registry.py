"""Which system a DSN is of, and that whoever asks for its source gets that system's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_cdc_provider.core.endpoint import Endpoint, parse_sink
from airflow_cdc_provider.core.errors import RefusedError
from airflow_cdc_provider.core.identifiers import PipelineName
from airflow_cdc_provider.engine.sink.port import Owner
from airflow_cdc_provider.systems.kinds import KINDS, abilities_of, conn_types, extra_reader
from airflow_cdc_provider.systems.mysql.mysql_sink import MySqlSink
from airflow_cdc_provider.systems.mysql.mysql_source import MySqlSource
from airflow_cdc_provider.systems.registry import open_sink, open_source


@pytest.mark.parametrize("scheme", ["mysql", "mariadb", "MySQL"])
def test_a_dsn_names_its_system_by_the_scheme(scheme: str) -> None:
    endpoint = Endpoint.parse(f"{scheme}://ann@db/")
    assert (endpoint.system, endpoint.port) == ("mysql", 3306)
    assert isinstance(open_source(endpoint), MySqlSource)


def test_a_source_is_of_the_system_that_the_endpoint_names() -> None:
    endpoint = replace(Endpoint.parse("mysql://ann@db/"), system="changelog")
    with pytest.raises(RefusedError, match="a change log is no source"):
        open_source(endpoint)


def test_a_sink_without_a_name_is_of_the_system_that_the_endpoint_names() -> None:
    owner = Owner(PipelineName("p"), 1)
    assert isinstance(open_sink("", Endpoint.parse("mysql://ann@db/"), owner), MySqlSink)


def test_an_endpoint_of_no_known_system_opens_nothing() -> None:
    with pytest.raises(RefusedError, match="use one of changelog, delta, iceberg, mysql"):
        open_source(Endpoint("db", 1, "ann", "secret"))


def test_no_two_systems_have_a_scheme_in_common() -> None:
    schemes = [scheme for kind in KINDS.values() for scheme in kind.schemes]
    assert len(schemes) == len(set(schemes))


def test_no_two_systems_have_a_connection_type_in_common() -> None:
    names = [each.name for kind in KINDS.values() for each in kind.conn_types]
    assert len(names) == len(conn_types())


def test_a_system_with_connection_types_reads_their_extra_and_has_a_scheme() -> None:
    for kind, _ in conn_types().values():
        assert extra_reader(kind).dsn_options({}) == {}
        assert kind.schemes


@pytest.mark.parametrize(
    ("name", "place"),
    [("mysql", "mysql://ann@db/"), ("changelog", "file:///data/changes?form=json")],
)
def test_what_a_sink_can_do_is_known_before_it_is_opened(name: str, place: str) -> None:
    opened = open_sink(name, parse_sink(place), Owner(PipelineName("p"), 1))
    assert opened.abilities == abilities_of(name)


@pytest.mark.parametrize(("name", "wanted"), [("mysql", "a server"), ("changelog", "the form of")])
def test_a_store_of_files_is_a_place_for_neither_system(name: str, wanted: str) -> None:
    with pytest.raises(RefusedError, match=wanted):
        open_sink(name, parse_sink("file:///data/changes"), Owner(PipelineName("p"), 1))
