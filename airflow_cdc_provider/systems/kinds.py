"""Which systems there are, as plain data: whoever reads it loads no system.

`core` asks here without importing it (`core.kinds`): which system a DSN is of, and what reads a
stored position.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SystemKind:
    """One system: the modules to load when it is first asked for, and how its DSNs look."""

    name: str
    module: str
    """What opens its sources and sinks."""
    schemes: tuple[str, ...] = ()
    """Of the DSNs of its servers; none for a system that has no server."""
    port: int = 0
    """Where its servers listen if nothing else is said."""
    example: str = ""


_KINDS = (
    SystemKind(name="changelog", module="airflow_cdc_provider.systems.changelog.system"),
    SystemKind(
        name="mysql",  # whatever speaks its protocol; MariaDB too
        module="airflow_cdc_provider.systems.mysql.system",
        schemes=("mysql", "mariadb"),
        port=3306,
        example="mysql://user:password@host:3306/?ssl_ca=...",
    ),
)
KINDS: Mapping[str, SystemKind] = {kind.name: kind for kind in _KINDS}


def of_scheme(scheme: str) -> SystemKind | None:
    """Return the system whose servers a DSN of this scheme names, None for any other scheme."""
    return next((kind for kind in _KINDS if scheme in kind.schemes), None)


def example_dsns() -> str:
    """Return how the DSN of a server may look."""
    return " or ".join(kind.example for kind in _KINDS if kind.example)
