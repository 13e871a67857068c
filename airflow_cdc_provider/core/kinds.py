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
    """One system."""

    @property
    def name(self) -> str: ...

    @property
    def port(self) -> int:
        """Where its servers listen if nothing else is said."""


class Kinds(Protocol):
    """All of them."""

    def of_scheme(self, scheme: str) -> Kind | None:
        """Return the system whose servers a DSN of this scheme names."""

    def read_position(self, form: Any) -> LogPosition:
        """Read a position that one of them has written."""

    def transactions_of(self, system: str) -> object:
        """Load what makes columns of transactions in a system's log."""

    def example_dsns(self) -> str:
        """Return how the DSN of a server may look."""


@cache
def kinds() -> Kinds:
    """Return the list of systems."""
    return cast(Kinds, import_module(_LIST))
