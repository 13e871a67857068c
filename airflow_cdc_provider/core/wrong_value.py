"""A wrong value that a person wrote, with what to write instead."""

from __future__ import annotations


class WrongValueError(ValueError):
    """Raised for a wrong value of the pipeline file or of a connection, with the fix."""

    def __init__(self, what: str, fix: str) -> None:
        super().__init__(what, fix)
        self.what, self.fix = what, fix

    def __str__(self) -> str:
        return self.what
