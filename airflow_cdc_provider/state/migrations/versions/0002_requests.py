"""Requests: what is asked of a pipeline that has rows."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def _name(length: int) -> sa.types.TypeEngine[str]:
    exact = mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
    return sa.String(length).with_variant(exact, "mysql", "mariadb")


def _long_text() -> sa.types.TypeEngine[str]:
    long = mysql.LONGTEXT(charset="utf8mb4", collation="utf8mb4_bin")
    return sa.Text().with_variant(long, "mysql", "mariadb")


def upgrade() -> None:
    """Create the table of requests."""
    op.create_table(
        "cdc_request",
        sa.Column("pipeline", _name(63), primary_key=True),
        sa.Column("request_id", _name(64), primary_key=True),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("scope", _long_text(), nullable=False),
        sa.Column("arguments", sa.String(64), nullable=False),
        sa.Column("asked_by", sa.String(255), nullable=False),
        sa.Column("asked_us", sa.BigInteger, nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("cancel_wanted", sa.Boolean, nullable=False),
        sa.Column("estimated_rows", sa.BigInteger),
        sa.Column("split_count", sa.BigInteger, nullable=False),
        sa.Column("row_count", sa.BigInteger, nullable=False),
        sa.Column("tables_done", sa.BigInteger, nullable=False),
        sa.Column("position", _long_text()),
        sa.Column("error", _long_text(), nullable=False),
        sa.Column("changed_us", sa.BigInteger, nullable=False),
        mysql_engine="InnoDB",
        mysql_charset="utf8mb4",
    )
