"""Values of a column as text for people; for a few rows."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pyarrow as pa

from airflow_cdc_provider.columns.row_hashes import row_hashes
from airflow_cdc_provider.columns.verify_port import SHOWN_CHARACTERS, ShownValue


def shown_values(
    values: pa.Array, *, is_date: bool = False, is_document: bool = False
) -> list[ShownValue]:
    """Return values as text for people, each with an identity: that of its canonical form."""
    first = (0,)
    hashes = row_hashes([values], first if is_date else (), first if is_document else ())
    identities = hashes.texts()
    try:
        found = values.to_pylist()
    except OverflowError:  # Python has no year 0
        found = values.cast(pa.string()).to_pylist()
    return [
        ShownValue("" if value is None else identity, _cut(_text(value)))
        for identity, value in zip(identities, found, strict=True)
    ]


def _text(value: Any) -> str | None:
    """Return a value as text; None is NULL."""
    if isinstance(value, bytes):
        return f"0x{value[:SHOWN_CHARACTERS].hex().upper()}"
    if isinstance(value, timedelta):
        return _time_text(value)
    return None if value is None else str(value)


def _time_text(value: timedelta) -> str:
    """Return a time as hours, which may be many, minutes and seconds."""
    seconds, micros = divmod(abs(value) // timedelta(microseconds=1), 1_000_000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    sign = "-" if value < timedelta() else ""
    text = f"{sign}{hours:02}:{minutes:02}:{seconds:02}"
    return f"{text}.{micros:06}" if micros else text


def _cut(text: str | None) -> str | None:
    """Return a long text cut for people to read."""
    if text is None or len(text) <= SHOWN_CHARACTERS:
        return text
    return f"{text[:SHOWN_CHARACTERS]}..."
