"""MySQL's binary JSON becomes the text that the server itself would print.

The format: a type byte, then the value. Objects and arrays hold counts, sizes and offsets of 2
bytes (small) or 4 bytes (large); scalars that fit an offset's place stand in its place. Object
keys come in the order of the server: by length, then by bytes. The text has a blank behind each
comma and colon, numbers print as the server prints them, and values JSON has no name for (dates,
decimals, bits, bytes) print as their canonical text or as `base64:type<n>:...`.
Source: MySQL 9.7 source documentation, "json_binary".
"""

from __future__ import annotations

import base64
import json
import struct
from decimal import Decimal

from airflow_cdc_provider.core.errors import CorruptLogError, UnknownTypeError
from airflow_cdc_provider.systems.mysql.binlog.events.byte_reader import UNREADABLE
from airflow_cdc_provider.systems.mysql.binlog.remedies import CHECK_LOG
from airflow_cdc_provider.systems.mysql.binlog.rows.wire_types import decimal_bytes

SMALL_OBJECT, LARGE_OBJECT, SMALL_ARRAY, LARGE_ARRAY, LITERAL = range(5)
INTEGERS = {0x05: "<h", 0x06: "<H", 0x07: "<i", 0x08: "<I", 0x09: "<q", 0x0A: "<Q"}
DOUBLE, STRING, OPAQUE = 0x0B, 0x0C, 0x0F
_LITERALS = {0: "null", 1: "true", 2: "false"}
_DATE, _TIME, _DATETIME, _TIMESTAMP, _DECIMAL = 10, 11, 12, 7, 246
_PLAIN_DIGITS = 15
_LENGTH_BYTES = 5
_DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)


class Document(bytes):
    """A binary JSON document that limits how many bytes are read of it.

    No two values of a document share bytes. So reading more than there is means that offsets lead
    back: values that hold themselves, or one value at many offsets, whose text would have no end.
    """

    left: int

    @classmethod
    def of(cls, data: bytes) -> Document:
        """Return a document of which nothing has been read."""
        document = cls(data)
        document.left = len(data)
        return document

    def spend(self, size: int) -> None:
        """Count bytes as read; an error once they are more than the document has."""
        self.left -= size
        if self.left < 0:
            raise IndexError("its values lie in each other")


def broken_document(error: Exception) -> CorruptLogError:
    """Return the error for a JSON document that cannot be read."""
    return CorruptLogError(
        f"a JSON value is not whole ({error})",
        risk="the document would change on its way",
        remedy=CHECK_LOG,
    )


def json_text(document: bytes) -> str:
    """Return a binary JSON document as the text that the server prints; empty bytes are null."""
    if not document:
        return "null"
    try:
        return _value(document[0], Document.of(document), 1)
    except UNREADABLE as error:
        raise broken_document(error) from None


def _value(kind: int, data: Document, offset: int) -> str:
    """Return a JSON value at an offset as text."""
    if kind <= LARGE_ARRAY:
        return _container(kind, data, offset)
    if kind == LITERAL:
        return _LITERALS[data[offset]]
    if kind in INTEGERS:
        return str(struct.unpack_from(INTEGERS[kind], data, offset)[0])
    if kind == DOUBLE:
        return double_text(struct.unpack_from("<d", data, offset)[0])
    if kind == STRING:
        return quoted(_counted(data, offset).decode())
    if kind == OPAQUE:
        return _opaque(data[offset], _counted(data, offset + 1))
    raise unknown_kind(kind)


def unknown_kind(kind: int) -> UnknownTypeError:
    """Return the error for a JSON type byte that no server documents."""
    return UnknownTypeError(
        f"JSON holds a value of type {kind}, which is not known",
        risk="the document would change on its way",
        remedy="report it with the server's version",
    )


def _container(kind: int, data: Document, base: int) -> str:
    """Return a JSON object or array as text."""
    keys, values_at = container_parts(kind, data, base)
    values = [_value(child, data, at) for child, at in values_at]
    if kind in {SMALL_OBJECT, LARGE_OBJECT}:
        names = [quoted(key.decode()) for key in keys]
        pairs = (f"{name}: {value}" for name, value in zip(names, values, strict=True))
        return "{" + ", ".join(pairs) + "}"
    return "[" + ", ".join(values) + "]"


def container_parts(
    kind: int, data: Document, base: int
) -> tuple[list[bytes], list[tuple[int, int]]]:
    """Return the keys of a JSON object (none of an array), and each value's type and offset."""
    large = kind in {LARGE_OBJECT, LARGE_ARRAY}
    width = 4 if large else 2
    offset_form = "<I" if large else "<H"
    count = struct.unpack_from(offset_form, data, base)[0]
    entries = base + 2 * width
    data.spend(2 * width + count * (width + 1))
    keys: list[bytes] = []
    if kind in {SMALL_OBJECT, LARGE_OBJECT}:
        for index in range(count):
            entry = entries + index * (width + 2)
            start = base + struct.unpack_from(offset_form, data, entry)[0]
            length = struct.unpack_from("<H", data, entry + width)[0]
            keys.append(taken(data, start, start + length))
        entries += count * (width + 2)
    values = []
    for index in range(count):
        entry = entries + index * (width + 1)
        child = data[entry]
        if child == LITERAL or child in {5, 6} or (large and child in {7, 8}):
            values.append((child, entry + 1))
        else:
            offset = struct.unpack_from(offset_form, data, entry + 1)[0]
            values.append((child, base + offset))
    return keys, values


