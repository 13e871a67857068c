"""What is wrong with a value of a pipeline file, and what to write instead.

The model knows of each key what it takes: its kind, its bounds, its default or an example. From
that a fix is made that can be typed, because what a key means is no answer to a wrong value.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticUndefined

from airflow_cdc_provider.core.wrong_value import WrongValueError
from airflow_cdc_provider.pipeline.file.model import PipelineFile
from airflow_cdc_provider.pipeline.file.problems import Path
from airflow_cdc_provider.pipeline.file.sections import (
    TO_COME,
    VARIANTS,
    WRONG_TYPE,
    type_of,
    variant_for,
    variants_of,
)

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


def explained(errors: Sequence[ErrorDetails], path: Path, file: Any) -> Explained:
    """Return the problem and the fix for pydantic's errors at one path of the file.

    Several errors there are those of a union: each excludes one kind of value. `file` is the
    whole file's value: which keys a section has depends on its `type`.
    """
    error, key = errors[0], str(path[-1]) if path else ""
    section = _model_at(path[:-1], file)
    cause = error.get("ctx", {}).get("error")
    if isinstance(cause, WrongValueError):
        return cause.what, cause.fix
    if error["type"] in WRONG_TYPE:
        return _wrong_type(str(path[0]), error["input"].get("type"))
    if error["type"] == "extra_forbidden":
        return _of_another_type(path, section) or (
            f"unknown key {key!r}",
            _similar(path, section),
        )
    if error["type"] == "missing":
        return f"{key!r} is missing", f"add it{_as_in(path, file)}"
    if not path and error["input"] is None:
        return "the file is empty", f"write at least {_SMALLEST}"
    return _what(errors), _fix(errors, path, file)


def _wrong_type(part: str, found: Any) -> Explained:
    """Describe a `type` that no system has for a source or sink."""
    known = list(VARIANTS[part])
    if found in TO_COME:
        what = f"{part}s of type {found!r} are not in this release"
        return what, f"available are: {', '.join(known)}"
    wanted = " or ".join(repr(each) for each in known)
    return f"input should be {wanted}, found {_brief(found)}", f"write {' or '.join(known)}"


def _of_another_type(path: Path, section: type[BaseModel]) -> Explained | None:
    """Describe a key that a source or sink of another type has; None if none has it."""
    part, key = str(path[0]), str(path[-1])
    if len(path) != 2 or part not in VARIANTS:
        return None
    having = [name for name, each in VARIANTS[part].items() if key in each.model_fields]
    if not having:
        return None
    what = f"a {part} of type {type_of(section)} has no {key}"
    return what, f"write type: {' or '.join(having)}, or remove it"


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


def _fix(errors: Sequence[ErrorDetails], path: Path, file: Any) -> str:
    """Describe what to write instead of a wrong value."""
    error, field = errors[0], _field_of(path, file)
    match error["type"]:
        case "literal_error":
            return f"write {_QUOTED.sub(_as_yaml, str(error.get('ctx', {}).get('expected')))}"
        case "bool_type":
            return "write true or false, without quotes"
        case "model_type" if not path:
            return f"write keys with values: at least {_SMALLEST}"
        case "model_type" if field is not None and not field.is_required():
            keys = ", ".join(_model_at(path, file).model_fields)
            return f"leave the key out for its defaults, or write its settings below it: {keys}"
        case "int_type" | "int_from_float" | "float_type":
            return f"write {_number(field)}, without quotes{_as_in(path, file)}"
        case "greater_than" | "greater_than_equal" | "less_than_equal":
            return f"write {_number(field)}{_as_in(path, file)}"
        case "too_short":
            return f"name at least one{_as_in(path, file)}"
        case _:
            return f"write {_kinds(errors) or 'another value'}{_as_in(path, file)}"


def _as_yaml(match: re.Match[str]) -> str:
    """Return a quoted word without quotes, unless YAML would read that as something else."""
    return match[1] if yaml.safe_load(match[1]) == match[1] else f'"{match[1]}"'


def _number(field: FieldInfo | None) -> str:
    """Describe the numbers that a key takes."""
    bounds = {} if field is None else {type(m).__name__: m for m in field.metadata}
    low = getattr(bounds.get("Ge"), "ge", None)
    above = getattr(bounds.get("Gt"), "gt", None)
    high = getattr(bounds.get("Le"), "le", None)
    is_whole = field is not None and field.annotation in {int, int | None}
    kind = "a whole number" if is_whole else "a number"
    parts = [f"of at least {low}"] if low is not None else []
    parts += [f"above {above}"] if above is not None else []
    parts += [f"of at most {high}"] if high is not None else []
    return " ".join([kind, " and ".join(parts)]).strip()


def _as_in(path: Path, file: Any) -> str:
    """Return an example of the key with a value, as `, as in key: value`."""
    while path and _field_of(path, file) is None:
        path = path[:-1]
    field = _field_of(path, file)
    if field is None:
        return ""
    example = next(iter(field.examples or ()), field.default)
    if example is None or example is PydanticUndefined:
        return ""
    shown = yaml.safe_dump(
        {path[-1]: example}, default_flow_style=True, sort_keys=False, width=_WIDE
    )
    return f", as in {shown.strip()[1:-1]}"


def _field_of(path: Path, file: Any) -> FieldInfo | None:
    """Return the model's field at a path of the file, None if there is none."""
    if not path:
        return None
    return _model_at(path[:-1], file).model_fields.get(str(path[-1]))


def _brief(value: object) -> str:
    """Return a wrong value as short text; a URL is not repeated."""
    text = json.dumps(value, default=str)
    if "://" in text:
        return "a URL"  # it may hold a password
    return text if len(text) <= 60 else f"{text[:57]}..."


def _similar(path: Path, section: type[BaseModel]) -> str:
    """Suggest the known key that an unknown key resembles, also one of another type."""
    known = list(section.model_fields)
    variants = VARIANTS.get(str(path[0]), {}) if len(path) == 2 else {}
    of_others = [key for each in variants.values() for key in each.model_fields]
    near = difflib.get_close_matches(str(path[-1]), dict.fromkeys([*known, *of_others]), n=1)
    if not near:
        return f"remove it; known here are {', '.join(known)}"
    having = [name for name, each in variants.items() if near[0] in each.model_fields]
    of_type = "" if near[0] in known else f", which type: {' or '.join(having)} has"
    return f"did you mean {near[0]!r}{of_type}?"


def _model_at(path: Path, file: Any) -> type[BaseModel]:
    """Return the pydantic model of the section at `path`, the nearest parent's if it has none."""
    model: type[BaseModel] = PipelineFile
    value = file
    for part in path:
        value = value.get(part) if isinstance(value, Mapping) else None
        field = model.model_fields.get(str(part))
        variants = () if field is None else variants_of(field.annotation)
        model = variant_for(variants, value) if variants else model
    return model
