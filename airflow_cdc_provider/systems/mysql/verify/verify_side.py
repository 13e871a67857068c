"""One side of a comparison: a session, a table, and the questions asked of it.

A *part* of a table is a condition in SQL: a range of its key where the key can bound one, else a
set of hash buckets of the key.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_cdc_provider.core.errors import IntegrityError
from airflow_cdc_provider.core.identifiers import TableId, quote_table
from airflow_cdc_provider.core.keys import Key
from airflow_cdc_provider.systems.mysql.dialect.sql import literal
from airflow_cdc_provider.systems.mysql.server.connection import Role, query

if TYPE_CHECKING:
    from airflow_cdc_provider.systems.mysql.server.connection import ServerConnection
    from airflow_cdc_provider.systems.mysql.verify.verify_text import RowText

BUCKETS = 1024
_KEYS_A_QUERY = 500

Hashes = dict[Key, str]
"""Each row's hash by its key."""


@dataclass(frozen=True, slots=True)
class Sum:
    """What a part of a table adds up to."""

    rows: int
    number: int
    bytes: int

    def same_rows(self, other: Sum) -> bool:
        """Tell whether both parts hold the same rows."""
        return (self.rows, self.number) == (other.rows, other.number)


@dataclass(frozen=True, slots=True)
class Side:
    """One server's table."""

    connection: ServerConnection
    table: TableId
    text: RowText
    role: Role

    def sum_of(self, part: str) -> Sum:
        """Add up the rows of a part."""
        # rows whose text the server could not make would vanish from the sum
        rows, made, number, size = self._ask(
            f"SELECT COUNT(*), {self._made}, BIT_XOR({self.text.number}), SUM({self.text.size}) "
            f"{self._rows(part)}"
        )[0]
        self._all_made(rows, made)
        return Sum(int(rows), int(number), int(size or 0))

    def bucket_sums(self) -> Mapping[int, Sum]:
        """Add up the whole table by buckets of its key, in one pass."""
        found = self._ask(
            f"SELECT {self._bucket}, COUNT(*), {self._made}, BIT_XOR({self.text.number}), "
            f"SUM({self.text.size}) {self._rows('TRUE')} GROUP BY 1"
        )
        for _, rows, made, _, _ in found:
            self._all_made(rows, made)
        return {int(b): Sum(int(n), int(x), int(size or 0)) for b, n, _, x, size in found}

    def hashes(self, part: str) -> Hashes:
        """Return each row of a part."""
        keys = ", ".join(self.text.key)
        found = self._ask(f"SELECT {keys}, {self.text.hash} {self._rows(part)}")
        return {tuple(row[:-1]): str(row[-1]) for row in found}

    def hashes_of(self, keys: Collection[Key]) -> Hashes:
        """Return the rows that have one of these keys."""
        wanted: list[Key] = list(keys)
        found: Hashes = {}
        for at in range(0, len(wanted), _KEYS_A_QUERY):
            found.update(self.hashes(self._one_of(wanted[at : at + _KEYS_A_QUERY])))
        # a collation may find more rows than were meant
        return {key: found[key] for key in wanted if key in found}

    def _one_of(self, keys: Sequence[Key]) -> str:
        # MariaDB finds no index range for (a, b) IN (...)
        equal = (
            " AND ".join(f"{c} = {literal(p)}" for c, p in zip(self.text.key, key, strict=True))
            for key in keys
        )
        return " OR ".join(f"({condition})" for condition in equal)

    def buckets(self, numbers: Collection[int]) -> str:
        """Return the condition for these buckets."""
        return f"{self._bucket} IN ({', '.join(map(str, sorted(numbers)))})"

    @property
    def _bucket(self) -> str:
        return f"CRC32(CONCAT_WS('/', {', '.join(self.text.key)})) % {BUCKETS}"

    @property
    def _made(self) -> str:
        """Count the rows a text was made of; asked only where it might not be."""
        unmade = self.text.may_be_unmade
        return f"COUNT(*) - SUM({unmade})" if unmade else "COUNT(*)"

    def _all_made(self, rows: Any, made: Any) -> None:
        if rows and int(made) != int(rows):
            raise IntegrityError(
                f"{int(rows) - int(made)} rows of {self.table} are too large to be compared",
                where=f"the {self.role}",
                risk="none: nothing was changed; these rows are not proven equal",
                remedy="raise max_allowed_packet on both servers and verify again",
            )

    def _rows(self, part: str) -> str:
        return f"FROM {quote_table(self.table)} FORCE INDEX (PRIMARY) WHERE {part}"

    def _ask(self, statement: str) -> Sequence[tuple[Any, ...]]:
        return query(self.connection, statement, role=self.role)
