"""Errors on their way between processes: as facts, never as exceptions.

Spark gives the driver only the text of a traceback, so an expected error travels as a record: a
row of a result, an answer of the assigner, or, where a Python data source can answer with
nothing else, as a marked line inside the text of an exception. The class is found again by its
code, because the class is what says whether trying again may help.
"""

from __future__ import annotations

import base64
import json
from typing import Any

from airflow_cdc_provider.core.errors import CdcError

_OPEN, _CLOSE = "<cdc-error ", "/cdc-error>"


def error_to_json(error: CdcError) -> dict[str, str]:
    """Write an error's facts."""
    return {
        "code": error.code,
        "what": error.what,
        "where": error.where,
        "risk": error.risk,
        "remedy": error.remedy,
    }


def error_from_json(form: dict[str, Any]) -> CdcError:
    """Read an error; an unknown code is a plain `CdcError` that names it."""
    facts = [str(form.get(name, "")) for name in ("what", "where", "risk", "remedy")]
    kind = _by_code(CdcError).get(str(form.get("code")))
    if kind is None:
        facts[0] = f"{form.get('code')}: {facts[0]}"
        return CdcError(*facts)
    return kind(*facts)


def known_codes() -> frozenset[str]:
    """Return the codes of all errors there are."""
    return frozenset(_by_code(CdcError))


class CarriedError(RuntimeError):
    """An error's record in the text of an exception, for where Spark carries only text."""

    def __init__(self, error: CdcError) -> None:
        record = base64.b64encode(json.dumps(error_to_json(error)).encode()).decode()
        super().__init__(f"{error} {_OPEN}{record}{_CLOSE}")


def carried_error(text: str) -> CdcError | None:
    """Find the record that a `CarriedError` left in an exception's text."""
    _, opened, rest = text.partition(_OPEN)
    record, closed, _ = rest.partition(_CLOSE)
    if not (opened and closed):
        return None
    return error_from_json(json.loads(base64.b64decode(record)))


def _by_code(kind: type[CdcError]) -> dict[str, type[CdcError]]:
    found = {kind.code: kind}
    for child in kind.__subclasses__():
        # a class that names no code of its own shares its parent's, and the parent stands for it
        found = {**_by_code(child), **found}
    return found
