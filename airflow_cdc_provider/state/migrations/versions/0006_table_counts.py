"""How many rows of each table the stream has changed, and how many of them today."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_COUNTS = (
    *("day_us", "changed_us", "inserts", "updates", "deletes"),
    *("inserts_before", "updates_before", "deletes_before"),
)


def _name(length: int) -> sa.types.TypeEngine[str]:
    exact = mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
    return sa.String(length).with_variant(exact, "mysql", "mariadb")


def upgrade() -> None:
    """Create the table of counts."""
    op.create_table(
        "cdc_table_count",
        sa.Column("pipeline", _name(63), primary_key=True),
        sa.Column("source_table", _name(257), primary_key=True),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in _COUNTS),
        mysql_engine="InnoDB",
        mysql_charset="utf8mb4",
    )
