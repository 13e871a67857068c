"""The state store's tables.

Names are compared byte by byte on every database: MySQL's default collation would take `Orders`
and `orders` for the same table. Positions, splits, reports and schemas are kept in the canonical
JSON of `core.codec`; beside them stand the columns that queries count and sort by. Engine and
charset are the migrations', which make the tables: said here, they would load MySQL's dialect for
every store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    BigInteger,
    BindParameter,
    Boolean,
    Column,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    bindparam,
)
from sqlalchemy.types import TypeDecorator, TypeEngine

if TYPE_CHECKING:
    from sqlalchemy import Dialect

VERSION_TABLE = "cdc_alembic_version"

metadata = MetaData()
NAME: BindParameter[str] = bindparam("name")
"""A pipeline's name, in statements that are put together once."""
_MYSQLS = frozenset({"mysql", "mariadb"})
_EXACTLY: dict[str, Any] = {"charset": "utf8mb4", "collation": "utf8mb4_bin"}


class _Exact(TypeDecorator[str]):
    """A column type for names; compared exactly, also by MySQL."""

    impl = String
    cache_ok = True

    def __init__(self, length: int) -> None:
        super().__init__(length)
        self.length = length

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[str]:
        """Return the column's type for one kind of database."""
        if dialect.name not in _MYSQLS:
            return super().load_dialect_impl(dialect)
        from sqlalchemy.dialects.mysql import VARCHAR  # noqa: PLC0415 - as the class says

        return VARCHAR(self.length, **_EXACTLY)


class _LongText(TypeDecorator[str]):
    """A column type for text of any length."""

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[str]:
        """Return the column's type for one kind of database."""
        if dialect.name not in _MYSQLS:
            return super().load_dialect_impl(dialect)
        from sqlalchemy.dialects.mysql import LONGTEXT  # noqa: PLC0415 - as `_Exact` says

        return LONGTEXT(**_EXACTLY)


def _name(length: int) -> TypeEngine[str]:
    """Return the column type for a name of so many characters."""
    return _Exact(length)


def _long_text() -> TypeEngine[str]:
    """Return the column type for text of any length."""
    return _LongText()


def _counter() -> TypeEngine[int]:
    """Return the column type for a number that the database counts up."""
    return BigInteger().with_variant(Integer(), "sqlite")


PIPELINE_LENGTH = 63
TABLE_LENGTH = 257
"""Two names of 64 characters, each dot doubled, and the dot between them."""
REQUEST_ID_LENGTH = 64

pipelines = Table(
    "cdc_pipeline",
    metadata,
    Column("name", _name(PIPELINE_LENGTH), primary_key=True),
    Column("wanted", String(16), nullable=False),
    Column("phase", String(16), nullable=False),
    Column("generation", BigInteger, nullable=False),
    Column("plan_id", String(64), nullable=False),
    Column("owner", String(255), nullable=False),
    Column("lease_until_us", BigInteger, nullable=False),
    Column("error", _long_text(), nullable=False),
    Column("updated_us", BigInteger, nullable=False),
)

plans = Table(
    "cdc_plan",
    metadata,
    Column("pipeline", _name(PIPELINE_LENGTH), primary_key=True),
    Column("origin", _long_text(), nullable=False),
    Column("not_copied", _long_text(), nullable=False),
)

tables = Table(
    "cdc_table",
    metadata,
    Column("pipeline", _name(PIPELINE_LENGTH), primary_key=True),
    Column("source_table", _name(TABLE_LENGTH), primary_key=True),
    Column("plan", _long_text(), nullable=False),
    Column("fingerprint", String(16), nullable=False),
    Column("phase", String(16), nullable=False),
    Column("planning_done", Boolean, nullable=False),
    Column("error", _long_text(), nullable=False),
    Column("updated_us", BigInteger, nullable=False),
    Index("cdc_table_by_phase", "pipeline", "phase"),
)

