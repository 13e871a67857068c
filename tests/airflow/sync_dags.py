"""DAGs as Airflow's database has them."""

from __future__ import annotations

from typing import Any

from airflow.sdk import conf
from sqlalchemy import create_engine, text


def stored(sql: str) -> list[Any]:
    """Ask Airflow's own database."""
    engine = create_engine(conf.get("database", "sql_alchemy_conn"))
    try:
        with engine.connect() as connection:
            return list(connection.execute(text(sql)))
    finally:
        engine.dispose()
