"""The pipeline file's sections of tables in a lake."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from airflow_cdc_provider.core.endpoint import Folder
from airflow_cdc_provider.core.server_look import Part
from airflow_cdc_provider.core.wrong_value import WrongValueError
from airflow_cdc_provider.engine.sink.port import SinkAbilities
from airflow_cdc_provider.systems.lake.abilities import ABILITIES, MIRRORED
from airflow_cdc_provider.systems.sections.base import SinkSection, StoreSection
from airflow_cdc_provider.systems.sections.catalog import CatalogSection

_LONGEST = 3600
_MOST_MB = 1_048_576


def _existing_rows(value: Any) -> Any:
    """Refuse to replace or keep rows that others wrote."""
    if value in {"keep", "replace"}:
        raise WrongValueError(
            "a table in a lake is made by the pipeline that fills it",
            "leave existing_rows out, and name an empty folder",
        )
    return value


class LakeSinkSection(SinkSection):
    """Tables in a folder or a store: each change is a row, or each row is there as it is now."""

    path: str
    mode: Literal["append", "mirror"] = Field(
        default="append",
        description="`append`: each change is a row, with its operation and its order. "
        "[`mirror`](lake_mirrors.md): the table has the current rows.",
    )
    commit_seconds: int = Field(
        default=60,
        ge=1,
        le=_LONGEST,
        description="Seconds from one commit of a table to the next. Each commit makes a file and "
        "a snapshot of the table that was changed.",
    )
    rewrite_mb: int = Field(
        default=8192,
        ge=1,
        le=_MOST_MB,
        description="With `mode: mirror`: the megabytes of a table's files that one commit may "
        "write again. More is refused, and the table stays what it was.",
    )
    compact: bool = Field(
        default=True,
        description="With `mode: append`: a table's small files become larger ones now and then.",
    )
    existing_rows: Annotated[Literal["refuse"], BeforeValidator(_existing_rows)] = Field(
        default="refuse",
        description="A table whose folder holds files of others when the pipeline first takes it "
        "is refused.",
    )

    @property
    def named_by(self) -> str:
        """Return the key of the section that names the sink."""
        return "path"

    @property
    def abilities(self) -> SinkAbilities:
        """Return what tables of this mode can do."""
        return MIRRORED if self.mode == "mirror" else ABILITIES

    @property
    def marks_instead(self) -> tuple[str, str]:
        """Return why tables of changes have no rows to mark, and what to do."""
        return (
            f"with mode: append a table of type {self.type} has a row for each change, deletes "
            "too, with its operation, position and commit time",
            "remove it: what it would say is in each row; or write mode: mirror, whose tables hold "
            "the current rows",
        )

    @property
    def instead_of_keys(self) -> str:
        """Return the mode whose tables need no key, where this one's do."""
        if self.mode == "append":
            return ""
        return (
            "write mode: append under sink, whose tables need no key; a pipeline that has begun "
            "goes on so after `reset`"
        )

    @property
    def address(self) -> str:
        """Return the URL of the folder, with the tables' format and pace."""
        mirror_mb = self.rewrite_mb if self.mode == "mirror" else 0
        return Folder(
            self.path,
            self.type,
            commit_seconds=self.commit_seconds,
            mirror_mb=mirror_mb,
            compacts=self.compact,
        ).address

    @model_validator(mode="after")
    def _rewrites(self) -> Self:
        """Refuse a limit of what is never done."""
        if self.mode == "append" and "rewrite_mb" in self.model_fields_set:
            raise WrongValueError(
                "rewrite_mb is of tables that hold the current rows",
                "leave it out, or write mode: mirror",
            )
        return self


class IcebergSinkSection(StoreSection, LakeSinkSection):
    """Tables of Apache Iceberg: in a folder, in a catalog of SQLite beside them, or in a store."""

    type: Literal["iceberg"] = Field(description="Tables of Apache Iceberg.")
    catalog: CatalogSection | None = Field(
        default=None,
        description="The [catalog](iceberg_catalogs.md) that knows the tables. Of a folder it may "
        "be left out: the catalog is a file of SQLite there, `catalog.db`.",
    )

    @model_validator(mode="after")
    def _has_a_catalog(self) -> Self:
        """Require a catalog for tables in a store, and a store that the library can read."""
        scheme = self.path.partition("://")[0]
        if scheme == "az":
            raise WrongValueError(
                "the library of Iceberg reads no az://",
                "write a folder, or a place in S3, as in s3://bucket/lake",
            )
        if "://" in self.path and self.catalog is None:
            raise WrongValueError(
                "tables of Iceberg in a store need a catalog that is a server",
                "write catalog: with a type (sql, rest or glue), or a folder as the path",
            )
        if self.catalog is not None and self.catalog.type == "glue" and scheme != "s3":
            raise WrongValueError(
                "Glue is a catalog of tables in S3", "write a path in S3, or another catalog"
            )
        return self

    @property
    def server_of_tables(self) -> CatalogSection | None:
        """Return the catalog that is a server."""
        return self.catalog


class DeltaSinkSection(StoreSection, LakeSinkSection):
    """Tables of Delta Lake in a folder or a store."""

    type: Literal["delta"] = Field(description="Tables of Delta Lake.")


ICEBERG = {Part.SINK: IcebergSinkSection}
DELTA = {Part.SINK: DeltaSinkSection}
