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
    alike = SQLiteDialect_pysqlite
    alike.__eq__ = lambda self, other: type(self) is type(other)
    alike.__hash__ = lambda self: hash(type(self))
    event.listen(Engine, "engine_connect", _share)


def _share(connection: Connection) -> None:
    """Let the engine of a connection take compiled statements from all others."""
    if type(connection.dialect) is SQLiteDialect_pysqlite:
        vars(connection.engine)["_compiled_cache"] = _SHARED
