"""Texts of every server charset become UTF-8.

`utf8mb4` and `utf8mb3` are UTF-8 already and stay where they are. A charset with one byte per
character is a table of 256 entries, applied to the bytes of all cells at once. The others go
through Python's codecs, a cell at a time, unless all their bytes are ASCII.

Where Python's codec and the server's own conversion differ, the server's counts: its `latin1` is
Windows-1252 with five more characters, its `sjis` and `ujis` have a backslash where Python has a
wide one. The differences, and the tables Python lacks, were read from MySQL 9.7 and MariaDB 10.11
(`CONVERT(_xxx X'..' USING utf8mb4)`), which agree. Bytes to which the server gives no character are
refused, where the server itself would write `?` or U+FFFD for them. That is why SELECT does not let
the server convert such charsets either: `is_total` names those it converts without loss.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pyarrow as pa

from airflow_cdc_provider.columns.arrow_arrays import texts_of
from airflow_cdc_provider.columns.numpy_types import ByteArray, IntArray
from airflow_cdc_provider.core.errors import UnknownTypeError, ValueRefusedError
from airflow_cdc_provider.systems.mysql.dialect.east_asian import WALKS, WIDE_BACKSLASH

UTF8_CHARSETS = frozenset({"utf8mb4", "utf8mb3", "utf8"})

_ONE_BYTE_CODECS = {
    "cp1250": "cp1250",
    "cp1251": "cp1251",
    "cp1256": "cp1256",
    "cp1257": "cp1257",
    "cp850": "cp850",
    "cp852": "cp852",
    "cp866": "cp866",
    "greek": "iso8859_7",
    "hebrew": "iso8859_8",
    "hp8": "hp_roman8",
    "koi8r": "koi8_r",
    "koi8u": "koi8_u",
    "latin1": "cp1252",
    "latin2": "iso8859_2",
    "latin5": "iso8859_9",
    "latin7": "iso8859_13",
    "macce": "mac_latin2",
    "macroman": "mac_roman",
    "tis620": "tis_620",
}
_PATCHES: dict[str, dict[int, int | None]] = {
    "latin1": {byte: byte for byte in (0x81, 0x8D, 0x8F, 0x90, 0x9D)},
    "cp1256": dict.fromkeys((0x8A, 0x8F, 0x98, 0x9A, 0x9F, 0xAA, 0xC0, 0xFF)),
    "cp866": {0xFC: 0x207F, 0xFD: 0xB2},
    "greek": {0xA1: 0x2BD, 0xA2: 0x2BC, 0xA4: None, 0xA5: None, 0xAA: None},
    "hebrew": {0xAF: 0x203E},
    "koi8u": {0x95: 0x2022},
}
_SEVEN_BIT_SWEDISH = dict(
    zip(b"@[\\]^`{|}~", "\xc9\xc4\xd6\xc5\xdc\xe9\xe4\xf6\xe5\xfc", strict=True)
)
_UPPER_HALVES = {
    "armscii8": (
        "0080008100820083008400850086008700880089008a008b008c008d008e008f009000910092009300940095"
        "0096009700980099009a009b009c009d009e009f00a0274100a705890029002800bb00ab2014002e055d002c"
        "002d055f2026055c055b055e0531056105320562053305630534056405350565053605660537056705380568"
        "05390569053a056a053b056b053c056c053d056d053e056e053f056f05400570054105710542057205430573"
        "054405740545057505460576054705770548057805490579054a057a054b057b054c057c054d057d054e057e"
        "054f057f0550058005510581055205820553058305540584055505850556058620190027"
    ),
    "dec8": (
        "0080008100820083008400850086008700880089008a008b008c008d008e008f009000910092009300940095"
        "0096009700980099009a009b009c009d009e009f00a000a100a200a3fffd00a5fffd00a700a400a900aa00ab"
        "fffdfffdfffdfffd00b000b100b200b3fffd00b500b600b7fffd00b900ba00bb00bc00bdfffd00bf00c000c1"
        "00c200c300c400c500c600c700c800c900ca00cb00cc00cd00ce00cffffd00d100d200d300d400d500d60152"
        "00d800d900da00db00dc0178fffd00df00e000e100e200e300e400e500e600e700e800e900ea00eb00ec00ed"
        "00ee00effffd00f100f200f300f400f500f6015300f800f900fa00fb00fc00fffffdfffd"
    ),
    "geostd8": (
        "20acfffd201afffd201e202620202021fffd2030fffd2039fffdfffdfffdfffdfffd20182019201c201d2022"
        "20132014fffdfffdfffd203afffdfffdfffdfffd00a000a100a200a300a400a500a600a700a800a900aa00ab"
        "00ac00ad00ae00af00b000b100b200b300b400b500b600b700b800b900ba00bb00bc00bd00be00bf10d010d1"
        "10d210d310d410d510d610f110d710d810d910da10db10dc10f210dd10de10df10e010e110e210f310e310e4"
        "10e510e610e710e810e910ea10eb10ec10ed10ee10f410ef10f010f5fffdfffdfffdfffdfffdfffdfffdfffd"
        "fffdfffdfffdfffdfffdfffdfffdfffdfffdfffdfffdfffdfffdfffdfffd2116fffdfffd"
    ),
    "keybcs2": (
        "010c00fc00e9010f00e4010e0164010d011b011a013900cd013e013a00c400c100c9017e017d00f400f600d3"
        "016f00da00fd00d600dc0160013d00dd0158016500e100ed00f300fa01480147016e00d40161015901550154"
        "00bc00a100ab00bb259125922593250225242561256225562555256325512557255d255c255b251025142534"
        "252c251c2500253c255e255f255a25542569256625602550256c25672568256425652559255825522553256b"
        "256a2518250c25882584258c2590258003b100df039303c003a303c300b503c403a6039803a903b4221e03c6"
        "03b52229226100b1226522642320232100f7224800b0221900b7221a207f00b225a000a0"
    ),
}
_LONGER_CODECS = {
    "big5": "big5",
    "cp932": "cp932",
    "euckr": "cp949",
    "eucjpms": "euc_jp",  # only its three-byte part, see east_asian
    "gb18030": "gb18030",
    "gb2312": "gb2312",
    "gbk": "gbk",
    "sjis": "shift_jis",
    "ucs2": "utf_16_be",
    "ujis": "euc_jp",
    "utf16": "utf_16_be",
    "utf16le": "utf_16_le",
    "utf32": "utf_32_be",
}
_TRANSLATIONS = {
    "gb18030": {0xE7C7: 0x1E3F, 0x1E3F: 0xE7C7},
    "sjis": WIDE_BACKSLASH,
    "ujis": WIDE_BACKSLASH,
}
_ASCII_SAFE = frozenset(_LONGER_CODECS) - {"ucs2", "utf16", "utf16le", "utf32"}
"""Charsets in which bytes below 128 alone mean ASCII."""


def is_total(charset: str) -> bool:
    """Tell whether the server converts any bytes of this charset to UTF-8 without loss."""
    return charset in UTF8_CHARSETS or None not in (_one_byte(charset) or (None,))


def is_one_to_one(charset: str) -> bool:
    """Tell whether different bytes of this charset are always different texts.

    Elsewhere a text that is written anew may get other bytes: `sjis` has two backslashes.
    """
    characters = [each for each in _one_byte(charset) or () if each is not None]
    distinct = bool(characters) and len(set(characters)) == len(characters)
    return charset in UTF8_CHARSETS or distinct


@cache
def _one_byte(charset: str) -> tuple[str | None, ...] | None:
    """Return the character of each byte in a one-byte charset, None for any other charset."""
    lower: list[str | None] = [chr(byte) for byte in range(128)]
    if charset in {"ascii", "swe7"}:
        if charset == "swe7":
            lower[0x7F] = None
            for byte, character in _SEVEN_BIT_SWEDISH.items():
                lower[byte] = character
        return (*lower, *([None] * 128))
    if charset in _UPPER_HALVES:
        text = _UPPER_HALVES[charset]
        codes = [int(text[place : place + 4], 16) for place in range(0, 512, 4)]
        return (*lower, *(None if code == 0xFFFD else chr(code) for code in codes))
    codec = _ONE_BYTE_CODECS.get(charset)
    if codec is None:
        return None
    upper: list[str | None] = []
    patches = _PATCHES.get(charset, {})
    for byte in range(128, 256):
        decoded = bytes([byte]).decode(codec, "replace")
        patched = patches.get(byte, ord(decoded))
        upper.append(None if patched in {None, 0xFFFD} else chr(patched or 0))
    return (*lower, *upper)


@cache
def _lookup(charset: str) -> tuple[ByteArray, ByteArray]:
    """Return each byte's UTF-8 bytes (256 x 3) and their number, which is 0 for no character."""
    table = np.zeros((256, 3), np.uint8)
    lengths = np.zeros(256, np.uint8)
    for byte, character in enumerate(_one_byte(charset) or ()):
        if character is not None:
            encoded = character.encode()
            table[byte, : len(encoded)] = list(encoded)
            lengths[byte] = len(encoded)
    return table, lengths


