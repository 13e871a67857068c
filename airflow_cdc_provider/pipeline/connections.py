"""From the pipeline file's references to servers one can connect to.

A reference is turned into a DSN by whoever runs the steps: Airflow's hook asks Airflow for the
connection, the command line asks the environment (`EnvironmentDsns`), which for a connection id
looks where Airflow would: `AIRFLOW_CONN_<ID>`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from airflow_cdc_provider.core.endpoint import Endpoint, Folder, SinkPlace, parse_sink
from airflow_cdc_provider.core.errors import PipelineFileError
from airflow_cdc_provider.core.jobspec import (
    REPLICA_DSN_ENV,
    SINK_DSN_ENV,
    SOURCE_DSN_ENV,
    STATE_DSN_ENV,
    salt_variable,
)
from airflow_cdc_provider.core.salts import SHORTEST_SALT, Salt
from airflow_cdc_provider.pipeline.connection_fields import ConnectionFields
from airflow_cdc_provider.pipeline.default_state import default_state_of
from airflow_cdc_provider.pipeline.file.loader import LoadedPipeline
from airflow_cdc_provider.pipeline.file.mask_sections import SaltReference
from airflow_cdc_provider.pipeline.file.model import Reference
from airflow_cdc_provider.pipeline.file.problems import Path

if TYPE_CHECKING:
    from airflow_cdc_provider.engine.scrubbing import Secrets

_NO_TEXT = "\ufffd\x00"
"""What stands for bytes that are none of UTF-8, and what no environment variable can hold."""
_EXAMPLE_SERVER = "mysql://user:password@host:3306/"
_EXAMPLE_ACCESS = "aws://key:secret@/?region_name=eu-central-1"
_EXAMPLE_CATALOGS = {
    "sql": "postgresql://user:password@host/database",
    "rest": "https://id:secret@host/path",
}
DsnOf = Callable[[Reference], str | None]
"""Returns the DSN a reference stands for, None if there is none."""
MasterOf = Callable[[str], str | None]
"""Returns the Spark master that a connection id stands for, None if there is none."""


@runtime_checkable
class Connections(Protocol):
    """Finds what a reference of the pipeline file names: a DSN, a variable, a connection."""

    def __call__(self, reference: Reference, /) -> str | None:
        """Return the DSN or text that the reference names, None if there is none."""

    def fields(self, conn_id: str, /) -> ConnectionFields | None:
        """Return the fields of a connection of any type, None if there is none."""


@dataclass(frozen=True, slots=True)
class Servers:
    """The addresses of a pipeline's source, sink and state; `repr` hides the DSNs."""

    source: Endpoint
    sink: SinkPlace
    source_dsn: str = field(repr=False)
    sink_dsn: str = field(repr=False)
    state_dsn: str = field(repr=False)
    default_state: FilePath | None = None
    """The SQLite file of a pipeline that names no state."""
    replicas: tuple[Endpoint, ...] = ()
    """Those that the throttle looks at."""
    replica_dsns: tuple[str, ...] = field(default=(), repr=False)
    salts: tuple[Salt, ...] = ()
    """Those by which columns are masked."""

    @property
    def secrets(self) -> Secrets:
        """Return what is taken out of any text that leaves a job: passwords and salts."""
        # a check that finds nothing wrong needs nothing of the engine
        from airflow_cdc_provider.engine.scrubbing import Secrets  # noqa: PLC0415

        dsns = self.source_dsn, self.sink_dsn, self.state_dsn, *self.replica_dsns
        return Secrets.of_dsns(*dsns).with_texts(*(salt.text for salt in self.salts))

    def environment(self) -> dict[str, str]:
        """Return the environment variables that give a job's process its DSNs and salts."""
        return {
            SOURCE_DSN_ENV: self.source_dsn,
            SINK_DSN_ENV: self.sink_dsn,
            STATE_DSN_ENV: self.state_dsn,
            **dict(zip(replica_variables(len(self.replica_dsns)), self.replica_dsns, strict=True)),
            **{salt_variable(salt.name): salt.text for salt in self.salts},
        }


def replica_variables(count: int) -> tuple[str, ...]:
    """Return the environment variables of so many replicas."""
    return tuple(REPLICA_DSN_ENV.format(number=number) for number in range(1, count + 1))


