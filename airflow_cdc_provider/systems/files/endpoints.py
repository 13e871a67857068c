"""Where a store is, if it is not where its maker has it, and how long it is waited for."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from airflow_cdc_provider.core.endpoint import Store

TIMES: Mapping[str, str] = {"connect_timeout": "5s", "timeout": "60s"}
"""Of one request."""
MOST_RETRIES, RETRY_S = 4, 60
ENDPOINT_NAME = "aws_endpoint_url_s3"
"""As the libraries call it; by another of its names the environment would be asked first."""
SIGNS = "aws_skip_signature"
"""As they call it whether requests are signed: `false` where there is a key, whatever is said."""
_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")


def endpoint_of(place: Store) -> str:
    """Return the endpoint of S3, by the connection or else by the environment; empty for its own.

    Other stores have none here.
    """
    if place.scheme != "s3":
        return ""
    return place.access.endpoint_url or said_by_environment(_VARIABLES)


def said_by_environment(names: Iterable[str]) -> str:
    """Return the first of these variables that says anything; empty for none."""
    said = (os.environ.get(name) for name in names)
    return next((each for each in said if each), "")
