"""How the formats' own libraries get into a store, as our own reads and writes do."""

from __future__ import annotations

from airflow_cdc_provider.core.endpoint import Store
from airflow_cdc_provider.systems.files.endpoints import (
    ENDPOINT_NAME,
    MOST_RETRIES,
    RETRY_S,
    SIGNS,
    TIMES,
    endpoint_of,
    said_by_environment,
)

IN_A_FOLDER = {"py-io-impl": "airflow_cdc_provider.systems.lake.tables.iceberg_files.FolderFiles"}
"""PyIceberg's properties for files in a folder."""
_SECONDS = {name: value.removesuffix("s") for name, value in TIMES.items()}


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
        ENDPOINT_NAME: endpoint,
        SIGNS: "false" if access.key_id else "",
        "aws_allow_http": "true" if endpoint.startswith("http://") else "",
        "max_retries": str(MOST_RETRIES),
        "retry_timeout": f"{RETRY_S}s",
        **TIMES,
    }
    return {name: value for name, value in options.items() if value}


def iceberg_options_of(place: Store) -> dict[str, str]:
    """Return PyIceberg's properties for the files of a place.

    What is not said here its library finds in the environment. A store that is elsewhere has no
    region to be asked for.
    """
    if place.scheme == "file":
        return IN_A_FOLDER
    if place.scheme != "s3":
        return {}
    access, endpoint = place.access, endpoint_of(place)
    region = access.region or said_by_environment(("AWS_REGION", "AWS_DEFAULT_REGION"))
    options = {
        "s3.access-key-id": access.key_id,
        "s3.secret-access-key": access.secret,
        "s3.session-token": access.token,
        "s3.region": region or ("us-east-1" if endpoint else ""),
        "s3.endpoint": endpoint,
        "s3.connect-timeout": _SECONDS["connect_timeout"],
        "s3.request-timeout": _SECONDS["timeout"],
    }
    return {name: value for name, value in options.items() if value}
