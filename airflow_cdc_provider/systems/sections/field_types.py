"""Types of fields that the sections of all systems have."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator

from airflow_cdc_provider.core.table_patterns import Route, TablePattern
from airflow_cdc_provider.core.wrong_value import WrongValueError

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
    if "://" in path:
        raise WrongValueError(
            "only a file system can create a file if and only if it is absent",
            "write a folder on a local file system or on NFS, as in /data/changes",
        )
    if not path.startswith("/") or not path.strip("/") or {".", ".."} & set(path.split("/")):
        raise WrongValueError(
            "this is no absolute path of a folder", "write it from the root, as in /data/changes"
        )
    return path.rstrip("/")


Pattern = Annotated[str, BeforeValidator(_pattern)]
Routes = Annotated[dict[str, str], BeforeValidator(_route)]
EnvironmentName = Annotated[str, BeforeValidator(_environment_name)]
ConnectionId = Annotated[str, BeforeValidator(_connection_id)]
FolderPath = Annotated[str, BeforeValidator(_folder_path)]
