"""A table's definition as the server states it, and its fingerprint."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from enum import StrEnum

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.keys import KeyKind, KeyKinds


class TypeKind(StrEnum):
    """The kind of values that a column has, whatever its system calls the type."""

    INTEGER = "integer"
    BITS = "bits"
    DECIMAL = "decimal"
    FLOAT = "float"
    TEXT = "text"
    BINARY = "binary"
    TEMPORAL = "temporal"
    ENUM = "enum"
    SET = "set"
    JSON = "json"
    GEOMETRY = "geometry"
    POINT = "point"
    VECTOR = "vector"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class ColumnType:
    """A column's type: the system's own name for it, and its meaning."""

    name: str
    """The system's name of the type; only the system itself decides by it."""
    kind: TypeKind
    key_kind: KeyKind
    """How the column orders as part of a key."""
    unsigned: bool = False
    length: int | None = None
    """Characters of texts, bytes of binaries, bits of BIT, dimensions of VECTOR."""
    precision: int | None = None
    scale: int | None = None
    fraction: int = 0
    """Digits of a second's fraction, 0 to 6."""
    charset: str | None = None
    collation: str | None = None
    members: tuple[str, ...] = ()
    """ENUM and SET members in definition order."""
    is_json_text: bool = False
    """JSON is kept as a text, with a constraint that checks it."""
    no_member: str = ""
    """The text that stands for an ENUM's value that is none of its members; empty for none."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table's definition."""

    name: str
    type: ColumnType
    nullable: bool = True
    generated: bool = False
    """Computed by the server, stored or virtual: read for nothing, never written."""
    invisible: bool = False
    auto_increment: bool = False
    ignored: bool = False
    """At the source only: it came later, and the pipeline leaves it out."""


@dataclass(frozen=True, slots=True)
class UniqueKey:
    """A secondary unique key: its name and columns."""

    name: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TableSchema:
    """A table's columns and keys at one moment.

    `primary_key` is in index order, which may differ from column order. Prefix lengths of a
    primary key over texts are in `key_prefixes` (0 is none).
    """

    table: TableId
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...]
    key_prefixes: tuple[int, ...] = ()
    unique_keys: tuple[UniqueKey, ...] = ()
    engine: str = "InnoDB"
    collation: str | None = None
    create_statement: str = ""
    flavour: str = ""
    """The family whose statement that is: `mysql` or `mariadb`; empty if not asked."""
    key_name: str = ""
    """The unique key over columns without NULL that is the `primary_key` of a table without one.

    Empty: it is the primary key, or there is none.
    """
    named_key: str = ""
    """The unique key that the pipeline file names for the table; empty if it names none."""
    key_problem: str = ""
    """Why that key does not tell the table's rows apart; then the table has no key."""

    def column(self, name: str) -> Column:
        """Return the column of that name; it must exist."""
        return next(column for column in self.columns if column.name == name)

    @property
    def copied_columns(self) -> tuple[Column, ...]:
        """Return the columns that are copied: all but generated and ignored ones."""
        return tuple(c for c in self.columns if not (c.generated or c.ignored))

    @property
    def ignored(self) -> frozenset[str]:
        """Return the names of the columns that are not copied."""
        return frozenset(column.name for column in self.columns if column.ignored)

    def ignoring(self, names: Collection[str]) -> TableSchema:
        """Return the definition with exactly these columns marked as not copied."""
        columns = (replace(column, ignored=column.name in names) for column in self.columns)
        return replace(self, columns=tuple(columns))

    @property
    def as_copied(self) -> TableSchema:
        """Return the definition without the columns that are not copied, and their unique keys."""
        left_out = self.ignored
        if not left_out:
            return self
        return replace(
            self,
            columns=tuple(column for column in self.columns if not column.ignored),
            unique_keys=tuple(k for k in self.unique_keys if not left_out.intersection(k.columns)),
        )

    @property
    def has_key(self) -> bool:
        """Tell whether rows have a key; without one only all of a row tells it from another."""
        return bool(self.primary_key)

    @property
    def key_kinds(self) -> KeyKinds:
        """Return the kind of each primary key column, which says how it is ordered."""
        prefixes = self.key_prefixes or (0,) * len(self.primary_key)
        return tuple(
            KeyKind.OTHER if prefix else self.column(name).type.key_kind
            for name, prefix in zip(self.primary_key, prefixes, strict=True)
        )

    @property
    def fingerprint(self) -> str:
        """Return 16 hex digits that change when columns, types, keys or collations change."""
        facts = asdict(self)
        del facts["create_statement"], facts["flavour"]  # one carries AUTO_INCREMENT counters
        del facts["named_key"]  # who chose the key is nothing to the rows
        for name in ("key_name", "key_problem"):
            if not facts[name]:  # as it was before there was one
                del facts[name]
        for column in facts["columns"]:  # these follow from the others
            del column["ignored"]  # what is done with it, not what it is
            del column["type"]["kind"], column["type"]["key_kind"], column["type"]["no_member"]
        text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def is_defined_as(self, other: TableSchema) -> bool:
        """Tell whether columns, types and keys of both definitions are the same.

        The table's own collation is that of columns to come, and no row is another for it.
        """
        own = replace(self, collation=other.collation)
        return own.fingerprint == other.fingerprint
