"""The pipeline file's sections of tables in a lake."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from airflow_cdc_provider.core.endpoint import Folder
from airflow_cdc_provider.core.server_look import Part
from airflow_cdc_provider.core.wrong_value import WrongValueError
from airflow_cdc_provider.systems.sections.base import SinkSection, StoreSection
from airflow_cdc_provider.systems.sections.field_types import FolderPath

_LONGEST = 3600


def _existing_rows(value: Any) -> Any:
    """Refuse to replace or keep rows that others wrote."""
    if value in {"keep", "replace"}:
        raise WrongValueError(
            "a table in a lake is made by the pipeline that fills it",
            "leave existing_rows out, and name an empty folder",
        )
    return value


class LakeSinkSection(SinkSection):
    """Tables in a folder: each change is a row."""

    path: FolderPath = Field(
        description="Folder of the tables, an absolute path on a local file system or on NFS, the "
        "same on every machine that does the work.",
        examples=["/data/lake"],
    )
    mode: Literal["append"] = Field(
        default="append",
        description="`append`: each change is a row, with its operation and its order.",
    )
    commit_seconds: int = Field(
        default=60,
        ge=1,
        le=_LONGEST,
        description="Seconds from one commit of a table to the next. Each commit makes a file and "
        "a snapshot of the table that was changed.",
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
    def address(self) -> str:
        """Return the URL of the folder, with the tables' format and pace."""
        return Folder(self.path, self.type, commit_seconds=self.commit_seconds).address


class IcebergSinkSection(LakeSinkSection):
    """Tables of Apache Iceberg in a folder, in a catalog of SQLite beside them."""

    type: Literal["iceberg"] = Field(description="Tables of Apache Iceberg.")


class DeltaSinkSection(StoreSection, LakeSinkSection):
    """Tables of Delta Lake in a folder or a store."""

    type: Literal["delta"] = Field(description="Tables of Delta Lake.")


ICEBERG = {Part.SINK: IcebergSinkSection}
DELTA = {Part.SINK: DeltaSinkSection}
