"""How the formats' own libraries get into a store, as our own reads and writes do."""

from __future__ import annotations

from airflow_cdc_provider.core.endpoint import Store
from airflow_cdc_provider.systems.files.endpoints import (
    MOST_RETRIES,
    RETRY_S,
    TIMES,
    endpoint_of,
)


def options_of(place: Store) -> dict[str, str] | None:
    """Return delta-rs's options for a place; None for a folder.

    What is not said here its library finds in the environment, by the same names.
    """
    if place.scheme == "file":
        return None
    access, endpoint = place.access, endpoint_of(place)
    options = {
        "aws_access_key_id": access.key_id,
        "aws_secret_access_key": access.secret,
        "aws_session_token": access.token,
        "aws_region": access.region,
        "aws_endpoint_url": endpoint,
        "aws_allow_http": "true" if endpoint.startswith("http://") else "",
        "max_retries": str(MOST_RETRIES),
        "retry_timeout": f"{RETRY_S}s",
        **TIMES,
    }
    return {name: value for name, value in options.items() if value}