def resolve_servers(loaded: LoadedPipeline, dsn_of: DsnOf, *, in_airflow: bool = False) -> Servers:
    """Find source, sink and state of a pipeline; refuse with the lines that name none."""
    model = loaded.model
    named: dict[Path, Reference] = {("source",): model.source}
    if model.sink.reference is not None:
        named["sink",] = model.sink.reference
    default_state: FilePath | None = None
    if model.state is None:
        default_state = default_state_of(model, loaded.path, in_airflow=in_airflow)
    else:
        named["state",] = model.state
    replicas: list[Path] = [
        ("snapshot", "throttle", "replicas", number)
        for number in range(len(model.snapshot.throttle.replicas))
    ]
    named |= zip(replicas, model.snapshot.throttle.replicas, strict=True)
    dsns = _dsns(loaded, named, dsn_of)
    source = dsns["source",]
    sink = _address_of_sink(loaded, dsn_of) or dsns["sink",]
    state = dsns.get(("state",), f"sqlite:///{default_state}")
    return Servers(
        source=_endpoint(loaded, ("source",), source),
        sink=_sink_place(loaded, sink),
        source_dsn=source,
        sink_dsn=sink,
        state_dsn=state,
        default_state=default_state,
        replicas=tuple(_endpoint(loaded, path, dsns[path]) for path in replicas),
        replica_dsns=tuple(dsns[path] for path in replicas),
        salts=find_salts(loaded, dsn_of),
    )


@dataclass(frozen=True, slots=True)
class EnvironmentDsns:
    """Finds DSNs in environment variables, also in those of Airflow connections."""

    environ: Mapping[str, str] = field(repr=False)

    def __call__(self, reference: Reference) -> str | None:
        """Return the DSN or text that the reference names, None if there is none."""
        if reference.dsn_env is not None:
            return self.environ.get(reference.dsn_env) or None
        found = self.fields(reference.conn_id or "")
        return None if found is None else found.dsn()

    def fields(self, conn_id: str) -> ConnectionFields | None:
        """Read an Airflow connection of any type from its environment variable."""
        return _in_environment(self.environ, conn_id)


@dataclass(frozen=True, slots=True)
class EnvironmentMasters:
    """Finds Spark masters in environment variables of Airflow connections."""

    environ: Mapping[str, str] = field(repr=False)

    def __call__(self, conn_id: str) -> str | None:
        """Return the Spark master that a connection names, None if there is no connection."""
        found = _in_environment(self.environ, conn_id)
        return None if found is None else found.own_master()


def _in_environment(environ: Mapping[str, str], conn_id: str) -> ConnectionFields | None:
    """Read an Airflow connection from `AIRFLOW_CONN_...`, None if it is not set."""
    stored = environ.get(f"AIRFLOW_CONN_{conn_id.upper()}", "")
    return ConnectionFields.read(conn_id, stored) if stored else None


def spark_master(loaded: LoadedPipeline, master_of: MasterOf) -> str | None:
    """Return the Spark master of the connection that the file names; None if it names none."""
    conn_id = loaded.model.spark.conn_id
    if conn_id is None:
        return None
    found = master_of(conn_id)
    if found is None:
        raise loaded.refusal(
            (
                ("spark", "conn_id"),
                f"there is no connection {conn_id!r}",
                f"add it to Airflow; outside Airflow set AIRFLOW_CONN_{conn_id.upper()}="
                "spark://host:7077, give --master, or leave the key out for local[*]",
            )
        )
    return found


def _dsns(
    loaded: LoadedPipeline, named: Mapping[Path, Reference], dsn_of: DsnOf
) -> dict[Path, str]:
    """Find the DSN of each named reference; refuse all missing ones together."""
    found = {path: dsn_of(reference) or "" for path, reference in named.items()}
    missing = [_missing(path, named[path]) for path, dsn in found.items() if not dsn]
    if missing:
        raise loaded.refusal(*missing)
    return found


def find_salts(loaded: LoadedPipeline, dsn_of: DsnOf) -> tuple[Salt, ...]:
    """Find the salts of masks; refuse the lines of those that are missing or no salts."""
    found: dict[str, Salt] = {}
    problems: list[tuple[Path, str, str]] = []
    for section, settings in loaded.model.tables.items():
        for column, reference in settings.columns.salts.items():
            text = _salt_text(reference, dsn_of)
            found[reference.name] = Salt(reference.name, text)
            if wrong := _wrong_salt(reference, text):
                path = ("tables", section, "columns", "mask", column, "sha256")
                problems.append((path, *wrong))
    if problems:
        raise loaded.refusal(*problems)
    return tuple(found.values())