splits = Table(
    "cdc_split",
    metadata,
    Column("pipeline", _name(PIPELINE_LENGTH), primary_key=True),
    Column("source_table", _name(TABLE_LENGTH), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("split", _long_text(), nullable=False),
    Column("status", String(16), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("report", _long_text()),
    Column("row_count", BigInteger, nullable=False),
    Column("byte_count", BigInteger, nullable=False),
    Column("started_us", BigInteger, nullable=False),
    Column("finished_us", BigInteger, nullable=False),
    Column("error", _long_text(), nullable=False),
)

hand_offs = Table(
    "cdc_hand_off",
    metadata,
    Column("pipeline", _name(PIPELINE_LENGTH), primary_key=True),
    Column("generation", BigInteger, nullable=False),
    Column("stream", _long_text(), nullable=False),
    Column("stored_us", BigInteger, nullable=False),
)

streams = Table(
    "cdc_stream",
    metadata,
    Column("pipeline", _name(PIPELINE_LENGTH), primary_key=True),
    Column("generation", BigInteger, nullable=False),
    Column("position", _long_text(), nullable=False),
    Column("source_end", _long_text()),
    Column("batch", BigInteger, nullable=False),
    Column("changes", BigInteger, nullable=False),
    Column("transactions", BigInteger, nullable=False),
    Column("lag_us", BigInteger),
    Column("heartbeat_us", BigInteger, nullable=False),
    Column("inconsistent", _long_text(), nullable=False),
)

schemas = Table(
    "cdc_schema_history",
    metadata,
    Column("pipeline", _name(PIPELINE_LENGTH), primary_key=True),
    Column("source_table", _name(TABLE_LENGTH), primary_key=True),
    Column("fingerprint", String(16), primary_key=True),
    Column("definition", _long_text(), nullable=False),
    Column("first_seen_us", BigInteger, nullable=False),
)

events = Table(
    "cdc_event",
    metadata,
    Column("id", _counter(), primary_key=True, autoincrement=True),
    Column("pipeline", _name(PIPELINE_LENGTH), nullable=False),
    Column("at_us", BigInteger, nullable=False),
    Column("level", String(16), nullable=False),
    Column("text", _long_text(), nullable=False),
    Index("cdc_event_by_pipeline", "pipeline", "id"),
)

requests = Table(
    "cdc_request",
    metadata,
    Column("pipeline", _name(PIPELINE_LENGTH), primary_key=True),
    Column("request_id", _name(REQUEST_ID_LENGTH), primary_key=True),
    Column("kind", String(16), nullable=False),
    Column("scope", _long_text(), nullable=False),
    Column("arguments", String(64), nullable=False),
    Column("asked_by", String(255), nullable=False),
    Column("asked_us", BigInteger, nullable=False),
    Column("status", String(16), nullable=False),
    Column("cancel_wanted", Boolean, nullable=False),
    Column("estimated_rows", BigInteger),
    Column("split_count", BigInteger, nullable=False),
    Column("row_count", BigInteger, nullable=False),
    Column("left_count", BigInteger, nullable=False, server_default="0"),
    Column("tables_done", BigInteger, nullable=False),
    Column("position", _long_text()),
    Column("error", _long_text(), nullable=False),
    Column("changed_us", BigInteger, nullable=False),
)

samples = Table(
    "cdc_sample",
    metadata,
    Column("pipeline", _name(PIPELINE_LENGTH), primary_key=True),
    Column("step_s", Integer, primary_key=True, autoincrement=False),
    Column("at_us", BigInteger, primary_key=True, autoincrement=False),
    Column("lag_us", BigInteger),
    Column("changes", BigInteger),
    Column("rows_read", BigInteger, nullable=False),
)

table_counts = Table(
    "cdc_table_count",
    metadata,
    Column("pipeline", _name(PIPELINE_LENGTH), primary_key=True),
    Column("source_table", _name(TABLE_LENGTH), primary_key=True),
    *(
        Column(name, BigInteger, nullable=False)
        for name in (
            *("day_us", "changed_us", "inserts", "updates", "deletes"),
            *("inserts_before", "updates_before", "deletes_before"),
        )
    ),
)

told_tables = Table(
    "cdc_told_table",
    metadata,
    Column("pipeline", _name(PIPELINE_LENGTH), primary_key=True),
    Column("source_table", _name(TABLE_LENGTH), primary_key=True),
    Column("changes", BigInteger, nullable=False),
    Column("position", _long_text(), nullable=False),
    Column("since", BigInteger),
    Column("told_by", String(255), nullable=False),
    Column("told_us", BigInteger, nullable=False),
)

notes = Table(
    "cdc_note",
    metadata,
    Column("pipeline", _name(PIPELINE_LENGTH), primary_key=True),
    Column("kind", String(16), primary_key=True),
    Column("at_us", BigInteger, nullable=False),
    Column("form", _long_text(), nullable=False),
)

OF_A_PLAN = (plans, tables, splits, hand_offs, streams, told_tables, table_counts)
"""What a new plan replaces."""
EVERYTHING = (*OF_A_PLAN, schemas, events, requests, samples, notes)
"""What is kept of a pipeline beside its own row."""
