"""One server's side of a comparison: its session, its tables, and what is asked of them in SQL."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_cdc_provider.columns.verify_port import (
    BY_COLUMNS,
    SHOWN_CHARACTERS,
    ColumnsRead,
    Hashes,
    Part,
    Rows,
    ShownValue,
    Sum,
    TablePair,
)
from airflow_cdc_provider.core.errors import (
    NOTHING_CHANGED,
    CdcError,
    IntegrityError,
    RefusedError,
    RetryableError,
)
from airflow_cdc_provider.core.identifiers import TableId, quote_table
from airflow_cdc_provider.core.keys import Key, KeyRange
from airflow_cdc_provider.core.named_keys import NO_NAMED_KEYS, NamedKeys
from airflow_cdc_provider.core.splits import Chosen, Condition
from airflow_cdc_provider.core.table_schema import TableSchema
from airflow_cdc_provider.core.table_shape import OutputColumn
from airflow_cdc_provider.systems.mysql.dialect.sql import (
    by_key,
    chosen_predicate,
    living,
    of_shard,
    one_of,
    range_predicate,
)
from airflow_cdc_provider.systems.mysql.server.connection import Role, query
from airflow_cdc_provider.systems.mysql.server.introspection import read_schemas
from airflow_cdc_provider.systems.mysql.source.key_bounds import key_at
from airflow_cdc_provider.systems.mysql.verify.columns_side import MySqlColumnsSide
from airflow_cdc_provider.systems.mysql.verify.verify_text import (
    RowText,
    nulled_dates,
    row_texts,
)

if TYPE_CHECKING:
    from airflow_cdc_provider.systems.mysql.server.connection import ServerConnection

_BUCKETS = 1024
_KEYS_A_QUERY = 500


@dataclass(frozen=True, slots=True)
class MySqlRowCounts:
    """One table on one server, whose rows are counted by ranges of its key."""

    connection: ServerConnection
    schema: TableSchema
    key: tuple[str, ...]
    role: Role
    flag: str = ""
    """The column that is 1 in rows that are marked as deleted; empty: there are none."""
    shard: OutputColumn | None = None
    """The column by which the table is shared, and its rows' value; None: it is not shared."""

    @property
    def table(self) -> TableId:
        """Return the table's name."""
        return self.schema.table

    def count(self, keys: KeyRange, chosen: Chosen | None = None, *, most: int) -> int:
        """Return the number of rows in a range of keys, or of the chosen ones, at most `most`."""
        inside = of_shard(self.shard, range_predicate(self.key, keys))
        rows = f"FROM {quote_table(self.table)} {by_key(self.schema)} WHERE {inside}"
        if chosen is not None:
            inside = f"{inside} AND {chosen_predicate(chosen)}"
            rows = f"FROM {quote_table(self.table)} WHERE {inside}"
        if self.flag:
            rows = f"{rows} AND {living(self.flag)}"
        some = f"SELECT 1 {rows} LIMIT {most}"
        return int(self._ask(f"SELECT COUNT(*) FROM ({some}) AS some")[0][0])

    def require(self, condition: Condition) -> None:
        """Refuse a condition that the server cannot parse; it is not run."""
        select = f"SELECT 1 FROM {quote_table(self.table)} WHERE {chosen_predicate(condition)}"
        try:
            self._ask(f"EXPLAIN {select}")
        except RetryableError:
            raise
        except CdcError as error:
            raise RefusedError(
                f"the {self.role} refuses the condition: {error.what}",
                where=f"table {self.table}",
                risk=NOTHING_CHANGED,
                remedy="write a condition that both servers know, on columns that both have",
            ) from error

    def _ask(self, statement: str) -> Sequence[tuple[Any, ...]]:
        """Run a query on the side's server."""
        return query(self.connection, statement, role=self.role)


