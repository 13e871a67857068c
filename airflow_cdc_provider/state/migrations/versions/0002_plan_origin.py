"""What a plan was made from, so that a file changed since is noticed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def _long_text() -> sa.types.TypeEngine[str]:
    long = mysql.LONGTEXT(charset="utf8mb4", collation="utf8mb4_bin")
    return sa.Text().with_variant(long, "mysql", "mariadb")


def upgrade() -> None:
    """Add the table; plans made before have no row in it."""
    exact = mysql.VARCHAR(63, charset="utf8mb4", collation="utf8mb4_bin")
    op.create_table(
        "cdc_plan",
        sa.Column(
            "pipeline", sa.String(63).with_variant(exact, "mysql", "mariadb"), primary_key=True
        ),
        sa.Column("origin", _long_text(), nullable=False),
        sa.Column("not_copied", _long_text(), nullable=False),
        mysql_engine="InnoDB",
        mysql_charset="utf8mb4",
    )
