"""Changes of parts of a JSON document, as MySQL logs them with `PARTIAL_JSON`.

A diff is an operation, a path as text (`$.a."b c"[3]`, `$[last-1]`) and, but for a removal, a
value in binary JSON. Diffs are applied one after the other, each to what the ones before it left:
- replace: the value at the path, which must be there; `$` is the whole document;
- insert: a member that is not there yet, or an array's element, moving those behind it; a place
  behind the end is the end;
- remove: what is at the path, which must be there.
`[0]` and `[last]` of what is no array are that value itself, as in the server's own paths.
A diff that does not fit its document means that the two do not belong together: an error.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import IntEnum

from airflow_cdc_provider.core.errors import RESET, CorruptLogError, UnknownEventError
from airflow_cdc_provider.systems.mysql.binlog.events.byte_reader import ByteReader
from airflow_cdc_provider.systems.mysql.binlog.json.json_tree import Node, read_tree, write_tree


class _Operation(IntEnum):
    """What a partial JSON update does at a path."""

    REPLACE = 0
    INSERT = 1
    REMOVE = 2


@dataclass(frozen=True, slots=True)
class _Cell:
    """A step of a JSON path to an array's element, counted from its start or end."""

    number: int
    from_end: bool = False

    def index(self, length: int) -> int:
        """Return the element's index in an array of this length; it may be out of range."""
        return length - 1 - self.number if self.from_end else self.number


_Leg = bytes | _Cell
"""A step of a path: an object's key or an array's element."""

_Step = tuple[list[Node], int] | tuple[dict[bytes, Node], bytes]
"""A container on a path, and the member or index taken in it."""

_LEG = re.compile(r'\.("(?:[^"\\]|\\.)*"|[^."\[\]]+)|\[(?:(\d+)|last(?:-(\d+))?)\]', re.DOTALL)


def changed_document(document: bytes, diffs: bytes) -> bytes:
    """Return a binary JSON document with a sequence of partial updates applied."""
    reader = ByteReader(diffs)
    if not reader.left:
        return document  # logged in part, and not changed at all
    tree = read_tree(document)
    while reader.left:
        code = reader.number(1)
        if code not in set(_Operation):
            raise UnknownEventError(
                f"a part of a JSON document is changed by operation {code}, which is not known",
                risk="the document would be another one",
                remedy="SET GLOBAL binlog_row_value_options = ''",
            )
        legs = _legs(reader.counted())
        match _Operation(code):
            case _Operation.REPLACE:
                tree = _replaced(tree, legs, read_tree(reader.counted()))
            case _Operation.INSERT:
                _insert(tree, legs, read_tree(reader.counted()))
            case _Operation.REMOVE:
                _remove(tree, legs)
    return write_tree(tree)


def _legs(data: bytes) -> list[_Leg]:
    """Decode a JSON path into its steps."""
    try:
        return _read_legs(data.decode())
    except ValueError as error:
        raise _misfit(f"its path is no text ({error})") from None


def _read_legs(path: str) -> list[_Leg]:
    """Parse the text of a JSON path into its steps."""
    legs: list[_Leg] = []
    offset = 1
    while offset < len(path):
        match = _LEG.match(path, offset)
        if match is None:
            raise _misfit(f"the path ends at its character {offset}")
        offset = match.end()
        name, number, behind = match.groups()
        if name is not None:
            legs.append((json.loads(name, strict=False) if name[0] == '"' else name).encode())
        else:
            legs.append(_Cell(int(number or behind or 0), from_end=number is None))
    if path[:1] != "$":
        raise _misfit("its path does not begin at the document")
    return legs


def _follow(tree: Node, legs: list[_Leg]) -> tuple[_Step | None, Node]:
    """Follow a JSON path; return its last step and the value there.

    The step is None for the whole document.
    """
    step: _Step | None = None
    node = tree
    for leg in legs:
        if isinstance(leg, bytes):
            if not isinstance(node, dict) or leg not in node:
                raise _misfit("a member of its path is missing")
            step, node = (node, leg), node[leg]
            continue
        length = len(node) if isinstance(node, list) else 1
        index = leg.index(length)
        if not 0 <= index < length:
            raise _misfit("an element of its path is missing")
        if isinstance(node, list):
            step, node = (node, index), node[index]
    return step, node


def _replaced(tree: Node, legs: list[_Leg], value: Node) -> Node:
    """Replace the value at a JSON path, and return the tree."""
    step, _ = _follow(tree, legs)
    match step:
        case (list() as holder, int(index)):
            holder[index] = value
        case (dict() as holder, bytes(key)):
            holder[key] = value
        case _:
            return value
    return tree


def _insert(tree: Node, legs: list[_Leg], value: Node) -> None:
    """Insert a value at a JSON path into the tree."""
    if not legs:
        raise _misfit("it inserts a whole document")
    _, holder = _follow(tree, legs[:-1])
    match holder, legs[-1]:
        case (list(), _Cell() as cell):
            holder.insert(max(cell.index(len(holder)), 0), value)
        case (dict(), bytes(key)) if key not in holder:
            holder[key] = value
        case _:
            raise _misfit("there is no room for what it inserts")


def _remove(tree: Node, legs: list[_Leg]) -> None:
    """Remove the value at a JSON path from the tree."""
    step, _ = _follow(tree, legs)
    match step:
        case (list() as holder, int(index)):
            del holder[index]
        case (dict() as holder, bytes(key)):
            del holder[key]
        case _:
            raise _misfit("it removes the whole document")


def _misfit(why: str) -> CorruptLogError:
    """Return the error for a partial update that does not fit its JSON document."""
    return CorruptLogError(
        f"a logged change of a JSON document does not fit the document: {why}",
        risk="the document would become another one",
        remedy=f"SET GLOBAL binlog_row_value_options = '', and {RESET}",
    )
