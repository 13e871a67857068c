"""The sections of the pipeline file that each system brings its own of, and what all have.

A system's section is a subclass in its module `file`, told apart by `type`, with the keys that this
system alone has. `systems.kinds` loads it for the file's model; executors never load it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from airflow_cdc_provider.core.jobspec import SourceOptions
from airflow_cdc_provider.core.table_patterns import Route, TablePattern, parse_routes
from airflow_cdc_provider.core.wrong_value import WrongValueError
from airflow_cdc_provider.engine.sink.port import SinkAbilities
from airflow_cdc_provider.systems.kinds import abilities_of
from airflow_cdc_provider.systems.sections.field_types import (
    ConnectionId,
    EnvironmentName,
    FilesPath,
    Pattern,
    Routes,
)

if TYPE_CHECKING:
    from airflow_cdc_provider.systems.sections.catalog import CatalogSection

Wrong = tuple[str, str, str]
"""A key of a section, what is wrong with its value, and the fix."""


class Section(BaseModel):
    """A part of the file: nothing unknown, nothing changed after reading."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Reference(Section):
    """A server, by the connection or the environment variable that says how to get in."""

    conn_id: ConnectionId | None = Field(
        default=None, description="Airflow connection with the server.", examples=["shop_mysql"]
    )
    dsn_env: EnvironmentName | None = Field(
        default=None,
        description="Environment variable that holds the DSN, in the form of Airflow's "
        "connection URIs: `mysql://user:password@host:port/?ssl_ca=...`.",
        examples=["SHOP_DSN"],
    )

    @model_validator(mode="after")
    def _is_named(self) -> Self:
        """Require exactly one of `conn_id` and `dsn_env`."""
        if (self.conn_id is None) == (self.dsn_env is None):
            both = "both are" if self.conn_id else "neither is"
            raise WrongValueError(
                f"wanted one of conn_id and dsn_env, {both} there",
                "write conn_id: <Airflow connection>, or dsn_env: <environment variable>",
            )
        return self


def reference_or_none(conn_id: str | None, dsn_env: str | None) -> Reference | None:
    """Return the reference of a section that need not have one; refuse two of one place."""
    if conn_id is not None and dsn_env is not None:
        raise WrongValueError(
            "wanted one of conn_id and dsn_env, both are there", "leave one of them out"
        )
    if conn_id is None and dsn_env is None:
        return None
    return Reference(conn_id=conn_id, dsn_env=dsn_env)


class SourceSection(Reference):
    """Where the tables come from."""

    type: str
    tables: tuple[Pattern, ...] = Field(
        description='Tables to copy, as `"database.table"`; `*` stands for any characters, see '
        "[names](names.md). The ledger (`airflow_cdc`) and the server's own "
        "databases are never among them.",
        min_length=1,
        examples=[["shop.orders", "inventory.*"]],
    )
    exclude: tuple[Pattern, ...] = Field(
        default=(), description="Tables to leave out of `tables`.", examples=[["inventory.tmp_*"]]
    )
    new_tables: Literal["add", "tell"] = Field(
        default="add",
        description="What becomes of tables that appear at the source later and fit a pattern of "
        "`tables`: they are added, or only told until `add` is called.",
    )

    @property
    def patterns(self) -> tuple[TablePattern, ...]:
        """Return the patterns of `tables`."""
        return tuple(TablePattern.parse(text) for text in self.tables)

    @property
    def excluded(self) -> tuple[TablePattern, ...]:
        """Return the patterns of `exclude`."""
        return tuple(TablePattern.parse(text) for text in self.exclude)

    @property
    def zero_date_policy(self) -> str:
        """Return what becomes of dates that no calendar has: `fail`, `null` or `text`."""
        return "fail"

    def options(self, pipeline: str, max_connections: int) -> SourceOptions:  # noqa: ARG002 - for those that have any
        """Return what jobs are told of the source that this kind of source alone has."""
        return {}

    def readers(self, max_connections: int) -> int:
        """Return how many readers of the snapshot so many connections are enough for."""
        return max_connections

    def reader_ids_needed(self, max_connections: int) -> int:  # noqa: ARG002 - for those that have any
        """Return how many ids a pipeline's readers use at once; 0 where readers have none."""
        return 0

    def reader_ids(self, pipeline: str, max_connections: int) -> range:  # noqa: ARG002 - see above
        """Return the ids of a pipeline's readers, by the file or else by the pipeline's name."""
        return range(0)

    @property
    def has_written_ids(self) -> bool:
        """Tell whether the file itself says the readers' ids."""
        return False

    def wrong_together(self, max_connections: int) -> Iterator[Wrong]:  # noqa: ARG002 - see above
        """Yield the keys whose values are valid alone, but not with the rest of the file."""
        yield from ()


