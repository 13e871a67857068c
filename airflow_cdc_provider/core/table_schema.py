"""A table's definition as the server states it, and its fingerprint."""

from __future__ import annotations

import hashlib
import json
import unicodedata
from dataclasses import asdict, dataclass

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.keys import KeyKind, KeyKinds

_INTEGERS = {"tinyint", "smallint", "mediumint", "int", "bigint"}
_TEXTS = {"char", "varchar", "tinytext", "text", "mediumtext", "longtext"}


@dataclass(frozen=True, slots=True)
class ColumnType:
    """A column's type; `name` is information_schema's DATA_TYPE in lower case."""

    name: str
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
    """MariaDB's JSON: a LONGTEXT with a JSON_VALID check."""

    @property
    def no_member(self) -> str:
        """Return the text that stands for index 0 of an ENUM, the value that is no member.

        The servers print it as the empty text, which may be a member, too. A zero is what MySQL
        itself reads as index 0; there are as many as it takes to be like no member.
        """
        taken = {_in_digits(member) for member in self.members}
        zeros = "0"
        while zeros in taken:
            zeros += "0"
        return zeros

    @property
    def key_kind(self) -> KeyKind:
        """Tell how this column orders as part of a key."""
        if self.name in _INTEGERS or self.name == "year":
            return KeyKind.INTEGER
        if self.name == "decimal":
            return KeyKind.DECIMAL
        if self.name in {"date", "datetime", "timestamp"}:
            return KeyKind.TEMPORAL
        if self.name in {"binary", "varbinary"}:
            return KeyKind.BINARY
        if self.name in _TEXTS:
            return KeyKind.TEXT
        return KeyKind.OTHER


@dataclass(frozen=True, slots=True)
class Column:
    """One column, in the order of the table."""

    name: str
    type: ColumnType
    nullable: bool = True
    generated: bool = False
    """Computed by the server, stored or virtual: read for nothing, never written."""
    invisible: bool = False
    auto_increment: bool = False


@dataclass(frozen=True, slots=True)
class UniqueKey:
    """A secondary unique key."""

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

    def column(self, name: str) -> Column:
        """Return the column of that name."""
        return next(column for column in self.columns if column.name == name)

    @property
    def copied_columns(self) -> tuple[Column, ...]:
        """Return the columns that are read and written: all but generated ones."""
        return tuple(column for column in self.columns if not column.generated)

    @property
    def key_kinds(self) -> KeyKinds:
        """Return how each primary key column orders."""
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
        text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def _in_digits(text: str) -> str:
    """Return a text as the most forgiving collation reads it, as far as digits go."""
    digits = (unicodedata.digit(each, None) for each in text)
    return "".join(
        each if digit is None else str(digit)
        for each, digit in zip(text, digits, strict=True)
        if digit is not None or each.isalnum()
    )
