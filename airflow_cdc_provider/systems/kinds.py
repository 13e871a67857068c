"""Which systems there are, as plain data: whoever reads it loads no system.

`core` asks here without importing it (`core.kinds`): which system a DSN is of, and what reads a
stored position.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

from airflow_cdc_provider.core.endpoint import SinkPlace
from airflow_cdc_provider.core.errors import IntegrityError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.server_look import Part
from airflow_cdc_provider.core.table_schema import ColumnType

if TYPE_CHECKING:
    from airflow_cdc_provider.engine.sink.port import SinkAbilities


@dataclass(frozen=True, slots=True)
class ConnectionType:
    """A type of Airflow connections, which name servers of one system."""

    name: str
    """With `_`, where Airflow may write `-`."""
    part: Part | None = None
    """The part whose form and test it has; None for a type that others than this package bring."""


@dataclass(frozen=True, slots=True)
class SystemKind:
    """One system as plain data: its modules, its DSN schemes and its packages."""

    name: str
    module: str
    """What opens its sources and sinks."""
    abilities: str = ""
    """What says what it can do as a sink; empty for a system that is none."""
    file: str = ""
    """What has its sections of the pipeline file."""
    sections: str = "SECTIONS"
    """What they are called there."""
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
    conn_types: tuple[ConnectionType, ...] = ()
    """The types of Airflow connections that may name its servers."""
    connections: str = ""
    """What reads the extra of such a connection; empty for a system that has no server."""
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


class ExtraReader(Protocol):
    """The module of a system that reads what Airflow connections say of its servers."""

    FORM_FIELDS: tuple[str, ...]
    """The fields that our own types of connections have in their form, beside Airflow's."""

    def dsn_options(self, extra: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of a DSN that mean what a connection's extra means.

        `WrongValueError` for a setting that is not understood.
        """


_KINDS = (
    SystemKind(
        name="changelog",
        module="airflow_cdc_provider.systems.changelog.system",
        abilities="airflow_cdc_provider.systems.changelog.abilities",
        file="airflow_cdc_provider.systems.changelog.file",
        naming="airflow_cdc_provider.systems.changelog.naming",
    ),
    SystemKind(
        name="delta",
        module="airflow_cdc_provider.systems.lake.system",
        abilities="airflow_cdc_provider.systems.lake.abilities",
        file="airflow_cdc_provider.systems.lake.file",
        sections="DELTA",
        naming="airflow_cdc_provider.systems.lake.naming",
    ),
    SystemKind(
        name="iceberg",
        module="airflow_cdc_provider.systems.lake.system",
        abilities="airflow_cdc_provider.systems.lake.abilities",
        file="airflow_cdc_provider.systems.lake.file",
        sections="ICEBERG",
        naming="airflow_cdc_provider.systems.lake.naming",
    ),
    SystemKind(
        name="mysql",  # whatever speaks its protocol; MariaDB too
        module="airflow_cdc_provider.systems.mysql.system",
        abilities="airflow_cdc_provider.systems.mysql.abilities",
        file="airflow_cdc_provider.systems.mysql.file",
        naming="airflow_cdc_provider.systems.mysql.naming",
        positions="airflow_cdc_provider.systems.mysql.positions.position",
        transactions="airflow_cdc_provider.systems.mysql.positions.transactions",
        schemes=("mysql", "mariadb"),
        port=3306,
        example="mysql://user:password@host:3306/?ssl_ca=...",
        conn_types=(
            ConnectionType("mysql"),
            ConnectionType("mariadb"),
            ConnectionType("cdc_mysql", Part.SOURCE),
            ConnectionType("cdc_mysql_sink", Part.SINK),
        ),
        connections="airflow_cdc_provider.systems.mysql.connection",
        packages={"pymysql": ("1.1", ""), "zstandard": ("0.22", "")},
    ),
)
KINDS: Mapping[str, SystemKind] = {kind.name: kind for kind in _KINDS}
FIRST = "mysql"
"""What is meant where something stored names no system; its forms stay as they were."""


def of_scheme(scheme: str) -> SystemKind | None:
    """Return the system that DSNs of this scheme are of, None for an unknown scheme."""
    return next((kind for kind in _KINDS if scheme in kind.schemes), None)


def conn_types() -> Mapping[str, tuple[SystemKind, ConnectionType]]:
    """Return the types of Airflow connections with servers by name, with the servers' system."""
    return {each.name: (kind, each) for kind in _KINDS for each in kind.conn_types}


def extra_reader(kind: SystemKind) -> ExtraReader:
    """Return the module that reads the extra of a connection; it imports no library."""
    return cast(ExtraReader, import_module(kind.connections))


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
    """Return the module of a system's table names in OpenLineage; it imports no driver."""
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


def abilities_of(name: str) -> SinkAbilities:
    """Return what a system can do as a sink, whatever its place; loads no library."""
    return cast("SinkAbilities", import_module(KINDS[name].abilities).ABILITIES)


def file_sections(part: Part) -> Mapping[str, Any]:
    """Return the models of the pipeline file's sections that are a source or a sink, by type.

    The first is that of a file which names no type. This loads pydantic, so a job never asks.
    """
    found = {
        name: getattr(import_module(kind.file), kind.sections).get(part)
        for name, kind in sorted(KINDS.items(), key=lambda each: each[0] != FIRST)
        if kind.file
    }
    return {name: section for name, section in found.items() if section is not None}
