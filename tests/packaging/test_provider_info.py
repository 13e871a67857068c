"""The provider's description is a literal; here it is compared with the package it describes."""

from __future__ import annotations

import importlib
import json
import pkgutil
from importlib import metadata, resources
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

import airflow_cdc_provider
from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.server_look import Part
from airflow_cdc_provider.get_provider_info import get_provider_info
from airflow_cdc_provider.hooks.cdc import CdcHook, CdcSinkHook, CdcStateHook
from airflow_cdc_provider.pipeline.connection_fields import STATE_TYPE
from airflow_cdc_provider.systems.kinds import conn_types, extra_reader

INFO = get_provider_info()
PACKAGE = "airflow_cdc_provider"


def imported(dotted: str) -> Any:
    module, _, name = dotted.rpartition(".")
    return getattr(importlib.import_module(module), name)


def schema(name: str) -> dict[str, Any]:
    text = resources.files("airflow").joinpath(name).read_text(encoding="utf-8")
    read: dict[str, Any] = json.loads(text)
    return read


def test_the_description_fits_the_schema_airflow_reads_it_by() -> None:
    jsonschema.validate(INFO, schema("provider_info.schema.json"))


def test_the_description_fits_the_strict_schema_of_airflows_own_providers() -> None:
    release = {"state": "ready", "source-date-epoch": 0, "versions": ["0.1.0"]}
    jsonschema.validate(INFO | release, schema("provider.yaml.schema.json"))


def test_the_name_is_the_distributions() -> None:
    assert INFO["package-name"] == metadata.metadata("airflow-provider-cdc")["Name"]


@pytest.mark.parametrize("kind", ["operators", "sensors", "hooks", "triggers"])
def test_every_module_named_can_be_imported(kind: str) -> None:
    for entry in INFO[kind]:
        for module in entry["python-modules"]:
            importlib.import_module(module)


@pytest.mark.parametrize(
    ("kind", "base"),
    [
        ("operators", "airflow.sdk.BaseOperator"),
        ("sensors", "airflow.sdk.BaseSensorOperator"),
        ("triggers", "airflow.triggers.base.BaseTrigger"),
        ("hooks", "airflow.sdk.BaseHook"),
    ],
)
def test_every_module_with_something_to_use_is_named(kind: str, base: str) -> None:
    named = {module for entry in INFO[kind] for module in entry["python-modules"]}
    folder = resources.files(airflow_cdc_provider) / kind
    for found in pkgutil.iter_modules([str(folder)], f"{PACKAGE}.{kind}."):
        module = importlib.import_module(found.name)
        ours = [
            value
            for name, value in vars(module).items()
            if name.startswith("Cdc") and getattr(value, "__module__", "") == found.name
        ]
        uses = any(isinstance(value, type) and issubclass(value, imported(base)) for value in ours)
        if uses and not found.name.endswith(".base"):
            assert found.name in named


def test_the_dotted_names_lead_to_something() -> None:
    for name in [*INFO["extra-links"], *INFO["cli"]]:
        assert callable(imported(name))


@pytest.mark.parametrize("hook", [CdcHook, CdcSinkHook, CdcStateHook])
def test_a_connection_type_is_the_hooks_own(hook: type[CdcHook] | type[CdcStateHook]) -> None:
    kinds = {imported(kind["hook-class-name"]): kind for kind in INFO["connection-types"]}
    assert len(kinds) == len(INFO["connection-types"]) == 3
    assert kinds[hook]["connection-type"] == hook.conn_type
    assert kinds[hook]["hook-name"] == hook.hook_name


def test_the_connection_types_are_those_that_a_system_or_the_state_store_has() -> None:
    ours = [(kind, each) for kind, each in conn_types().values() if each.part is not None]
    fields = {each.name: extra_reader(kind).FORM_FIELDS for kind, each in ours}
    listed = {kind["connection-type"]: kind["conn-fields"] for kind in INFO["connection-types"]}
    assert listed.keys() == fields.keys() | {STATE_TYPE}
    assert {name: tuple(listed[name]) for name in fields} == fields


@pytest.mark.parametrize(("hook", "part"), [(CdcHook, Part.SOURCE), (CdcSinkHook, Part.SINK)])
def test_a_hook_tests_the_part_that_its_connection_type_is_of(
    hook: type[CdcHook], part: Part
) -> None:
    assert hook.part == conn_types()[hook.conn_type][1].part == part


def test_the_connections_fields_are_options_that_an_endpoint_knows() -> None:
    for kind in INFO["connection-types"]:
        assert set(kind["conn-fields"]) - {"kind"} <= set(Endpoint.__dataclass_fields__)


def test_the_version_a_setting_came_with_is_a_release() -> None:
    for section in INFO["config"].values():
        for option in section["options"].values():
            assert option["version_added"] <= airflow_cdc_provider.__version__