class SinkSection(Section):
    """Where the tables go."""

    type: str
    route: Routes = Field(
        default_factory=dict,
        description='Where tables go, as `"shop.*": "dr_shop.*"`; a `*` on the right is what it '
        "was on the left, `{1}` the first group of a regular expression. Exact tables go first, "
        "then the first pattern that fits. Without a route a table keeps its name.",
        examples=[{"shop.*": "dr_shop.*"}],
    )
    existing_rows: Literal["refuse", "replace", "keep"] = Field(
        default="refuse",
        description="What becomes of rows that a table of the sink holds already when the pipeline "
        "first takes it: refuse the table, or replace all of its rows by the source's; of a table "
        "that several share, the rows of its shards. With a "
        "`stream.start` but `after_snapshot`, `keep` takes them for the source's as of the start.",
    )

    @property
    def tells_statements(self) -> bool:
        """Tell whether the sink gets the texts of statements, with all values in them."""
        return False

    @property
    def abilities(self) -> SinkAbilities:
        """Return what this type of sink can do."""
        return abilities_of(self.type)

    @property
    def marks_instead(self) -> tuple[str, str]:
        """Return why a sink that cannot mark rows has none to mark, and what to do."""
        return (
            f"a sink of type {self.type} holds each change as an event, deletes too, with its "
            "operation, position, commit time, table and server",
            "remove it: what it would say is in each event",
        )

    @property
    def instead_of_keys(self) -> str:
        """Return what to write here to have tables without a key; empty if nothing helps."""
        return ""

    @property
    def reference(self) -> Reference | None:
        """Return the section if it refers to a server; None if it says the sink's place itself."""
        return self if isinstance(self, Reference) else None

    @property
    def access(self) -> Reference | None:
        """Return the reference to the key of the place that the section names; None for none."""
        return None

    @property
    def server_of_tables(self) -> CatalogSection | None:
        """Return the catalog that is a server and knows the sink's tables; None for none."""
        return None

    @property
    def address(self) -> str:
        """Return the URL of the place that the section names itself; empty if it is a reference."""
        return ""

    @property
    def named_by(self) -> str:
        """Return the key of the section that names the sink."""
        return "dsn_env" if getattr(self, "dsn_env", None) is not None else "conn_id"

    @property
    def name(self) -> str:
        """Return what names the sink in the file: a connection, a variable or a place."""
        return str(getattr(self, self.named_by))

    @property
    def routes(self) -> tuple[Route, ...]:
        """Return the routes, parsed."""
        return parse_routes(self.route)


class StoreSection(Section):
    """A folder, or a place in a store with the key to it."""

    path: FilesPath = Field(
        description="Its folder, an absolute path on a local file system or on NFS, the same on "
        "every machine that does the work; or its place in a [store](stores.md), as "
        "`s3://bucket/changes`.",
        examples=["/data/changes"],
    )
    conn_id: ConnectionId | None = Field(
        default=None,
        description="Of a place in S3: the Airflow connection of type `aws` with the key. Without "
        "it and `dsn_env` the environment says how to get in.",
        examples=["changes_s3"],
    )
    dsn_env: EnvironmentName | None = Field(
        default=None,
        description="Of a place in S3: the environment variable with the key, in the form of "
        "Airflow's connection URIs: `aws://key:secret@/?region_name=...&endpoint_url=...`.",
        examples=["CHANGES_S3"],
    )

    @model_validator(mode="after")
    def _has_a_way_in(self) -> Self:
        """Refuse a connection of what needs none, and two of one place."""
        named = self.conn_id is not None or self.dsn_env is not None
        if named and not self.path.startswith("s3://"):
            raise WrongValueError(
                "conn_id and dsn_env are of a place in S3",
                "leave them out: of gs:// and az:// the environment says how to get in, and a "
                "folder needs no key",
            )
        reference_or_none(self.conn_id, self.dsn_env)
        return self

    @property
    def access(self) -> Reference | None:
        """Return the reference to the key of the store; None if the environment says it."""
        return reference_or_none(self.conn_id, self.dsn_env)