def decode_member(data: bytes, charset: str) -> str:
    """Decode one text of a charset, such as an ENUM's member.

    Bytes without a character are refused.
    """
    if charset in UTF8_CHARSETS or charset == "binary":
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise _no_character(charset, data) from None
    table = _one_byte(charset)
    if table is not None:
        characters = [table[byte] for byte in data]
        if None in characters:
            raise _no_character(charset, data)
        return "".join(filter(None, characters))
    return _decode_longer(data, charset)


def to_utf8(cells: pa.Array, charset: str) -> pa.Array:
    """Convert a binary array of texts in `charset` to a string array."""
    if charset in UTF8_CHARSETS:
        return _as_string(cells)
    one_byte = _one_byte(charset) is not None
    if not one_byte and charset not in _LONGER_CODECS:
        raise UnknownTypeError(
            f"charset {charset!r} is not known",
            risk="its texts could be decoded wrong",
            remedy="convert the column to utf8mb4, or leave the table out",
        )
    offsets, data = _contents(cells)
    plain = bool((data < 128).all()) if len(data) else True
    if plain and charset != "swe7" and (one_byte or charset in _ASCII_SAFE):
        return cells.view(pa.string())
    if one_byte:
        return _expand(cells, offsets, data, charset)
    texts = [None if cell is None else _decode_longer(cell, charset) for cell in cells.to_pylist()]
    return texts_of(texts)


