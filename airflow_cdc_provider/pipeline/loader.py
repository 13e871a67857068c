"""Read pipeline files: YAML, model, checks; every problem with its line and its fix."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from airflow_cdc_provider.core.errors import PipelineFileError
from airflow_cdc_provider.pipeline.checks import check_file
from airflow_cdc_provider.pipeline.model import PipelineFile
from airflow_cdc_provider.pipeline.problems import Path, Problem, WrongValueError, refusal
from airflow_cdc_provider.pipeline.yaml_lines import YamlDocument, read_yaml

SUFFIXES = {".yaml", ".yml"}


@dataclass(frozen=True, slots=True)
class LoadedPipeline:
    """A pipeline and the file it came from, so that later findings can name a line."""

    model: PipelineFile
    path: FilePath
    document: YamlDocument

    def refusal(self, *found: tuple[Path, str, str]) -> PipelineFileError:
        """Make the error for problems that only the server could show."""
        return refusal(str(self.path), [_located(self.document, *one) for one in found])

    def line_of(self, path: Path) -> int:
        """Return the line of a key."""
        return self.document.line_of(path)


def load_pipeline(path: FilePath | str) -> LoadedPipeline:
    """Read one pipeline file, or raise `PipelineFileError` with all that is wrong."""
    path = FilePath(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PipelineFileError(
            f"the pipeline file cannot be read: {getattr(error, 'strerror', None) or error}",
            where=str(path),
            risk="none: nothing was started",
            remedy="give the path of a YAML file in UTF-8",
        ) from None
    return parse_pipeline(text, path)


def parse_pipeline(text: str, path: FilePath | str = "pipeline.yaml") -> LoadedPipeline:
    """Read a pipeline from its text; `path` is only named in messages."""
    document = read_yaml(text)
    if document.problems:
        raise refusal(str(path), document.problems)
    try:
        # strict JSON: lists become tuples, nothing else is converted
        model = PipelineFile.model_validate_json(json.dumps(document.value), strict=True)
    except ValidationError as error:
        problems = list(_problems(error.errors(include_url=False), document))
        raise refusal(str(path), problems) from None
    loaded = LoadedPipeline(model, FilePath(path), document)
    found = list(check_file(model))
    if found:
        raise loaded.refusal(*found)
    return loaded


def load_folder(folder: FilePath | str) -> tuple[LoadedPipeline, ...]:
    """Read every pipeline file of a folder; names and server ids must not clash."""
    files = sorted(path for path in FilePath(folder).iterdir() if path.suffix in SUFFIXES)
    loaded = tuple(load_pipeline(path) for path in files)
    for number, later in enumerate(loaded):
        found = [clash for earlier in loaded[:number] for clash in _clashes(earlier, later)]
        if found:
            raise later.refusal(*found)
    return loaded


def _clashes(earlier: LoadedPipeline, later: LoadedPipeline) -> Iterator[tuple[Path, str, str]]:
    if earlier.model.pipeline == later.model.pipeline:
        yield (
            ("pipeline",),
            f"{earlier.path.name} has a pipeline of the same name",
            "rename one of them: state and ledger are kept by name",
        )
    mine, theirs = later.model.source.server_ids, earlier.model.source.server_ids
    if max(mine.start, theirs.start) < min(mine.stop, theirs.stop):
        free = max(mine.stop, theirs.stop)
        yield (
            ("source", "server_id"),
            f"server ids {mine.start}-{mine.stop - 1} overlap those of {earlier.path.name} "
            f"({theirs.start}-{theirs.stop - 1}): the source would cut one reader off",
            f"write server_id: {free}-{free + max(len(mine), 100) - 1}",
        )


def _located(document: YamlDocument, path: Path, what: str, fix: str) -> Problem:
    return Problem(document.line_of(path), path, what, fix)


def _problems(errors: Sequence[ErrorDetails], document: YamlDocument) -> Iterator[Problem]:
    for error in errors:
        path = _path_in_file(error["loc"], document.value)
        what, fix = _explained(error, path)
        yield _located(document, path, what, fix)


def _path_in_file(loc: tuple[int | str, ...], value: Any) -> Path:
    """Drop from pydantic's location what names a type instead of a key."""
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


def _explained(error: ErrorDetails, path: Path) -> tuple[str, str]:
    section = _model_at(path[:-1])
    key = str(path[-1]) if path else ""
    cause = error.get("ctx", {}).get("error")
    if isinstance(cause, WrongValueError):
        return cause.what, cause.fix
    if error["type"] == "extra_forbidden":
        return f"unknown key {key!r}", _similar(key, section)
    if error["type"] == "missing":
        field = section.model_fields.get(key)
        return f"{key!r} is missing", f"add it. {field.description if field else ''}".strip()
    message = error["msg"][:1].lower() + error["msg"][1:]
    field = section.model_fields.get(key)
    wanted = field.description if field is not None and field.description else "correct the value"
    return f"{message}, found {_brief(error['input'])}", wanted


def _brief(value: object) -> str:
    text = json.dumps(value, default=str)
    if "://" in text:
        return "a URL"  # it may hold a password
    return text if len(text) <= 60 else f"{text[:57]}..."


def _similar(key: str, section: type[BaseModel]) -> str:
    known = list(section.model_fields)
    near = difflib.get_close_matches(key, known, n=1)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"remove it; known here are {', '.join(known)}"


def _model_at(path: Path) -> type[BaseModel]:
    """Return the model of the section at `path`, the nearest parent's if it has none."""
    model: type[BaseModel] = PipelineFile
    for part in path:
        field = model.model_fields.get(str(part))
        if field is not None:
            model = _section_of(field.annotation) or model
    return model


def _section_of(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    candidates = (_section_of(argument) for argument in getattr(annotation, "__args__", ()))
    return next((candidate for candidate in candidates if candidate is not None), None)
