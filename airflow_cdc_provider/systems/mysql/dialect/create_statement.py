"""Read what SHOW CREATE TABLE prints into its parts: columns with their attributes, and keys.

Both families print one definition a line in a fixed form, so a small grammar is enough; what it
does not know is an error that names the text, never a part silently left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from airflow_cdc_provider.core.errors import UnsupportedTableError
from airflow_cdc_provider.core.identifiers import quote_identifier
from airflow_cdc_provider.systems.mysql.dialect.sql_tokens import Token, TokenKind, tokens

_COUNTER = re.compile(r" AUTO_INCREMENT=\d+")


class AttributeKind(StrEnum):
    """What an attribute of a column's definition is about."""

    NUMBER = "number"
    """UNSIGNED or ZEROFILL."""
    CHARSET = "charset"
    COLLATION = "collation"
    NULLABILITY = "nullability"
    DEFAULT_LITERAL = "default literal"
    DEFAULT_NOW = "default now"
    DEFAULT_EXPRESSION = "default expression"
    ON_UPDATE = "on update"
    AUTO_INCREMENT = "auto increment"
    GENERATED = "generated"
    ROW_PERIOD = "row period"
    INVISIBLE = "invisible"
    COMMENT = "comment"
    REFERENCE_SYSTEM = "reference system"
    STORAGE = "storage"
    CHECK = "check"


class KeyForm(StrEnum):
    """The kind of a key or constraint in a table's definition."""

    PRIMARY = "primary"
    UNIQUE = "unique"
    PLAIN = "plain"
    FULLTEXT = "fulltext"
    SPATIAL = "spatial"
    FOREIGN = "foreign"
    CHECK = "check"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute of a column's definition, with its text."""

    kind: AttributeKind
    text: str


@dataclass(frozen=True, slots=True)
class ParsedColumn:
    """One column's definition, parsed from SHOW CREATE TABLE."""

    name: str
    type_name: str
    type_text: str
    attributes: tuple[Attribute, ...]

    def has(self, kind: AttributeKind) -> bool:
        """Tell whether the column has an attribute of this kind."""
        return any(attribute.kind is kind for attribute in self.attributes)


@dataclass(frozen=True, slots=True)
class ParsedKey:
    """One key or constraint, parsed from SHOW CREATE TABLE."""

    form: KeyForm
    name: str
    tokens: tuple[Token, ...]
    text: str


@dataclass(frozen=True, slots=True)
class ParsedTable:
    """A whole table's definition, parsed from SHOW CREATE TABLE."""

    columns: tuple[ParsedColumn, ...]
    keys: tuple[ParsedKey, ...]
    options: tuple[Token, ...]
    statement: str


def without_counter(statement: str) -> str:
    """Return a table's definition without the value of its AUTO_INCREMENT counter."""
    return _COUNTER.sub("", statement)


def parse_create_statement(statement: str) -> ParsedTable:
    """Parse the text of SHOW CREATE TABLE into columns, keys and options."""
    items, options = parts_of(statement)
    columns, keys = [], []
    for item in items:
        if item[0].kind is TokenKind.NAME:
            columns.append(_column(item, statement))
        else:
            keys.append(_key(item, statement))
    return ParsedTable(tuple(columns), tuple(keys), options, statement)


def parse_keys(statement: str) -> tuple[ParsedKey, ...]:
    """Parse only the keys and constraints of SHOW CREATE TABLE."""
    items, _ = parts_of(statement)
    return tuple(_key(item, statement) for item in items if item[0].kind is not TokenKind.NAME)


def parts_of(statement: str) -> tuple[list[tuple[Token, ...]], tuple[Token, ...]]:
    """Return the tokens of each column and key of a CREATE TABLE, and its options' tokens."""
    found = tuple(tokens(statement))
    opening = next((i for i, token in enumerate(found) if token.is_mark("(")), len(found))
    items, end = _items(found, opening)
    return items, found[end + 1 :]


