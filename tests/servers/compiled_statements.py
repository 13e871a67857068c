"""SQL statements compiled once for all SQLite files of a test session, not once for each.

SQLAlchemy keeps compiled statements with each engine. A program opens one or two; a session of
tests opens thousands of state stores, each a file of its own.
"""

from __future__ import annotations

from sqlalchemy import Connection, Engine, event
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.util import LRUCache

_SHARED: LRUCache[object, object] = LRUCache(2_000)


def share_compiled_statements() -> None:
    """Let all SQLite engines of this process share their statements, from their next use on."""
    for name, method in {"__eq__": _is_alike, "__hash__": _hash_of_kind}.items():
        setattr(SQLiteDialect_pysqlite, name, method)
    event.listen(Engine, "engine_connect", _share)


def _is_alike(one: object, other: object) -> bool:
    return type(one) is type(other)


def _hash_of_kind(one: object) -> int:
    return hash(type(one))


def _share(connection: Connection) -> None:
    """Let the engine of a connection take compiled statements from all others."""
    if type(connection.dialect) is SQLiteDialect_pysqlite:
        vars(connection.engine)["_compiled_cache"] = _SHARED