@dataclass(frozen=True, slots=True)
class MySqlTableSide:
    """One table on one server, for a comparison with its copy."""

    connection: ServerConnection
    schema: TableSchema
    key: tuple[str, ...]
    text: RowText
    role: Role

    @property
    def table(self) -> TableId:
        """Return the table's name."""
        return self.schema.table

    def sum_of(self, keys: KeyRange) -> Sum:
        """Return the number of rows in a range of keys, and the sum of their hashes."""
        # rows whose text the server could not make would vanish from the sum
        rows, made, number, size = self._ask(
            f"SELECT COUNT(*), {self._made}, BIT_XOR({self.text.number}), SUM({self.text.size}) "
            f"{self._rows(range_predicate(self.key, keys))}"
        )[0]
        self._all_made(rows, made)
        return Sum(int(rows), int(number), int(size or 0))

    def bucket_sums(self) -> Mapping[int, Sum]:
        """Return the sums of all rows, by buckets of keys."""
        found = self._ask(
            f"SELECT {self._bucket}, COUNT(*), {self._made}, {self._numbers}, "
            f"SUM({self.text.size}) {self._rows('TRUE')} GROUP BY 1"
        )
        for _, rows, made, _, _ in found:
            self._all_made(rows, made)
        return {int(b): Sum(int(n), int(x), int(size or 0)) for b, n, _, x, size in found}

    def hashes(self, part: Part) -> Hashes:
        """Return the hash of each row, by key, in a range of keys or in some buckets."""
        if isinstance(part, KeyRange):
            return self._hashes(range_predicate(self.key, part))
        numbers = ", ".join(map(str, sorted(part.numbers)))
        return self._hashes(f"{self._bucket} IN ({numbers})")

    def key_at(self, keys: KeyRange, number: int) -> Key | None:
        """Return the key of the row with this number in a range of keys; None beyond its end."""
        return key_at(self.connection, self.schema, self.key, keys, number)

    def _hashes(self, part: str) -> Hashes:
        """Return the hash of each row, by key, that meets a condition."""
        keys = ", ".join(self.text.key)
        found = self._ask(f"SELECT {keys}, {self.text.hash} {self._rows(part)}")
        return {self.text.key_read(row[:-1]): str(row[-1]) for row in found}

    def hashes_of(self, keys: Collection[Key]) -> Hashes:
        """Return the hashes of the rows with these keys."""
        wanted: list[Key] = list(keys)
        found: Hashes = {}
        for at in range(0, len(wanted), _KEYS_A_QUERY):
            found.update(self._hashes(self._one_of(wanted[at : at + _KEYS_A_QUERY])))
        # a collation may find more rows than were meant
        return {key: found[key] for key in wanted if key in found}

    def values_of(self, keys: Collection[Key]) -> Rows:
        """Return the values of the rows with these keys, cut for people to read."""
        columns = self.text.columns
        values = ", ".join(f"{each.identity}, {each.shown}" for each in columns)
        found = self._ask(
            f"SELECT {', '.join(self.text.key)}, {values} {self._rows(self._one_of(list(keys)))}"
        )
        rows: Rows = {}
        for row in found:
            key, rest = self.text.key_read(row[: len(self.text.key)]), row[len(self.text.key) :]
            pairs = zip(columns, rest[::2], rest[1::2], strict=True)
            rows[key] = {each.column: ShownValue(str(i), _cut(t)) for each, i, t in pairs}
        return rows

    def _one_of(self, keys: Sequence[Key]) -> str:
        """Return the condition that a key is one of these."""
        return one_of(self.text.key, [self.text.key_asked(key) for key in keys])

    @property
    def _numbers(self) -> str:
        """Return the SQL expression that adds up the numbers of rows, in any order."""
        return f"BIT_XOR({self.text.number})"

    @property
    def _bucket(self) -> str:
        """Return the SQL expression of a key's bucket."""
        return f"CRC32(CONCAT_WS('/', {', '.join(self.text.key)})) % {_BUCKETS}"

    @property
    def _made(self) -> str:
        """Return the SQL expression that counts the rows whose text the server could make."""
        unmade = self.text.may_be_unmade
        return f"COUNT(*) - SUM({unmade})" if unmade else "COUNT(*)"

    def _all_made(self, rows: Any, made: Any) -> None:
        """Refuse to compare if the server could not make the text of some rows."""
        if rows and int(made) != int(rows):
            raise IntegrityError(
                f"{int(rows) - int(made)} rows of {self.table} are too large to be compared",
                where=f"the {self.role}",
                risk="none: nothing was changed; these rows are not proven equal",
                remedy="raise max_allowed_packet on both servers and verify again",
            )

    def _rows(self, part: str) -> str:
        """Return the FROM and WHERE of a query over the table by its key."""
        return f"FROM {quote_table(self.table)} {by_key(self.schema)} WHERE {part}"

    def _ask(self, statement: str) -> Sequence[tuple[Any, ...]]:
        """Run a query on the side's server."""
        return query(self.connection, statement, role=self.role)


