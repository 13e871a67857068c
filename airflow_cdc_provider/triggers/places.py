"""Where a pipeline's state is, as a trigger remembers it: never how to get in."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

from airflow.sdk import BaseHook

from airflow_cdc_provider.core.errors import RefusedError
from airflow_cdc_provider.hooks.dsn import dsn_of
from airflow_cdc_provider.hooks.steps import CdcSteps


def place_of_state(steps: CdcSteps) -> dict[str, str]:
    """Return where the state store is, as a connection's or variable's name, without the DSN."""
    state, file = steps.run.model.state, steps.run.servers.default_state
    if state is None:
        return {"path": str(file)}
    if state.conn_id is not None:
        return {"conn_id": state.conn_id}
    return {"dsn_env": state.dsn_env or ""}


async def dsn_of_state(place: Mapping[str, str]) -> str:
    """Return the DSN of a state store, as found by the triggerer."""
    if path := place.get("path"):
        return f"sqlite:///{path}"
    if variable := place.get("dsn_env"):
        if dsn := os.environ.get(variable):
            return dsn
        raise RefusedError(
            f"the environment variable {variable} is not set",
            where="environment of the triggerer",
            risk="none: the pipeline goes on, but nobody watches it",
            remedy="set it for the triggerer too, or use a connection",
        )
    connection = await BaseHook.aget_connection(place["conn_id"])
    return dsn_of(connection, await connection.aextra_dejson())


def now_us() -> int:
    """Return the current time in microseconds since the epoch."""
    return time.time_ns() // 1000
