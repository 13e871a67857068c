"""Alembic's scripts for the state store; run by `state.migrate`."""