def rendered(
    parts: Sequence[Token], statement: str, names: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Return tokens as SQL text, as they were written, with one space for any blanks.

    `names` replaces quoted names, by their names in lower case.
    """
    text, before = "", None
    for token in parts:
        if before is not None and token.start > before:
            text += " "
        named = names.get(token.text.casefold()) if token.kind is TokenKind.NAME else None
        text += statement[token.start : token.end] if named is None else quote_identifier(named)
        before = token.end
    return text


def not_understood(text: str, why: str = "is not understood") -> UnsupportedTableError:
    """Return the error for a part of a table's definition that cannot be carried over."""
    return UnsupportedTableError(
        f"{text!r} of the table's definition {why}",
        where="the source's SHOW CREATE TABLE",
        risk="none: nothing was created",
        remedy="create the table at the sink by hand with the same columns and primary key, "
        "or leave it out",
    )


def _items(found: Sequence[Token], opening: int) -> tuple[list[tuple[Token, ...]], int]:
    """Return the definitions within the outer parentheses, and the place where these close."""
    depth, item = 0, []  # type: tuple[int, list[Token]]
    items: list[tuple[Token, ...]] = []
    for position in range(opening, len(found)):
        token = found[position]
        depth += token.is_mark("(") - token.is_mark(")")
        if depth == 0 or (depth == 1 and token.is_mark(",")):
            items.append(tuple(item))
            item = []
            if depth == 0:
                return items, position
        elif position > opening:
            item.append(token)
    raise not_understood("the statement", "has no list of columns that ends")


class _Cursor:
    """A moving place among the tokens of a column's definition."""

    def __init__(self, parts: Sequence[Token], statement: str) -> None:
        self.parts, self.statement, self.at = parts, statement, 0

    @property
    def ended(self) -> bool:
        """Tell whether no token is left."""
        return self.at >= len(self.parts)

    def peek(self, *words: str, ahead: int = 0) -> bool:
        """Tell whether the next token, or one `ahead` of it, is one of these words."""
        at = self.at + ahead
        return at < len(self.parts) and self.parts[at].is_word(*words)

    def group(self) -> None:
        """Move past a group in parentheses, if one opens here."""
        if self.ended or not self.parts[self.at].is_mark("("):
            return
        depth = 0
        while not self.ended:
            depth += self.parts[self.at].is_mark("(") - self.parts[self.at].is_mark(")")
            self.at += 1
            if depth == 0:
                return

    def since(self, start: int) -> str:
        """Return the text of the tokens from `start` to the present place."""
        return rendered(self.parts[start : self.at], self.statement)


def _column(item: tuple[Token, ...], statement: str) -> ParsedColumn:
    """Parse the definition of a column."""
    cursor = _Cursor(item, statement)
    cursor.at = 2
    cursor.group()
    type_text = rendered(item[1 : cursor.at], statement)
    attributes = []
    while not cursor.ended:
        start = cursor.at
        kind = _attribute(cursor)
        attributes.append(Attribute(kind, cursor.since(start)))
    return ParsedColumn(item[0].text, item[1].text.lower(), type_text, tuple(attributes))


_ONE_WORD = {
    "UNSIGNED": AttributeKind.NUMBER,
    "ZEROFILL": AttributeKind.NUMBER,
    "NULL": AttributeKind.NULLABILITY,
    "AUTO_INCREMENT": AttributeKind.AUTO_INCREMENT,
    "INVISIBLE": AttributeKind.INVISIBLE,
    "COMPRESSED": AttributeKind.STORAGE,
    "VIRTUAL": AttributeKind.GENERATED,
    "STORED": AttributeKind.GENERATED,
    "PERSISTENT": AttributeKind.GENERATED,
}
_TWO_WORDS = {
    "NOT": AttributeKind.NULLABILITY,
    "COLLATE": AttributeKind.COLLATION,
    "CHARSET": AttributeKind.CHARSET,
    "COMMENT": AttributeKind.COMMENT,
    "SRID": AttributeKind.REFERENCE_SYSTEM,
    "COLUMN_FORMAT": AttributeKind.STORAGE,
    "STORAGE": AttributeKind.STORAGE,
}
_THREE_WORDS = {
    "CHARACTER": AttributeKind.CHARSET,
    "REF_SYSTEM_ID": AttributeKind.REFERENCE_SYSTEM,
    "WITHOUT": AttributeKind.ROW_PERIOD,
    "WITH": AttributeKind.ROW_PERIOD,
}
_NOW = {"CURRENT_TIMESTAMP", "NOW", "LOCALTIME", "LOCALTIMESTAMP"}


def _attribute(cursor: _Cursor) -> AttributeKind:
    """Move past one attribute of a column, and return its kind."""
    word = cursor.parts[cursor.at].text.upper()
    if not cursor.peek(word):
        raise not_understood(cursor.since(0) or cursor.parts[cursor.at].text)
    for length, kinds in ((1, _ONE_WORD), (2, _TWO_WORDS), (3, _THREE_WORDS)):
        if word in kinds:
            cursor.at += length
            return kinds[word]
    if word == "DEFAULT":
        return _default(cursor)
    if word == "ON" and cursor.peek("UPDATE", ahead=1):
        cursor.at += 3
        cursor.group()
        return AttributeKind.ON_UPDATE
    if word in {"GENERATED", "AS"}:
        return _generated(cursor)
    if word in {"CONSTRAINT", "CHECK"}:
        cursor.at += 3 if word == "CONSTRAINT" else 1
        cursor.group()
        if cursor.peek("NOT"):
            cursor.at += 2
        return AttributeKind.CHECK
    raise not_understood(rendered(cursor.parts[cursor.at :], cursor.statement))


def _default(cursor: _Cursor) -> AttributeKind:
    """Move past a DEFAULT, and return the kind of default."""
    cursor.at += 1
    if cursor.ended:
        raise not_understood("DEFAULT")
    first = cursor.parts[cursor.at]
    if first.is_mark("("):
        cursor.group()
        return AttributeKind.DEFAULT_EXPRESSION
    if first.is_mark("-") or first.is_mark("+"):
        cursor.at += 2
        return AttributeKind.DEFAULT_LITERAL
    cursor.at += 1
    if first.kind is TokenKind.WORD and not cursor.ended:
        follows = cursor.parts[cursor.at]
        if follows.kind is TokenKind.STRING and (follows.start == first.end or "_" in first.text):
            cursor.at += 1  # b'0', x'00', _utf8mb4'text'
        elif follows.is_mark("("):
            cursor.group()
            return (
                AttributeKind.DEFAULT_NOW
                if first.text.upper() in _NOW
                else AttributeKind.DEFAULT_EXPRESSION
            )
    return AttributeKind.DEFAULT_NOW if first.is_word(*_NOW) else AttributeKind.DEFAULT_LITERAL


def _generated(cursor: _Cursor) -> AttributeKind:
    """Move past a generated column's expression, and return its kind."""
    while not cursor.ended and not cursor.peek("AS"):
        cursor.at += 1
    cursor.at += 1
    if cursor.peek("ROW"):
        cursor.at += 2
        return AttributeKind.ROW_PERIOD
    cursor.group()
    if cursor.peek("VIRTUAL", "STORED", "PERSISTENT"):
        cursor.at += 1
    return AttributeKind.GENERATED


_FORMS = {
    "PRIMARY": KeyForm.PRIMARY,
    "UNIQUE": KeyForm.UNIQUE,
    "KEY": KeyForm.PLAIN,
    "INDEX": KeyForm.PLAIN,
    "FULLTEXT": KeyForm.FULLTEXT,
    "SPATIAL": KeyForm.SPATIAL,
    "FOREIGN": KeyForm.FOREIGN,
    "CHECK": KeyForm.CHECK,
}


def _key(item: tuple[Token, ...], statement: str) -> ParsedKey:
    """Parse the definition of a key or constraint."""
    name, rest = "", item
    if item[0].is_word("CONSTRAINT"):
        name, rest = item[1].text, item[2:]
    form = _FORMS.get(rest[0].text.upper(), KeyForm.OTHER)
    if not name:
        name = next((token.text for token in rest[:3] if token.kind is TokenKind.NAME), "")
    return ParsedKey(form, name, rest, rendered(rest, statement))
