"""The options that say which server knows the tables of a lake, as a person writes them."""

from __future__ import annotations

import os
from collections.abc import Mapping

from airflow_cdc_provider.core.catalog_access import CatalogAccess
from airflow_cdc_provider.systems.changelog.reads.ranges import refused

CATALOG_OPTIONS = ("catalogType", "catalogName", "catalogDsn", "catalogDsnEnv")
PROPERTY = "catalog."
"""What begins so is a setting by Iceberg's own name: `catalog.warehouse`."""
_TYPES = ("sql", "rest", "glue")
_NAME = "lake"
"""A catalog's name in its database if the pipeline file says no other."""


def catalog_of(options: Mapping[str, str]) -> CatalogAccess | None:
    """Read which catalog is meant; None if nothing is said. No value is repeated in an error."""
    kind = options.get("catalogType", "").strip().lower()
    properties = {
        name.removeprefix(PROPERTY): value
        for name, value in options.items()
        if name.startswith(PROPERTY)
    }
    given = sorted({*CATALOG_OPTIONS} & options.keys()) + sorted(properties)
    if not given:
        return None
    if kind not in _TYPES:
        raise refused(
            f"catalogType is none of {', '.join(_TYPES)}" if kind else "there is no catalogType",
            remedy="give the type of the pipeline file's sink.catalog; a lake in a folder without "
            "that section needs none of these options",
        )
    dsn = _dsn(options)
    if (kind == "glue") == bool(dsn):
        raise refused(
            "Glue is entered with the key of the store, not by a DSN"
            if dsn
            else f"there is no DSN of the catalog of type {kind}",
            remedy="leave it out"
            if dsn
            else "name the environment variable that has it by catalogDsnEnv, on the driver's "
            "machine; or give catalogDsn",
        )
    name = options.get("catalogName", "").strip() or _NAME
    return CatalogAccess(kind, name, dsn, tuple(sorted(properties.items())))


def _dsn(options: Mapping[str, str]) -> str:
    """Return the DSN, which may be in an environment variable; empty if there is none."""
    dsn, named = options.get("catalogDsn", "").strip(), options.get("catalogDsnEnv", "").strip()
    if dsn and named:
        raise refused("catalogDsn and catalogDsnEnv are two DSNs", remedy="leave one of them out")
    if named and not os.environ.get(named):
        raise refused(
            f"catalogDsnEnv: the environment variable {named} is not set where the driver runs",
            remedy="set it before Spark begins, or give catalogDsn",
        )
    return os.environ[named] if named else dsn
