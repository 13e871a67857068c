"""Names in the folder of a change log.

    /path/shop.orders/split-00000003-g00000001-5f3a9c1e.json      a split's rows
    /path/shop.orders/stream-000009-00000154-g00000002-....json   changes of the log
    /path/shop.orders/joined-00000003-g00000002-....json          rows read beside the stream
    /path/shop.orders/columns-g00000002-....parquet               no row, only new columns
    /path/transaction/stream-....json                             BEGIN and END markers
    /path/_manifest/manifest-00000042.json                        what counts, in which order

What begins with a dot or an underscore is passed over by Spark, Hive and Flink.
"""

from __future__ import annotations

import re
import secrets
from urllib.parse import quote, unquote

from airflow_cdc_provider.core.errors import RefusedError
from airflow_cdc_provider.core.identifiers import TableId

MANIFEST = "_manifest"
CHECKPOINTS = "checkpoints"
TRANSACTION = "transaction"
_GENERATION = re.compile(r"-g([0-9]{8,})-[0-9a-f]{8}\.")
_LONGEST_NAME = 200


def table_folder(table: TableId) -> str:
    """Return the name of a table's folder."""
    name = quote(str(table), safe="")
    name = f"%5F{name[1:]}" if name.startswith("_") else name
    if len(name) > _LONGEST_NAME:
        raise RefusedError(
            f"the name of {table} is too long for a folder: {len(name)} bytes when written safely",
            where="sink",
            remedy="route the table to a shorter name",
        )
    return name


def table_of_folder(folder: str) -> TableId:
    """Return the table whose folder has that name."""
    return TableId.parse(unquote(folder))


def split_file(number: int, generation: int, ending: str) -> str:
    """Return a new file name for a split's rows."""
    return f"split-{number:08d}-{_suffix(generation, ending)}"


def joined_file(number: int, generation: int, ending: str) -> str:
    """Return a new file name for the rows of a split that joins the stream."""
    return f"joined-{number:08d}-{_suffix(generation, ending)}"


def columns_file(generation: int, ending: str) -> str:
    """Return a new file name for what has no row and only tells a table's columns."""
    return f"columns-{_suffix(generation, ending)}"


def stream_file(place: str, generation: int, ending: str) -> str:
    """Return a new file name for changes; `place` is their position in the log."""
    return f"stream-{quote(place, safe='')}-{_suffix(generation, ending)}"


def _suffix(generation: int, ending: str) -> str:
    """Return the end of a file name: generation, random digits and format."""
    return f"g{generation:08d}-{secrets.token_hex(4)}.{ending}"


def generation_of(file: str) -> int | None:
    """Return the generation that wrote a file, None for a file of another kind."""
    found = _GENERATION.search(file)
    return None if found is None else int(found[1])
