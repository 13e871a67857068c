"""The pipeline file's section of a change log."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from airflow_cdc_provider.core.endpoint import Folder
from airflow_cdc_provider.core.server_look import Part
from airflow_cdc_provider.core.wrong_value import WrongValueError
from airflow_cdc_provider.systems.sections.base import Reference, Section, SinkSection
from airflow_cdc_provider.systems.sections.field_types import (
    ConnectionId,
    EnvironmentName,
    FilesPath,
)


def _existing_rows(value: Any) -> Any:
    """Refuse to replace or keep rows, which a log cannot."""
    if value == "keep":
        raise WrongValueError(
            "a changelog has no rows of before its stream", "leave existing_rows out"
        )
    if value == "replace":
        raise WrongValueError(
            "a changelog replaces no rows that others wrote",
            "leave existing_rows out, and name an empty folder",
        )
    return value


class LogFolder(Section):
    """A folder with the files of a change log."""

    path: FilesPath = Field(
        description="Its folder, an absolute path on a local file system or on NFS, the same on "
        "every machine that does the work; or its place in a [store](stores.md), as "
        "`s3://bucket/changes`.",
        examples=["/data/changes"],
    )
    conn_id: ConnectionId | None = Field(
        default=None,
        description="Of a log in S3: the Airflow connection of type `aws` with the key. Without "
        "it and `dsn_env` the environment says how to get in.",
        examples=["changes_s3"],
    )
    dsn_env: EnvironmentName | None = Field(
        default=None,
        description="Of a log in S3: the environment variable with the key, in the form of "
        "Airflow's connection URIs: `aws://key:secret@/?region_name=...&endpoint_url=...`.",
        examples=["CHANGES_S3"],
    )
    format: Literal["json", "parquet"] | None = Field(
        default=None, description="How its files are written; `json` if left out."
    )
    types: Literal["native", "debezium"] | None = Field(
        default=None,
        description="Of files in Parquet: `native`, if left out, gives DECIMAL, DATE, DATETIME and "
        "TIMESTAMP types of their own; `debezium` writes them as in JSON. A log keeps the types "
        "that it was begun with until `reset`.",
    )
    include_query: bool = Field(
        default=False,
        description="Each change tells the statement that made it, where the server logs "
        "statements beside rows. The text is there again for every row that it changed, with all "
        "values in it.",
    )

    @model_validator(mode="after")
    def _has_types(self) -> Self:
        """Refuse types for files that have none."""
        if self.types is not None and self.format != "parquet":
            raise WrongValueError(
                "only files in Parquet have types of their own",
                "write format: parquet, or leave types out",
            )
        return self

    @model_validator(mode="after")
    def _has_a_way_in(self) -> Self:
        """Refuse a connection of what needs none, and two of one log."""
        named = self.conn_id is not None or self.dsn_env is not None
        if named and not self.path.startswith("s3://"):
            raise WrongValueError(
                "conn_id and dsn_env are of a log in S3",
                "leave them out: of gs:// and az:// the environment says how to get in, and a "
                "folder needs no key",
            )
        if self.conn_id is not None and self.dsn_env is not None:
            raise WrongValueError(
                "wanted one of conn_id and dsn_env, both are there", "leave one of them out"
            )
        return self


class ChangelogSinkSection(SinkSection, LogFolder):
    """Files that hold every change, in a folder."""

    type: Literal["changelog"] = Field(description="Files that hold every change.")
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
    def access(self) -> Reference | None:
        """Return the reference to the key of the store; None if the environment says it."""
        if self.conn_id is None and self.dsn_env is None:
            return None
        return Reference(conn_id=self.conn_id, dsn_env=self.dsn_env)

    @property
    def tells_statements(self) -> bool:
        """Tell whether the sink gets the texts of statements, with all values in them."""
        return self.include_query

    @property
    def address(self) -> str:
        """Return the URL of the folder, with how its files are written and without a key."""
        of_debezium = self.types == "debezium"
        return Folder(self.path, self.format or "json", self.include_query, of_debezium).address


SECTIONS = {Part.SINK: ChangelogSinkSection}
