"""Which texts a MySQL-protocol server takes for the same: by what its collations see of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from airflow_cdc_provider.core.table_schema import ColumnType
from airflow_cdc_provider.systems.mysql.dialect.sql import text_literal
from airflow_cdc_provider.systems.mysql.sink.sink_session import SinkSession

_TEXTS_A_QUERY = 200
_FINER = re.compile(r"uca1400_.*(as_ci|a[is]_cs)|_w2")
"""MariaDB's collations of several levels: their weights have more in them than is compared."""


class TextWeights:
    """Asks a session what collations see of texts, and remembers what it must for later ones."""

    def __init__(self, session: SinkSession) -> None:
        self._session = session
        self._spaces: dict[str, bytes | None] = {}
        """By collation, the weight of a space if those at the end of texts do not count."""
        self._unequal: dict[tuple[str, bytes], list[str]] = {}
        """Texts that only a finer collation tells apart, by its name and their coarser weight."""

    def of(self, kind: ColumnType, texts: Sequence[str]) -> list[bytes]:
        """Return bytes for each text of a column, the same where the server takes texts for equal.

        `kind` has the charset and the collation of the column at the sink.
        """
        if _FINER.search(str(kind.collation)) is None:
            return self._weights(kind, texts)
        weights = self._weights(kind, texts, level=" LEVEL 1")
        return [self._apart(kind, *each) for each in zip(texts, weights, strict=True)]

    def _weights(self, kind: ColumnType, texts: Sequence[str], *, level: str = "") -> list[bytes]:
        """Return the weights of texts, all of them or those of a level."""
        found: list[bytes] = []
        space = self._space(kind, level)
        wanted = texts if space is None else [text.rstrip(" ") for text in texts]
        for first in range(0, len(texts), _TEXTS_A_QUERY):
            found += self._asked(kind, wanted[first : first + _TEXTS_A_QUERY], level)
        if space and str(kind.charset).startswith("utf8"):
            return [_without_end(weight, space) for weight in found]
        return found

    def _apart(self, kind: ColumnType, text: str, weight: bytes) -> bytes:
        """Return a text's weight, and which it is of the unequal ones that have that weight."""
        unequal = self._unequal.setdefault((str(kind.collation), weight), [])
        if text not in unequal and unequal:
            one = _stored(kind, text)
            others = ", ".join(f"{one} = {_stored(kind, other)}" for other in unequal)
            (said,) = self._session.rows(f"SELECT {others}")
            equal = [other for other, is_equal in zip(unequal, said, strict=True) if int(is_equal)]
            text = equal[0] if equal else text
        if text not in unequal:
            unequal.append(text)
        return weight + b"%d" % unequal.index(text)

    def _space(self, kind: ColumnType, level: str) -> bytes | None:
        """Return the weight of a space if those at the end of texts do not count, else None."""
        if str(kind.collation) not in self._spaces:
            question = f"SELECT {_stored(kind, 'a')} = {_stored(kind, 'a ')}"
            ((is_padded,),) = self._session.rows(question)
            (space,) = self._asked(kind, [" "], level)
            self._spaces[str(kind.collation)] = space if int(is_padded) else None
        return self._spaces[str(kind.collation)]

    def _asked(self, kind: ColumnType, texts: Sequence[str], level: str) -> Iterator[bytes]:
        """Yield the weights of some texts, from one query."""
        columns = (f"HEX(WEIGHT_STRING({_stored(kind, text)}{level}))" for text in texts)
        (weights,) = self._session.rows(f"SELECT {', '.join(columns)}")
        yield from (bytes.fromhex(each or "") for each in weights)


def _without_end(weight: bytes, space: bytes) -> bytes:
    """Return a weight without trailing spaces; characters without weight may follow the spaces.

    All characters weigh a number of bytes that is a multiple of the space's.
    """
    while weight.endswith(space):
        weight = weight.removesuffix(space)
    return weight


def _stored(kind: ColumnType, text: str) -> str:
    """Return a text as an SQL expression with a column's charset and collation."""
    return f"CONVERT({text_literal(text)} USING {kind.charset}) COLLATE {kind.collation}"
