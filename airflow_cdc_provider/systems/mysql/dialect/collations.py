"""Which charset a collation's number means.

The log names a column's charset by the number of its collation. The numbers are the servers'
own: information_schema.COLLATIONS of MySQL 9.7 and MariaDB 10.11 (and, from 2048 on, the ranges
of 256 that MariaDB keeps for the UCA 14.0.0 collations of each Unicode charset).
"""

from __future__ import annotations

from airflow_cdc_provider.core.errors import UnknownTypeError

_NUMBERS = {
    "armscii8": "32,64,1056,1088",
    "ascii": "11,65,1035,1089",
    "big5": "1,84,1025,1108",
    "binary": "63",
    "cp1250": "26,34,44,66,99,1050,1090",
    "cp1251": "14,23,50-52,1074-1075",
    "cp1256": "57,67,1081,1091",
    "cp1257": "29,58-59,1082-1083",
    "cp850": "4,80,1028,1104",
    "cp852": "40,81,1064,1105",
    "cp866": "36,68,1060,1092",
    "cp932": "95-96,1119-1120",
    "dec8": "3,69,1027,1093",
    "eucjpms": "97-98,1121-1122",
    "euckr": "19,85,1043,1109",
    "gb18030": "248-250",
    "gb2312": "24,86,1048,1110",
    "gbk": "28,87,1052,1111",
    "geostd8": "92-93,1116-1117",
    "greek": "25,70,1049,1094",
    "hebrew": "16,71,1040,1095",
    "hp8": "6,72,1030,1096",
    "keybcs2": "37,73,1061,1097",
    "koi8r": "7,74,1031,1098",
    "koi8u": "22,75,1046,1099",
    "latin1": "5,8,15,31,47-49,94,1032,1071",
    "latin2": "2,9,21,27,77,1033,1101",
    "latin5": "30,78,1054,1102",
    "latin7": "20,41-42,79,1065,1103",
    "macce": "38,43,1062,1067",
    "macroman": "39,53,1063,1077",
    "sjis": "13,88,1037,1112",
    "swe7": "10,82,1034,1106",
    "tis620": "18,89,1042,1113",
    "ucs2": "35,90,128-151,159,640-642,1059,1114,1152,1174,2560-2815",
    "ujis": "12,91,1036,1115",
    "utf16": "54-55,101-124,672-674,1078-1079,1125,1147,2816-3071",
    "utf16le": "56,62,1080,1086",
    "utf32": "60-61,160-183,736-738,1084-1085,1184,1206,3072-3327",
    "utf8mb3": "33,76,83,192-215,223,576-578,1057,1107,1216,1238,2048-2303",
    "utf8mb4": "45-46,224-247,255-271,273-275,277-294,296-298,300,303-323,608-610,"
    "1069-1070,1248,1270,2304-2559",
}
_LONGEST = {
    **dict.fromkeys(("utf8mb4", "utf16", "utf16le", "utf32", "gb18030"), 4),
    **dict.fromkeys(("utf8mb3", "ujis", "eucjpms"), 3),
    **dict.fromkeys(("ucs2", "gbk", "gb2312", "big5", "sjis", "cp932", "euckr"), 2),
}


def _by_number() -> dict[int, str]:
    """Return the charset of each collation number."""
    found = {}
    for charset, text in _NUMBERS.items():
        for part in text.split(","):
            first, _, last = part.partition("-")
            found.update(dict.fromkeys(range(int(first), int(last or first) + 1), charset))
    return found


_CHARSETS = _by_number()


def charset_of(collation: int) -> str:
    """Return the charset of a collation's number; an unknown number is an error."""
    charset = _CHARSETS.get(collation)
    if charset is None:
        raise UnknownTypeError(
            f"collation number {collation} is not known",
            risk="its texts could be decoded wrong",
            remedy="SELECT CHARACTER_SET_NAME FROM information_schema.COLLATIONS "
            f"WHERE ID = {collation}, and report it",
        )
    return charset


def longest_character(charset: str) -> int:
    """Return the most bytes that a character of the charset takes."""
    return _LONGEST.get(charset, 1)