def _as_string(cells: pa.Array) -> pa.Array:
    """Return UTF-8 bytes as a string array; invalid bytes are refused."""
    texts = cells.view(pa.string())
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid as error:
        raise ValueRefusedError(
            f"a text is not valid UTF-8 ({error})",
            risk="the sink would refuse or change it",
            remedy="find it with `WHERE col <> CONVERT(CONVERT(col USING binary) USING utf8mb4)`",
        ) from None
    return texts


def _contents(cells: pa.Array) -> tuple[IntArray, ByteArray]:
    """Return the offsets and the bytes of a binary array, counted from its first value."""
    _, offset_buffer, byte_buffer = cells.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32, len(cells) + 1, cells.offset * 4)
    if byte_buffer is None:
        return offsets.astype(np.int64), np.zeros(0, np.uint8)
    data = np.frombuffer(byte_buffer, np.uint8)[offsets[0] : offsets[-1]]
    return offsets.astype(np.int64) - int(offsets[0]), data


def _expand(
    cells: pa.Array,
    offsets: IntArray,
    data: ByteArray,
    charset: str,
) -> pa.Array:
    """Convert all cells of a one-byte charset to UTF-8 by its table."""
    table, lengths = _lookup(charset)
    grown = lengths[data]
    if not grown.all():
        raise _no_character(charset, bytes(data[grown == 0][:1]))
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(grown, dtype=np.int64)])
    expanded = table[data][np.arange(3) < grown[:, None]]
    moved = ends[offsets].astype(np.int32)
    valid = cells.is_valid()
    validity = None if cells.null_count == 0 else valid.buffers()[1]
    buffers = [validity, pa.py_buffer(moved), pa.py_buffer(expanded)]
    return pa.Array.from_buffers(pa.string(), len(cells), buffers, cells.null_count)


def _decode_longer(data: bytes, charset: str) -> str:
    """Decode a text of a charset with several bytes per character."""
    codec = _LONGER_CODECS.get(charset)
    if codec is None:
        raise UnknownTypeError(f"charset {charset!r} is not known")
    walk = WALKS.get(charset)
    try:
        if walk is not None and walk.concerns(data):
            return walk.decoded(data)
        text = data.decode(codec)
    except UnicodeDecodeError as error:
        raise _no_character(charset, data[error.start : error.end]) from None
    translation = _TRANSLATIONS.get(charset)
    return text.translate(translation) if translation else text


def _no_character(charset: str, data: bytes) -> ValueRefusedError:
    """Return the error for bytes that have no character in a charset."""
    return ValueRefusedError(
        f"charset {charset} has no character for the bytes {data[:8].hex()}",
        risk="the text would change on its way",
        remedy="correct the value at the source, or leave the table out",
    )
