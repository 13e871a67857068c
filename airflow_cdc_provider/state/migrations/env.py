"""What alembic runs: the migrations, on the connection that `state.migrate` hands over."""

from __future__ import annotations

from alembic import context

from airflow_cdc_provider.state.tables import VERSION_TABLE, metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
)
with context.begin_transaction():
    context.run_migrations()
