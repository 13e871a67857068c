"""How many rows a request on an edge of a topology has left as its sink's node had changed them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the count to requests; those of before have left none."""
    op.add_column(
        "cdc_request", sa.Column("left_count", sa.BigInteger, nullable=False, server_default="0")
    )
