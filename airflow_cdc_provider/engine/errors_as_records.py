"""Errors on their way between processes: as facts, never as exceptions.

Spark gives the driver only the text of a traceback, so an expected error travels as a record: a
row of a result, an answer of the assigner, or, where a Python data source can answer with
nothing else, as a marked line inside the text of an exception. The class is found again by its
code, because the class is what says whether trying again may help.
"""

from __future__ import annotations

import base64
import json

from airflow_cdc_provider.core.errors import CdcError

_OPEN, _CLOSE = "<cdc-error ", "/cdc-error>"


class CarriedError(RuntimeError):
    """Carries an error's record in its text, where Spark passes on nothing but text."""

    def __init__(self, error: CdcError) -> None:
        record = base64.b64encode(json.dumps(error.to_json()).encode()).decode()
        super().__init__(f"{error} {_OPEN}{record}{_CLOSE}")


def carried_error(text: str) -> CdcError | None:
    """Return the error whose record a `CarriedError` left in an exception's text, or None."""
    _, opened, rest = text.partition(_OPEN)
    record, closed, _ = rest.partition(_CLOSE)
    if not (opened and closed):
        return None
    return CdcError.from_json(json.loads(base64.b64decode(record)))
