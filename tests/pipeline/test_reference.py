"""The reference page and the schema say what the model says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from airflow_cdc_provider.pipeline.file.loader import parse_pipeline
from airflow_cdc_provider.pipeline.file.model import PipelineFile
from airflow_cdc_provider.pipeline.file.reference import PAGE, SCHEMA, json_schema, reference_page
from airflow_cdc_provider.pipeline.file.sections import VARIANTS
from tests.docs.pages import first_cells

ROOT = Path(__file__).parents[2]
REMAKE = "run: python -m airflow_cdc_provider.pipeline.file.reference"


def test_the_reference_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference_page(), REMAKE


def test_the_json_schema_is_up_to_date() -> None:
    assert SCHEMA.read_text(encoding="utf-8") == json_schema(), REMAKE


def test_every_key_has_a_meaning() -> None:
    schema = json.loads(json_schema())
    sections = [schema, *schema["$defs"].values()]
    assert PipelineFile.__name__ == schema["title"]
    for section in sections:
        for key, value in section["properties"].items():
            referred = schema["$defs"].get(value.get("$ref", "").rpartition("/")[2], {})
            said = value.get("description") or referred.get("description")
            assert said, f"{section['title']}.{key}"


def fits_the_schema(sink: dict[str, object]) -> bool:
    """Tell whether an editor takes a file with this sink by the published schema."""
    source = {"dsn_env": "SHOP_DSN", "tables": ["shop.*"]}
    file = {"pipeline": "shop", "source": source, "sink": sink}
    return bool(Draft202012Validator(json.loads(json_schema())).is_valid(file))


@pytest.mark.parametrize(
    "sink",
    [
        {"dsn_env": "DR_DSN"},
        {"type": "mysql", "conn_id": "dr", "existing_rows": "replace"},
        {"type": "changelog", "path": "/data", "format": "parquet", "types": "debezium"},
        {"type": "changelog", "path": "s3://bucket/log", "conn_id": "changes_s3"},
        {"type": "iceberg", "path": "s3://bucket/lake", "catalog": {"type": "sql", "conn_id": "c"}},
    ],
)
def test_the_schema_takes_the_keys_of_a_type(sink: dict[str, object]) -> None:
    assert fits_the_schema(sink)


@pytest.mark.parametrize(
    "sink",
    [
        {"dsn_env": "DR_DSN", "path": "/data"},
        {"type": "mysql", "conn_id": "dr", "format": "json"},
        {"type": "changelog"},
        {"type": "delta", "path": "/data", "catalog": {"type": "glue"}},
        {"type": "iceberg", "path": "/data", "catalog": {"type": "hive"}},
        {"type": "oracle", "dsn_env": "DR_DSN"},
    ],
)
def test_the_schema_refuses_the_keys_of_another_type(sink: dict[str, object]) -> None:
    assert not fits_the_schema(sink)


@pytest.mark.parametrize(("key", "kind"), [(k, t) for k, each in VARIANTS.items() for t in each])
def test_the_page_has_the_keys_of_each_type(key: str, kind: str) -> None:
    _, _, rest = reference_page().partition(f"### `{key}`, `type: {kind}`\n")
    keys = first_cells(rest.partition("\n## ")[0].partition("\n### ")[0])
    assert keys == set(VARIANTS[key][kind].model_fields)


def test_the_example_is_a_pipeline_file() -> None:
    text = (ROOT / "dags/pipelines/shop_to_dr.yaml.example").read_text(encoding="utf-8")
    assert str(parse_pipeline(text).model.name) == "shop_to_dr"


def test_the_smallest_file_of_the_page_is_a_pipeline_file() -> None:
    block = PAGE.read_text(encoding="utf-8").split("```yaml\n")[1].split("```")[0]
    assert str(parse_pipeline(block).model.name) == "shop_to_dr"
