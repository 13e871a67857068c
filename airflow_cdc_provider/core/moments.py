"""Moments as text: ISO 8601 with a time zone."""

from __future__ import annotations

from datetime import UTC, datetime


def moment_in_utc(text: str) -> str:
    """Return a moment as ISO 8601 in UTC; `ValueError` says why it is none."""
    try:
        return _moment(text).astimezone(UTC).isoformat()
    except OverflowError:
        raise ValueError(f"{text!r} is out of range") from None


def microseconds_of(text: str) -> int:
    """Return a moment in microseconds since the epoch; `ValueError` says why it is none."""
    passed = _moment(text) - datetime(1970, 1, 1, tzinfo=UTC)
    return (passed.days * 86_400 + passed.seconds) * 1_000_000 + passed.microseconds


def _moment(text: str) -> datetime:
    """Parse a moment with a time zone."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone")
    return moment
