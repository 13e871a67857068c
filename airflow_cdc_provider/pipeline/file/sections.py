"""The sections `source` and `sink`: one of each system, told apart by `type`.

Systems bring them (`systems.sections`). A file without `type` means what it meant when there was
one system only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args

from pydantic import BaseModel, Discriminator, Tag
from pydantic_core import ErrorDetails

from airflow_cdc_provider.core.server_look import Part
from airflow_cdc_provider.systems.kinds import FIRST, file_sections
from airflow_cdc_provider.systems.sections.base import SinkSection, SourceSection

TO_COME = ("postgres", "delta", "iceberg", "parquet")
"""Types of a later release."""
VARIANTS: Mapping[str, Mapping[str, type[BaseModel]]] = {
    part.value: file_sections(part) for part in Part
}
"""The sections by their key in the file and their type; the one without a type is first."""

WRONG_TYPE = frozenset({"union_tag_invalid", "union_tag_not_found"})
"""What pydantic calls the error of a section whose `type` is none."""


def _type_in(section: Any) -> Any:
    """Return the type that a section's values name; None, which no section has, for no text."""
    if not isinstance(section, Mapping):
        return getattr(section, "type", FIRST)  # what is no section is refused as one without type
    named = section.get("type", FIRST)
    return named if isinstance(named, str) else None


def _union_of(key: str) -> Any:
    """Return the type of a key whose value is the section of any system."""
    tagged = tuple(Annotated[section, Tag(name)] for name, section in VARIANTS[key].items())
    return Annotated[Union[tagged], Discriminator(_type_in)]  # noqa: UP007 - made of a tuple


if TYPE_CHECKING:
    AnySource = SourceSection
    AnySink = SinkSection
else:
    AnySource, AnySink = _union_of("source"), _union_of("sink")


def variants_of(annotation: Any) -> tuple[type[BaseModel], ...]:
    """Return the sections that a key may have by its annotation; none if it takes no section."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return (annotation,)
    return tuple(each for part in get_args(annotation) for each in variants_of(part))


def variant_for(variants: tuple[type[BaseModel], ...], section: Any) -> type[BaseModel]:
    """Return the one of a key's sections that its values name; the first for an unknown type."""
    if len(variants) > 1:
        named = _type_in(section)
        return next((each for each in variants if type_of(each) == named), variants[0])
    return variants[0]


def type_of(section: type[BaseModel]) -> str:
    """Return the `type` of a system's section."""
    return str(get_args(section.model_fields["type"].annotation)[0])


def location_of(error: ErrorDetails) -> tuple[int | str, ...]:
    """Return the location of pydantic's error by keys of the file: without the names of types."""
    key, *inside = error["loc"] or ("",)
    if error["type"] in WRONG_TYPE:
        return (key, "type")
    return (key, *(inside[1:] if key in VARIANTS else inside))


def without_unused(file: Any) -> Any:
    """Return the file's values without keys of another type that say nothing.

    A key that only sections of another type have may be there as null or false, which is what it
    is if it is left out.
    """
    if not isinstance(file, Mapping):
        return file
    return {key: _used(key, value) for key, value in file.items()}


def _used(key: str, section: Any) -> Any:
    """Return a section without keys of another type that say nothing."""
    variants = tuple(VARIANTS.get(key, {}).values())
    if not variants or not isinstance(section, Mapping):
        return section
    own = variant_for(variants, section).model_fields
    others = {name for each in variants for name in each.model_fields} - own.keys()
    return {
        name: value
        for name, value in section.items()
        if not (name in others and (value is None or value is False))
    }
