"""Types of fields that the sections of all systems have."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator

from airflow_cdc_provider.core.endpoint import STORE_SCHEMES
from airflow_cdc_provider.core.table_patterns import Route, TablePattern
from airflow_cdc_provider.core.wrong_value import WrongValueError

_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]*")
_KEY_PART = re.compile(r"[A-Za-z0-9_=~-][A-Za-z0-9._=~-]*")
_ENVIRONMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _pattern(value: Any) -> Any:
    """Check a table pattern and return its canonical text."""
    return str(TablePattern.parse(value)) if isinstance(value, str) else value


def _route(value: Any) -> Any:
    """Check the entries of `sink.route`."""
    if isinstance(value, dict) and all(isinstance(target, str) for target in value.values()):
        for source, target in value.items():
            Route.parse(source, target)
    return value


def _environment_name(value: Any) -> Any:
    """Check the name of an environment variable."""
    if isinstance(value, str) and not _ENVIRONMENT_NAME.fullmatch(value):
        # the value is not repeated: someone may have written the DSN itself here
        raise WrongValueError(
            "this is not the name of an environment variable",
            "write the variable's name, as in SHOP_DSN, and keep the DSN out of the file",
        )
    return value


def _connection_id(value: Any) -> Any:
    """Check the id of an Airflow connection."""
    if isinstance(value, str) and (not value or "://" in value):
        raise WrongValueError(
            "this is not the id of a connection",
            "write the connection's id, as in shop_mysql, and keep the DSN out of the file",
        )
    return value


def _folder_path(value: Any) -> Any:
    """Check the absolute path of a folder, and return it without a slash at the end."""
    if not isinstance(value, str):
        return value
    path = value.removeprefix("file://")
    if not path.startswith("/") or not path.strip("/") or {".", ".."} & set(path.split("/")):
        raise WrongValueError(
            "this is no absolute path of a folder", "write it from the root, as in /data/changes"
        )
    return path.rstrip("/")


def _files_path(value: Any) -> Any:
    """Check the place of files: the absolute path of a folder, or the URI of a store."""
    if not isinstance(value, str) or "://" not in value or value.startswith("file://"):
        return _folder_path(value)
    scheme, _, rest = value.partition("://")
    bucket, *parts = rest.rstrip("/").split("/")
    if scheme not in STORE_SCHEMES:
        raise WrongValueError(
            f"no store has a URI that begins with {scheme}://",
            "write a folder, as in /data/changes, or a store, as in s3://bucket/changes",
        )
    if not _BUCKET.fullmatch(bucket) or not all(map(_KEY_PART.fullmatch, parts)):
        # the value is not repeated: someone may have written a key into it
        raise WrongValueError(
            "this is no URI of a bucket and a prefix",
            "write it as s3://bucket/changes, of letters, digits and -._=~ alone; the key comes "
            "by conn_id, dsn_env or the environment",
        )
    return value.rstrip("/")


Pattern = Annotated[str, BeforeValidator(_pattern)]
Routes = Annotated[dict[str, str], BeforeValidator(_route)]
EnvironmentName = Annotated[str, BeforeValidator(_environment_name)]
ConnectionId = Annotated[str, BeforeValidator(_connection_id)]
FilesPath = Annotated[str, BeforeValidator(_files_path)]
