"""The pipeline file's section of a change log."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from airflow_cdc_provider.core.endpoint import Folder
from airflow_cdc_provider.core.server_look import Part
from airflow_cdc_provider.core.wrong_value import WrongValueError
from airflow_cdc_provider.systems.sections.base import SinkSection, StoreSection


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


class LogFolder(StoreSection):
    """A folder with the files of a change log."""

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


class ChangelogSinkSection(LogFolder, SinkSection):
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
    def tells_statements(self) -> bool:
        """Tell whether the sink gets the texts of statements, with all values in them."""
        return self.include_query

    @property
    def address(self) -> str:
        """Return the URL of the folder, with how its files are written and without a key."""
        of_debezium = self.types == "debezium"
        return Folder(self.path, self.format or "json", self.include_query, of_debezium).address


SECTIONS = {Part.SINK: ChangelogSinkSection}
