"""Samples: lag, changes and rows read, over the last day."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def _name(length: int) -> sa.types.TypeEngine[str]:
    exact = mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
    return sa.String(length).with_variant(exact, "mysql", "mariadb")


def upgrade() -> None:
    """Create the table of samples, and the index that counts tables by phase."""
    op.create_table(
        "cdc_sample",
        sa.Column("pipeline", _name(63), primary_key=True),
        sa.Column("step_s", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("at_us", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("lag_us", sa.BigInteger),
        sa.Column("changes", sa.BigInteger),
        sa.Column("rows_read", sa.BigInteger, nullable=False),
        mysql_engine="InnoDB",
        mysql_charset="utf8mb4",
    )
    op.create_index("cdc_table_by_phase", "cdc_table", ["pipeline", "phase"])
