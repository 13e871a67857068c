"""A pipeline file names the keys of tables, and a definition tells by which it was read."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace

import pytest

from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.jobspec import JobKind, JobSpec
from airflow_cdc_provider.core.named_keys import NO_NAMED_KEYS, NamedKeys
from airflow_cdc_provider.core.schema_codec import schema_from_json, schema_to_json
from airflow_cdc_provider.core.table_schema import TableSchema
from airflow_cdc_provider.pipeline.file.loader import parse_pipeline
from airflow_cdc_provider.systems.mysql.mysql_source import MySqlSource
from airflow_cdc_provider.systems.mysql.options import MySqlOptions
from airflow_cdc_provider.systems.registry import open_source, type_of_before_kinds
from tests.pipeline.pipeline_files import SMALL

KEYS = NamedKeys(
    (("shop.*", "by_any"), ("shop.items", ""), ("*.orders", "no"), ("shop.orders", "n"))
)
ORDERS = TableId("shop", "orders")
SCHEMA = TableSchema(ORDERS, (), ())


@pytest.mark.parametrize(
    ("table", "key"),
    [
        ("shop.orders", "n"),
        ("shop.items", ""),
        ("shop.lots", "by_any"),
        ("dw.orders", "no"),
        ("a.b", ""),
    ],
)
def test_a_tables_own_section_goes_before_patterns_even_without_a_key(table: str, key: str) -> None:
    assert KEYS.of(TableId.parse(table)) == key


def test_they_go_with_a_job_and_with_a_source_to_other_processes() -> None:
    spec = JobSpec(PipelineName("shop"), 1, JobKind.STREAM, source_options={"keys": KEYS.to_json()})
    assert JobSpec.from_json(spec.to_json()) == spec
    source = open_source(Endpoint.parse("mysql://u:p@h:1/"), spec.source_options)
    assert isinstance(source, MySqlSource)
    assert pickle.loads(pickle.dumps(source)).keys == KEYS


def test_names_are_compared_as_the_source_compares_them() -> None:
    other = TableId("SHOP", "Orders")
    assert (KEYS.of(other), KEYS.of(other, ignore_case=True)) == ("", "n")


def test_the_keys_of_a_file_go_to_where_its_source_is_opened_and_only_if_it_names_any() -> None:
    text = 'tables:\n  "shop.a": {key: by_a}\n  "shop.b": {where: "id > 3"}\n'
    options = parse_pipeline(SMALL + text).model.source_options
    sent = json.loads(json.dumps(options))
    assert MySqlOptions.of(sent).keys == NamedKeys((("shop.a", "by_a"), ("shop.b", "")))
    assert not NamedKeys((("shop.b", ""),))
    none = parse_pipeline(SMALL + text.replace("key: by_a", "")).model.source_options
    assert "keys" not in none
    assert MySqlOptions.of(none).keys == NO_NAMED_KEYS


@pytest.mark.parametrize("name", ["orders", "a.b", "a*b", "/x/", "a`b", "Äö ü"])
def test_a_definition_is_read_again_by_the_key_it_was_read_by(name: str) -> None:
    table = TableId("sh.op", name)
    schema = replace(SCHEMA, table=table, named_key="n", key_name="n")
    keys = NamedKeys.as_read(schema)
    assert keys.of(table) == "n"
    assert keys.of(TableId("sh.op", "axb")) == ""
    assert not NamedKeys.as_read(SCHEMA)


def test_who_chose_a_key_is_stored_and_is_nothing_to_the_rows() -> None:
    assert {"named_key", "key_problem", "key_name"}.isdisjoint(schema_to_json(SCHEMA))
    named = replace(SCHEMA, named_key="n")
    assert named.fingerprint == SCHEMA.fingerprint
    assert named.is_defined_as(SCHEMA)
    assert schema_from_json(schema_to_json(named), type_of_before_kinds) == named
    lost = replace(named, key_problem="it has no unique key n")
    assert lost.fingerprint != SCHEMA.fingerprint
    assert schema_from_json(schema_to_json(lost), type_of_before_kinds) == lost