@dataclass(frozen=True, slots=True)
class MySqlKeylessSide(MySqlTableSide):
    """One table without a key: a row's hash is its key, and how many there are is compared.

    Hashes are added, not combined bit by bit: two equal rows would cancel each other out.
    """

    def values_of(self, keys: Collection[Key]) -> Rows:  # noqa: ARG002 - of the protocol
        """Return nothing: rows that have one hash differ in nothing but how many they are."""
        return {}

    def _hashes(self, part: str) -> Hashes:
        """Return how many rows there are of each hash, among those that meet a condition."""
        found = self._ask(f"SELECT {self.text.hash}, COUNT(*) {self._rows(part)} GROUP BY 1")
        return {(str(row[0]),): str(row[1]) for row in found}

    def _one_of(self, keys: Sequence[Key]) -> str:
        """Return the condition that a row's hash is one of these."""
        return one_of((self.text.hash,), list(keys))

    @property
    def _numbers(self) -> str:
        return f"SUM({self.text.number})"

    @property
    def _bucket(self) -> str:
        """Return the SQL expression of a hash's bucket."""
        return f"CRC32({self.text.hash}) % {_BUCKETS}"


@dataclass(frozen=True, slots=True)
class MySqlVerifySide:
    """One server's session for comparing tables."""

    connection: ServerConnection
    role: Role
    nulls_dates: bool = False
    """Of the source: dates that are no day of the calendar are NULL at the sink."""
    keys: NamedKeys = NO_NAMED_KEYS
    """Of the source: the unique keys that the pipeline file names for its tables."""

    @property
    def digests(self) -> tuple[str, ...]:
        """Return the names of the hashes that there are of this side's rows."""
        return ("SHA-256 of the text that servers of MySQL's protocol make of a row", BY_COLUMNS)

    @property
    def has_ranges(self) -> bool:
        """Return True: the key's index finds them."""
        return True

    def close(self) -> None:
        self.connection.close()

    def definition(self, table: TableId) -> TableSchema | None:
        """Return a table's definition on this side, None if there is no such table."""
        found = read_schemas(
            self.connection, [table], with_statement=False, role=self.role, keys=self.keys
        )
        return found.get(table)

    def counts(
        self,
        table: TableSchema,
        key: tuple[str, ...],
        *,
        flag: str = "",
        shard: OutputColumn | None = None,
    ) -> MySqlRowCounts:
        """Return a table of this side, to count its rows by ranges of its key.

        Rows that are marked as deleted, by the column `flag`, are not counted, nor are those of
        other shards than `shard`.
        """
        return MySqlRowCounts(self.connection, table, key, self.role, flag, shard)

    def table(self, pair: TablePair) -> MySqlTableSide:
        """Return this side's table of a pair, with the SQL expressions to compare it by."""
        left, right = row_texts(pair.source, pair.sink, nulls_dates=self.nulls_dates)
        own, text = (pair.source, left) if self.role is Role.SOURCE else (pair.sink, right)
        key = pair.source.primary_key
        kind = MySqlTableSide if key else MySqlKeylessSide
        return kind(self.connection, own, key, text, self.role)

    def columns_of(self, own: ColumnsRead, other: ColumnsRead) -> MySqlColumnsSide:
        """Return this side's table of a pair, to be read as columns."""
        nulled = nulled_dates(own.table) if self.nulls_dates else frozenset[str]()
        return MySqlColumnsSide(self.connection, own, other, self.role, nulled)


def _cut(text: str | None) -> str | None:
    """Return a long value cut for people to read."""
    return (
        text if text is None or len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."
    )
