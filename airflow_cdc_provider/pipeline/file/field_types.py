"""Types of the pipeline file's fields, with messages that say what to write instead."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Annotated, Any, Literal, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from pydantic import BeforeValidator, WithJsonSchema

from airflow_cdc_provider.core.identifiers import PipelineName
from airflow_cdc_provider.core.stream_starts import StreamStart
from airflow_cdc_provider.core.stream_stops import StreamStop
from airflow_cdc_provider.core.wrong_value import WrongValueError
from airflow_cdc_provider.systems.sections.field_types import ConnectionId as ConnectionId
from airflow_cdc_provider.systems.sections.field_types import EnvironmentName as EnvironmentName
from airflow_cdc_provider.systems.sections.field_types import Pattern as Pattern

Place = TypeVar("Place")

_ADDRESS = re.compile(r"[^\s@,;<>\"]+@[^\s@,;<>\"]+")
_DURATION = re.compile(r"([0-9]+)\s*(s|m|h|d)")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_RANGE = re.compile(r"([0-9]+)\s*(?:-\s*([0-9]+))?")
_LATER = "not in this release"
_PLACES = {
    "position": "a file and offset, as in position: 'binlog.000012:4711'",
    "gtid": "a GTID set, as in gtid: '3e11fa47-71ca-11e1-9e33-c80aa9429562:1-77'",
    "timestamp": "a time with its zone, as in timestamp: '2026-01-01T00:00:00Z'",
}


def _name(value: Any) -> Any:
    """Check a pipeline's name."""
    if not isinstance(value, str):
        return value
    try:
        return str(PipelineName(value))
    except ValueError as error:
        raise WrongValueError(str(error), "rename the pipeline, as in shop_to_dr") from None


def _ports(value: Any) -> str:
    """Check a port or a range of ports, and return it as `first-last`."""
    text = str(value) if isinstance(value, int | str) and not isinstance(value, bool) else ""
    found = _RANGE.fullmatch(text.strip())
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
    if not 1024 <= first <= last <= 65_535:
        raise WrongValueError(
            f"{value!r} is not a port from 1024 to 65535 or a range of them",
            "write it as 47000 or 47000-47019",
        )
    return f"{first}-{last}"


def _stream_start(value: Any) -> Any:
    """Check where the stream starts."""
    if isinstance(value, str) and value in ("after_snapshot", "earliest", "latest"):
        return value
    if not isinstance(value, dict) or len(value) != 1 or not value.keys() <= _PLACES.keys():
        raise WrongValueError(
            f"{value!r} is no place where a stream starts",
            "write after_snapshot, earliest, latest, or one of position, gtid and timestamp, such "
            "as {position: 'binlog.000012:4711'}",
        )
    return _place(value, StreamStart.at)


def _stream_stop(value: Any) -> Any:
    """Check where the stream stops."""
    if isinstance(value, str) and value in ("never", "consistent"):
        return value
    if value == "latest":
        raise WrongValueError(
            "the log has no end where a stream would end for good",
            "write mode: bounded: each run ends caught up",
        )
    if not isinstance(value, dict) or len(value) != 1 or not value.keys() <= _PLACES.keys():
        raise WrongValueError(
            f"{value!r} is no place where a stream ends",
            "write never, consistent, or one of position, gtid and timestamp, such as "
            "{timestamp: '2026-01-01T00:00:00Z'}",
        )
    return _place(value, StreamStop.at)


def _place(value: dict[str, Any], parse: Callable[[str, str], object]) -> dict[str, str]:
    """Check a place in the log: a position, a GTID set or a timestamp."""
    ((kind, place),) = value.items()
    if isinstance(place, datetime):  # YAML reads a time that has no quotes
        place = place.isoformat()
    try:
        if not isinstance(place, str) or not place.strip():
            raise ValueError(f"{place!r} is no text")
        parse(kind, place)
    except ValueError as error:
        raise WrongValueError(
            f"{place!r} is no {kind}: {error}", f"write {_PLACES[kind]}"
        ) from None
    return {kind: place}


def place_of(value: str | Mapping[Any, str], parse: Callable[[str, str], Place]) -> Place:
    """Return a place in the log as the file has it, by its kind and its value."""
    if isinstance(value, str):
        return parse(value, "")
    ((kind, place),) = value.items()
    return parse(kind, place)


def _where(value: Any) -> Any:
    """Refuse a condition on a table's rows, which is of a later release."""
    if value is not None:
        raise WrongValueError(
            f"copying a part of a table is {_LATER}",
            "write null; leave the table out of source.tables if it is too large",
        )
    return value


def _time_zone(value: Any) -> Any:
    """Check the name of a time zone."""
    if not isinstance(value, str):
        return value
    try:
        ZoneInfo(value)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        near = difflib.get_close_matches(value, available_timezones(), n=1, cutoff=0.6)
        raise WrongValueError(
            f"{value!r} is no time zone that is known here",
            f"did you mean {near[0]}?" if near else "write its IANA name, as in Europe/Berlin",
        ) from None
    return value


def duration_text(value: Any) -> str:
    """Check a duration such as `15m`, and return it as number and unit."""
    text = f"{value}s" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    found = _DURATION.fullmatch(text.strip())
    if found is None or int(found[1]) == 0:
        raise WrongValueError(
            f"{value!r} is not a span of time", "write a whole number with s, m, h or d, as in 15m"
        )
    return f"{int(found[1])}{found[2]}"


def seconds_of(duration: str) -> int:
    """Return a duration such as `15m` in seconds."""
    return int(duration[:-1]) * _SECONDS[duration[-1]]


def _mail_address(value: Any) -> Any:
    """Check a mail address."""
    if isinstance(value, str) and not _ADDRESS.fullmatch(value):
        raise WrongValueError(
            f"{value!r} is not the address of a mailbox", "write it as in ops@example.com"
        )
    return value


Duration = Annotated[
    str,
    BeforeValidator(duration_text),
    WithJsonSchema({"type": ["string", "integer"], "pattern": r"^[0-9]+\s*(s|m|h|d)$"}),
]
MailAddress = Annotated[str, BeforeValidator(_mail_address)]
Name = Annotated[str, BeforeValidator(_name)]
TimeZone = Annotated[str, BeforeValidator(_time_zone)]
Ports = Annotated[
    str,
    BeforeValidator(_ports),
    WithJsonSchema({"type": ["string", "integer"], "pattern": r"^[0-9]+\s*(-\s*[0-9]+)?$"}),
]
_Places = dict[Literal["position", "gtid", "timestamp"], str]
Start = Annotated[
    Literal["after_snapshot", "earliest", "latest"] | _Places, BeforeValidator(_stream_start)
]
Stop = Annotated[
    Literal["never", "consistent"] | _Places,
    BeforeValidator(_stream_stop),
]
NoCondition = Annotated[None, BeforeValidator(_where)]
