"""The pipeline file's sections of MySQL and MariaDB, as source and as sink."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from airflow_cdc_provider.core.jobspec import SourceOptions
from airflow_cdc_provider.core.server_look import Part
from airflow_cdc_provider.core.wrong_value import WrongValueError
from airflow_cdc_provider.systems.mysql.server_ids import (
    CONNECTIONS_A_READER,
    FEWEST_DERIVED,
    derived_ids,
    ids_needed,
    parse_ids,
)
from airflow_cdc_provider.systems.sections.base import (
    Reference,
    SinkSection,
    SourceSection,
    Wrong,
)

LARGEST_SERVER_ID = 2**32 - 1
_RANGE = re.compile(r"([0-9]+)\s*(?:-\s*([0-9]+))?")


def _server_ids(value: Any) -> Any:
    """Check a server id or a range of ids, and return it as `first-last`."""
    text = str(value) if isinstance(value, int | str) and not isinstance(value, bool) else ""
    match = _RANGE.fullmatch(text.strip())
    if match is None:
        raise WrongValueError(
            f"{value!r} is not a server id or a range of them", "write it as 5400-5499"
        )
    first, last = int(match[1]), int(match[2] or match[1])
    if not 1 <= first <= last <= LARGEST_SERVER_ID:
        raise WrongValueError(
            f"{value!r} is not a range within 1-{LARGEST_SERVER_ID}",
            "write the smaller id first, as in 5400-5499",
        )
    return f"{first}-{last}"


ServerIds = Annotated[
    str,
    BeforeValidator(_server_ids),
    WithJsonSchema({"type": ["string", "integer"], "pattern": r"^[0-9]+\s*(-\s*[0-9]+)?$"}),
]


class MySqlSourceSection(SourceSection):
    """A server of MySQL or MariaDB."""

    type: Literal["mysql"] = Field(
        default="mysql", description="MySQL or MariaDB; what is meant where no type is written."
    )
    server_id: ServerIds | None = Field(
        default=None,
        description="Replication server ids, `first-last`. The stream uses the first one, the "
        "snapshot's readers the ones after it. No two live readers of one source may share an id. "
        "Left out, the pipeline has 100 ids of its own (more where `max_connections` is above 200) "
        "between 1000000000 and 2100000000, which follow from its name and from `conn_id` or "
        "`dsn_env`; `check` asks the source who else reads there.",
        examples=["5400-5499"],
    )
    zero_dates: Literal["fail", "null", "text"] = Field(
        default="fail",
        description="What becomes of zero and partial dates: stop with an error, store NULL, or "
        "keep them as they are.",
    )

    @property
    def zero_date_policy(self) -> str:
        """Return what becomes of zero and partial dates."""
        return self.zero_dates

    def options(self, pipeline: str, max_connections: int) -> SourceOptions:
        """Return the server ids of a pipeline's readers, and its policy for zero dates."""
        ids = self.reader_ids(pipeline, max_connections)
        return {"server_ids": [ids.start, ids.stop - 1], "zero_dates": self.zero_dates}

    def readers(self, max_connections: int) -> int:
        """Return how many readers of the snapshot so many connections are enough for."""
        return max_connections // CONNECTIONS_A_READER

    def reader_ids_needed(self, max_connections: int) -> int:
        """Return how many server ids a pipeline uses at once."""
        return ids_needed(max_connections)

    def reader_ids(self, pipeline: str, max_connections: int) -> range:
        """Return a pipeline's server ids, by the file or else derived from the pipeline's name."""
        if self.server_id is not None:
            return parse_ids(self.server_id)
        named = f"conn_id={self.conn_id} dsn_env={self.dsn_env}"
        return derived_ids(pipeline, named, needed=ids_needed(max_connections))

    @property
    def has_written_ids(self) -> bool:
        """Tell whether the file itself says the server ids."""
        return self.server_id is not None

    def wrong_together(self, max_connections: int) -> Iterator[Wrong]:
        """Yield a problem if the file names too few server ids."""
        if self.server_id is None:
            return
        ids, needed = parse_ids(self.server_id), ids_needed(max_connections)
        if len(ids) < needed:
            yield (
                "server_id",
                f"{len(ids)} server ids are too few: the stream and the readers of "
                f"{max_connections} connections need {needed}",
                f"write server_id: {ids.start}-{ids.start + max(needed, FEWEST_DERIVED) - 1}",
            )


class MySqlSinkSection(SinkSection, Reference):
    """A server of MySQL or MariaDB, or whatever speaks their protocol."""

    type: Literal["mysql"] = Field(
        default="mysql",
        description="MySQL, or whatever speaks its protocol; what is meant where no type is "
        "written.",
    )


SECTIONS = {Part.SOURCE: MySqlSourceSection, Part.SINK: MySqlSinkSection}
