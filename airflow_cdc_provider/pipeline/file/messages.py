"""What is wrong with a value of a pipeline file, and what to write instead.

The model knows of each key what it takes: its kind, its bounds, its default or an example. From
that a fix is made that can be typed, because what a key means is no answer to a wrong value.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Sequence
from typing import Any

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticUndefined

from airflow_cdc_provider.core.wrong_value import WrongValueError
from airflow_cdc_provider.pipeline.file.model import PipelineFile
from airflow_cdc_provider.pipeline.file.problems import Path

Explained = tuple[str, str]
"""What, fix."""
_KINDS = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "dict_type": "keys with values",
    "model_type": "a section with keys",
}
_QUOTED = re.compile(r"'(\w+)'")
_SMALLEST = "pipeline, source and sink"
_WIDE = 10_000
"""Characters in which an example of one line always fits."""


def explained(errors: Sequence[ErrorDetails], path: Path) -> Explained:
    """Return the problem and the fix for pydantic's errors at one path of the file.

    Several errors there are those of a union: each excludes one kind of value.
    """
    error, key = errors[0], str(path[-1]) if path else ""
    section = _model_at(path[:-1])
    cause = error.get("ctx", {}).get("error")
    if isinstance(cause, WrongValueError):
        return cause.what, cause.fix
    if error["type"] == "extra_forbidden":
        return f"unknown key {key!r}", _similar(key, section)
    if error["type"] == "missing":
        return f"{key!r} is missing", f"add it{_as_in(path)}"
    if not path and error["input"] is None:
        return "the file is empty", f"write at least {_SMALLEST}"
    return _what(errors), _fix(errors, path)


def _what(errors: Sequence[ErrorDetails]) -> str:
    """Describe what is wrong with a value."""
    error = errors[0]
    found = f"found {_brief(error['input'])}"
    if error["type"] == "too_short":
        return "the list is empty"
    kinds = _kinds(errors)
    if kinds:
        return f"input should be {kinds}, {found}"
    return f"{error['msg'][:1].lower()}{error['msg'][1:]}, {found}"


def _kinds(errors: Sequence[ErrorDetails]) -> str:
    """Name the kinds of value that a key takes; empty if an error is about something else."""
    kinds = [_KINDS.get(error["type"], "") for error in errors]
    return " or ".join(dict.fromkeys(kinds)) if all(kinds) else ""


def _fix(errors: Sequence[ErrorDetails], path: Path) -> str:
    """Describe what to write instead of a wrong value."""
    error, field = errors[0], _field_of(path)
    match error["type"]:
        case "literal_error":
            return f"write {_QUOTED.sub(_as_yaml, str(error.get('ctx', {}).get('expected')))}"
        case "bool_type":
            return "write true or false, without quotes"
        case "model_type" if not path:
            return f"write keys with values: at least {_SMALLEST}"
        case "model_type" if field is not None and not field.is_required():
            keys = ", ".join(_model_at(path).model_fields)
            return f"leave the key out for its defaults, or write its settings below it: {keys}"
        case "int_type" | "int_from_float" | "float_type":
            return f"write {_number(field)}, without quotes{_as_in(path)}"
        case "greater_than" | "greater_than_equal" | "less_than_equal":
            return f"write {_number(field)}{_as_in(path)}"
        case "too_short":
            return f"name at least one{_as_in(path)}"
        case _:
            return f"write {_kinds(errors) or 'another value'}{_as_in(path)}"


def _as_yaml(match: re.Match[str]) -> str:
    """Return a quoted word without quotes, unless YAML would read that as something else."""
    return match[1] if yaml.safe_load(match[1]) == match[1] else f'"{match[1]}"'


def _number(field: FieldInfo | None) -> str:
    """Describe the numbers that a key takes."""
    bounds = {} if field is None else {type(m).__name__: m for m in field.metadata}
    low = getattr(bounds.get("Ge"), "ge", None)
    above = getattr(bounds.get("Gt"), "gt", None)
    high = getattr(bounds.get("Le"), "le", None)
    kind = "a whole number" if field is not None and field.annotation is int else "a number"
    parts = [f"of at least {low}"] if low is not None else []
    parts += [f"above {above}"] if above is not None else []
    parts += [f"of at most {high}"] if high is not None else []
    return " ".join([kind, " and ".join(parts)]).strip()


def _as_in(path: Path) -> str:
    """Return an example of the key with a value, as `, as in key: value`."""
    while path and _field_of(path) is None:
        path = path[:-1]
    field = _field_of(path)
    if field is None:
        return ""
    example = next(iter(field.examples or ()), field.default)
    if example is None or example is PydanticUndefined:
        return ""
    shown = yaml.safe_dump(
        {path[-1]: example}, default_flow_style=True, sort_keys=False, width=_WIDE
    )
    return f", as in {shown.strip()[1:-1]}"


def _field_of(path: Path) -> FieldInfo | None:
    """Return the model's field at a path of the file, None if there is none."""
    if not path:
        return None
    return _model_at(path[:-1]).model_fields.get(str(path[-1]))


def _brief(value: object) -> str:
    """Return a wrong value as short text; a URL is not repeated."""
    text = json.dumps(value, default=str)
    if "://" in text:
        return "a URL"  # it may hold a password
    return text if len(text) <= 60 else f"{text[:57]}..."


def _similar(key: str, section: type[BaseModel]) -> str:
    """Suggest the known key that an unknown key resembles."""
    known = list(section.model_fields)
    near = difflib.get_close_matches(key, known, n=1)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"remove it; known here are {', '.join(known)}"


def _model_at(path: Path) -> type[BaseModel]:
    """Return the pydantic model of the section at `path`, the nearest parent's if it has none."""
    model: type[BaseModel] = PipelineFile
    for part in path:
        field = model.model_fields.get(str(part))
        if field is not None:
            model = _section_of(field.annotation) or model
    return model


def _section_of(annotation: Any) -> type[BaseModel] | None:
    """Return the section's model in a type annotation, None if there is none."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    candidates = (_section_of(argument) for argument in getattr(annotation, "__args__", ()))
    return next((candidate for candidate in candidates if candidate is not None), None)
