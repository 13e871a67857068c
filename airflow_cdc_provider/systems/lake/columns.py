"""The columns of a lake's table: the table's own, and what became of each row."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

OP, ORDER, POSITION, COMMITTED_AT = "_op", "_order", "_position", "_committed_at"
CHANGE_COLUMNS = {
    OP: pa.string(),
    ORDER: pa.int64(),
    POSITION: pa.string(),
    COMMITTED_AT: pa.timestamp("us", "UTC"),
}
"""What is told of each change, behind the table's own columns."""
SNAPSHOT_ORDER = -1
"""Of the rows that a snapshot read: before all changes."""
ROW, DOUBLED = "=", "=="
"""In the place of an operation, while a table of current rows is read: a row of it, and one whose
key it has more than once."""


def free_name(name: str, columns: Iterable[str]) -> str:
    """Return a name that no column has, in any case: this one, or with more behind it."""
    taken = {column.casefold() for column in columns}
    while name in taken:
        name += "_"
    return name
