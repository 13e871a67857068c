"""Texts of East Asian charsets that Python's codecs read in another way than the server does.

A text is walked through character by character only if it holds bytes that may be concerned:

- `big5`: the server has seven characters more than Python (0xF9D6 and following), and none for
  seven codes that Python knows;
- `ujis` and `eucjpms` have 1,880 places for characters of the user's own, which become the private
  use area from U+E000 on: two bytes from 0xF5A1, and three bytes from 0x8FF5A1;
- `eucjpms` has the two-byte characters of `cp932` at other codes, and IBM's characters from
  0x8FF3F3 on;
- `cp932` and `sjis`: Python makes something of four single bytes that are no character.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

_FIRST_TRAIL, _LAST_TRAIL, _ROW = 0xA1, 0xFE, 94
_OWN_LEAD = 0xF5
_OWN_TWO_BYTES, _OWN_THREE_BYTES = 0xE000, 0xE3AC
_HALF_WIDTH, _THREE_BYTES = 0x8E, 0x8F

_BIG5_MORE = dict(enumerate("\u7881\u92b9\u88cf\u58bb\u6052\u7ca7\u5afa", 0xF9D6))
_BIG5_LESS = frozenset({0xA15A, 0xA1C3, 0xA1C5, 0xA1FE, 0xA240, 0xA2CC, 0xA2CE})
_BIG5_SPECIAL = tuple(code.to_bytes(2, "big") for code in (*_BIG5_MORE, *_BIG5_LESS))

_WIDE_MARKS = {0x7E: 0xFF5E, 0xA6: 0xFFE4}
WIDE_BACKSLASH = {0xFF3C: 0x5C}
"""The server has a backslash where Python has a wide one."""
_IBM_FIRST = 0xF3F3
_IBM = (
    "\u2170\u2171\u2172\u2173\u2174\u2175\u2176\u2177\u2178\u2179\u2160\u2161"
    "\u2162\u2163\u2164\u2165\u2166\u2167\u2168\u2169\uff07\uff02\u3231\u2116"
    "\u2121\u70bb\u4efc\u50f4\u51ec\u5307\u5324\ufa0e\u548a\u5759\ufa0f\ufa10"
    "\u589e\u5bec\u5cf5\u5d53\ufa11\u5fb7\u6085\u6120\u654e\u663b\u6665\ufa12"
    "\uf929\u6801\ufa13\ufa14\u6a6b\u6ae2\u6df8\u6df2\u7028\ufa15\ufa16\u7501"
    "\u7682\u769e\ufa17\u7930\ufa18\ufa19\ufa1a\ufa1b\u7ae7\ufa1c\ufa1d\u7da0"
    "\u7dd6\ufa1e\u8362\ufa1f\u85b0\ufa20\ufa21\u8807\ufa22\u8b7f\u8cf4\u8d76"
    "\ufa23\ufa24\ufa25\u90de\ufa26\u9115\ufa27\ufa28\u9592\uf9dc\ufa29\u973b"
    "\u974d\u9751\ufa2a\ufa2b\ufa2c\u999e\u9ad9\u9b72\ufa2d\u9ed1"
)
_NO_SINGLES = frozenset({0x80, 0xA0, 0xFD, 0xFE, 0xFF})


_Part = Callable[[bytes, int], str]


@dataclass(frozen=True, slots=True)
class Walk:
    """How one East Asian charset is decoded, for texts that Python's codec reads otherwise."""

    concerns: Callable[[bytes], bool]
    """Tells whether a text may hold such characters; true too often costs time only."""
    decoded: Callable[[bytes], str]
    """Decodes a whole text, or raises `UnicodeDecodeError`."""


def _trail(data: bytes, offset: int, charset: str) -> int:
    """Return the number of a two-byte code's second byte within its row."""
    trail = data[offset + 1] if offset + 1 < len(data) else 0
    if not _FIRST_TRAIL <= trail <= _LAST_TRAIL:
        raise _no_character(charset, data, offset, 2)
    return trail - _FIRST_TRAIL


def _no_character(charset: str, data: bytes, offset: int, length: int) -> UnicodeDecodeError:
    """Return the error for a code without a character."""
    return UnicodeDecodeError(charset, data, offset, offset + length, "no character")


def _has_special_big5(data: bytes) -> bool:
    """Tell whether a text may hold codes that `big5` and Python read differently."""
    return any(special in data for special in _BIG5_SPECIAL)


