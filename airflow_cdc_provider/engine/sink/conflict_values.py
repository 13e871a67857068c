"""A row's values as a conflict's record holds them: JSON, and no text without end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_cdc_provider.core.conflicts import Values

_MOST_TEXT = 10_000
"""Of a value in a conflict's row, in characters: the rows themselves have all of it."""


def json_values(values: Mapping[str, Any]) -> Values:
    """Return values as JSON holds them."""
    return {name: _value(value) for name, value in values.items()}


def _value(value: object) -> object:
    """Return one value as JSON holds it."""
    if value is None or isinstance(value, int | float | bool):
        return value
    text = f"0x{value.hex()}" if isinstance(value, bytes) else str(value)
    if len(text) <= _MOST_TEXT:
        return text
    return f"{text[:_MOST_TEXT]}... ({len(text)} characters)"
