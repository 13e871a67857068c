"""Read pipeline files: YAML, model, checks; every problem with its line and its fix."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from airflow_cdc_provider.core.errors import NOTHING_STARTED, PipelineFileError
from airflow_cdc_provider.pipeline.file.messages import explained
from airflow_cdc_provider.pipeline.file.model import PipelineFile
from airflow_cdc_provider.pipeline.file.problems import Path, Problem, refusal
from airflow_cdc_provider.pipeline.file.rules import check_file
from airflow_cdc_provider.pipeline.file.sections import location_of, without_unused
from airflow_cdc_provider.pipeline.file.spellings import as_written, spelt_twice
from airflow_cdc_provider.pipeline.file.yaml_lines import YamlDocument, read_yaml


@dataclass(frozen=True, slots=True)
class LoadedPipeline:
    """A pipeline file's model and path, with the line of each of its keys."""

    model: PipelineFile
    path: FilePath
    document: YamlDocument

    def refusal(self, *found: tuple[Path, str, str]) -> PipelineFileError:
        """Return the error for problems of the file, each with its line."""
        return refusal(str(self.path), [_located(self.document, *one) for one in found])

    def line_of(self, path: Path) -> int:
        """Return the line of a key in the file."""
        return self.document.line_of(as_written(path, self.document.value))


def load_pipeline(path: FilePath | str) -> LoadedPipeline:
    """Read one pipeline file, or raise `PipelineFileError` with all its problems."""
    path = FilePath(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PipelineFileError(
            f"the pipeline file cannot be read: {getattr(error, 'strerror', None) or error}",
            where=str(path),
            risk=NOTHING_STARTED,
            remedy="give the path of a YAML file in UTF-8",
        ) from None
    return parse_pipeline(text, path)


def parse_pipeline(text: str, path: FilePath | str = "pipeline.yaml") -> LoadedPipeline:
    """Read a pipeline file from its text; `path` is only named in messages."""
    document = read_yaml(text)
    if document.problems:
        raise refusal(str(path), document.problems)
    try:
        # strict JSON: lists become tuples, nothing else is converted
        text = json.dumps(without_unused(document.value))
        model = PipelineFile.model_validate_json(text, strict=True)
    except ValidationError as error:
        problems = list(_problems(error.errors(include_url=False), document))
        raise refusal(str(path), problems) from None
    loaded = LoadedPipeline(model, FilePath(path), document)
    found = [*spelt_twice(document.value), *check_file(model)]
    if found:
        raise loaded.refusal(*found)
    return loaded


def _located(document: YamlDocument, path: Path, what: str, fix: str) -> Problem:
    """Return a problem with its line in the file."""
    return Problem(document.line_of(as_written(path, document.value)), path, what, fix)


def _problems(errors: Sequence[ErrorDetails], document: YamlDocument) -> Iterator[Problem]:
    """Yield the problems that pydantic's errors show, one for each path."""
    found: dict[Path, list[ErrorDetails]] = {}
    for error in errors:
        found.setdefault(_path_in_file(location_of(error), document.value), []).append(error)
    for path, here in found.items():
        # a list is also called too short when its items are wrong
        if here[0]["type"] == "too_short" and here[0]["input"]:
            continue
        yield _located(document, path, *explained(here, path, document.value))


def _path_in_file(loc: tuple[int | str, ...], value: Any) -> Path:
    """Return pydantic's location as a path of keys, without the names of types."""
    path: list[int | str] = []
    for number, part in enumerate(loc):
        inside = (isinstance(value, dict) and part in value) or (
            isinstance(value, list) and isinstance(part, int) and part < len(value)
        )
        if inside:
            value = value[part]
            path.append(part)
        elif number == len(loc) - 1 and isinstance(value, dict) and part != "[key]":
            path.append(part)  # a key that is missing
    return tuple(path)
