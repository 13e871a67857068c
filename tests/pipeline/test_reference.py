"""The reference page and the schema say what the model says."""

from __future__ import annotations

import json
from pathlib import Path

from airflow_cdc_provider.pipeline.file.loader import parse_pipeline
from airflow_cdc_provider.pipeline.file.model import PipelineFile
from airflow_cdc_provider.pipeline.file.reference import PAGE, SCHEMA, json_schema, reference_page

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


def test_the_example_is_a_pipeline_file() -> None:
    text = (ROOT / "dags/pipelines/shop_to_dr.yaml.example").read_text(encoding="utf-8")
    assert str(parse_pipeline(text).model.name) == "shop_to_dr"


def test_the_smallest_file_of_the_page_is_a_pipeline_file() -> None:
    block = PAGE.read_text(encoding="utf-8").split("```yaml\n")[1].split("```")[0]
    assert str(parse_pipeline(block).model.name) == "shop_to_dr"
