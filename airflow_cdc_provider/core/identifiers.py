"""Names: parsed once at the edge, printed once, quoted by one function."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

from airflow_cdc_provider.core.name_patterns import quoted, read_names, spelt

LEDGER_DATABASE = "airflow_cdc"
"""Where pipelines that copy to a server keep their progress: never tables to be copied."""

_PIPELINE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}")


@dataclass(frozen=True, slots=True, order=True)
class TableId:
    """A table by its database and name, as the server spells them."""

    database: str
    table: str

    @classmethod
    def parse(cls, text: str) -> TableId:
        """Read `database.table`; `ValueError` if it is not that.

        A dot inside a name is doubled, or the name is in backticks: see `core.name_patterns`.
        """
        try:
            database, table = read_names(text)
        except ValueError:
            raise ValueError(
                f"expected 'database.table', got {text!r}; a name with a dot in it is written in "
                "backticks"
            ) from None
        return cls(database, table)

    def __str__(self) -> str:
        return f"{spelt(self.database)}.{spelt(self.table)}"


def table_option(table: TableId | str) -> str:
    """Return the option of a command that names a table, as a shell takes it."""
    return f"--table {shlex.quote(str(table))}"


@dataclass(frozen=True, slots=True, order=True)
class PipelineName:
    """The name of a pipeline: a letter, then letters, digits and underscores, at most 63."""

    text: str

    def __post_init__(self) -> None:
        if not _PIPELINE_NAME.fullmatch(self.text):
            raise ValueError(
                f"pipeline name {self.text!r}: wanted a letter, then up to 62 letters, "
                "digits or underscores"
            )

    def __str__(self) -> str:
        return self.text


def quote_identifier(name: str) -> str:
    """Quote one SQL identifier for MySQL and MariaDB."""
    if not name or "\0" in name:
        raise ValueError(f"not an identifier: {name!r}")
    return quoted(name)


def quote_table(table: TableId) -> str:
    """Quote a table with its database."""
    return f"{quote_identifier(table.database)}.{quote_identifier(table.table)}"
