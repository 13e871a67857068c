"""The order and equality that a server itself gives to texts, by brute force.

Texts are put into an indexed column. The index gives their order, and each is compared with the
one behind it in SQL: what publishing and planning rely on is exactly this, an index and `<`. (A
sort without an index goes by weights, which in `big5_chinese_ci` are other ones.)
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.servers.given import SqlServer

SAMPLE_SEED = 20_240_611
_ROWS_A_STATEMENT = 10_000
_DIGITS = f"(SELECT 0 AS d{''.join(f' UNION ALL SELECT {i}' for i in range(1, 16))})"
_CONTRACTED = "aAcCdDgGhHjJlLnNsStTyYzZžŽšŠćĆ\u01c4\u01c5\u01c6\u01c9\u01cc\u0301\u030c"
"""What languages run together to one letter: ch, ll, dž, lj, nj, dzs, gy, ly, sz, ty, aa."""
_SCRIPTS = (
    (0x20, 0x7F),
    (0x20, 0x250),
    (0x300, 0x400),
    (0x400, 0x530),
    (0x590, 0x700),
    (0x900, 0xE00),
    (0xE01, 0xF00),
    (0x1000, 0x1100),
    (0x1100, 0x1200),
    (0x3040, 0x3400),
    (0x4E00, 0x5200),
    (0xAC00, 0xB000),
)


@dataclass(frozen=True, slots=True)
class Order:
    """How a server orders some texts, by their numbers."""

    numbers: tuple[int, ...]
    """As in the index; equal ones by number."""
    equal: frozenset[int]
    """Places in `numbers` of texts that equal the next one."""
    unordered: frozenset[int]
    """Places of texts that are neither equal to the next one nor less."""


def characters(server: SqlServer, charset: str) -> list[bytes]:
    """Return every character of the basic plane that a charset has, as its bytes."""
    number = " + ".join(f"t{i}.d * {16**i}" for i in range(4))
    digits = ", ".join(f"{_DIGITS} AS t{i}" for i in range(4))
    text = f"CONVERT(CONVERT(UNHEX(LPAD(HEX(n), 8, '0')) USING utf32) USING {charset})"
    rows = server.execute(
        f"SELECT DISTINCT CAST({text} AS BINARY) FROM (SELECT {number} AS n FROM {digits}) AS c "
        "WHERE n > 0 AND n NOT BETWEEN 0xD800 AND 0xDFFF"
    )
    return sorted(bytes(row[0]) for row in rows if row[0])


def samples(server: SqlServer, charset: str, *, some: int = 5_000, every: int = 1) -> list[bytes]:
    """Return texts that differ in what collations differ in, as bytes of the charset.

    `some` is how many are random, and of single characters only each `every`-th is taken.
    """
    known = characters(server, charset)[::every]
    texts = dict.fromkeys(known)
    letters = [each for each in _encoded(server, charset, list(_CONTRACTED)) if each]
    for two in itertools.product(letters, repeat=2):
        texts[b"".join(two)] = None
        for third in letters[::every]:
            texts[b"".join((*two, third))] = None
    chance = random.Random(SAMPLE_SEED)
    pools = [known, known[: len(known) // 2], letters]
    for first, end in _SCRIPTS:
        found = _encoded(server, charset, [chr(number) for number in range(first, end)])
        pools.append([each for each in found if each])
    pools = [pool for pool in pools if len(pool) > 3]
    spaces = _encoded(server, charset, [" ", "\t", "\x01"])
    for _ in range(some):
        parts = chance.choices(chance.choice(pools), k=chance.randint(2, 5))
        text = b"".join(parts)
        for each in (text, text + chance.choice(spaces), chance.choice(spaces) + text):
            texts[each] = None
    return list(texts)


def order_of(server: SqlServer, database: str, collation: str, texts: Sequence[bytes]) -> Order:
    """Return the order a server gives to texts."""
    charset = collation.split("_", 1)[0]
    column = f"k VARCHAR(16) CHARACTER SET {charset} COLLATE {collation}"
    statements = [
        "DROP TABLE IF EXISTS k, p",
        f"CREATE TABLE k (n INT, {column}, KEY (k, n))",
        *_inserts(charset, texts),
        f"CREATE TABLE p (at INT AUTO_INCREMENT PRIMARY KEY, n INT, {column})",
        "INSERT INTO p (n, k) SELECT n, k FROM k FORCE INDEX (k) ORDER BY k, n",
    ]
    with server.connect(database) as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION sql_mode = 'STRICT_ALL_TABLES'")
        for statement in statements:
            cursor.execute(statement)
        connection.commit()
        cursor.execute("SELECT at, n FROM p ORDER BY at")
        rows = cursor.fetchall()
        cursor.execute(
            "SELECT a.at, a.k = b.k, a.k < b.k FROM p AS a JOIN p AS b ON b.at = a.at + 1 "
            "WHERE NOT (a.k < b.k AND NOT a.k = b.k)"
        )
        beside = cursor.fetchall()
    place = {at: number for number, (at, _) in enumerate(rows)}
    return Order(
        tuple(n for _, n in rows),
        frozenset(place[at] for at, equal, _ in beside if equal),
        frozenset(place[at] for at, equal, less in beside if not equal and not less),
    )


def _inserts(charset: str, texts: Sequence[bytes]) -> Iterator[str]:
    for first in range(0, len(texts), _ROWS_A_STATEMENT):
        some = texts[first : first + _ROWS_A_STATEMENT]
        rows = (f"({first + i},_{charset} x'{text.hex()}')" for i, text in enumerate(some))
        yield f"INSERT INTO k VALUES {','.join(rows)}"


def _encoded(server: SqlServer, charset: str, letters: Sequence[str]) -> list[bytes]:
    """Return the bytes of each letter, empty for one that the charset lacks."""
    found = [
        f"CAST(CONVERT(_utf8mb4 x'{letter.encode().hex()}' USING {charset}) AS BINARY)"
        for letter in letters
    ]
    row = server.execute(f"SELECT {', '.join(found)}")[0]
    lacking = bytes(server.execute(f"SELECT CAST(CONVERT('?' USING {charset}) AS BINARY)")[0][0])
    return [
        b"" if each == lacking and letter != "?" else bytes(each)
        for each, letter in zip(row, letters, strict=True)
    ]
