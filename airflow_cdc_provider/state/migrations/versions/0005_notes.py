"""What is noted of a pipeline: how far the source's log reaches, what preflight found."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def _name(length: int) -> sa.types.TypeEngine[str]:
    exact = mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
    return sa.String(length).with_variant(exact, "mysql", "mariadb")


def _long_text() -> sa.types.TypeEngine[str]:
    long = mysql.LONGTEXT(charset="utf8mb4", collation="utf8mb4_bin")
    return sa.Text().with_variant(long, "mysql", "mariadb")


def upgrade() -> None:
    """Create the table of notes."""
    op.create_table(
        "cdc_note",
        sa.Column("pipeline", _name(63), primary_key=True),
        sa.Column("kind", sa.String(16), primary_key=True),
        sa.Column("at_us", sa.BigInteger, nullable=False),
        sa.Column("form", _long_text(), nullable=False),
        mysql_engine="InnoDB",
        mysql_charset="utf8mb4",
    )
