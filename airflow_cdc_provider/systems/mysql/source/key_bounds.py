"""Ask the server for the boundaries that cut a table into splits.

Boundaries are keys, or values of the key's first column, and are strictly increasing in the
server's own order: nothing here compares keys. Three ways find the next one:

- *Even steps*, for a key of one integer column that is dense. Dense is what COUNT finds in
  sampled parts of the index, never an estimate. A split can then never hold more rows than the
  step is wide, whatever the samples missed; a hole is jumped over by asking for the next key.
- *Leaps*, for every other key whose first column is an integer. A look at a few rows tells how
  fast that column runs on, and so where it is a split further on; a look at a few rows there must
  say the same, else the next way is taken for this one boundary. What lies between the looks can
  make a split larger than it should be: no more than that, and one that is too big is cut. The
  boundary is the first column's value alone, which makes the shortest condition for the rows.
- *The index itself*: the key `split_rows` further on. The order is the index's order, so one pass
  over the index finds them all, and an end that moves or is deleted meanwhile only changes how
  the last split looks.

A key whose later columns cannot bound a range (ENUM, UUID and the like) is cut by the columns
before them. Many rows may share such a boundary, so the next one is looked for behind all of them.

The last boundary is all that is needed to go on after a break.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, cast

from airflow_cdc_provider.core.errors import UnsupportedTableError
from airflow_cdc_provider.core.identifiers import quote_identifier, quote_table
from airflow_cdc_provider.core.keys import Key, KeyKind, KeyRange, bounding
from airflow_cdc_provider.core.named_keys import NO_NAMED_KEYS, NamedKeys
from airflow_cdc_provider.core.split_planner import DensityProbe, Stretch, even_step
from airflow_cdc_provider.core.splits import SnapshotSplit
from airflow_cdc_provider.core.table_schema import TableSchema
from airflow_cdc_provider.core.table_shape import OutputColumn
from airflow_cdc_provider.systems.mysql.dialect.sql import (
    behind_predicate,
    by_key,
    of_shard,
    range_predicate,
    split_predicate,
)
from airflow_cdc_provider.systems.mysql.server.connection import query
from airflow_cdc_provider.systems.mysql.server.introspection import read_schema

if TYPE_CHECKING:
    from airflow_cdc_provider.systems.mysql.server.connection import ServerConnection

_PROBES = 8
_PROBE_WIDTH = 10_000
_LOOK_ROWS = 1_000
_WORTH_LOOKS = 10  # a split of so many looks is leapt over


def boundaries(
    connection: ServerConnection,
    schema: TableSchema,
    split_rows: int,
    start: Key | None = None,
) -> Iterator[Key]:
    """Yield the keys that cut a table into splits of `split_rows`, from `start` on, as found.

    A table without a key whose columns can bound a range has none: it is one split.
    """
    if split_rows < 1:
        raise ValueError(f"a split holds at least one row, not {split_rows}")
    kinds = schema.key_kinds
    if not bounding(kinds):
        return
    if kinds == (KeyKind.INTEGER,):
        yield from _integer_boundaries(connection, schema, split_rows, start)
    else:
        yield from _index_boundaries(connection, schema, split_rows, start)


def split_middle(
    connection: ServerConnection, split: SnapshotSplit, keys: NamedKeys = NO_NAMED_KEYS
) -> Key:
    """Return a key inside the split, with about half of the split's rows before it."""
    columns = split.key_columns[: bounding(split.key_kinds)]
    if not columns:
        why = "its key cannot bound a range" if split.key_columns else "its table has no key"
        raise _uncuttable(split, why)
    condition = split_predicate(split)
    schema = read_schema(connection, split.table, keys=keys)
    source = f"FROM {quote_table(split.table)} {by_key(schema)} WHERE {condition}"
    rows = int(query(connection, f"SELECT COUNT(*) {source}")[0][0])
    if split.chosen is not None and columns == split.key_columns:
        middle = _first(connection, schema, columns, condition, rows // 2)
    else:
        find = key_at if columns == split.key_columns else _key_on
        middle = find(connection, schema, columns, split.keys, rows // 2)
    if rows < 2 or middle is None:
        raise _uncuttable(split, f"it holds {rows} rows")
    return middle


def _index_boundaries(
    connection: ServerConnection, schema: TableSchema, split_rows: int, start: Key | None
) -> Iterator[Key]:
    """Yield boundaries of splits found by leaps along the first column, or from the index."""
    columns = schema.primary_key[: bounding(schema.key_kinds)]
    bound, here = start, _look(connection, schema, split_rows, start)
    while True:
        leapt = here and _leap(connection, schema, split_rows, here)
        if leapt:
            bound, here = leapt
        else:
            behind = KeyRange(bound, None)
            # the first row counted is at or behind `bound`, and no two rows have one whole key
            find = key_at if columns == schema.primary_key else _key_on
            bound = find(connection, schema, columns, behind, split_rows)
            if bound is None:
                return
            here = _look(connection, schema, split_rows, bound)
        yield bound


def _key_on(
    connection: ServerConnection,
    schema: TableSchema,
    columns: Sequence[str],
    keys: KeyRange,
    rows: int,
) -> Key | None:
    """Return the key `rows` rows after the range's start, and greater than it; None if none is.

    Where `columns` are not all of a key, many rows may share the start. Only the server can tell
    whether two texts are the same.
    """
    found = key_at(connection, schema, columns, keys, rows)
    if found is None or keys.start is None or len(keys.start) < len(columns):
        return found
    rest = KeyRange(found, keys.end)
    condition = f"{range_predicate(columns, rest)} AND {behind_predicate(columns, keys.start)}"
    return _first(connection, schema, columns, condition, 0)


def _leap(
    connection: ServerConnection, schema: TableSchema, split_rows: int, here: Stretch
) -> tuple[Key, Stretch] | None:
    """Return a boundary estimated `split_rows` further on, and its sample; None if in doubt."""
    reached = here.after(split_rows)
    if reached is None:
        return None
    behind = KeyRange((reached,), None)
    bound = key_at(connection, schema, schema.primary_key[:1], behind, 0)
    there = _look(connection, schema, split_rows, bound) if bound else None
    return (bound, there) if bound and there and there.resembles(here) else None


def _look(
    connection: ServerConnection, schema: TableSchema, split_rows: int, start: Key | None
) -> Stretch | None:
    """Sample the first rows from `start` on.

    None if there are too few, or a leap is not worth it.
    """
    column = schema.column(schema.primary_key[0]).type
    # the servers read numbers that are compared with a YEAR as years: 5 is 2005
    leaps = column.key_kind is KeyKind.INTEGER and column.name != "year"
    if not leaps or split_rows < _WORTH_LOOKS * _LOOK_ROWS:
        return None
    behind = KeyRange(start, None)
    first, last = (
        key_at(connection, schema, schema.primary_key, behind, offset) for offset in (0, _LOOK_ROWS)
    )
    if first is None or last is None:
        return None
    return Stretch(cast("int", first[0]), cast("int", last[0]), _LOOK_ROWS)


def _integer_boundaries(
    connection: ServerConnection, schema: TableSchema, split_rows: int, start: Key | None
) -> Iterator[Key]:
    """Yield boundaries of splits in even steps of an integer key that is dense."""
    column = quote_identifier(schema.primary_key[0])
    rest = range_predicate(schema.primary_key, KeyRange(start, None))
    smallest, largest = query(
        connection,
        f"SELECT MIN({column}), MAX({column}) FROM {quote_table(schema.table)} WHERE {rest}",
    )[0]
    if smallest is None or largest - smallest < split_rows:
        return
    step = even_step(split_rows, _probes(connection, schema, smallest, largest))
    if step is None:
        yield from _index_boundaries(connection, schema, split_rows, start)
        return
    bound = smallest + step
    while bound <= largest:
        next_key = key_at(connection, schema, schema.primary_key, KeyRange((bound,), None), 0)
        if next_key is None:
            return
        yield next_key
        bound = cast("int", next_key[0]) + step


def _probes(
    connection: ServerConnection, schema: TableSchema, smallest: int, largest: int
) -> Iterator[DensityProbe]:
    """Yield counts of keys in samples spread evenly over the key's range, both ends included."""
    width = min(_PROBE_WIDTH, largest - smallest + 1)
    room = largest - smallest + 1 - width
    for number in range(_PROBES):
        first = smallest + room * number // (_PROBES - 1)
        part = range_predicate(schema.primary_key, KeyRange((first,), (first + width,)))
        rows = query(connection, f"SELECT COUNT(*) FROM {quote_table(schema.table)} WHERE {part}")
        yield DensityProbe(first, first + width - 1, int(rows[0][0]))


def key_at(
    connection: ServerConnection,
    schema: TableSchema,
    columns: Sequence[str],
    keys: KeyRange,
    offset: int,
    shard: OutputColumn | None = None,
) -> Key | None:
    """Return the key `offset` rows into the range in index order, None beyond its end.

    Only rows of `shard` are counted where the table is shared.
    """
    condition = of_shard(shard, range_predicate(columns, keys))
    return _first(connection, schema, columns, condition, offset)


def _first(
    connection: ServerConnection,
    schema: TableSchema,
    columns: Sequence[str],
    condition: str,
    offset: int,
) -> Key | None:
    """Return the key of the row at an offset among the rows that meet a condition, or None."""
    names = ", ".join(quote_identifier(column) for column in columns)
    found = query(
        connection,
        f"SELECT {names} FROM {quote_table(schema.table)} {by_key(schema)} "
        f"WHERE {condition} ORDER BY {names} LIMIT 1 OFFSET {offset}",
    )
    return cast("Key", found[0]) if found else None


def _uncuttable(split: SnapshotSplit, why: str) -> UnsupportedTableError:
    """Return the error for a split that is too big and cannot be cut."""
    return UnsupportedTableError(
        f"split {split.split_id} is too big and cannot be cut: {why}",
        where=f"table {split.table}, keys {split.keys}",
        risk="none: nothing of the split was published",
        remedy="raise snapshot.max_split_mb, or leave the table out",
    )
