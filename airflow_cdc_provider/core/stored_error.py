"""Errors as they are stored: in the state store, in a sink's ledger, in a serialised DAG.

What is stored is a JSON object of the error's facts, so no text of an error, whatever it holds, is
ever searched for where the next one begins. What people read is printed from it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Self

from airflow_cdc_provider.core.errors import CODES, MARKS, CdcError, error_class, printed

MOST_CHARACTERS = 40_000
"""Of each text of an error: four of them, each character escaped and then written as hexadecimal,
fit into a packet of 4 MB, which is the least that a server takes by default."""
_CUT = "..."
_TEXTS = ("what", "where", "risk", "remedy")


@dataclass(frozen=True, slots=True)
class StoredError:
    """An error, or a plain text, in its stored form; false if it is empty."""

    text: str = ""
    """The stored form, for whoever stores it; `str` is what people read."""

    @classmethod
    def of(cls, error: CdcError) -> Self:
        """Make the stored form of an error; long texts are cut, its class and tables are kept."""
        form = error.to_json()
        return cls(json.dumps({**form, **{name: _short(form[name]) for name in _TEXTS}}))

    @classmethod
    def saying(cls, what: str) -> Self:
        """Make the stored form of a text that is no error, such as what a request waits for."""
        return cls(json.dumps({"what": _short(what)}) if what else "")

    def read(self) -> CdcError:
        """Return the stored error; a plain text becomes a plain `CdcError`."""
        form = self._form
        return _from_printed(self.text) if form is None else CdcError.from_json(form)

    @property
    def has_code(self) -> bool:
        """Tell whether this is an error, and not just a text."""
        form = self._form
        return self.text.startswith(CODES) if form is None else bool(form.get("code"))

    def __str__(self) -> str:
        form = self._form
        if form is None:
            return self.text
        # by its own code: a newer release may have stored one that has no class here
        what, *others = (str(form.get(name, "")) for name in _TEXTS)
        return printed(str(form["code"]), what, *others) if form.get("code") else what

    def __bool__(self) -> bool:
        return bool(self.text)

    @property
    def _form(self) -> dict[str, Any] | None:
        """Return the stored JSON; None where an earlier release stored a printed error."""
        if not self.text.startswith("{"):
            return None
        try:
            form = json.loads(self.text)
        except (ValueError, RecursionError):
            return None
        return form if "what" in form else None


NO_ERROR = StoredError()


def _short(text: str) -> str:
    """Cut a text that is too long to be stored."""
    if len(text) <= MOST_CHARACTERS:
        return text
    return text[: MOST_CHARACTERS - len(_CUT)] + _CUT


def _from_printed(text: str) -> CdcError:
    """Read an error from its printed form, which earlier releases stored.

    Nothing that is written now is read here: a text that holds a mark is cut at the wrong place.
    """
    code, _, rest = text.partition(" ")
    if not code.startswith(CODES):
        code, rest = "", text
    facts = []
    for mark in reversed(MARKS):
        head, found, tail = rest.rpartition(mark)
        rest = head if found else rest
        facts.append(tail if found else "")
    return error_class(code)(rest, *reversed(facts))
