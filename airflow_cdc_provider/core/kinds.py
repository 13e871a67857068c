"""What core asks of the systems there are.

Core imports no system and names none. The list of them stands above it, as plain data, and is
loaded by its name when it is first asked; this is the only place that knows the name.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any, Protocol, cast

from airflow_cdc_provider.core.positions import LogPosition

_LIST = "airflow_cdc_provider.systems.kinds"


class Kind(Protocol):
    """One kind of system: its name and its port."""

    @property
    def name(self) -> str: ...

    @property
    def port(self) -> int:
        """The port of its servers if a DSN names none."""


class Kinds(Protocol):
    """The list of all kinds of system."""

    def of_scheme(self, scheme: str) -> Kind | None:
        """Return the kind of system that a DSN's scheme names, None if no kind has it."""

    def read_position(self, form: Any) -> LogPosition:
        """Read a position of any system from its JSON form."""

    def transactions_of(self, system: str) -> object:
        """Import the module that turns a system's transactions into columns."""

    def example_dsns(self) -> str:
        """Return example DSNs of servers, for an error message."""


@cache
def kinds() -> Kinds:
    """Import and return the list of all kinds of system."""
    return cast(Kinds, import_module(_LIST))
