"""What others were told of each table's changes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def _name(length: int) -> sa.types.TypeEngine[str]:
    exact = mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
    return sa.String(length).with_variant(exact, "mysql", "mariadb")


def _long_text() -> sa.types.TypeEngine[str]:
    long = mysql.LONGTEXT(charset="utf8mb4", collation="utf8mb4_bin")
    return sa.Text().with_variant(long, "mysql", "mariadb")


def upgrade() -> None:
    """Create the table of what was told."""
    op.create_table(
        "cdc_told_table",
        sa.Column("pipeline", _name(63), primary_key=True),
        sa.Column("source_table", _name(257), primary_key=True),
        sa.Column("changes", sa.BigInteger, nullable=False),
        sa.Column("position", _long_text(), nullable=False),
        sa.Column("since", sa.BigInteger),
        sa.Column("told_by", sa.String(255), nullable=False),
        sa.Column("told_us", sa.BigInteger, nullable=False),
        mysql_engine="InnoDB",
        mysql_charset="utf8mb4",
    )
