"""Under which name a collation has the same order and equality at the other server.

A collation's name tells its order within one family: tables are kept by it on disk, so a family
never gives an old name another order. Across the families a name tells nothing. MySQL and MariaDB
have both changed what they took over, `croatian` among it: MySQL holds `dž` and `dŽ` for one key,
MariaDB under the same name for two, and sorts them elsewhere. Two such keys would become one row,
and a split's range at the sink would hold a neighbour's rows.

So only names that were compared are known here, each by brute force on servers of both families
(`make sweep` does it again). Any other name has no counterpart: doubt is refused.
"""

from __future__ import annotations

_UNICODE = ("ucs2", "utf16", "utf32", "utf8mb3", "utf8mb4")
_UNICODE_ORDERS = (
    "bin general_ci unicode_ci unicode_520_ci czech_ci danish_ci esperanto_ci estonian_ci "
    "german2_ci hungarian_ci icelandic_ci latvian_ci lithuanian_ci persian_ci polish_ci roman_ci "
    "romanian_ci sinhala_ci slovak_ci slovenian_ci spanish2_ci spanish_ci swedish_ci turkish_ci "
    "vietnamese_ci"
)
_OTHER_ORDERS = {
    "armscii8": "bin general_ci",
    "ascii": "bin general_ci",
    "big5": "bin chinese_ci",
    "cp1250": "bin croatian_ci czech_cs general_ci polish_ci",
    "cp1251": "bin bulgarian_ci general_ci general_cs ukrainian_ci",
    "cp1256": "bin general_ci",
    "cp1257": "bin general_ci lithuanian_ci",
    "cp850": "bin general_ci",
    "cp852": "bin general_ci",
    "cp866": "bin general_ci",
    "cp932": "bin japanese_ci",
    "dec8": "bin swedish_ci",
    "eucjpms": "bin japanese_ci",
    "euckr": "bin",
    "gb2312": "bin chinese_ci",
    "gbk": "bin chinese_ci",
    "geostd8": "bin general_ci",
    "greek": "bin general_ci",
    "hebrew": "bin general_ci",
    "hp8": "bin english_ci",
    "keybcs2": "bin general_ci",
    "koi8r": "bin general_ci",
    "koi8u": "bin general_ci",
    "latin1": "bin danish_ci general_ci general_cs german1_ci german2_ci spanish_ci swedish_ci",
    "latin2": "bin croatian_ci czech_cs general_ci hungarian_ci",
    "latin5": "bin turkish_ci",
    "latin7": "bin estonian_cs general_ci general_cs",
    "macce": "bin general_ci",
    "macroman": "bin general_ci",
    "sjis": "bin japanese_ci",
    "swe7": "bin swedish_ci",
    "tis620": "bin thai_ci",
    "ucs2": "general_mysql500_ci",
    "ujis": "bin japanese_ci",
    "utf16le": "bin general_ci",
    "utf8mb3": "general_mysql500_ci",
}
SAME_IN_BOTH = frozenset(
    f"{charset}_{order}"
    for charset, orders in (
        *((charset, _UNICODE_ORDERS) for charset in _UNICODE),
        *_OTHER_ORDERS.items(),
    )
    for order in orders.split()
)
"""Names that mean one order and one equality in both families."""
IN_MARIADB = {f"{charset}_croatian_ci": f"{charset}_croatian_mysql561_ci" for charset in _UNICODE}
"""What MariaDB calls an order of MySQL's whose name it has for another one."""
NOT_THE_SAME = frozenset({*IN_MARIADB, "euckr_korean_ci"})
"""Names of both families that mean two orders. In `euckr_korean_ci` MySQL takes the second byte of
a character for a letter, and so two syllables for one."""
_IN_MYSQL = {theirs: ours for ours, theirs in IN_MARIADB.items()}


def counterpart(collation: str, family: str, other: str) -> str | None:
    """Return a collation's name at a server of the other family, None if none is the same."""
    if family == other or _current(collation) in SAME_IN_BOTH:
        return collation
    return (IN_MARIADB if other == "mariadb" else _IN_MYSQL).get(_current(collation))


def is_same_name(one: str, another: str) -> bool:
    """Tell whether two collation names are the same, `utf8_` being the old name of `utf8mb3_`."""
    return _current(one) == _current(another)


def _current(collation: str) -> str:
    """Return a collation's name with `utf8mb3_` for the old `utf8_`."""
    return collation.replace("utf8_", "utf8mb3_", 1) if collation.startswith("utf8_") else collation