def taken(data: Document, start: int, end: int) -> bytes:
    """Copy a part of a JSON document; an error once more is read than the document has."""
    data.spend(end - start)
    return copied(data, start, end)


def copied(data: Document, start: int, end: int) -> bytes:
    """Copy a part of a JSON document; an error if it is beyond the end."""
    if end > len(data):
        raise IndexError(f"{end} bytes were expected of {len(data)}")
    return data[start:end]


def _counted(data: Document, offset: int) -> bytes:
    """Read a JSON string or opaque value after its length."""
    length, start = read_length(data, offset)
    return taken(data, start, start + length)


def read_length(data: bytes, offset: int) -> tuple[int, int]:
    """Read a length of seven bits a byte; return the length and the offset after it."""
    length = 0
    for shift in range(0, 7 * _LENGTH_BYTES, 7):
        byte = data[offset]
        offset += 1
        length |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return length, offset
    raise IndexError(f"a length takes more than {_LENGTH_BYTES} bytes")


def quoted(text: str) -> str:
    """Return a text as a JSON string, escaped as the server does."""
    return json.dumps(text, ensure_ascii=False)


def double_text(number: float) -> str:
    """Return a double as the server prints it: the shortest digits that read back the same.

    It is written out if the point stands among the digits or up to 15 places from them, else with
    an exponent.
    """
    sign, digits, exponent = Decimal(repr(number)).as_tuple()
    text = "".join(map(str, digits)).lstrip("0")
    point = len(text) + int(exponent)  # the value is 0.text times 10 to this power
    text = text.rstrip("0")
    if not text:
        written = "0.0"
    elif not (-_PLAIN_DIGITS < point <= _PLAIN_DIGITS or 0 < point < len(text)):
        mantissa = text[0] + ("." + text[1:] if len(text) > 1 else "")
        written = f"{mantissa}e{point - 1}"
    elif point <= 0:
        written = "0." + "0" * -point + text
    else:
        whole = text[:point].ljust(point, "0")
        written = f"{whole}.{text[point:] or '0'}"
    return "-" + written if sign else written


def _opaque(kind: int, data: bytes) -> str:
    """Return a JSON value of an opaque type (date, decimal, bytes) as text."""
    if kind in {_DATE, _DATETIME, _TIMESTAMP, _TIME}:
        return quoted(_temporal(kind, int.from_bytes(data[:8], "little", signed=True)))
    if kind == _DECIMAL:
        return _decimal(data)
    return quoted(f"base64:type{kind}:{base64.b64encode(data).decode()}")


def _temporal(kind: int, packed: int) -> str:
    """Return a packed date or time in JSON as text."""
    size = abs(packed)
    micro, whole = size & 0xFFFFFF, size >> 24
    if kind == _TIME:
        sign = "-" if packed < 0 else ""
        clock = f"{whole >> 12 & 0x3FF:02d}:{whole >> 6 & 63:02d}:{whole & 63:02d}"
        return f"{sign}{clock}.{micro:06d}"
    date, second = whole >> 17, whole & 0x1FFFF
    months = date >> 5
    text = f"{months // 13:04d}-{months % 13:02d}-{date & 31:02d}"
    if kind == _DATE:
        return text
    return f"{text} {second >> 12:02d}:{second >> 6 & 63:02d}:{second & 63:02d}.{micro:06d}"


def _decimal(data: bytes) -> str:
    """Return a packed decimal in JSON as text."""
    precision, scale = data[0], data[1]
    if scale > precision:
        raise IndexError(f"a decimal has {scale} of {precision} digits behind its point")
    packed = bytearray(data[2 : 2 + decimal_bytes(precision, scale)])
    negative = packed[0] < 0x80
    if negative:
        packed = bytearray(byte ^ 0xFF for byte in packed)
    packed[0] ^= 0x80
    whole = precision - scale
    value, offset = 0, 0
    for digits in (whole % 9, *[9] * (whole // 9), *[9] * (scale // 9), scale % 9):
        width = _DIGIT_BYTES[digits]
        value = value * 10**digits + int.from_bytes(packed[offset : offset + width], "big")
        offset += width
    text = str(value).rjust(scale + 1, "0")
    sign = "-" if negative else ""
    return f"{sign}{text[:-scale]}.{text[-scale:]}" if scale else sign + text
