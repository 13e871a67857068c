"""The reference page and the schema say what the model says."""

from __future__ import annotations

import json

from airflow_cdc_provider.pipeline.model import PipelineFile
from airflow_cdc_provider.pipeline.reference import PAGE, SCHEMA, json_schema, reference_page

REMAKE = "run: python -m airflow_cdc_provider.pipeline.reference"


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
