"""MySQL's binary JSON as a tree that can be changed, and back.

A scalar stays as it is stored: its type byte and its bytes, so nothing is lost of values that
JSON has no name for. What is written uses the large format only; the text of a document does not
depend on that. An object's keys are written in the server's order: by length, then by bytes.
"""

from __future__ import annotations

import struct
from typing import TypeAlias

from airflow_cdc_provider.systems.mysql.binlog.events.byte_reader import UNREADABLE
from airflow_cdc_provider.systems.mysql.binlog.json.json_text import (
    DOUBLE,
    INTEGERS,
    LARGE_ARRAY,
    LARGE_OBJECT,
    LITERAL,
    OPAQUE,
    SMALL_OBJECT,
    STRING,
    Document,
    broken_document,
    container_parts,
    copied,
    read_length,
    taken,
    unknown_kind,
)

Node: TypeAlias = "bytes | list[Node] | dict[bytes, Node]"
"""A scalar, an array or an object."""

_NULL = bytes([LITERAL, 0])
_INLINE = frozenset({LITERAL, 5, 6, 7, 8})
"""Scalars of up to four bytes: they stand in their offset's place."""


def read_tree(document: bytes) -> Node:
    """Read a binary JSON document as a tree; empty bytes are null."""
    if not document:
        return _NULL
    try:
        return _node(document[0], Document.of(document), 1)
    except UNREADABLE as error:
        raise broken_document(error) from None


def _node(kind: int, data: Document, offset: int) -> Node:
    """Read a JSON value at an offset as a node of the tree."""
    if kind > LARGE_ARRAY:
        # Small scalars may stand in an offset's place, which counts as read already.
        take = copied if kind in _INLINE else taken
        return bytes([kind]) + take(data, offset, _scalar_end(kind, data, offset))
    keys, parts = container_parts(kind, data, offset)
    values = [_node(child, data, at) for child, at in parts]
    if kind in {SMALL_OBJECT, LARGE_OBJECT}:
        return dict(zip(keys, values, strict=True))
    return values


def _scalar_end(kind: int, data: bytes, offset: int) -> int:
    """Return the offset after a scalar JSON value."""
    if kind == LITERAL:
        return offset + 1
    if kind in INTEGERS:
        return offset + struct.calcsize(INTEGERS[kind])
    if kind == DOUBLE:
        return offset + 8
    if kind in {STRING, OPAQUE}:
        length, start = read_length(data, offset + (kind == OPAQUE))
        return start + length
    raise unknown_kind(kind)


def write_tree(node: Node) -> bytes:
    """Return a JSON tree as a binary document that the server could have stored."""
    if isinstance(node, bytes):
        return node
    kind, body = _container(node)
    return bytes([kind]) + body


def _container(node: list[Node] | dict[bytes, Node]) -> tuple[int, bytes]:
    """Return the type and the binary form of a JSON object or array."""
    if isinstance(node, dict):
        kind = LARGE_OBJECT
        keys = sorted(node, key=lambda key: (len(key), key))
        values = [node[key] for key in keys]
    else:
        kind, keys, values = LARGE_ARRAY, [], node
    offset = 8 + 6 * len(keys) + 5 * len(values)
    head, bodies = bytearray(), [*keys]
    for key in keys:
        head += struct.pack("<IH", offset, len(key))
        offset += len(key)
    for value in values:
        child, body = (value[0], value[1:]) if isinstance(value, bytes) else _container(value)
        if child in _INLINE:
            head += bytes([child]) + body.ljust(4, b"\0")
            continue
        head += struct.pack("<BI", child, offset)
        offset += len(body)
        bodies.append(body)
    return kind, struct.pack("<II", len(values), offset) + bytes(head) + b"".join(bodies)
