"""The client of a bucket, by its place: who says how to get in, and how long it waits."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from obstore.exceptions import BaseError
from obstore.store import S3Store, from_url

from airflow_cdc_provider.core.endpoint import Store
from airflow_cdc_provider.core.errors import NOTHING_STARTED, RefusedError
from airflow_cdc_provider.systems.files.bucket_errors import short
from airflow_cdc_provider.systems.files.endpoints import (
    ENDPOINT_NAME,
    MOST_RETRIES,
    RETRY_S,
    SIGNS,
    TIMES,
    endpoint_of,
)

if TYPE_CHECKING:
    from obstore.store import ObjectStore as Client

_RETRIES: Mapping[str, Any] = {
    "max_retries": MOST_RETRIES,
    "retry_timeout": timedelta(seconds=RETRY_S),
}


def client_of(place: Store) -> Client:
    """Return the client of a place; no server is asked yet."""
    return _client_of(place, os.getpid())


@lru_cache(maxsize=32)
def _client_of(place: Store, process: int) -> Client:  # noqa: ARG001 - a fork needs its own
    """Return the client of a place in one process."""
    access = place.access
    given: dict[str, Any] = {}
    if access.key_id:
        key = {
            "access_key_id": access.key_id,
            "secret_access_key": access.secret,
            "token": access.token or None,
            "expires_at": None,
        }
        given["credential_provider"] = lambda: key
    is_plain = endpoint_of(place).startswith("http://")
    given["client_options"] = {**TIMES, "allow_http": is_plain}
    try:
        if place.scheme != "s3":
            return from_url(place.uri, retry_config=cast(Any, _RETRIES), **given)
        prefix = place.path.strip("/")
        config = {
            "aws_region": access.region,
            ENDPOINT_NAME: access.endpoint_url,
            SIGNS: "false" if access.key_id else "",
        }
        said: Any = {name: value for name, value in config.items() if value}
        return S3Store(
            place.bucket,
            prefix=prefix or None,
            config=said,
            retry_config=cast(Any, _RETRIES),
            **given,
        )
    except (BaseError, ValueError) as error:
        raise RefusedError(
            f"the store cannot be opened: {short(error)}",
            where=str(place),
            risk=NOTHING_STARTED,
            remedy="correct the connection, or the environment that says how to get in",
        ) from None
