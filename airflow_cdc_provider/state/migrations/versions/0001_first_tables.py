"""The first tables: pipelines, their plans, splits, hand-off, stream, schemas and events."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql, sqlite

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_OPTIONS: dict[str, Any] = {"mysql_engine": "InnoDB", "mysql_charset": "utf8mb4"}


def _name(length: int) -> sa.types.TypeEngine[str]:
    exact = mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
    return sa.String(length).with_variant(exact, "mysql", "mariadb")


def _long_text() -> sa.types.TypeEngine[str]:
    long = mysql.LONGTEXT(charset="utf8mb4", collation="utf8mb4_bin")
    return sa.Text().with_variant(long, "mysql", "mariadb")


def _texts(*names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, _long_text(), nullable=False) for name in names]


def _words(*names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, sa.String(16), nullable=False) for name in names]


def _numbers(*names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, sa.BigInteger, nullable=False) for name in names]


def _key(*, table: bool = False) -> list[sa.Column[Any]]:
    columns = [sa.Column("pipeline", _name(63), primary_key=True)]
    if table:
        columns.append(sa.Column("source_table", _name(257), primary_key=True))
    return columns


def upgrade() -> None:
    """Create all tables."""
    op.create_table(
        "cdc_pipeline",
        sa.Column("name", _name(63), primary_key=True),
        *_words("wanted", "phase"),
        *_numbers("generation"),
        sa.Column("plan_id", sa.String(64), nullable=False),
        sa.Column("owner", sa.String(255), nullable=False),
        *_numbers("lease_until_us"),
        *_texts("error"),
        *_numbers("updated_us"),
        **_OPTIONS,
    )
    op.create_table(
        "cdc_table",
        *_key(table=True),
        *_texts("plan"),
        *_words("fingerprint", "phase"),
        sa.Column("planning_done", sa.Boolean, nullable=False),
        *_texts("error"),
        *_numbers("updated_us"),
        **_OPTIONS,
    )
    op.create_table(
        "cdc_split",
        *_key(table=True),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        *_texts("split"),
        *_words("status"),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("report", _long_text()),
        *_numbers("row_count", "byte_count", "started_us", "finished_us"),
        *_texts("error"),
        **_OPTIONS,
    )
    op.create_table("cdc_plan", *_key(), *_texts("origin", "not_copied"), **_OPTIONS)
    op.create_table(
        "cdc_hand_off",
        *_key(),
        *_numbers("generation"),
        *_texts("stream"),
        *_numbers("stored_us"),
        **_OPTIONS,
    )
    op.create_table(
        "cdc_stream",
        *_key(),
        *_numbers("generation"),
        *_texts("position"),
        sa.Column("source_end", _long_text()),
        *_numbers("batch", "changes", "transactions"),
        sa.Column("lag_us", sa.BigInteger),
        *_numbers("heartbeat_us"),
        *_texts("inconsistent"),
        **_OPTIONS,
    )
    op.create_table(
        "cdc_schema_history",
        *_key(table=True),
        sa.Column("fingerprint", sa.String(16), primary_key=True),
        *_texts("definition"),
        *_numbers("first_seen_us"),
        **_OPTIONS,
    )
    _create_events()


def _create_events() -> None:
    counter = sa.BigInteger().with_variant(sqlite.INTEGER(), "sqlite")
    op.create_table(
        "cdc_event",
        sa.Column("id", counter, primary_key=True, autoincrement=True),
        sa.Column("pipeline", _name(63), nullable=False),
        *_numbers("at_us"),
        *_words("level"),
        *_texts("text"),
        **_OPTIONS,
    )
    op.create_index("cdc_event_by_pipeline", "cdc_event", ["pipeline", "id"])