def _big5(data: bytes) -> str:
    """Decode a text of `big5` as the server does."""
    found, offset = [], 0
    while offset < len(data):
        if data[offset] < 0x80:
            found.append(chr(data[offset]))
            offset += 1
            continue
        code = int.from_bytes(data[offset : offset + 2], "big")
        if code in _BIG5_LESS:
            raise _no_character("big5", data, offset, 2)
        known = _BIG5_MORE.get(code)
        found.append(known or data[offset : offset + 2].decode("big5"))
        offset += 2
    return "".join(found)


def _walked(data: bytes, three_bytes: _Part, two_bytes: _Part, charset: str) -> str:
    """Decode a text of `ujis` or `eucjpms`, with functions for its two- and three-byte codes."""
    found, offset = [], 0
    while offset < len(data):
        first = data[offset]
        if first < 0x80:
            found.append(chr(first))
            offset += 1
        elif first == _THREE_BYTES:
            found.append(three_bytes(data, offset))
            offset += 3
        elif first >= _OWN_LEAD:
            found.append(_own(data, offset, charset, _OWN_TWO_BYTES))
            offset += 2
        else:
            found.append(two_bytes(data, offset))
            offset += 2
    return "".join(found)


def _eucjpms(data: bytes) -> str:
    """Decode a text of `eucjpms` as the server does."""
    return _walked(data, _eucjpms_three_bytes, _eucjpms_two_bytes, "eucjpms")


def _eucjpms_three_bytes(data: bytes, offset: int) -> str:
    """Decode a three-byte code of `eucjpms` at an offset."""
    code = int.from_bytes(data[offset + 1 : offset + 3], "big")
    ibm = (code >> 8) * _ROW + _trail(data, offset + 1, "eucjpms") - _IBM_START
    if 0 <= ibm < len(_IBM):
        return _IBM[ibm]
    return _three_bytes(data, offset, "eucjpms").translate(_WIDE_MARKS)


def _eucjpms_two_bytes(data: bytes, offset: int) -> str:
    """Decode a two-byte code of `eucjpms` at an offset, by way of cp932."""
    first, cell = data[offset], _trail(data, offset, "eucjpms")
    if first == _HALF_WIDTH:
        if data[offset + 1] in _NO_SINGLES:
            raise _no_character("eucjpms", data, offset, 2)
        return data[offset + 1 : offset + 2].decode("cp932")
    row = first - _FIRST_TRAIL
    lead = row // 2 + (0x81 if row < 62 else 0xC1)
    trail = cell + (0x9F if row % 2 else 0x40 + (cell >= 63))
    return bytes([lead & 0xFF, trail & 0xFF]).decode("cp932")


def _ujis(data: bytes) -> str:
    """Decode a text of `ujis` as the server does."""
    return _walked(data, _ujis_three_bytes, _ujis_two_bytes, "ujis")


def _ujis_three_bytes(data: bytes, offset: int) -> str:
    """Decode a three-byte code of `ujis` at an offset."""
    return _three_bytes(data, offset, "ujis").translate(WIDE_BACKSLASH)


def _ujis_two_bytes(data: bytes, offset: int) -> str:
    """Decode a two-byte code of `ujis` at an offset."""
    return data[offset : offset + 2].decode("euc_jp").translate(WIDE_BACKSLASH)


def _own(data: bytes, offset: int, charset: str, base: int) -> str:
    """Return the private-use character of a user-defined code, whose last two bytes are given."""
    return chr(base + (data[offset] - _OWN_LEAD) * _ROW + _trail(data, offset, charset))


def _three_bytes(data: bytes, offset: int, charset: str) -> str:
    """Decode a three-byte EUC code at an offset."""
    if data[offset + 1 : offset + 2] >= bytes([_OWN_LEAD]):
        return _own(data, offset + 1, charset, _OWN_THREE_BYTES)
    return data[offset : offset + 3].decode("euc_jp")


def _has_own(data: bytes) -> bool:
    """Tell whether a text may hold user-defined codes."""
    return max(data, default=0) >= _OWN_LEAD


def _without_singles(codec: str) -> Walk:
    """Return the decoder of a codec that refuses single bytes without a character."""
    marks = frozenset("\x80\xa0\uf8f0\uf8f1\uf8f2\uf8f3")

    def decoded(data: bytes) -> str:
        text = data.decode(codec)
        if not marks.isdisjoint(text):
            raise _no_character(codec, data, 0, len(data))
        return text

    return Walk(lambda data: not _NO_SINGLES.isdisjoint(data), decoded)


_IBM_START = (_IBM_FIRST >> 8) * _ROW + (_IBM_FIRST & 0xFF) - _FIRST_TRAIL

WALKS = {
    "big5": Walk(_has_special_big5, _big5),
    "cp932": _without_singles("cp932"),
    "eucjpms": Walk(lambda _: True, _eucjpms),
    "ujis": Walk(_has_own, _ujis),
}