def _salt_text(reference: SaltReference, dsn_of: DsnOf) -> str:
    """Return a salt: a variable's text or a connection's password; empty if there is none."""
    if reference.salt_env is not None:
        return dsn_of(Reference(dsn_env=reference.salt_env)) or ""
    fields = dsn_of.fields(reference.conn_id or "") if isinstance(dsn_of, Connections) else None
    return "" if fields is None else fields.password


def _wrong_salt(reference: SaltReference, text: str) -> tuple[str, str] | None:
    """Return problem and fix for a salt that is missing or none; None if it is one."""
    if reference.salt_env is not None:
        what = f"the environment variable {reference.salt_env}"
        fix = f"export {reference.salt_env}=$(openssl rand -hex 16)"
    else:
        what = f"the password of the connection {reference.conn_id!r}"
        fix = "make a connection of any type with the salt as its password (openssl rand -hex 16)"
    fix = f"{fix}, and keep it; where rows were masked by a former one, give it that"
    if not text:
        return f"{what} is not set, and is the salt of this column's mask", fix
    if any(mark in _NO_TEXT or "\ud800" <= mark <= "\udfff" for mark in text):
        return f"{what} has bytes that are no text in UTF-8: a salt is a text", fix
    if len(text.encode()) < SHORTEST_SALT:
        return f"{what} has {len(text.encode())} bytes: a salt has {SHORTEST_SALT} or more", fix
    return None


def _missing(
    path: Path, reference: Reference, *, example: str = _EXAMPLE_SERVER
) -> tuple[Path, str, str]:
    """Return the path, problem and fix for a reference that names nothing."""
    if reference.dsn_env is not None:
        return (
            (*path, "dsn_env"),
            f"the environment variable {reference.dsn_env} is not set",
            f"export {reference.dsn_env}='{example}'",
        )
    return (
        (*path, "conn_id"),
        f"there is no connection {reference.conn_id!r}",
        "add it to Airflow; one that is in Airflow's database is found by `airflow cdc` alone: "
        f"elsewhere set AIRFLOW_CONN_{str(reference.conn_id).upper()} or use dsn_env",
    )


def _sink_place(loaded: LoadedPipeline, dsn: str) -> SinkPlace:
    """Parse the sink's DSN, or the URL of the place that the file names."""
    return parse_sink(dsn) if loaded.model.sink.address else _endpoint(loaded, ("sink",), dsn)


def _address_of_sink(loaded: LoadedPipeline, dsn_of: DsnOf) -> str:
    """Return the URL of the place that the file names, with the ways in; empty for none."""
    sink = loaded.model.sink
    catalog = sink.server_of_tables
    if sink.access is None and catalog is None:
        return sink.address
    place = parse_sink(sink.address)
    if not isinstance(place, Folder):
        return ""
    if sink.access is not None:
        fields = _fields_of(loaded, ("sink",), sink.access, dsn_of, example=_EXAMPLE_ACCESS)
        place = replace(place, access=fields.store_access())
    if catalog is not None:
        dsn, at = "", ("sink", "catalog")
        if catalog.reference is not None:
            example = _EXAMPLE_CATALOGS[catalog.type]
            fields = _fields_of(loaded, at, catalog.reference, dsn_of, example=example)
            dsn = fields.catalog_dsn(catalog.type)
        place = replace(place, catalog=catalog.access(dsn))
    return place.address


def _fields_of(
    loaded: LoadedPipeline, path: Path, reference: Reference, dsn_of: DsnOf, *, example: str
) -> ConnectionFields:
    """Return the connection that says how to get in; refuse the line that names none."""
    if reference.dsn_env is None:
        conn_id = reference.conn_id or ""
        found = dsn_of.fields(conn_id) if isinstance(dsn_of, Connections) else None
    else:
        stored = dsn_of(reference)
        found = ConnectionFields.read(reference.dsn_env, stored) if stored else None
    if found is None:
        raise loaded.refusal(_missing(path, reference, example=example))
    return found


def _endpoint(loaded: LoadedPipeline, path: Path, dsn: str) -> Endpoint:
    """Parse a DSN; a wrong one is refused at its section of the file."""
    try:
        return Endpoint.parse(dsn)
    except ValueError as error:
        problem: PipelineFileError = loaded.refusal(
            (path, str(error), f"correct the DSN of {'.'.join(map(str, path))}")
        )
        raise problem from None
