"""Which systems there are, as plain data: whoever reads it loads no system.

`core` asks here without importing it (`core.kinds`): which system a DSN is of, and what reads a
stored position.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from typing import Any, Protocol, cast

from airflow_cdc_provider.core.endpoint import SinkPlace
from airflow_cdc_provider.core.errors import IntegrityError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.table_schema import ColumnType


@dataclass(frozen=True, slots=True)
class SystemKind:
    """One system as plain data: its modules, its DSN schemes and its packages."""

    name: str
    module: str
    """What opens its sources and sinks."""
    naming: str = ""
    """What names its tables to others."""
    positions: str = ""
    """What reads its positions; empty for a system that has no log."""
    transactions: str = ""
    """What makes columns of transactions in its log."""
    schemes: tuple[str, ...] = ()
    """Of the DSNs of its servers; none for a system that has no server."""
    port: int = 0
    """Where its servers listen if nothing else is said."""
    example: str = ""
    packages: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """What an executor imports for it, with the oldest version and the first that is too new."""


class Naming(Protocol):
    """The functions that name a system's tables by OpenLineage's convention."""

    def namespace(self, place: SinkPlace) -> str:
        """Return the namespace of all tables of one place, without user or password."""

    def dataset(self, place: SinkPlace, table: TableId) -> str:
        """Return a table's name within its namespace."""

    def type_text(self, column_type: ColumnType) -> str:
        """Return a column's type as the system writes it; empty if it has none."""


_KINDS = (
    SystemKind(
        name="changelog",
        module="airflow_cdc_provider.systems.changelog.system",
        naming="airflow_cdc_provider.systems.changelog.naming",
    ),
    SystemKind(
        name="mysql",  # whatever speaks its protocol; MariaDB too
        module="airflow_cdc_provider.systems.mysql.system",
        naming="airflow_cdc_provider.systems.mysql.naming",
        positions="airflow_cdc_provider.systems.mysql.positions.position",
        transactions="airflow_cdc_provider.systems.mysql.positions.transactions",
        schemes=("mysql", "mariadb"),
        port=3306,
        example="mysql://user:password@host:3306/?ssl_ca=...",
        packages={"pymysql": ("1.1", ""), "zstandard": ("0.22", "")},
    ),
)
KINDS: Mapping[str, SystemKind] = {kind.name: kind for kind in _KINDS}
FIRST = "mysql"
"""What is meant where something stored names no system; its forms stay as they were."""


def of_scheme(scheme: str) -> SystemKind | None:
    """Return the system that DSNs of this scheme are of, None for an unknown scheme."""
    return next((kind for kind in _KINDS if scheme in kind.schemes), None)


def example_dsns() -> str:
    """Return examples of servers' DSNs as text."""
    return " or ".join(kind.example for kind in _KINDS if kind.example)


def read_position(form: Any) -> LogPosition:
    """Read a stored position with the reader of the system that it names."""
    return _reader(form.get("system", FIRST))(form)


@lru_cache
def _reader(system: str) -> Callable[[Any], LogPosition]:
    """Return the function that reads a system's stored positions."""
    read: Callable[[Any], LogPosition] = import_module(_with_log(system).positions).read_position
    return read


def transactions_of(system: str) -> object:
    """Return the module that makes columns of transactions in a system's log."""
    return import_module(_with_log(system).transactions)


def naming_of(name: str) -> Naming:
    """Return the module that names a system's tables; it imports no library."""
    return cast(Naming, import_module(KINDS[name].naming))


def _with_log(name: str) -> SystemKind:
    """Return a system that has a log; another one is an error."""
    kind = KINDS.get(name)
    if kind is None or not kind.positions:
        raise IntegrityError(
            f"a position is of the system {name!r}, which has no log in this release",
            where="stored position",
            risk="where to go on reading is unknown; nothing was changed",
            remedy="use the release that wrote it",
        )
    return kind
